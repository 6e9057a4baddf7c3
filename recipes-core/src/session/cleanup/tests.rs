use std::task::Poll;

use futures::poll;
use tokio::time::Instant;

use super::*;
use crate::names::node_name;
use crate::scripted::{Answer, Asked, MILLI, SECOND, Scripted, Stage, failed, settle, unknown};
use crate::store::nodes::{Connection, EndReason, NodeOpDone};

mod releases;
mod searches;

fn paths<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn cleanup(stage: &Stage) -> &Cleanup {
    &stage.session.core().cleanup
}

async fn deleting(stage: &Stage, path: &str) -> Answer<()> {
    match stage.asked().await {
        Asked::Delete(asked, answer) if asked == path => answer,
        other => panic!("{other:?} instead of {path}"),
    }
}

async fn deleting_together(
    stage: &Stage,
) -> (
    usize,
    Answer<Vec<NodeOpDone>, crate::store::nodes::MultiError>,
) {
    match stage.asked().await {
        Asked::Multi(operations, answer) => (operations.len(), answer),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_refused_is_told_and_stops_none_of_the_others() {
    for refused in ["/a/1", "/a/2", "/a/3"] {
        let stage = Stage::new().await;
        let all = paths(["/a/1", "/a/2", "/a/3"]);
        let outcome = cleanup(&stage).delete(Doomed::Nodes(all.clone()), &stage.epoch);
        let (count, together) = deleting_together(&stage).await;
        assert_eq!(count, 3);
        together.send(Err(failed(NodesError::NoAuth))).unwrap();
        for path in &all {
            let answer = match path == refused {
                true => Err(NodesError::NoAuth),
                false => Ok(()),
            };
            deleting(&stage, path).await.send(answer).unwrap();
        }
        let told = outcome.await.unwrap();
        assert!(
            matches!(told, Deleted::Refused(NodesError::NoAuth)),
            "{told:?}"
        );
        assert!(stage.log().await.is_empty(), "refused for good");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_gone_stops_none_of_the_others() {
    let stage = Stage::new().await;
    let all = Doomed::Nodes(paths(["/a/1", "/a/2"]));
    let outcome = cleanup(&stage).delete(all, &stage.epoch);
    let (_, together) = deleting_together(&stage).await;
    together.send(Err(failed(NodesError::NoNode))).unwrap();
    let gone = Err(NodesError::NoNode);
    deleting(&stage, "/a/1").await.send(gone).unwrap();
    deleting(&stage, "/a/2").await.send(Ok(())).unwrap();
    assert!(matches!(outcome.await.unwrap(), Deleted::ByUs));
}

#[tokio::test(start_paused = true)]
async fn one_of_unknown_outcome_is_tried_again_before_the_others() {
    let stage = Stage::new().await;
    let all = Doomed::Nodes(paths(["/a/1", "/a/2"]));
    let mut outcome = cleanup(&stage).delete(all, &stage.epoch);
    let (_, together) = deleting_together(&stage).await;
    together.send(Err(failed(NodesError::NoAuth))).unwrap();
    deleting(&stage, "/a/1").await.send(Err(unknown())).unwrap();
    assert!(stage.log().await.is_empty());
    tokio::time::advance(SECOND).await;
    let (count, _) = deleting_together(&stage).await;
    assert_eq!(count, 2);
    assert!(outcome.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn deletion_of_unknown_outcome_is_tried_again() {
    let stage = Stage::new().await;
    let one = Doomed::Nodes(paths(["/a/1"]));
    let mut outcome = cleanup(&stage).delete(one, &stage.epoch);
    for _ in 0..3 {
        let again = Err(unknown());
        deleting(&stage, "/a/1").await.send(again).unwrap();
        settle().await;
        assert!(outcome.try_recv().is_err());
        // It is tried again after a pause.
        assert!(stage.nodes.asked().is_none());
        tokio::time::advance(SECOND).await;
    }
    let mut drained = std::pin::pin!(cleanup(&stage).drained());
    assert!(poll!(drained.as_mut()).is_pending());
    let gone = Err(NodesError::NoNode);
    deleting(&stage, "/a/1").await.send(gone).unwrap();
    // Perhaps one of our requests deleted it.
    assert!(matches!(outcome.await.unwrap(), Deleted::ByUs));
    drained.await;
}

#[tokio::test(start_paused = true)]
async fn node_goes_with_its_session_while_it_is_deleted() {
    let stage = Stage::new().await;
    let one = Doomed::Nodes(paths(["/a/1"]));
    let outcome = cleanup(&stage).delete(one, &stage.epoch);
    let _unanswered = deleting(&stage, "/a/1").await;
    stage
        .nodes
        .connection_is(Connection::Ended(EndReason::Closed));
    assert!(matches!(outcome.await.unwrap(), Deleted::WithSession));
}

#[tokio::test(start_paused = true)]
async fn node_of_an_unknown_create_is_looked_for_behind_a_commit() {
    let stage = Stage::new().await;
    let uuid = Uuid::from_u128(1);
    let made = || Doomed::MadeWith(vec![("/a".to_owned(), uuid)]);
    let mut outcome = cleanup(&stage).delete(made(), &stage.epoch);
    let protection = node_name::protection(uuid);
    let ours = format!("{protection}lock-0000000001");
    let other = format!(
        "{}lock-0000000002",
        node_name::protection(Uuid::from_u128(2))
    );
    // A server that is cut off cannot commit, whatever it lists.
    let (_, committed) = deleting_together(&stage).await;
    committed.send(Err(failed(unknown()))).unwrap();
    settle().await;
    while let Some(Asked::List(_, listed)) = stage.nodes.asked() {
        drop(listed.send(Ok(Vec::new())));
    }
    settle().await;
    assert!(outcome.try_recv().is_err());
    tokio::time::advance(SECOND).await;
    let (_, committed) = deleting_together(&stage).await;
    committed.send(Ok(vec![NodeOpDone::Checked])).unwrap();
    let Asked::List(_, listed) = stage.asked().await else {
        panic!("no list");
    };
    listed.send(Ok(vec![other, ours.clone()])).unwrap();
    let path = format!("/a/{ours}");
    deleting(&stage, &path).await.send(Ok(())).unwrap();
    assert!(matches!(outcome.await.unwrap(), Deleted::ByUs));

    // Without a directory there is no node.
    let outcome = cleanup(&stage).delete(made(), &stage.epoch);
    let (_, committed) = deleting_together(&stage).await;
    committed.send(Err(failed(NodesError::NoNode))).unwrap();
    let Asked::List(_, listed) = stage.asked().await else {
        panic!("no list");
    };
    listed.send(Err(NodesError::NoNode)).unwrap();
    assert!(matches!(outcome.await.unwrap(), Deleted::ByUs));
}

#[tokio::test(start_paused = true)]
async fn not_more_than_so_many_directories_are_listed_at_a_time() {
    const AT_A_TIME: usize = 256;
    let stage = Stage::new().await;
    let nodes = (0..=AT_A_TIME).map(|it| format!("/{it}/node"));
    let of_old_epoch = Doomed::Nodes(nodes.collect());
    let (job, outcome) =
        cleanup(&stage).job(of_old_epoch, (0, FreeUuids::default()), Tried::Perhaps);
    cleanup(&stage).push(vec![job]);
    for count in [AT_A_TIME, 1] {
        settle().await;
        let asked: Vec<_> = std::iter::from_fn(|| stage.nodes.asked()).collect();
        assert_eq!(asked.len(), count);
        for it in asked {
            let Asked::List(_, listed) = it else {
                panic!("no list");
            };
            listed.send(Ok(Vec::new())).unwrap();
        }
    }
    assert!(matches!(outcome.await.unwrap(), Deleted::WithSession));
}

/// Expires the session and waits for the next one.
async fn expire(stage: &Stage) {
    let expired = Connection::Ended(EndReason::Expired);
    stage.nodes.connection_is(expired);
    settle().await;
    let next = stage.session.core().open_epoch("/").await.unwrap();
    assert_ne!(next.number, stage.epoch.number);
}

/// The ensemble may not have ended the session yet. Another contender may have held the lock by
/// then, so nothing is reported as a regular release.
#[tokio::test(start_paused = true)]
async fn node_that_is_deleted_in_a_later_session_went_with_its_own() {
    let listings = [
        (Ok(&["1", "2"][..]), true),
        (Ok(&["2"][..]), false),
        // A node whose directory may not be listed may still be deletable.
        (Err(NodesError::NoAuth), true),
        (Err(NodesError::NoNode), false),
    ];
    for (listing, is_deleted) in listings {
        let (stage, next) = Stage::with_next().await;
        let one = Doomed::Nodes(paths(["/a/1"]));
        let outcome = cleanup(&stage).delete(one, &stage.epoch);
        let _unanswered = deleting(&stage, "/a/1").await;
        expire(&stage).await;
        tokio::time::advance(SECOND).await;
        settle().await;
        // It is searched for first: blind deletes of thousands of nodes cost a request each.
        let Some(Asked::List(_, listed)) = next.asked() else {
            panic!("no list");
        };
        let names = listing.map(|names| names.iter().map(|it| (*it).to_owned()).collect());
        listed.send(names).unwrap();
        settle().await;
        let asked = next.asked();
        assert_eq!(asked.is_some(), is_deleted, "{asked:?}");
        if let Some(Asked::Delete(path, deleted)) = asked {
            assert_eq!(path, "/a/1");
            deleted.send(Ok(())).unwrap();
        }
        let told = outcome.await.unwrap();
        assert!(matches!(told, Deleted::WithSession), "{told:?}");
        assert_eq!(*crate::sync::lock(&next.gone), ["/a/1"]);
        cleanup(&stage).drained().await;
        assert!(next.log().is_empty());
    }
}

/// The search for a create in `/a` finds its node in this session, and deletes it.
async fn finds_and_deletes(session: &Scripted, uuid: Uuid) {
    let Some(Asked::List(_, listed)) = session.asked() else {
        panic!("no list");
    };
    let ours = format!("{}lock-0000000001", node_name::protection(uuid));
    listed.send(Ok(vec![ours.clone()])).unwrap();
    settle().await;
    let Some(Asked::Delete(path, deleted)) = session.asked() else {
        panic!("no delete");
    };
    assert_eq!(path, format!("/a/{ours}"));
    deleted.send(Ok(())).unwrap();
}

#[tokio::test(start_paused = true)]
async fn create_of_a_session_that_is_over_is_looked_for_without_a_commit() {
    let (stage, next) = Stage::with_next().await;
    let uuid = Uuid::from_u128(1);
    expire(&stage).await;
    let made = Doomed::MadeWith(vec![("/a".to_owned(), uuid)]);
    let outcome = cleanup(&stage).delete(made, &stage.epoch);
    settle().await;
    // It goes with its session, whatever is in flight, so there is no commit.
    finds_and_deletes(&next, uuid).await;
    assert!(matches!(outcome.await.unwrap(), Deleted::WithSession));
}

/// Its node would stay in the queue for as long as the next session lives, if a store that was down
/// still has it.
#[tokio::test(start_paused = true)]
async fn search_that_outlives_its_session_goes_on_in_the_next() {
    let (stage, next) = Stage::with_next().await;
    let uuid = Uuid::from_u128(1);
    let made = Doomed::MadeWith(vec![("/a".to_owned(), uuid)]);
    let outcome = cleanup(&stage).delete(made, &stage.epoch);
    settle().await;
    assert_eq!(stage.log().await, ["multi of 1", "list /a"]);
    expire(&stage).await;
    settle().await;
    finds_and_deletes(&next, uuid).await;
    assert!(matches!(outcome.await.unwrap(), Deleted::WithSession));
}

/// An outage can leave thousands. A search that deletes some, waits, and deletes some more is behind
/// what is made meanwhile.
#[tokio::test(start_paused = true)]
async fn deletes_of_a_search_are_in_flight_together() {
    let stage = Stage::new().await;
    let uuids: Vec<_> = (0..100).map(Uuid::from_u128).collect();
    for uuid in &uuids {
        let made = Doomed::MadeWith(vec![("/a".to_owned(), *uuid)]);
        drop(cleanup(&stage).delete(made, &stage.epoch));
    }
    let remaining = Remaining {
        nodes: 100,
        first: "/a".to_owned(),
    };
    assert_eq!(cleanup(&stage).remaining(&stage.epoch), Some(remaining));
    // The first search began with the first of them.
    while cleanup(&stage).remaining(&stage.epoch).is_some() {
        settle().await;
        let (mut deletes, mut answers) = (0, Vec::new());
        while let Some(asked) = stage.nodes.asked() {
            match asked {
                Asked::List(_, listed) => {
                    let names = uuids.iter().map(|it| {
                        let protection = node_name::protection(*it);
                        format!("{protection}lock-0000000001")
                    });
                    listed.send(Ok(names.collect())).unwrap();
                }
                Asked::Multi(operations, answer) => {
                    let is_delete = |it: &NodeOp| matches!(it, NodeOp::Delete { .. });
                    deletes += operations.iter().filter(|it| is_delete(it)).count();
                    answers.push(answer);
                }
                Asked::Delete(_, answer) => {
                    deletes += 1;
                    answer.send(Ok(())).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert!([0, 1, 99, 100].contains(&deletes), "{deletes}");
        for answer in answers {
            answer.send(Ok(Vec::new())).unwrap();
        }
    }
}

/// A storm would otherwise list a directory once for each create that was given up.
#[tokio::test(start_paused = true)]
async fn what_comes_during_a_search_shares_the_next() {
    let stage = Stage::new().await;
    let made = |id| Doomed::MadeWith(vec![("/a".to_owned(), Uuid::from_u128(id))]);
    drop(cleanup(&stage).delete(made(1), &stage.epoch));
    assert_eq!(stage.log().await, ["multi of 1", "list /a"]);
    for id in 2..9 {
        drop(cleanup(&stage).delete(made(id), &stage.epoch));
        assert!(stage.log().await.is_empty());
    }
}

/// Answers every request until there is none. All directories list these nodes.
async fn serve_all(stage: &Stage, names: &[String]) -> Vec<String> {
    let mut deleted = Vec::new();
    loop {
        settle().await;
        match stage.nodes.asked() {
            None => return deleted,
            Some(Asked::List(_, listed)) => listed.send(Ok(names.to_vec())).unwrap(),
            Some(Asked::Delete(path, answer)) => {
                deleted.push(path);
                answer.send(Ok(())).unwrap();
            }
            Some(Asked::Multi(operations, answer)) => {
                deleted.extend(operations.iter().filter_map(|it| match it {
                    NodeOp::Delete { path, .. } => Some(path.clone()),
                    _ => None,
                }));
                answer.send(Ok(Vec::new())).unwrap();
            }
            Some(other) => panic!("{other:?}"),
        }
    }
}

/// More directories than are listed together. A node that is left would block its lock for as long
/// as the session lives.
#[tokio::test(start_paused = true)]
async fn every_node_of_unknown_creates_is_found_in_every_directory() {
    let stage = Stage::new().await;
    let uuid = Uuid::from_u128(1);
    let directories: Vec<_> = (0..70).map(|it| format!("/a{it}")).collect();
    let outcomes: Vec<_> = directories
        .iter()
        .cloned()
        .map(|it| cleanup(&stage).delete(Doomed::MadeWith(vec![(it, uuid)]), &stage.epoch))
        .collect();
    // Two nodes: a create was sent again that had been carried out.
    let names = [1, 2].map(|it| format!("{}lock-000000000{it}", node_name::protection(uuid)));
    let mut deleted = serve_all(&stage, &names).await;
    let paths = |directory| names.each_ref().map(|name| format!("{directory}/{name}"));
    let mut all: Vec<_> = directories.iter().flat_map(paths).collect();
    deleted.sort();
    all.sort();
    assert_eq!(deleted, all);
    for outcome in outcomes {
        assert!(matches!(outcome.await.unwrap(), Deleted::ByUs));
    }
}
