use std::time::Duration;

use futures::poll;
use tokio::time::Instant;

use super::*;
use crate::names::node_name::LockKind;
use crate::rules::acquire::{Entry, Node};
use crate::scripted::{Answer, Asked, SECOND, Stage, T, jump, node, node_watch, settle};
use crate::session::epoch::Forgot;
use crate::store::nodes::NodeEvent;
use crate::store::nodes::{Connection, EndReason};

fn targets(stage: &Stage, paths: &[&str]) -> Vec<Target> {
    let target = |path: &&str| Target {
        lock: stage.lock(path, 0),
        kind: LockKind::Mutex,
        beside: None,
        owner: None,
        permits: None,
        data: None,
    };
    paths.iter().map(target).collect()
}

macro_rules! flight {
    ($flight:ident, $stage:ident) => {
        let $stage = Stage::new().await;
        let nodes = $stage.epoch.nodes().unwrap();
        let targets = targets(&$stage, &["/a", "/b"]);
        let directories = targets.iter().map(|it| Arc::clone(&it.lock.path));
        let leftovers = Arc::new(Leftovers::new(directories));
        let mut $flight =
            InFlight::new(&$stage.session, &$stage.epoch, &nodes, &targets, leftovers);
    };
}

mod adopting;
mod answers;

fn granted(czxid: i64) -> Vec<GrantedNode> {
    let name = "n".to_owned();
    vec![GrantedNode { name, czxid }]
}

/// Watches the node of a member, as if the machine had requested it.
fn watch(flight: &mut InFlight<'_>, member: usize) -> oneshot::Sender<NodeEvent> {
    let (event, watch) = node_watch();
    flight.own_nodes[member].watch = Some(OwnWatch::new(watch));
    event
}

#[tokio::test(start_paused = true)]
async fn nothing_speaks_against_a_grant_in_time_over_the_same_connection() {
    flight!(flight, stage);
    let _event = watch(&mut flight, 0);
    assert_eq!(flight.doubt(&granted(5)), None);
    jump(T / 2 - SECOND);
    assert_eq!(flight.doubt(&granted(5)), None);
    assert_eq!(stage.epoch.forgot(), None);
}

#[tokio::test(start_paused = true)]
async fn grant_at_the_deadline_or_without_a_connection_is_in_doubt() {
    flight!(late, _stage);
    jump(T / 2);
    assert_eq!(late.doubt(&granted(5)), Some(Event::Lapsed));
    flight!(unconnected, stage);
    stage.nodes.connection_is(Connection::Disconnected);
    assert_eq!(unconnected.doubt(&granted(5)), Some(Event::Lapsed));
}

#[tokio::test(start_paused = true)]
async fn grant_over_another_connection_is_in_doubt_once() {
    flight!(flight, stage);
    let event = watch(&mut flight, 1);
    stage.nodes.reconnect();
    assert_eq!(
        flight.doubt(&granted(5)),
        Some(Event::Reconnected { forgot: false })
    );
    // Watches of the earlier connection do not count.
    event.send(NodeEvent::Deleted).unwrap();
    assert_eq!(flight.doubt(&granted(5)), None);
}

#[tokio::test(start_paused = true)]
async fn store_that_forgot_is_told_of_once() {
    flight!(flight, stage);
    for forgot in [true, false] {
        match forgot {
            true => stage.nodes.reconnect_to_another_run(),
            false => stage.nodes.reconnect(),
        }
        assert_eq!(
            flight.doubt(&granted(5)),
            Some(Event::Reconnected { forgot })
        );
        assert_eq!(flight.doubt(&granted(5)), None);
    }
}

#[tokio::test(start_paused = true)]
async fn news_of_an_own_node_is_heard_in_the_moment_of_the_grant() {
    for member in [0, 1] {
        flight!(flight, _stage);
        let event = watch(&mut flight, member);
        event.send(NodeEvent::Deleted).unwrap();
        let doubt = flight.doubt(&granted(5));
        assert_eq!(doubt, Some(Event::OwnGone(member)));
        let event = watch(&mut flight, member);
        event.send(NodeEvent::Changed).unwrap();
        let doubt = flight.doubt(&granted(5));
        assert_eq!(doubt, Some(Event::OwnChanged(member)));
        let event = watch(&mut flight, member);
        event.send(NodeEvent::SessionEnded).unwrap();
        assert_eq!(flight.doubt(&granted(5)), None);
    }
}

#[tokio::test(start_paused = true)]
async fn news_of_a_node_that_a_member_has_no_more_is_not_heard() {
    flight!(flight, _stage);
    let (of_old, of_other) = (watch(&mut flight, 0), watch(&mut flight, 1));
    flight.carry_out(Action::Enter(vec![0]));
    // The receiver may be gone.
    let _ = of_old.send(NodeEvent::Deleted);
    assert_eq!(flight.doubt(&granted(5)), None);
    of_other.send(NodeEvent::Deleted).unwrap();
    assert_eq!(flight.doubt(&granted(5)), Some(Event::OwnGone(1)));
}

#[tokio::test(start_paused = true)]
async fn number_that_is_not_above_all_that_were_seen_ends_the_epoch() {
    for (number, is_higher) in [(8, false), (9, false), (10, true)] {
        flight!(flight, stage);
        flight.floors[0] = 9;
        let doubt = flight.doubt(&granted(number));
        assert_eq!(doubt.is_none(), is_higher, "{number}");
        let forgot = Forgot {
            seen: 9,
            now: number,
        };
        let forgot = (!is_higher).then_some(forgot);
        assert_eq!(stage.epoch.forgot(), forgot);
    }
}

#[tokio::test(start_paused = true)]
async fn store_learns_at_once_which_node_is_gone() {
    flight!(flight, stage);
    flight.carry_out(Action::Adopt(0, "n1".to_owned()));
    flight.carry_out(Action::Gone(1));
    assert!(crate::sync::lock(&stage.nodes.gone).is_empty());
    flight.carry_out(Action::Gone(0));
    assert_eq!(*crate::sync::lock(&stage.nodes.gone), ["/a/n1"]);
    // It is deleted by nobody.
    drop(flight);
    assert_eq!(stage.log().await, [""; 0]);
}

/// Somebody is shown a node with this number.
async fn see(stage: &Stage, number: i64) {
    let read = stage.session.read("/x");
    let seen = async {
        loop {
            if let Asked::Read(_, answer) = stage.asked().await {
                return answer.send(Ok(Some(node(number, b"")))).unwrap();
            }
        }
    };
    let (read, ()) = tokio::join!(read, seen);
    read.unwrap();
}

#[tokio::test(start_paused = true)]
async fn floor_of_a_node_is_what_was_seen_before_its_first_create() {
    flight!(flight, stage);
    see(&stage, 9).await;
    assert_eq!(flight.floors, [0, 0]);
    flight.carry_out(Action::Enter(vec![1]));
    assert_eq!(flight.floors, [0, 9]);
    // The create has no answer, and is repeated: a node that is found may be of either.
    see(&stage, 12).await;
    flight.carry_out(Action::Enter(vec![0, 1]));
    assert_eq!(flight.floors, [12, 9]);
    // The node that it has made is gone.
    flight.carry_out(Action::Adopt(1, "n1".to_owned()));
    flight.carry_out(Action::Gone(1));
    flight.carry_out(Action::Enter(vec![1]));
    assert_eq!(flight.floors, [12, 12]);
}

async fn listing(stage: &Stage) -> Answer<Vec<String>> {
    loop {
        if let Asked::List(_, answer) = stage.asked().await {
            return answer;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn listing_of_the_connection_before_is_not_told() {
    flight!(flight, stage);
    flight.carry_out(Action::List(0));
    let mut event = Box::pin(flight.next_event());
    assert!(poll!(event.as_mut()).is_pending());
    let listed = listing(&stage).await;
    stage.nodes.connection_is(Connection::Disconnected);
    listed.send(Ok(Vec::new())).unwrap();
    settle().await;
    assert!(poll!(event.as_mut()).is_pending(), "nothing counts now");
    stage.nodes.connection_is(Connection::Connected);
    assert_eq!(event.await.unwrap(), Event::Reconnected { forgot: false });
    let mut event = Box::pin(flight.next_event());
    assert!(poll!(event.as_mut()).is_pending());
}

#[tokio::test(start_paused = true)]
async fn create_that_is_answered_before_a_reconnect_is_told_behind_it() {
    flight!(flight, stage);
    flight.carry_out(Action::Enter(vec![0]));
    let mut event = Box::pin(flight.next_event());
    assert!(poll!(event.as_mut()).is_pending());
    let Asked::Create(new, created) = stage.asked().await else {
        panic!("no create");
    };
    let path = format!("{}0000000001", new.path);
    let name = path.rsplit_once('/').unwrap().1.to_owned();
    listing(&stage).await.send(Ok(vec![name.clone()])).unwrap();
    while let Some(asked) = stage.nodes.asked() {
        if let Asked::Watch(_, answer) = asked {
            assert!(answer.send(Ok(None)).is_ok());
        }
    }
    let czxid = Some(5);
    created
        .send(Ok(crate::store::nodes::Created { path, czxid }))
        .unwrap();
    stage.nodes.reconnect();
    assert_eq!(event.await.unwrap(), Event::Reconnected { forgot: false });
    let entered = flight.next_event().await.unwrap();
    let node = Node { name, czxid };
    let children = Some(vec![node.name.clone()]);
    assert_eq!(entered, Event::Entered(vec![Entry { node, children }]));
}

/// Both have arrived before the poll, in whichever order.
#[tokio::test(start_paused = true)]
async fn own_news_comes_before_every_answer() {
    flight!(flight, stage);
    flight.carry_out(Action::List(0));
    let gone = watch(&mut flight, 0);
    {
        let mut event = Box::pin(flight.next_event());
        assert!(poll!(event.as_mut()).is_pending());
        listing(&stage).await.send(Ok(Vec::new())).unwrap();
        gone.send(NodeEvent::Deleted).unwrap();
        assert_eq!(event.await.unwrap(), Event::OwnGone(0));
    }
    // The answer comes after it.
    let listed = flight.next_event().await.unwrap();
    assert_eq!(listed, Event::Listed(0, Vec::new()));
}

/// The own node is deleted after the look at it and before the answer arrives: polling the answer
/// causes both.
#[tokio::test(start_paused = true)]
async fn own_news_that_comes_while_answers_are_looked_at_comes_first() {
    flight!(flight, _stage);
    let gone = watch(&mut flight, 0);
    let answer = async move {
        gone.send(NodeEvent::Deleted).unwrap();
        Ok(Event::Listed(0, Vec::new()))
    };
    flight.start(Slot::List(0), answer);
    assert_eq!(flight.next_event().await.unwrap(), Event::OwnGone(0));
    let listed = flight.next_event().await.unwrap();
    assert_eq!(listed, Event::Listed(0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn reconnection_that_comes_while_answers_are_looked_at_discards_them() {
    flight!(flight, stage);
    let nodes = Arc::clone(&stage.nodes);
    let answer = async move {
        nodes.reconnect();
        Ok(Event::Listed(0, Vec::new()))
    };
    flight.start(Slot::List(0), answer);
    assert_eq!(
        flight.next_event().await.unwrap(),
        Event::Reconnected { forgot: false }
    );
    let mut event = Box::pin(flight.next_event());
    assert!(poll!(event.as_mut()).is_pending());
}

#[tokio::test(start_paused = true)]
async fn answer_about_members_outlives_a_reconnection_that_comes_with_it() {
    flight!(flight, stage);
    let nodes = Arc::clone(&stage.nodes);
    let answer = async move {
        nodes.reconnect();
        Ok(Event::Searched(Vec::new()))
    };
    flight.start(Slot::Members, answer);
    assert_eq!(
        flight.next_event().await.unwrap(),
        Event::Reconnected { forgot: false }
    );
    let searched = flight.next_event().await.unwrap();
    assert_eq!(searched, Event::Searched(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn lease_rests_on_the_connection_on_which_all_was_heard() {
    flight!(flight, stage);
    stage.nodes.reconnect();
    assert_eq!(
        flight.doubt(&[]),
        Some(Event::Reconnected { forgot: false })
    );
    assert_eq!(flight.doubt(&[]), None);
    let event = watch(&mut flight, 0);
    let leases = flight.leases(granted(5));
    let state = stage.epoch.leases().remove(0);
    assert_eq!(
        leases[0].state(),
        crate::lock::lease_state::GuardState::Held
    );
    assert!(state.care().vouches(stage.epoch.connection().unwrap()));
    event.send(NodeEvent::Deleted).unwrap();
    settle().await;
    assert!(leases[0].check().is_err());
    stage
        .nodes
        .connection_is(Connection::Ended(EndReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn refused_withdrawal_is_told_and_others_are_waited_for() {
    flight!(flight, stage);
    flight.cleanup_guard.set(0, Made::Node("n0".to_owned()));
    flight.cleanup_guard.set(1, Made::Node("n1".to_owned()));
    let both = [(0, "n0"), (1, "n1")].map(|(member, name)| (member, name.to_owned()));
    for node in both {
        flight.carry_out(Action::Withdraw(vec![node]));
    }
    let mut withdrawn = Box::pin(flight.all_withdrawn());
    assert!(poll!(withdrawn.as_mut()).is_pending());
    let mut deletes = Vec::new();
    for _ in 0..2 {
        let Asked::Delete(_, answer) = stage.asked().await else {
            panic!("no delete");
        };
        deletes.push(answer);
    }
    deletes.pop().unwrap().send(Ok(())).unwrap();
    settle().await;
    assert!(poll!(withdrawn.as_mut()).is_pending());
    let refused = Err(NodesError::NoAuth);
    deletes.pop().unwrap().send(refused).unwrap();
    let refused = withdrawn.await.unwrap_err();
    assert!(
        matches!(&refused, AcquireError::NotAuthorized { path, .. } if path == "/a"),
        "{refused}"
    );
}

/// Nobody polls an attempt that is not woken.
#[tokio::test(start_paused = true)]
async fn each_reconnection_wakes_the_attempt() {
    flight!(flight, stage);
    for _ in 0..5 {
        let nodes = Arc::clone(&stage.nodes);
        let later = tokio::spawn(async move {
            settle().await;
            nodes.reconnect();
        });
        let began = Instant::now();
        let event = tokio::time::timeout(SECOND, flight.next_event()).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "the timer woke it");
        assert_eq!(
            event.unwrap().unwrap(),
            Event::Reconnected { forgot: false }
        );
        later.await.unwrap();
    }
}
