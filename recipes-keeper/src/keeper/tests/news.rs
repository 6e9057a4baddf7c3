//! Who is told of a node, and what the session knows after it.

use futures::FutureExt;
use recipes_core::NodeStat;
use tokio::time::{Instant, advance};

use super::*;
use crate::wire::Watched;

const SECOND: Duration = Duration::from_secs(1);

fn node() -> Said {
    Said::Node(vec![7], NodeStat::new(40, 50, 0, 5, 0))
}

fn watched(number: u64, name: &str) -> Watched {
    Watched {
        number,
        name: name.to_owned(),
        data: vec![7],
        stat: NodeStat::new(60, 61, 0, 5, 0),
    }
}

fn unwatch(path: &str) -> Asked {
    Asked::Unwatch(path.to_owned())
}

#[tokio::test(start_paused = true)]
async fn node_whose_deletion_was_told_is_not_the_session_s_any_more() {
    for (event, is_gone) in [
        (NodeEvent::Deleted, true),
        (NodeEvent::DeletedAsFirst, true),
        (NodeEvent::Changed, false),
    ] {
        let mut scene = Scene::open(APART).await;
        let nodes = Arc::clone(&scene.nodes);
        scene.makes("/a/x-", "/a/x-1").await;
        let watched = nodes.watch("/a/x-1");
        let call = scene.requests().await;
        let [Asked::Watch(path, number)] = &*call.asked else {
            panic!("{call:?}")
        };
        let (path, number) = (path.clone(), *number);
        call.answer([node()]);
        let (_, _, news) = watched.await.unwrap().unwrap();
        let shared = scene.shared();
        assert_eq!(shared.seen(), 50);
        let [rewatch] = &*shared.watches.confirmed() else {
            panic!("it is to be set again")
        };
        assert_eq!((&rewatch.path, rewatch.number), (&path, number));
        shared.watches.fire(1, &path, number, event);
        assert_eq!(news.await, event);
        assert!(scene.is_quiet().await, "the server has forgotten the watch");
        scene.runs("two");
        scene.lose(1);
        let (_, reply) = scene.resume().await;
        let nodes = vec![path.clone()];
        goes_on_with(
            reply,
            Resumed {
                nodes,
                ..Resumed::default()
            },
        );
        match scene.heard().await {
            Some(Heard::Requests(undo)) if is_gone => assert_eq!(*undo.asked, [delete(&path)]),
            Some(Heard::Started(..)) if !is_gone => {}
            other => panic!("{event:?}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_somebody_knows_to_be_gone_is_not_the_session_s_any_more() {
    let mut scene = Scene::open(APART).await;
    scene.makes("/a/x-", "/a/x-1").await;
    scene.nodes.gone("/a/x-1");
    scene.runs("two");
    scene.lose(1);
    let (_, reply) = scene.resume().await;
    let nodes = vec!["/a/x-1".to_owned()];
    goes_on_with(
        reply,
        Resumed {
            nodes,
            ..Resumed::default()
        },
    );
    assert_eq!(*scene.requests().await.asked, [delete("/a/x-1")]);
}

#[tokio::test(start_paused = true)]
async fn server_forgets_a_watch_when_the_last_on_its_node_is_dropped() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let mut all = Vec::new();
    for _ in 0..2 {
        let watched = nodes.watch("/a");
        scene.requests().await.answer([node()]);
        all.push(watched.await.unwrap().unwrap().2);
    }
    drop(all.pop());
    assert!(scene.is_quiet().await);
    drop(all);
    assert_eq!(*scene.requests().await.asked, [unwatch("/a")]);
    assert!(scene.shared().watches.last_on("/a").is_none());
}

#[tokio::test(start_paused = true)]
async fn watches_that_came_with_a_listing_are_taken_or_given_up_after_a_second() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let entered = nodes.list_entered(&["/a"]);
    let again = nodes.list_again("/a", "x");
    let call = scene.requests().await;
    let look = |own: Option<&str>, first| Asked::Look {
        directory: "/a".to_owned(),
        own: own.map(ToOwned::to_owned),
        first,
    };
    // Each may bring three.
    assert_eq!(*call.asked, [look(None, 1), look(Some("x"), 4)]);
    let all = ["x", "y", "z"].map(ToOwned::to_owned).to_vec();
    let watches = [(1, "x"), (2, "y"), (3, "z")];
    let watches = watches.map(|(number, name)| watched(number, name));
    let listing = Said::Names(all.clone(), watches.to_vec());
    call.answer([listing, Said::Names(all.clone(), Vec::new())]);
    assert_eq!(entered.await.unwrap()[0].as_ref().unwrap(), &all);
    assert_eq!(scene.seen(), 61);
    again.await.unwrap();
    // It needs no request.
    let (data, _, mut news) = nodes.watch("/a/x").await.unwrap().unwrap();
    assert_eq!(data, [7]);
    assert!(scene.is_quiet().await);
    advance(Duration::from_millis(900)).await;
    assert!(scene.is_quiet().await);
    let looked = Instant::now();
    let mut given_up = scene.requests().await.asked.to_vec();
    assert!(looked.elapsed() < SECOND);
    given_up.sort_by_key(|it| format!("{it:?}"));
    assert_eq!(given_up, [unwatch("/a/y"), unwatch("/a/z")]);
    let shared = scene.shared();
    assert!(shared.watches.last_on("/a/x").is_some() && shared.watches.last_on("/a/y").is_none());
    assert!((&mut news).now_or_never().is_none());
    shared.watches.fire(1, "/a/x", 1, NodeEvent::Changed);
    assert_eq!(news.await, NodeEvent::Changed);
}

#[tokio::test(start_paused = true)]
async fn empty_transaction_asks_nothing_and_a_read_is_remembered() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    assert!(nodes.multi(Vec::new()).await.unwrap().is_empty());
    let read = nodes.read("/a");
    scene.requests().await.answer([node()]);
    assert_eq!(read.await.unwrap().unwrap().0, [7]);
    assert_eq!(scene.seen(), 50);
    advance(SECOND).await;
    assert!(scene.is_quiet().await);
}

/// Whoever waits for a deletion that nobody tells waits for ever.
#[tokio::test(start_paused = true)]
async fn watch_is_set_again_also_if_its_answer_was_not_looked_at_before_the_connection_was_lost() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let watched = nodes.watch("/a");
    scene.requests().await.answer([node()]);
    assert!(scene.is_quiet().await);
    scene.lose(1);
    let (resume, reply) = scene.resume().await;
    let paths: Vec<_> = resume.watches.iter().map(|it| &*it.path).collect();
    assert_eq!(paths, ["/a"]);
    goes_on_with(
        reply,
        Resumed {
            news: vec![Some(NodeEvent::Deleted)],
            ..Resumed::default()
        },
    );
    scene.started().await;
    let (_, _, news) = watched.await.unwrap().unwrap();
    assert_eq!(news.await, NodeEvent::Deleted);
}
