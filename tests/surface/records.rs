//! What nodes say of who made them.

use std::time::{SystemTime, UNIX_EPOCH};

use lock_recipes::{InterProcessMutex, LockKind, LockOptions, Session, ZooKeeper};
use test_rig::{TestEnsemble, on_every_ensemble};

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

on_every_ensemble!(nodes_say_who_made_them, custom_identity_replaces_the_record);

async fn nodes_say_who_made_them(ensemble: TestEnsemble) {
    let options = ZooKeeper::builder().application("order service");
    let session = ensemble.session_with(options).await;
    let held = mutex(&session).acquire().await.unwrap();
    let participants = mutex(&session).participants().await.unwrap();
    let [participant] = &participants[..] else {
        panic!("{participants:?}")
    };
    assert_eq!(participant.path, held.members()[0].node_path);
    assert_eq!(Some(participant.session_id), session.session_id());
    let identity = participant.identity().unwrap();
    assert_eq!(identity.application, "order service");
    assert_eq!(identity.pid, std::process::id());
    assert_eq!(identity.kind, Some(LockKind::Mutex));
    assert!(!identity.host.is_empty());
    let (_, stat) = ensemble.read(&participant.path).await.unwrap();
    // On etcd, the revision that made it.
    assert!([0, stat.czxid].contains(&participant.sequence.unwrap()));
    let unix_ms = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let created_ms = i64::try_from(unix_ms(participant.created_at)).unwrap();
    // etcd keeps no times.
    let by_itself = i64::try_from(unix_ms(identity.since)).unwrap();
    let is_kept = stat.ctime_ms != 0;
    assert_eq!(created_ms, if is_kept { stat.ctime_ms } else { by_itself });
    held.release().await.unwrap();
    assert!(mutex(&session).participants().await.unwrap().is_empty());
}

async fn custom_identity_replaces_the_record(ensemble: TestEnsemble) {
    let session = ensemble
        .session_with(ZooKeeper::builder().identity(*b"of the session"))
        .await;
    let options = LockOptions::new().identity(*b"of the lock").unwrap();
    let special = InterProcessMutex::with_options(&session, "/locks/special", &options).unwrap();
    for (lock, bytes) in [
        (mutex(&session), "of the session"),
        (special, "of the lock"),
    ] {
        let held = lock.acquire().await.unwrap();
        let participants = lock.participants().await.unwrap();
        assert_eq!(participants[0].data, bytes.as_bytes());
        assert_eq!(participants[0].identity(), None);
        assert_eq!(
            ensemble.read(&held.members()[0].node_path).await.unwrap().0,
            bytes.as_bytes()
        );
        held.release().await.unwrap();
    }
}
