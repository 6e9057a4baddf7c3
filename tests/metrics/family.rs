//! Semaphores and elections have metrics under their own kinds.

use lock_recipes::{ElectionLayout, InterProcessSemaphore, LeaderElection};
use metrics::set_default_local_recorder;
use test_rig::TestEnsemble;

use crate::{recorder, series};

async fn permits_and_terms_are_counted_by_their_kinds(ensemble: TestEnsemble) {
    let recorder = recorder();
    let metrics = recorder.handle();
    let _recording = set_default_local_recorder(&recorder);
    let session = ensemble.session().await;
    let limit = InterProcessSemaphore::new(&session, "/limits/exports", 3).unwrap();
    let two = limit.acquire_many(2).unwrap().await.unwrap();
    assert!(limit.try_acquire_many(2).unwrap().await.unwrap().is_none());
    two.release().await.unwrap();
    let layout = ElectionLayout::LeaderLatch;
    let election = LeaderElection::with_layout(&session, "/elections/a", "host-1", layout).unwrap();
    let term = election.campaign().await.unwrap();
    let node = term.members().remove(0).node_path;
    ensemble.delete(&node).await;
    term.lost().await;
    drop(term);

    let shown = series(&metrics);
    for (name, value) in [
        // An acquire is one, however many permits it is for. A grant is counted for each node.
        (r#"acquires_total{kind="permit",outcome="granted"}"#, 1.),
        (r#"acquires_total{kind="permit",outcome="busy"}"#, 1.),
        (r#"grants_total{kind="permit"}"#, 2.),
        (r#"releases_total{kind="permit",outcome="released"}"#, 2.),
        (r#"acquires_total{kind="latch",outcome="granted"}"#, 1.),
        (r#"losses_total{kind="latch",reason="node_removed"}"#, 1.),
    ] {
        assert_eq!(shown.get(name), Some(&value), "{name}: {shown:#?}");
    }
    session.close().await;
}

#[tokio::test(start_paused = true)]
async fn permits_and_terms_are_counted_by_their_kinds_in_memory() {
    permits_and_terms_are_counted_by_their_kinds(TestEnsemble::in_memory()).await;
}

#[tokio::test]
async fn permits_and_terms_are_counted_by_their_kinds_on_a_real_server() {
    permits_and_terms_are_counted_by_their_kinds(test_rig::own::on_a_real_server().await).await;
}
