//! Attempts that have no room for their watches.

use super::*;
use crate::session::watch_budget::WatchPermit;

/// All that waiters may watch.
const ALL: usize = 40 * 1024;

/// Takes the room of all attempts.
fn take_all(stage: &Stage) -> WatchPermit {
    stage.epoch.lookout.room([ALL]).unwrap()
}

fn wait_for(flight: &mut InFlight<'_>, member: usize) {
    flight.carry_out(Action::WatchOwn(member));
    let ahead = vec![format!("before-{member}"), format!("ahead-{member}")];
    flight.carry_out(Action::Watch(member, ahead));
}

fn enqueued(flight: &InFlight<'_>) {
    for (member, name) in [(0, "own-0"), (1, "own-1")] {
        flight
            .cleanup_guard
            .set(member, Made::Node(name.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_watches_all_or_looks_at_all() {
    flight!(flight, stage);
    enqueued(&flight);
    let taken = take_all(&stage);
    wait_for(&mut flight, 0);
    assert!(poll!(Box::pin(flight.next_event())).is_pending());
    let looks = stage.log().await;
    assert!(
        looks.iter().all(|it| it.starts_with("list /a/")),
        "{looks:?}"
    );
    drop(taken);
    let event = flight.next_event().await.unwrap();
    assert_eq!(event, Event::BlockerChanged);
    wait_for(&mut flight, 0);
    assert!(poll!(Box::pin(flight.next_event())).is_pending());
    let watches = stage.log().await;
    let expected = ["watch /a/own-0", "watch /a/before-0", "watch /a/ahead-0"];
    assert_eq!(watches, expected);
    // Room for all members and two nodes ahead.
    let left = ALL - 4 * ("/a/".len() + 64);
    assert!(stage.epoch.lookout.room([left + 1]).is_none());
    assert!(stage.epoch.lookout.room([left]).is_some());
}

#[tokio::test(start_paused = true)]
async fn look_that_finds_the_own_node_gone_is_news() {
    flight!(flight, stage);
    enqueued(&flight);
    let _taken = take_all(&stage);
    wait_for(&mut flight, 0);
    assert!(poll!(Box::pin(flight.next_event())).is_pending());
    for _ in 0..3 {
        let Asked::List(path, answer) = stage.asked().await else {
            panic!("no look");
        };
        let listing = match &*path {
            "/a/own-0" => Err(NodesError::NoNode),
            _ => Ok(Vec::new()),
        };
        assert!(answer.send(listing).is_ok());
    }
    let event = flight.next_event().await.unwrap();
    assert_eq!(event, Event::OwnGone(0));
}

#[tokio::test(start_paused = true)]
async fn place_in_the_queue_for_room_survives_a_reconnect() {
    flight!(flight, stage);
    enqueued(&flight);
    let taken = take_all(&stage);
    wait_for(&mut flight, 0);
    assert!(poll!(Box::pin(flight.next_event())).is_pending());
    let mut later = Box::pin(stage.epoch.lookout.next_room([ALL]));
    assert!(poll!(later.as_mut()).is_pending());
    stage.nodes.reconnect();
    let event = flight.next_event().await.unwrap();
    assert_eq!(event, Event::Reconnected);
    wait_for(&mut flight, 0);
    drop(taken);
    let event = flight.next_event().await.unwrap();
    assert_eq!(event, Event::BlockerChanged);
    assert!(poll!(later.as_mut()).is_pending(), "overtaken");
}

#[tokio::test(start_paused = true)]
async fn room_that_comes_with_a_reconnection_is_kept() {
    flight!(flight, stage);
    let nodes = Arc::clone(&stage.nodes);
    let room = stage.epoch.lookout.room([ALL]).unwrap();
    let got = async move {
        nodes.reconnect();
        Ok(Done::Room(room))
    };
    flight.occupy(Slot::Room, got.boxed());
    assert_eq!(flight.next_event().await.unwrap(), Event::Reconnected);
    assert_eq!(flight.next_event().await.unwrap(), Event::BlockerChanged);
}

/// Names of other clients may be longer than ours.
#[tokio::test(start_paused = true)]
async fn node_ahead_whose_name_is_too_long_is_looked_at() {
    flight!(flight, stage);
    enqueued(&flight);
    flight.carry_out(Action::WatchOwn(0));
    let long = "x".repeat(65);
    flight.carry_out(Action::Watch(0, vec![long.clone(), "x".repeat(64)]));
    assert!(poll!(Box::pin(flight.next_event())).is_pending());
    let mut requests = stage.log().await;
    requests.sort_unstable();
    let (list, watch) = (
        format!("list /a/{long}"),
        format!("watch /a/{}", "x".repeat(64)),
    );
    assert_eq!(requests, [&*list, "watch /a/own-0", &*watch]);
}

/// The client has the watch until it reports, whoever has the lock.
#[tokio::test(start_paused = true)]
async fn own_watch_keeps_the_room_until_a_holder_has_some_for_it() {
    flight!(flight, stage);
    let room = Arc::new(take_all(&stage));
    let (_event, watch) = node_watch();
    let watch = OwnWatch::new(watch);
    flight.room = Some(room);
    let own = OwnNode {
        watch: Some(watch.clone()),
        ..OwnNode::default()
    };
    flight.occupy(
        Slot::OwnWatch(0),
        future::ready(Ok(Done::OwnWatch(0, own))).boxed(),
    );
    assert_eq!(flight.next_event().await.unwrap(), Event::OwnWatched(0));
    drop(flight);
    assert!(stage.epoch.lookout.room([1]).is_none());
    watch.leave_room();
    assert!(stage.epoch.lookout.room([ALL]).is_some());
}
