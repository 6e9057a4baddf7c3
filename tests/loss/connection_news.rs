//! What the log says of an outage.

use std::time::Duration;

use lock_recipes::{GuardState, InterProcessMutex, Session, SessionHealth, ZooKeeper};
use test_rig::MemoryEnsemble;

use crate::log::{Log, logging};

/// The lines about connections, without their times.
fn news(log: &Log) -> Vec<String> {
    let lines = log.lines("lock_recipes::session: connection");
    lines
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, line)| line.trim().to_owned())
        .collect()
}

fn assert_told(news: &[String], session: i64, locks: usize) {
    let [lost, back] = news else {
        panic!("{news:#?}");
    };
    let lost_text = match locks {
        0 => "WARN lock_recipes::session: connection lost; no lock is held",
        _ => {
            "WARN lock_recipes::session: connection lost; locks that are held are suspended, and \
             lost if it does not return in time"
        }
    };
    assert!(lost.starts_with(lost_text), "{lost}");
    let back_text = "INFO lock_recipes::session: connection is back";
    assert!(back.starts_with(back_text), "{back}");
    // As the server prints it.
    let session = format!("session={session:#x}");
    for line in [lost, back] {
        assert!(line.contains(&session), "{line}");
    }
    if locks > 0 {
        assert!(lost.contains(&format!("locks={locks}")), "{lost}");
        assert!(lost.contains("lost_in_ms="), "{lost}");
    }
    assert!(back.contains("after_ms="), "{back}");
}

fn mutex(session: &Session, number: usize) -> InterProcessMutex {
    InterProcessMutex::new(session, &format!("/locks/{number}")).unwrap()
}

pub(crate) async fn becomes(session: &Session, health: SessionHealth) {
    let mut watcher = session.watch_health();
    while session.health() != health {
        watcher.changed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn outage_is_logged_when_it_begins_and_ends_in_memory() {
    for locks in [0, 2] {
        let (log, _logging) = logging();
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        let mut held = Vec::new();
        for number in 0..locks {
            held.push(mutex(&session, number).acquire().await.unwrap());
        }
        // A session opens with its first request.
        session.read("/").await.unwrap();
        let id = session.session_id().unwrap();
        memory.disconnect(id);
        becomes(&session, SessionHealth::Disconnected).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        memory.reconnect(id);
        becomes(&session, SessionHealth::Connected).await;
        let news = news(&log);
        assert_told(&news, id, locks);
        assert!(news[1].contains("after_ms=1500"), "{news:?}");
        assert!(held.iter().all(|guard| guard.state() == GuardState::Held));
    }
}

/// On one thread, which logs to the test.
#[tokio::test]
async fn outage_is_logged_when_it_begins_and_ends_on_a_real_server() {
    let (log, _logging) = logging();
    let ensemble = test_rig::own::on_a_real_server().await;
    // Long enough that a busy machine loses no session.
    let options = ZooKeeper::builder().session_timeout(Duration::from_secs(40));
    let session = ensemble.session_with(options).await;
    let _held = mutex(&session, 0).acquire().await.unwrap();
    let id = session.session_id().unwrap();
    ensemble.stop().await;
    becomes(&session, SessionHealth::Disconnected).await;
    ensemble.start_again().await;
    becomes(&session, SessionHealth::Connected).await;
    assert_told(&news(&log), id, 1);
}

/// A line of the program counts for all threads, whichever comes to it first.
#[test]
fn line_is_collected_though_a_thread_that_collects_nothing_came_to_it_first() {
    fn line() {
        tracing::info!("come to");
    }
    let (log, _logging) = logging();
    std::thread::spawn(line).join().unwrap();
    line();
    assert_eq!(log.lines("come to").len(), 1);
}
