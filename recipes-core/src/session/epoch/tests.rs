use futures::FutureExt;

use super::*;
use crate::scripted::{SECOND, Scripted, Sessions, Stage, T, node_watch};
use crate::store::Traits;

struct Scene {
    epoch: Arc<Epoch>,
    link: watch::Sender<Link>,
    nodes: Arc<Scripted>,
}

/// An epoch without a task.
fn scene(timeout: Option<Duration>) -> Scene {
    let nodes = Scripted::new(timeout);
    let (link, links) = watch::channel(Link::Connected(1));
    let origin = Origin {
        clock: Clock::new(&Sessions::of(&nodes, Duration::ZERO)),
        highest: Arc::default(),
        traits: Traits::default(),
    };
    let sent = origin.clock.now();
    let shared = Arc::clone(&nodes) as Arc<dyn Nodes>;
    let epoch = Epoch::new(1, shared, links, origin, sent);
    Scene {
        epoch: Arc::new(epoch),
        link,
        nodes,
    }
}

impl Scene {
    fn contend(&self) -> InUse {
        self.epoch.contend(&Arc::new(Leftovers::new([])))
    }

    fn is_task_woken(&self) -> bool {
        self.epoch.wake_task.notified().now_or_never().is_some()
    }
}

#[tokio::test(start_paused = true)]
async fn session_counts_from_when_it_was_asked_for() {
    let stage = Stage::opened_within(2 * SECOND).await;
    assert_eq!(Instant::now(), stage.start + 2 * SECOND);
    assert_eq!(stage.epoch.deadline(), stage.start + T / 2);
}

#[tokio::test(start_paused = true)]
async fn session_that_never_expires_has_no_deadline_and_no_beats() {
    let scene = scene(None);
    tokio::time::advance(1_000_000 * SECOND).await;
    assert!(scene.epoch.is_good(0));
    assert!(scene.epoch.deadline() > Instant::now() + 1_000_000 * SECOND);
    assert!(scene.epoch.next_beat().is_none());
}

#[tokio::test(start_paused = true)]
async fn session_is_good_until_its_deadline_and_for_its_own_leases() {
    let scene = scene(Some(T));
    let epoch = &scene.epoch;
    let half = T / 2;
    tokio::time::advance(half - SECOND).await;
    assert!(epoch.is_good(0));
    assert!(!epoch.is_good(1));
    // Sleep of the machine counts as well.
    scene.nodes.sleep(SECOND);
    assert!(!epoch.is_good(0));
    assert_eq!(epoch.deadline(), Instant::now());
}

#[tokio::test(start_paused = true)]
async fn epoch_without_a_task_is_over() {
    let Scene { epoch, link, .. } = scene(Some(T));
    assert_eq!(epoch.link(), Link::Connected(1));
    link.send_replace(Link::Disconnected);
    assert_eq!(epoch.link(), Link::Disconnected);
    let mut ended = std::pin::pin!(epoch.ended());
    assert!(ended.as_mut().now_or_never().is_none());
    drop(link);
    let closed = LostReason::SessionClosed;
    assert_eq!(epoch.link(), Link::Ended(closed));
    assert_eq!(epoch.ended().await, closed);
}

#[tokio::test(start_paused = true)]
async fn reason_of_the_end_stays_when_the_task_is_gone() {
    let Scene { epoch, link, .. } = scene(Some(T));
    let expired = LostReason::SessionExpired;
    link.send_replace(Link::Ended(expired));
    drop(link);
    assert_eq!(epoch.link(), Link::Ended(expired));
    assert_eq!(epoch.ended().await, expired);
}

#[tokio::test(start_paused = true)]
async fn task_is_woken_by_a_contender_that_comes_while_it_does_not_attend() {
    let scene = scene(Some(T));
    assert!(!scene.epoch.attend(), "nobody is there");
    let first = scene.contend();
    assert!(scene.is_task_woken());
    assert!(scene.epoch.attend());
    // The epoch task looks by itself now.
    let second = scene.contend();
    assert!(!scene.is_task_woken());
    drop(first);
    assert!(scene.epoch.attend(), "one is there");
    drop(second);
    assert!(!scene.epoch.attend());
    let third = scene.contend();
    assert!(scene.is_task_woken(), "it was not looking");
    drop(third);
}

#[tokio::test(start_paused = true)]
async fn lease_is_attended_and_arrives_once() {
    let stage = Stage::new().await;
    // An epoch of its own: the epoch task of the stage attends the other one.
    let Scene { epoch, .. } = scene(Some(T));
    let lease = stage.lease(1);
    let state = stage.epoch.lease(stage.epoch.leases()[0].id()).unwrap();
    epoch.register(Arc::clone(&state), None);
    assert!(epoch.wake_task.notified().now_or_never().is_none());
    assert!(epoch.attend());
    let arrivals = epoch.arrivals();
    assert_eq!(arrivals.len(), 1);
    assert_eq!(arrivals[0].at, Some(Instant::now()));
    assert!(epoch.arrivals().is_empty());
    epoch.look_soon(state.id());
    assert!(epoch.wake_task.notified().now_or_never().is_some());
    assert_eq!(epoch.arrivals()[0].at, None, "at once");
    let (_event, watch) = node_watch();
    epoch.register(Arc::clone(&state), Some(OwnWatch::new(watch)));
    assert!(epoch.wake_task.notified().now_or_never().is_some());
    assert!(epoch.arrivals()[0].own_watch.is_some());
    epoch.deregister(state.id());
    assert!(!epoch.attend());
    assert!(epoch.lease(state.id()).is_none());
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn numbers_that_went_back_first_are_told() {
    let scene = scene(Some(T));
    assert_eq!(scene.epoch.forgot(), None);
    let first = Forgot { seen: 9, now: 5 };
    scene.epoch.note_forgot(first);
    assert!(scene.is_task_woken());
    scene.epoch.note_forgot(Forgot { seen: 7, now: 6 });
    assert_eq!(scene.epoch.forgot(), Some(first));
}

#[tokio::test(start_paused = true)]
async fn closed_session_has_no_operations() {
    let scene = scene(Some(T));
    assert!(scene.epoch.nodes().is_ok());
    assert!(scene.epoch.take_nodes().is_some());
    let over = scene.epoch.nodes().unwrap_err();
    assert!(matches!(over, NodesError::SessionEnded), "{over}");
    assert!(scene.epoch.take_nodes().is_none());
}
