//! What the log says of a loss: a warning, unless the service itself closes its session.

use std::time::Duration;

use lock_recipes::{
    Error, InterProcessMutex, LostReason, Member, MultiLock, ReleaseError, Session, SessionHealth,
    ZooKeeper,
};
use test_rig::MemoryEnsemble;

use crate::connection_news::becomes;
use crate::log::{Log, logging};

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, "/locks/orders").unwrap()
}

/// What is logged on this thread as a warning or an error.
async fn warnings(work: impl Future<Output = ()>) -> Vec<String> {
    let (log, logging) = logging();
    work.await;
    drop(logging);
    let mut bad = log.lines("WARN");
    bad.extend(log.lines("ERROR"));
    bad
}

#[tokio::test(start_paused = true)]
async fn session_that_its_service_closes_warns_of_nothing() {
    let told = warnings(async {
        let session = MemoryEnsemble::new().session();
        let set = ["/locks/a", "/locks/b"].map(Member::mutex);
        let set = MultiLock::new(&session, set).unwrap();
        let (held, both) = (mutex(&session).acquire().await, set.acquire().await);
        let (held, both) = (held.unwrap(), both.unwrap());
        session.close().await;
        assert_eq!(held.lost().await.reason, LostReason::SessionClosed);
        assert!(!both.is_valid());
        assert!(matches!(
            held.release().await,
            Err(Error::Release(ReleaseError::Lost(_)))
        ));
    });
    assert_eq!(told.await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn loss_that_nobody_asked_for_is_a_warning() {
    let told = warnings(async {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let held = mutex(&session).acquire().await.unwrap();
        assert!(ensemble.expire(session.session_id().unwrap()));
        held.lost().await;
        session.close().await;
    });
    let told = told.await;
    let losses = told.iter().filter(|it| it.contains("lock lost"));
    assert_eq!(losses.count(), 1, "{told:?}");
}

const EXPIRED: &str = "the store has expired its session: ";
const GIVEN_UP: &str =
    "the store did not answer for the session timeout, so its session is given up: ";
const LOST: &str = "its locks are lost";
const NONE_HELD: &str = "no lock was held";

/// One warning for the end of the session, with this text.
fn assert_told(log: &Log, text: [&str; 2], session: i64) {
    let lines = log.lines(&text.concat());
    assert_eq!(lines.len(), 1, "{}", log.text());
    for part in [
        "WARN",
        "lock_recipes::session",
        &format!("session={session:#x}"),
    ] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    let (others, other) = match text[0] {
        EXPIRED => (GIVEN_UP, EXPIRED),
        _ => (EXPIRED, GIVEN_UP),
    };
    assert!(log.lines(others).is_empty(), "{}", log.text());
    assert_eq!(log.lines(other).len(), 1, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn end_of_a_session_is_told_with_its_cause_and_whether_locks_are_lost() {
    for (text, holds, is_silent) in [
        ([EXPIRED, LOST], true, false),
        ([EXPIRED, NONE_HELD], false, false),
        ([GIVEN_UP, LOST], true, true),
        ([GIVEN_UP, NONE_HELD], false, true),
    ] {
        let (log, _logging) = logging();
        let mortal = MemoryEnsemble::builder().session_timeout(Duration::from_secs(12));
        let memory = mortal.build();
        let session = memory.session();
        let held = mutex(&session).acquire().await.unwrap();
        let held = match holds {
            true => Some(held),
            false => {
                held.release().await.unwrap();
                None
            }
        };
        let id = session.session_id().unwrap();
        match is_silent {
            true => assert!(memory.disconnect(id)),
            false => assert!(memory.expire(id)),
        }
        while session.epoch() < 2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_told(&log, text, id);
        drop(held);
    }
}

/// On one thread, which logs to the test.
#[tokio::test]
async fn session_that_the_client_gives_up_did_not_expire_on_a_real_server() {
    let (log, _logging) = logging();
    let ensemble = test_rig::own::on_a_real_server().await;
    let options = ZooKeeper::builder().session_timeout(Duration::from_secs(4));
    let session = ensemble.session_with(options).await;
    let held = mutex(&session).acquire().await.unwrap();
    let id = session.session_id().unwrap();
    ensemble.stop().await;
    becomes(&session, SessionHealth::Connecting).await;
    assert_told(&log, [GIVEN_UP, LOST], id);
    drop(held);
    ensemble.start_again().await;
    session.close().await;
}
