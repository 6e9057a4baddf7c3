//! A mutex and a read/write lock on one path do not exclude each other, and the log says so.

use lock_recipes::{InterProcessMutex, InterProcessReadWriteLock, Member, MultiLock, Session};
use test_rig::{TestEnsemble, on_every_ensemble};

use crate::log::logging;

const PATH: &str = "/locks/mixed";
const WARNING: &str = "nodes of another recipe";

on_every_ensemble!(
    mutex_that_finds_a_read_write_lock_warns_once,
    writer_and_set_that_find_a_mutex_warn,
    locks_without_strangers_do_not_warn,
);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

fn read_write(session: &Session) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(session, PATH).unwrap()
}

async fn mutex_that_finds_a_read_write_lock_warns_once(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let reader = read_write(&there).read().await.unwrap();
    let node = reader.members()[0].node_path.clone();
    let name = node.rsplit('/').next().unwrap();

    let (log, logging) = logging();
    for _ in 0..3 {
        // The handle goes each time, and with it what the session knows of the path.
        mutex(&here)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        drop(mutex(&here).try_acquire().await.unwrap());
    }
    let seen = log.lines(WARNING);
    assert_eq!(seen.len(), 1, "{seen:?}");
    for part in [
        "WARN",
        "lock_recipes::lock",
        "lock=/locks/mixed",
        r#"kind="mutex" found="read""#,
        name,
        "use different paths",
    ] {
        assert!(seen[0].contains(part), "{part}: {}", seen[0]);
    }
    // Another session is another process, which has a log of its own.
    let elsewhere = ensemble.session().await;
    mutex(&elsewhere)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(log.lines(WARNING).len(), 2);
    drop(logging);
    reader.release().await.unwrap();
}

async fn writer_and_set_that_find_a_mutex_warn(ensemble: TestEnsemble) {
    let holder = ensemble.session().await;
    let held = mutex(&holder).acquire().await.unwrap();
    let (log, logging) = logging();
    let session = ensemble.session().await;
    let writer = read_write(&session).write().await.unwrap();
    writer.release().await.unwrap();
    let session = ensemble.session().await;
    let members = [Member::mutex("/locks/other"), Member::write(PATH)];
    let set = MultiLock::new(&session, members).unwrap();
    set.acquire().await.unwrap().release().await.unwrap();
    let seen = log.lines(WARNING);
    assert_eq!(seen.len(), 2, "{seen:?}");
    for line in &seen {
        assert!(line.contains(r#"kind="write" found="mutex""#), "{line}");
        assert!(line.contains("lock=/locks/mixed"), "{line}");
    }
    drop(logging);
    held.release().await.unwrap();
}

async fn locks_without_strangers_do_not_warn(ensemble: TestEnsemble) {
    let (log, logging) = logging();
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let reader = read_write(&there).read().await.unwrap();
    drop(read_write(&here).read().await.unwrap());
    assert!(read_write(&here).try_write().await.unwrap().is_none());
    let other = InterProcessMutex::new(&here, "/locks").unwrap();
    // The directory of a lock is a child of it, but no node of a recipe.
    drop(other.acquire().await.unwrap());
    drop(logging);
    reader.release().await.unwrap();
    assert_eq!(log.lines(WARNING), Vec::<String>::new());
}
