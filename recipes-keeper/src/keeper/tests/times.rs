//! When the keeper does something, and for how long it waits.

use futures::future;
use tokio::runtime;
use tokio::time::{Instant, advance, sleep, timeout};

use super::*;
use crate::wire::Opened;

const SECOND: Duration = Duration::from_secs(1);

/// Timers are exact to a millisecond, and rounded up.
fn is_about(time: Duration, expected: Duration) -> bool {
    (expected..expected + Duration::from_millis(5)).contains(&time)
}

impl Scene {
    /// When the keeper takes the session up again. Its beats meanwhile have no answer.
    async fn resumes_after(&mut self, began: Instant) -> Duration {
        loop {
            let heard = timeout(TIMEOUT * 5, self.heard.recv()).await;
            match heard.expect("it goes on") {
                Some(Heard::Resume(..)) => return began.elapsed(),
                Some(Heard::Requests(it)) if *it.asked == [Asked::Beat] => {
                    self.unanswered.push(it);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Nobody uses the session any more. Returns what becomes of it.
    async fn leave(&mut self) -> impl Future<Output = Option<Connection>> + use<> {
        let connection = self.nodes.connection();
        let other = Self::open(TOGETHER).await;
        self.nodes = Arc::clone(&other.nodes);
        connection.fold(None, |_, state| async move { Some(state) })
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_an_answer_for_a_quarter_of_the_timeout_costs_the_connection() {
    for kind in [TOGETHER, ANYWHERE] {
        let mut scene = Scene::open(kind).await;
        let nodes = Arc::clone(&scene.nodes);
        let began = Instant::now();
        let listed = nodes.list("/a");
        let _call = scene.requests().await;
        let time = scene.resumes_after(began).await;
        let latest = Duration::from_millis(3600);
        assert!(time > SECOND * 3 && time < latest, "{time:?}");
        listed.await.unwrap_err();
    }
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let began = Instant::now();
    let synced = nodes.sync("/a");
    let _beat = scene.beat().await;
    let time = scene.resumes_after(began).await;
    let latest = Duration::from_millis(3600);
    assert!(time > SECOND * 3 && time < latest, "{time:?}");
    synced.await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn oldest_call_without_an_answer_counts() {
    let mut scene = Scene::open(ANYWHERE).await;
    let nodes = Arc::clone(&scene.nodes);
    let began = Instant::now();
    let first = nodes.list("/a");
    let call = scene.requests().await;
    advance(SECOND).await;
    let second = nodes.list("/b");
    let _call = scene.requests().await;
    advance(SECOND).await;
    call.answer([names(&[])]);
    first.await.unwrap();
    let time = scene.resumes_after(began).await;
    let latest = Duration::from_millis(4600);
    assert!(time > SECOND * 4 && time < latest, "{time:?}");
    second.await.unwrap_err();
}

/// The clock of a store moves with the calls of all sessions, by the step of the most hasty.
#[tokio::test(start_paused = true)]
async fn beat_leaves_a_sixth_of_the_timeout_after_the_last_call_or_sooner_for_the_store_s_clock() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    advance(SECOND).await;
    let listed = nodes.list("/a");
    scene.requests().await.answer([names(&[])]);
    listed.await.unwrap();
    let millis = Duration::from_millis;
    let steps = [
        (None, 2000),
        (Some(millis(1500)), 2000),
        (Some(millis(300)), 1000),
        (None, 200),
        (Some(SECOND * 12), 200),
        (Some(millis(300)), 2000),
        (Some(Duration::ZERO), 200),
        (Some(Duration::MAX), 2000),
        (None, 2000),
    ];
    for (step, after) in steps {
        let began = Instant::now();
        let call = scene.requests().await;
        assert_eq!(*call.asked, [Asked::Beat]);
        let time = began.elapsed();
        assert!(is_about(time, millis(after)), "{time:?} for {after}");
        call.answer_at_step([Said::Nothing], step);
        assert!(scene.is_quiet().await);
    }
}

#[tokio::test(start_paused = true)]
async fn beat_is_late_by_half_of_its_time_at_most() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    let step = Some(Duration::from_millis(300));
    scene.requests().await.answer_at_step([Said::Nothing], step);
    assert!(scene.is_quiet().await);
    advance(Duration::from_millis(50)).await;
    let listed = nodes.list("/a");
    let began = Instant::now();
    scene.requests().await.answer_at_step([names(&[])], step);
    listed.await.unwrap();
    assert_eq!(*scene.requests().await.asked, [Asked::Beat]);
    let time = began.elapsed();
    let millis = Duration::from_millis;
    assert!(time >= millis(200) && time < millis(305), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn server_that_does_not_answer_in_time_is_left_for_another_connection() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    scene.lose(1);
    let _silent = scene.resume().await;
    let began = Instant::now();
    scene.server.mute.store(1, Ordering::Relaxed);
    let time = scene.resumes_after(began).await;
    // The second had twice the time of the first.
    assert!(
        time > CONNECT * 3 && time < CONNECT * 3 + SECOND * 2,
        "{time:?}"
    );
    let trouble = format!("{}", Causes(&nodes.trouble().unwrap()));
    let expected = "the server did not answer within 14s, behind a proxy";
    assert!(trouble.contains(expected), "{trouble}");
    // It does not go on while nothing happens.
    let server = Arc::new(Scripted::new(mpsc::unbounded_channel().0, APART));
    server.mute.store(1, Ordering::Relaxed);
    let sessions = Sessions::new(server.terms());
    let began = Instant::now();
    sessions.open("secret").await.map(drop).unwrap_err();
    assert!(is_about(began.elapsed(), CONNECT));
}

/// Each try is work for it, so one that is repeated as it was would never end.
#[tokio::test(start_paused = true)]
async fn server_that_takes_longer_than_a_try_is_reached_all_the_same() {
    let slow = CONNECT * 5 / 2;
    let (says, mut heard) = mpsc::unbounded_channel();
    let server = Arc::new(Scripted::new(says, TOGETHER));
    let sessions = Sessions::new(server.terms());
    let answers = async {
        while let Some(call) = heard.recv().await {
            match call {
                Heard::Open(_, reply) => {
                    let answer = async move {
                        sleep(slow).await;
                        drop(reply.send(Ok(Opened {
                            id: 5,
                            quarantine: Duration::ZERO,
                            doubt: Duration::ZERO,
                        })));
                    };
                    tokio::spawn(answer);
                }
                Heard::Started(..) => break,
                other => panic!("{other:?}"),
            }
        }
    };
    let opened = async {
        loop {
            match sessions.open("secret").await {
                Ok(nodes) => break nodes,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    };
    let began = Instant::now();
    let (_nodes, ()) = timeout(CONNECT * 20, future::join(opened, answers))
        .await
        .unwrap();
    assert!(is_about(began.elapsed(), CONNECT * 3 + slow));
    let mut scene = Scene::open(APART).await;
    scene.lose(1);
    let began = Instant::now();
    let (_first, _second) = (scene.resume().await, scene.resume().await);
    let (_, reply) = scene.resume().await;
    sleep(slow).await;
    goes_on(reply);
    assert_eq!(scene.started().await.0, 4);
    assert!(began.elapsed() < CONNECT * 3 + slow + SECOND);
}

#[tokio::test(start_paused = true)]
async fn connections_that_fail_at_once_are_tried_with_pauses() {
    let mut scene = Scene::open(APART).await;
    scene.server.panics.store(3, Ordering::Relaxed);
    scene.lose(1);
    let began = Instant::now();
    let (resume, _reply) = scene.resume().await;
    assert_eq!(resume.caller.connection, 5);
    assert!(began.elapsed() > Duration::from_millis(10));
}

/// Whether it is over, its server decides.
#[tokio::test(start_paused = true)]
async fn session_in_use_outlives_an_outage_of_many_timeouts() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let began = Instant::now();
    scene.lose(1);
    let mut silent = Vec::new();
    while began.elapsed() < TIMEOUT * 5 {
        silent.push(scene.resume().await);
    }
    let waits = nodes.list("/a");
    let (_, reply) = scene.resume().await;
    goes_on(reply);
    scene.started().await;
    scene.requests().await.answer([names(&["a"])]);
    assert_eq!(waits.await.unwrap(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn session_that_nobody_uses_is_given_up_after_its_timeout_without_a_connection() {
    let mut scene = Scene::open(APART).await;
    scene.lose(1);
    let _silent = scene.resume().await;
    advance(SECOND).await;
    let last = scene.leave().await;
    let began = Instant::now();
    assert_eq!(last.await, Some(Connection::Ended(EndReason::Closed)));
    assert!(is_about(began.elapsed(), TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn close_without_an_answer_is_given_up_after_a_quarter_of_the_timeout() {
    let mut scene = Scene::open(APART).await;
    let last = scene.leave().await;
    let began = Instant::now();
    let Some(Heard::Close(_reply)) = scene.heard().await else {
        panic!("it is not closed")
    };
    assert_eq!(last.await, Some(Connection::Ended(EndReason::Closed)));
    assert!(is_about(began.elapsed(), TIMEOUT / 4));
}

#[tokio::test(start_paused = true)]
async fn session_is_closed_until_none_of_its_nodes_is_left_or_the_connection_is_lost() {
    for says in [Ok(false), Err(CallError::unexpected("lost"))] {
        let mut scene = Scene::open(APART).await;
        let last = scene.leave().await;
        let began = Instant::now();
        for says in [Ok(true), Ok(true), says] {
            match scene.heard().await {
                Some(Heard::Close(reply)) => drop(reply.send(says)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(last.await, Some(Connection::Ended(EndReason::Closed)));
        assert!(is_about(began.elapsed(), Duration::ZERO));
        assert!(scene.heard().await.is_none());
    }
}

#[test]
fn session_ends_with_the_runtime_of_its_keeper() {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let scene = runtime.block_on(Scene::open(APART));
    let wires = || Arc::strong_count(&scene.server.subscribed);
    assert_eq!(wires(), 2);
    drop(runtime);
    let asked = scene.nodes.list("/a").now_or_never();
    assert!(matches!(asked, Some(Err(NodesError::SessionEnded))));
    let last = scene.nodes.connection().next().now_or_never().flatten();
    assert_eq!(last, Some(Connection::Ended(EndReason::Closed)));
    assert_eq!(wires(), 1, "its connection is closed");
}
