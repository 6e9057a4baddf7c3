use super::*;

#[tokio::test(start_paused = true)]
async fn first_answer_to_a_release_says_who_deleted_the_node() {
    type Case = (Result<(), NodesError>, fn(&Deleted) -> bool);
    let cases: [Case; 4] = [
        (Ok(()), |it| matches!(it, Deleted::ByUs)),
        (Err(NodesError::NoNode), |it| {
            matches!(it, Deleted::BySomebody)
        }),
        (Err(NodesError::NoAuth), |it| {
            matches!(it, Deleted::Refused(_))
        }),
        (Err(NodesError::SessionEnded), |it| {
            matches!(it, Deleted::WithSession)
        }),
    ];
    for (answer, is_it) in cases {
        let stage = Stage::new().await;
        let mut deletion = cleanup(&stage).deletion("/a/1", &stage.epoch);
        deletion.send(&stage.epoch);
        deleting(&stage, "/a/1").await.send(answer).unwrap();
        let ended = deletion.finish(stage.epoch.deadline()).await.unwrap();
        assert!(is_it(&ended), "{ended:?}");
        // A store that has not ended the session yet may still have it.
        let asks_again = matches!(ended, Deleted::WithSession);
        let log = stage.log().await;
        assert_eq!(log.len(), usize::from(asks_again), "{log:?}");
        assert!(log.iter().all(|it| it == "delete /a/1"), "{log:?}");
    }
}

/// If it were free earlier, two nodes could have it, and whoever looks for one would find the other.
#[tokio::test(start_paused = true)]
async fn uuid_is_free_once_the_store_says_that_its_node_is_gone() {
    let uuid = Uuid::from_u128(7);
    let path = format!("/a/{}lock-1", node_name::protection(uuid));
    for is_awaited in [true, false] {
        for (answer, is_free) in [
            (Ok(()), true),
            (Err(NodesError::NoNode), true),
            (Err(NodesError::NoAuth), false),
            (Err(NodesError::SessionEnded), false),
            (Err(unknown()), false),
        ] {
            let stage = Stage::new().await;
            let free = || stage.epoch.free_uuids.take("/a");
            let mut deletion = cleanup(&stage).deletion(&path, &stage.epoch);
            deletion.send(&stage.epoch);
            let deleting = deleting(&stage, &path).await;
            let _awaited = is_awaited.then_some(deletion).map(|deletion| {
                let deadline = stage.epoch.deadline();
                tokio::spawn(async move { deletion.finish(deadline).await })
            });
            settle().await;
            assert_eq!(free(), None);
            deleting.send(answer.clone()).unwrap();
            settle().await;
            let expected = is_free.then_some(uuid);
            assert_eq!(free(), expected, "{answer:?}, awaited: {is_awaited}");
            assert_eq!(free(), None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn release_without_an_answer_goes_on_behind_its_deadline() {
    let stage = Stage::new().await;
    let mut deletion = cleanup(&stage).deletion("/a/1", &stage.epoch);
    deletion.send(&stage.epoch);
    let unanswered = deleting(&stage, "/a/1").await;
    let ended = deletion.finish(Instant::now() + 10 * MILLI).await;
    assert!(ended.is_none());
    unanswered.send(Err(unknown())).unwrap();
    deleting(&stage, "/a/1").await.send(Ok(())).unwrap();
    cleanup(&stage).drained().await;
}

#[tokio::test(start_paused = true)]
async fn release_whose_answer_was_lost_is_asked_for_again() {
    let stage = Stage::new().await;
    let mut deletion = cleanup(&stage).deletion("/a/1", &stage.epoch);
    deletion.send(&stage.epoch);
    let lost = Err(unknown());
    deleting(&stage, "/a/1").await.send(lost).unwrap();
    let mut ended = std::pin::pin!(deletion.finish(stage.epoch.deadline()));
    assert!(poll!(ended.as_mut()).is_pending());
    let gone = Err(NodesError::NoNode);
    deleting(&stage, "/a/1").await.send(gone).unwrap();
    settle().await;
    let ended = poll!(ended.as_mut());
    assert!(
        matches!(ended, Poll::Ready(Some(Deleted::ByUs))),
        "{ended:?}"
    );
    assert!(stage.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deletion_that_is_dropped_or_was_never_sent_is_seen_to() {
    let stage = Stage::new().await;
    drop(cleanup(&stage).deletion("/a/1", &stage.epoch));
    deleting(&stage, "/a/1").await.send(Ok(())).unwrap();
    let mut deletion = cleanup(&stage).deletion("/a/2", &stage.epoch);
    deletion.send(&stage.epoch);
    drop(deletion);
    let lost = Err(unknown());
    deleting(&stage, "/a/2").await.send(lost).unwrap();
    deleting(&stage, "/a/2").await.send(Ok(())).unwrap();
    cleanup(&stage).drained().await;
    assert!(stage.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn releases_behind_one_that_has_no_answer_share_a_transaction() {
    let stage = Stage::new().await;
    let deletion = |path: &str| {
        let mut deletion = cleanup(&stage).deletion(path, &stage.epoch);
        Deletion::share(vec![(&mut deletion, &stage.epoch)]);
        deletion.finish(stage.epoch.deadline())
    };
    let first = tokio::spawn(deletion("/a/1"));
    let others = ["/a/2", "/a/3"].map(|path| tokio::spawn(deletion(path)));
    let alone = deleting(&stage, "/a/1").await;
    let (count, together) = deleting_together(&stage).await;
    assert_eq!(count, 2);
    together.send(Err(failed(NodesError::NoNode))).unwrap();
    // Deleted one by one, each gets its own outcome.
    let gone = Err(NodesError::NoNode);
    deleting(&stage, "/a/2").await.send(gone).unwrap();
    deleting(&stage, "/a/3").await.send(Ok(())).unwrap();
    let [second, third] = others;
    assert!(matches!(second.await.unwrap(), Some(Deleted::BySomebody)));
    assert!(matches!(third.await.unwrap(), Some(Deleted::ByUs)));
    alone.send(Ok(())).unwrap();
    assert!(matches!(first.await.unwrap(), Some(Deleted::ByUs)));
    // The next release has a request of its own again.
    let next = tokio::spawn(deletion("/a/4"));
    deleting(&stage, "/a/4").await.send(Ok(())).unwrap();
    assert!(matches!(next.await.unwrap(), Some(Deleted::ByUs)));
}

#[tokio::test(start_paused = true)]
async fn group_of_unknown_outcome_is_pursued() {
    let stage = Stage::new().await;
    let deletion = |path: &str| {
        let mut deletion = cleanup(&stage).deletion(path, &stage.epoch);
        Deletion::share(vec![(&mut deletion, &stage.epoch)]);
        deletion.finish(stage.epoch.deadline())
    };
    let _first = tokio::spawn(deletion("/a/1"));
    let _unanswered = deleting(&stage, "/a/1").await;
    let others = ["/a/2", "/a/3"].map(|path| tokio::spawn(deletion(path)));
    let (_, together) = deleting_together(&stage).await;
    together.send(Err(failed(unknown()))).unwrap();
    for path in ["/a/2", "/a/3"] {
        let gone = Err(NodesError::NoNode);
        deleting(&stage, path).await.send(gone).unwrap();
    }
    for other in others {
        // The transaction deleted it, and its answer was lost.
        assert!(matches!(other.await.unwrap(), Some(Deleted::ByUs)));
    }
}

#[tokio::test(start_paused = true)]
async fn group_is_of_one_session_and_leaves_when_it_is_full_or_has_room_to() {
    let (pending, target) = (Pending::default(), Arc::new(Doomed::Nodes(paths(["/a/1"]))));
    let job = |made_in| Job {
        target: Arc::clone(&target),
        made_in,
        tried: Tried::Nothing,
        done: None,
        free: FreeUuids::default(),
        _pending: pending.list(&target, made_in),
        gauge: None,
    };
    let left = |made_in: &[u64], only_full| {
        let mut waiting: VecDeque<_> = made_in.iter().map(|it| job(*it)).collect();
        let group = Batch::take(&mut waiting, only_full);
        group.map(|_| waiting.len())
    };
    assert_eq!(left(&[], false), None);
    assert_eq!(left(&[1, 1], false), Some(0));
    assert_eq!(left(&[1, 1], true), None, "more may come");
    assert_eq!(left(&[1; 40], true), Some(8));
    assert_eq!(left(&[1; 32], true), Some(0));
    // Nodes of the next session are not deleted with those of the one before.
    assert_eq!(left(&[1, 1, 2], false), Some(1));
    assert_eq!(left(&[1, 1, 2], true), Some(1));
}

/// A server refuses what is too large.
#[tokio::test(start_paused = true)]
async fn group_has_no_more_than_16_kib_of_paths_or_one_that_is_longer() {
    let pending = Pending::default();
    let left = |lengths: &[usize]| {
        let job = |length: &usize| {
            let target = Arc::new(Doomed::Nodes(vec!["x".repeat(*length)]));
            Job {
                _pending: pending.list(&target, 1),
                target,
                made_in: 1,
                tried: Tried::Nothing,
                done: None,
                free: FreeUuids::default(),
                gauge: None,
            }
        };
        let mut waiting: VecDeque<_> = lengths.iter().map(job).collect();
        let group = Batch::take(&mut waiting, true);
        group.map(|_| waiting.len())
    };
    let most = 16 * 1024;
    assert_eq!(left(&[most / 2, most / 2, 1]), Some(1));
    assert_eq!(left(&[most / 2, most / 2 + 1, 1]), Some(2));
    assert_eq!(left(&[most + 1, 1]), Some(1));
}

/// Releases `path` as one of those that may leave together.
fn shared(stage: &Stage, path: &str) -> impl Future<Output = Option<Deleted>> + use<> {
    let mut deletion = cleanup(stage).deletion(path, &stage.epoch);
    Deletion::share(vec![(&mut deletion, &stage.epoch)]);
    deletion.finish(stage.epoch.deadline())
}

#[tokio::test(start_paused = true)]
async fn each_of_a_group_is_told_that_it_is_deleted() {
    let stage = Stage::new().await;
    let _first = tokio::spawn(shared(&stage, "/a/1"));
    let _unanswered = deleting(&stage, "/a/1").await;
    let others = ["/a/2", "/a/3"].map(|path| tokio::spawn(shared(&stage, path)));
    let (_, together) = deleting_together(&stage).await;
    together.send(Ok(Vec::new())).unwrap();
    settle().await;
    assert!(stage.nodes.asked().is_none());
    for other in others {
        let told = other.await.unwrap();
        assert!(matches!(told, Some(Deleted::ByUs)), "{told:?}");
    }
}

/// Two that are released later than their session ended.
#[tokio::test(start_paused = true)]
async fn group_of_a_session_that_is_over_is_not_deleted_as_of_the_next() {
    let (stage, next) = Stage::with_next().await;
    expire(&stage).await;
    let mut deletions = ["/a/1", "/a/2"].map(|path| cleanup(&stage).deletion(path, &stage.epoch));
    Deletion::share(deletions.iter_mut().map(|it| (it, &*stage.epoch)).collect());
    for deletion in deletions {
        let told = deletion.finish(Instant::now() + SECOND).await;
        assert!(matches!(told, Some(Deleted::WithSession)), "{told:?}");
    }
    settle().await;
    assert_eq!(next.log(), ["list /a"]);
}

/// A store that has not ended the session yet would keep the nodes as long as it lives.
#[tokio::test(start_paused = true)]
async fn group_whose_session_ends_is_told_at_once_and_searched_for_in_the_next() {
    let (stage, next) = Stage::with_next().await;
    let _first = tokio::spawn(shared(&stage, "/a/1"));
    let _unanswered = deleting(&stage, "/a/1").await;
    let others = ["/a/2", "/a/3"].map(|path| tokio::spawn(shared(&stage, path)));
    let (_, together) = deleting_together(&stage).await;
    together
        .send(Err(failed(NodesError::SessionEnded)))
        .unwrap();
    for other in others {
        let told = other.await.unwrap();
        assert!(matches!(told, Some(Deleted::WithSession)), "{told:?}");
    }
    expire(&stage).await;
    let mut deleted = Vec::new();
    while let Some(asked) = {
        settle().await;
        next.asked()
    } {
        match asked {
            Asked::List(_, listed) => drop(listed.send(Ok(paths(["2", "3"])))),
            Asked::Multi(operations, answer) => {
                deleted.extend(operations.iter().map(|it| it.path().to_owned()));
                drop(answer.send(Ok(Vec::new())));
            }
            Asked::Delete(path, answer) => {
                deleted.push(path);
                drop(answer.send(Ok(())));
            }
            other => panic!("{other:?}"),
        }
    }
    deleted.sort();
    assert_eq!(deleted, ["/a/2", "/a/3"]);
}

#[tokio::test(start_paused = true)]
async fn one_of_a_group_whose_session_ends_then_is_told_at_once() {
    let stage = Stage::new().await;
    let _first = tokio::spawn(shared(&stage, "/a/1"));
    let _unanswered = deleting(&stage, "/a/1").await;
    let [second, _third] = ["/a/2", "/a/3"].map(|path| tokio::spawn(shared(&stage, path)));
    let (_, together) = deleting_together(&stage).await;
    together.send(Err(failed(NodesError::NoNode))).unwrap();
    let ended = Err(NodesError::SessionEnded);
    deleting(&stage, "/a/2").await.send(ended).unwrap();
    settle().await;
    assert!(second.is_finished());
    assert!(matches!(second.await.unwrap(), Some(Deleted::WithSession)));
}

/// Locks of two sessions are released together. Each node goes by its own session.
#[tokio::test(start_paused = true)]
async fn each_session_deletes_its_own_nodes() {
    let stages = [Stage::new().await, Stage::new().await];
    let [first, second] = &stages;
    let deletion = |stage: &Stage, path| cleanup(stage).deletion(path, &stage.epoch);
    let mut deletions = [
        (deletion(first, "/a/1"), first),
        (deletion(second, "/b/1"), second),
        (deletion(first, "/a/2"), first),
        (deletion(second, "/b/2"), second),
    ];
    let all = deletions.iter_mut();
    Deletion::share(all.map(|(it, stage)| (it, &*stage.epoch)).collect());
    for (stage, expected) in stages.iter().zip([["/a/1", "/a/2"], ["/b/1", "/b/2"]]) {
        let Asked::Multi(operations, _) = stage.asked().await else {
            panic!("not together")
        };
        let paths: Vec<_> = operations.iter().map(NodeOp::path).collect();
        assert_eq!(paths, expected);
        assert!(stage.log().await.is_empty());
    }
}
