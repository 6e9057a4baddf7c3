//! Recipes whose transaction has no answer find out whether it was carried out.

use lock_recipes::Session;
use test_rig::{Lost, MemoryEnsemble, Operation, TestEnsemble};

use super::{batch_reservation, config_reload, cron_job};

/// Memory in which the answer to the next transaction of a session is lost.
async fn loses_an_answer(lost: Lost) -> (TestEnsemble, Session) {
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    // A session opens with its first request.
    session.read("/").await.unwrap();
    memory.lose_reply(session.session_id(), Operation::Multi, lost);
    (TestEnsemble::Memory(memory), session)
}

#[tokio::test(start_paused = true)]
async fn change_without_an_answer_is_made_all_the_same() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let (ensemble, session) = loses_an_answer(lost).await;
        config_reload::publish(&session, ["db1", "5432"])
            .await
            .unwrap();
        let values = config_reload::load(&session).await.unwrap().unwrap();
        assert_eq!(values, [&b"db1"[..], b"5432"]);
        ensemble.await_children("/config/lock", 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reservation_without_an_answer_is_made_once() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let (ensemble, session) = loses_an_answer(lost).await;
        let reserved = batch_reservation::reserve(&session, &["7/11"], "alice").await;
        assert_eq!(reserved.unwrap(), Ok(()));
        let by = ensemble.read("/seats/taken-7%2F11").await.unwrap().0;
        assert_eq!(by, b"alice");
        let again = batch_reservation::reserve(&session, &["7/11"], "alice").await;
        assert_eq!(again.unwrap(), Err("7/11".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn job_whose_end_has_no_answer_counts_only_if_it_is_recorded() {
    for (lost, is_recorded) in [(Lost::BeforeCommit, false), (Lost::AfterCommit, true)] {
        let (ensemble, session) = loses_an_answer(lost).await;
        let ran = cron_job::run_once(&session, "nightly", "2026-11-21", async {}).await;
        assert_eq!(ran.is_ok(), is_recorded, "{ran:?}");
        let recorded = ensemble.read("/cron/nightly/done").await;
        assert_eq!(recorded.is_some(), is_recorded);
        ensemble.await_children("/cron/nightly/lock", 0).await;
    }
}
