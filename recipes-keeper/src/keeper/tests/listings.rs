//! How much leaves at once, and what becomes of it when the session ends.

use super::*;

/// Three listings fit, of the length that is expected first.
const LISTING: Kind = Kind {
    in_flight_max: 8,
    names_max: 3000,
    ..APART
};

fn long(count: usize) -> Said {
    let names = (0..count).map(|it| it.to_string());
    Said::Names(names.collect(), Vec::new())
}

impl Scene {
    /// How many listings leave in the next call.
    async fn lists(&mut self) -> (usize, Requests) {
        let call = self.requests().await;
        assert!(call.asked.iter().all(|it| *it == list("/a")));
        (call.asked.len(), call)
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_names_are_on_their_way_than_the_connection_takes() {
    let mut scene = Scene::open(LISTING).await;
    let nodes = Arc::clone(&scene.nodes);
    let mut asked = vec![nodes.list("/a"), nodes.list("/a")];
    let (count, first) = scene.lists().await;
    assert_eq!(count, 2);
    asked.extend((0..4).map(|_| nodes.list("/a")));
    let (count, second) = scene.lists().await;
    assert_eq!(count, 1, "as much as there is room for");
    // What lists nothing waits behind them: all leaves in order.
    let read = nodes.stat("/b");
    assert!(scene.is_quiet().await);
    // The longest of a call counts, and less than was expected is believed by and by.
    first.answer([long(1500), long(0)]);
    let (count, third) = scene.lists().await;
    assert_eq!(count, 1, "two of these fit");
    second.answer([long(0)]);
    let last = scene.requests().await;
    assert_eq!(
        *last.asked,
        [list("/a"), list("/a"), stat("/b")],
        "four of 750"
    );
    drop(third);
    drop((asked, read));
}

#[tokio::test(start_paused = true)]
async fn listings_of_any_length_leave() {
    let mut scene = Scene::open(LISTING).await;
    let nodes = Arc::clone(&scene.nodes);
    // As many as are expected are never none.
    let counts = [5000, 5000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    for (at, count) in counts.into_iter().enumerate() {
        let asked = [nodes.list("/a"), nodes.list("/a")];
        let (first, call) = scene.lists().await;
        let is_alone = at == 1 || at == 2;
        assert_eq!(first == 1, is_alone, "{at}");
        call.answer((0..first).map(|_| long(count)));
        if is_alone {
            scene.lists().await.1.answer([long(count)]);
        }
        for asked in asked {
            assert_eq!(asked.await.unwrap().len(), count);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn listings_for_contenders_are_such_too_and_other_requests_are_not() {
    let mut scene = Scene::open(LISTING).await;
    let nodes = Arc::clone(&scene.nodes);
    let others = [nodes.stat("/b"), nodes.stat("/b"), nodes.stat("/b")];
    let call = scene.requests().await;
    assert_eq!(call.asked.len(), 3);
    let entered = nodes.list_entered(&["/a"]);
    let one = scene.requests().await;
    assert_eq!(one.asked.len(), 1);
    let listed = nodes.list("/a");
    let more = nodes.list_entered(&["/a", "/b"]);
    let two = scene.requests().await;
    assert_eq!(two.asked.len(), 2, "as much as there is room for");
    assert!(scene.is_quiet().await);
    drop((others, entered, listed, more, call, one, two));
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_while_more_names_are_on_their_way_than_was_expected() {
    let mut scene = Scene::open(LISTING).await;
    let nodes = Arc::clone(&scene.nodes);
    let first = nodes.list("/a");
    let (_, one) = scene.lists().await;
    let more = [nodes.list("/a"), nodes.list("/a")];
    let (count, two) = scene.lists().await;
    assert_eq!(count, 2);
    one.answer([long(4000)]);
    first.await.unwrap();
    let last = nodes.list("/a");
    assert!(scene.is_quiet().await);
    two.answer([long(4000), long(4000)]);
    assert_eq!(scene.lists().await.0, 1);
    drop((more, last));
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_for_callers_who_are_gone() {
    for kind in [APART, ANYWHERE] {
        let mut scene = Scene::open(kind).await;
        let nodes = Arc::clone(&scene.nodes);
        assert!(scene.is_quiet().await);
        let together = nodes.together();
        drop(nodes.list("/a"));
        drop(together);
        assert!(scene.is_quiet().await);
        let listed = nodes.list("/b");
        assert_eq!(*scene.requests().await.asked, [list("/b")]);
        drop(listed);
    }
}

#[tokio::test(start_paused = true)]
async fn close_sends_all_that_waits_however_much() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    let first = nodes.delete("/a");
    let call = scene.requests().await;
    let rest: Vec<_> = (0..300).map(|_| nodes.delete("/b")).collect();
    let other = Scene::open(TOGETHER).await;
    scene.nodes = Arc::clone(&other.nodes);
    drop(nodes);
    assert!(scene.is_quiet().await, "the keeper knows of it");
    call.answer([deleted()]);
    for count in [128, 128, 44] {
        let call = scene.requests().await;
        assert_eq!(call.asked.len(), count);
        call.answer((0..count).map(|_| deleted()));
    }
    scene.is_closed().await;
    first.await.unwrap();
    for deleted in rest {
        deleted.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn answer_that_the_session_is_over_ends_all_that_belongs_to_it() {
    for kind in [TOGETHER, APART] {
        let mut scene = Scene::open(kind).await;
        let nodes = Arc::clone(&scene.nodes);
        let (_, news) = scene.shared().watches.enter("/w");
        let sent = nodes.list("/a");
        let call = scene.requests().await;
        let waits = nodes.list("/b");
        if kind.beats_apart {
            let synced = nodes.sync("/a");
            let (_, beat) = scene.beat().await;
            drop(beat.send(Ok(false)));
            assert!(matches!(synced.await, Err(NodesError::SessionEnded)));
            // Nobody knows what became of this.
            assert!(matches!(sent.await, Err(NodesError::Unknown(_))));
        } else {
            assert!(call.reply.send(Ok(None)).is_ok());
            assert!(matches!(sent.await, Err(NodesError::SessionEnded)));
        }
        assert!(matches!(waits.await, Err(NodesError::SessionEnded)));
        assert_eq!(news.await, Ok(NodeEvent::SessionEnded));
        for asked in [
            nodes.list("/c").map(drop).boxed(),
            nodes.sync("/c").map(drop).boxed(),
        ] {
            assert!(asked.now_or_never().is_some(), "it is over");
        }
        assert!(matches!(
            nodes.list("/c").await,
            Err(NodesError::SessionEnded)
        ));
        assert!(matches!(
            nodes.sync("/c").await,
            Err(NodesError::SessionEnded)
        ));
        let last = nodes.connection().next().await;
        assert_eq!(last, Some(Connection::Ended(EndReason::Expired)));
        assert!(scene.heard().await.is_none());
    }
}
