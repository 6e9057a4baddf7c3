use std::pin::pin;

use futures::future::join;
use futures::poll;

use super::*;
use crate::names::node_name::LockKind;
use crate::scripted::{Asked, Read, SECOND, Stage, node, node_watch, unknown};

/// A create was sent twice with one name, and both were carried out.
#[tokio::test(start_paused = true)]
async fn search_finds_all_that_creates_of_one_name_have_made() {
    let stage = Stage::new().await;
    let (nodes, lock) = (stage.epoch.nodes().unwrap(), stage.lock("/a", 0));
    let name = |uuid, number: u32| {
        let protection = node_name::protection(Uuid::from_u128(uuid));
        format!("{protection}lock-{number:010}")
    };
    let uuids = [Uuid::from_u128(1)];
    let mut found = pin!(search_directory(&*nodes, &lock, &uuids));
    assert!(poll!(found.as_mut()).is_pending());
    let Asked::List(_, listed) = stage.asked().await else {
        panic!("no list");
    };
    let listing = [name(1, 3), name(2, 2), name(1, 1), name(1, 4)];
    listed.send(Ok(listing.to_vec())).unwrap();
    for found_as in [Some(3), Some(1), None] {
        assert!(poll!(found.as_mut()).is_pending());
        let Asked::Read(_, read) = stage.asked().await else {
            panic!("no read");
        };
        // One node is gone again.
        read.send(Ok(found_as.map(|czxid| node(czxid, b""))))
            .unwrap();
    }
    let found = found.await.unwrap().remove(0);
    let found: Vec<_> = found.into_iter().map(|it| (it.name, it.czxid)).collect();
    assert_eq!(found, [(name(1, 3), 3), (name(1, 1), 1)]);
}

#[tokio::test(start_paused = true)]
async fn node_ahead_is_gone_when_it_was_deleted_and_not_when_the_session_ends() {
    type Case = (NodeEvent, fn(&Result<Event, Refused>) -> bool);
    let cases: [Case; 3] = [
        (
            NodeEvent::Deleted,
            |it| matches!(it, Ok(Event::BlockerGone(0, name)) if name == "n"),
        ),
        (NodeEvent::Changed, |it| {
            matches!(it, Ok(Event::BlockerChanged))
        }),
        (NodeEvent::SessionEnded, |it| {
            let ended = |it: &Refused| matches!(it.source, NodesError::SessionEnded);
            it.as_ref().is_err_and(ended)
        }),
    ];
    for (event, is_it) in cases {
        let stage = Stage::new().await;
        let (nodes, lock) = (stage.epoch.nodes().unwrap(), stage.lock("/a", 0));
        let mut blocker = pin!(blocker(&*nodes, &lock, 0, "n".to_owned()));
        assert!(poll!(blocker.as_mut()).is_pending());
        let Asked::Watch(_, watched) = stage.asked().await else {
            panic!("no watch");
        };
        let ((data, stat), (tell, watch)) = (node(1, b""), node_watch());
        assert!(watched.send(Ok(Some((data, stat, watch)))).is_ok());
        assert!(poll!(blocker.as_mut()).is_pending());
        tell.send(event).unwrap();
        let told = blocker.await;
        assert!(is_it(&told), "{event:?}: {told:?}");
    }
}

/// A session that may not create directories may use existing ones.
#[tokio::test(start_paused = true)]
async fn directory_that_may_not_be_made_is_used_where_it_is_there() {
    type Case = (fn() -> Result<Read, NodesError>, bool);
    let answers: [Case; 3] = [
        (|| Ok(Some(node(1, b""))), true),
        (|| Err(NodesError::NoAuth), true),
        (|| Ok(None), false),
    ];
    for (answer, is_there) in answers {
        let stage = Stage::new().await;
        let (nodes, lock) = (stage.epoch.nodes().unwrap(), stage.lock("/a", 0));
        let target = Target {
            lock,
            kind: LockKind::Mutex,
            beside: None,
            owner: None,
            permits: None,
            data: None,
        };
        let targets = [&target];
        let mut made = pin!(make_parents(&*nodes, &targets));
        assert!(poll!(made.as_mut()).is_pending());
        let Asked::Create(_, created) = stage.asked().await else {
            panic!("no create");
        };
        created.send(Err(NodesError::NoAuth)).unwrap();
        assert!(poll!(made.as_mut()).is_pending());
        let Asked::Read(_, read) = stage.asked().await else {
            panic!("no read");
        };
        read.send(answer()).unwrap();
        let made = made.await;
        assert_eq!(made.is_ok(), is_there, "{made:?}");
    }
}

/// It would refuse the others for as long as the store keeps an empty directory.
#[tokio::test(start_paused = true)]
async fn directory_of_leases_goes_with_the_refusal_if_the_store_answers_late() {
    let asked = async |stage: &Stage| {
        // Longer than the pause before a request is sent again.
        tokio::time::sleep(SECOND).await;
        stage.asked().await
    };
    for (first, is_ours) in [(None, false), (Some(unknown()), true)] {
        let stage = Stage::new().await;
        let (nodes, lock) = (stage.epoch.nodes().unwrap(), stage.lock("/a/leases", 0));
        let target = Target {
            lock,
            kind: LockKind::Permit,
            beside: None,
            owner: None,
            permits: None,
            data: None,
        };
        let targets = [&target];
        let refused = make_parents(&*nodes, &targets);
        let store = async {
            let mut deletions = 0;
            for answer in first.into_iter().chain([NodesError::NodeExists]) {
                let Asked::Create(_, created) = asked(&stage).await else {
                    panic!("no create");
                };
                created.send(Err(answer)).unwrap();
            }
            let Asked::List(_, listed) = asked(&stage).await else {
                panic!("no list");
            };
            let mutex = "_c_00000000-0000-4000-8000-000000000001-lock-0000000001";
            listed.send(Ok(vec![mutex.to_owned()])).unwrap();
            for answer in [Err(NodesError::Throttled), Ok(())] {
                if is_ours {
                    let Asked::Delete(path, deleted) = asked(&stage).await else {
                        panic!("no delete");
                    };
                    assert_eq!(path, "/a/leases");
                    deleted.send(answer).unwrap();
                    deletions += 1;
                }
            }
            deletions
        };
        let (refused, deletions) = join(refused, store).await;
        assert!(
            matches!(refused, Ok(Event::BesideOthers(..))),
            "{refused:?}"
        );
        assert_eq!(deletions, if is_ours { 2 } else { 0 });
        assert!(stage.log().await.is_empty());
    }
}
