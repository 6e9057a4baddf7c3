//! What a candidate in the background does.

use std::pin::pin;
use std::time::Duration;

use futures::poll;
use lock_recipes::{
    AcquireError, ElectionLayout, Error, LatchError, LatchWatcher, LeaderElection, LeaderLatch,
    Session,
};
use recipes_core::EndReason;
use test_rig::{
    MemoryEnsemble, Operation, TestEnsemble, on_ensembles_of_their_own, on_every_ensemble,
};
use tokio::time::Instant;

const PATH: &str = "/elections/latch";
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_secs(2);

on_every_ensemble!(dropped_latch_makes_way);
on_ensembles_of_their_own!(
    latch_leads_until_it_is_stopped_and_the_next_one_follows,
    latch_whose_session_ends_steps_down_first_and_campaigns_again,
    latch_whose_node_is_removed_campaigns_again,
    latch_of_a_closed_session_says_so,
    watcher_sees_the_end_of_each_term,
);

fn start(session: &Session, id: &str) -> LeaderLatch {
    LeaderLatch::start(session, PATH, id).unwrap()
}

async fn changed(watcher: &mut LatchWatcher) -> Result<bool, Error> {
    let changed = tokio::time::timeout(PATIENCE, watcher.changed()).await;
    changed.expect("no news")
}

async fn leads(latch: &LeaderLatch) {
    let leads = tokio::time::timeout(PATIENCE, latch.wait_until_leader()).await;
    let term = leads.expect("it does not lead").unwrap();
    assert_eq!(latch.term(), Some(term));
    assert!(latch.is_leader());
}

async fn latch_leads_until_it_is_stopped_and_the_next_one_follows(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let first = start(&here, "first");
    leads(&first).await;
    let second = start(&elsewhere, "second");
    ensemble.await_children(PATH, 2).await;
    assert!(!second.is_leader());
    assert_eq!(second.term(), None);
    assert_eq!(second.leader().await.unwrap().unwrap().id, "first");
    let mut watcher = first.watch();
    assert!(changed(&mut watcher).await.unwrap());
    let term = first.term();

    assert!(first.stop().await.unwrap().is_some());
    let ended = changed(&mut watcher).await.unwrap_err();
    assert!(
        matches!(ended, Error::Latch(LatchError::Stopped { .. })),
        "{ended}"
    );
    assert!(!watcher.is_leader());
    leads(&second).await;
    assert!(second.term() > term);
    // A candidate that does not lead stops, too.
    let third = start(&here, "third");
    ensemble.await_children(PATH, 2).await;
    assert!(third.stop().await.unwrap().is_none());
    ensemble.await_children(PATH, 1).await;
    second.stop().await.unwrap();
    ensemble.await_children(PATH, 0).await;
}

async fn latch_whose_session_ends_steps_down_first_and_campaigns_again(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let (first, second) = (start(&here, "first"), start(&elsewhere, "second"));
    leads_one_of(&ensemble, [&first, &second]).await;
    for round in 0..3 {
        let (old, new, session) = match first.is_leader() {
            true => (&first, &second, &here),
            false => (&second, &first, &elsewhere),
        };
        ensemble.await_children(PATH, 2).await;
        let mut watcher = old.watch();
        assert!(changed(&mut watcher).await.unwrap());
        let before = old.term();
        ensemble.expire(session).await;
        leads(new).await;
        // At once: not after its task has had time to notice.
        assert!(!old.is_leader(), "two lead in round {round}");
        assert_eq!(old.term(), None);
        assert!(new.term() > before);
        assert!(!changed(&mut watcher).await.unwrap());
        // And it is a candidate again, in its next session.
        ensemble.await_children(PATH, 2).await;
    }
    first.stop().await.unwrap();
    second.stop().await.unwrap();
    ensemble.await_children(PATH, 0).await;
}

/// Waits until one of them leads.
async fn leads_one_of(ensemble: &TestEnsemble, latches: [&LeaderLatch; 2]) {
    let leads = async || latches.iter().any(|it| it.is_leader()).then_some(());
    ensemble.until("a leader", leads).await;
}

async fn latch_whose_node_is_removed_campaigns_again(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let latch = start(&session, "host");
    leads(&latch).await;
    let mut watcher = latch.watch();
    assert!(changed(&mut watcher).await.unwrap());
    let term = latch.term();
    let leader = latch.leader().await.unwrap().unwrap();
    ensemble.delete(&leader.node_path).await;
    assert!(!changed(&mut watcher).await.unwrap());
    assert!(changed(&mut watcher).await.unwrap());
    assert!(latch.term() > term);
    latch.stop().await.unwrap();
}

async fn dropped_latch_makes_way(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (first, second) = (start(&session, "first"), start(&session, "second"));
    leads_one_of(&ensemble, [&first, &second]).await;
    ensemble.await_children(PATH, 2).await;
    let (leading, waiting) = match first.is_leader() {
        true => (first, second),
        false => (second, first),
    };
    let watcher = leading.watch();
    drop(leading);
    leads(&waiting).await;
    assert!(!watcher.is_leader());
    drop(waiting);
    ensemble.await_children(PATH, 0).await;
}

async fn latch_of_a_closed_session_says_so(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let leading = start(&here, "leads");
    leads(&leading).await;
    let waiting = start(&elsewhere, "waits");
    ensemble.await_children(PATH, 2).await;
    for (latch, session) in [(waiting, elsewhere), (leading, here)] {
        let mut watcher = latch.watch();
        session.close().await;
        assert!(!latch.is_leader());
        // The end may come before the step down is reported.
        let ended = loop {
            if let Err(ended) = changed(&mut watcher).await {
                break ended;
            }
        };
        assert!(ended.is_closed(), "{ended}");
        let ended = latch.wait_until_leader().await.unwrap_err();
        assert!(
            matches!(
                &ended,
                Error::Latch(LatchError::Ended { source, .. })
                    if matches!(**source, Error::Acquire(AcquireError::SessionClosed { .. }))
            ),
            "{ended}"
        );
        assert_eq!(latch.stop().await.unwrap(), None);
        let stopped = changed(&mut watcher).await.unwrap_err();
        assert!(stopped.is_closed(), "{stopped}");
    }
}

/// Also if it looks only now and then.
async fn watcher_sees_the_end_of_each_term(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let latch = start(&session, "host");
    leads(&latch).await;
    let mut watcher = latch.watch();
    let mut seldom = latch.watch();
    assert!(changed(&mut seldom).await.unwrap());
    for _ in 0..3 {
        assert!(changed(&mut watcher).await.unwrap());
        ensemble.expire(&session).await;
        assert!(!changed(&mut watcher).await.unwrap());
        leads(&latch).await;
    }
    assert!(!changed(&mut seldom).await.unwrap());
    assert!(changed(&mut seldom).await.unwrap());
    let mut nothing = pin!(seldom.changed());
    assert!(poll!(&mut nothing).is_pending());
    latch.stop().await.unwrap();
}

/// The store gives every session its full timeout after an outage, so the node of a session that the
/// latch has given up may still stand in the queue, even first in it. Curator's latch once led by such
/// a node, next to another leader (CURATOR-696).
#[tokio::test(start_paused = true)]
async fn latch_does_not_lead_by_the_node_of_a_session_that_it_has_given_up() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (here, elsewhere) = (memory.session(), memory.session());
    // While it waits, and while it leads.
    for does_lead in [false, true] {
        ensemble.await_children(PATH, 0).await;
        let ahead = start(&elsewhere, "ahead");
        leads(&ahead).await;
        let latch = start(&here, "host");
        ensemble.await_children(PATH, 2).await;
        let behind = start(&elsewhere, "behind");
        ensemble.await_children(PATH, 3).await;
        let ahead = match does_lead {
            true => {
                ahead.stop().await.unwrap();
                leads(&latch).await;
                None
            }
            false => Some(ahead),
        };
        let candidates = latch.election().candidates().await.unwrap();
        let old = candidates.iter().find(|it| it.id == "host").unwrap();
        // Only the store can remove the old node.
        memory.deny(&old.node_path, Operation::Delete);
        memory.end_client(old.session_id, EndReason::Expired);
        let own = async || {
            let candidates = behind.election().candidates().await.ok()?;
            (candidates.last()?.id == "host").then_some(())
        };
        ensemble.until("its node of the next session", own).await;
        if let Some(ahead) = ahead {
            ahead.stop().await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let leader = behind.leader().await.unwrap().unwrap();
        assert_eq!(leader.node_path, old.node_path, "as the queue has it");
        assert!(!latch.is_leader(), "leads by a node of a dead session");
        assert!(!behind.is_leader());
        memory.expire(old.session_id);
        leads(&behind).await;
        assert!(!latch.is_leader());
        behind.stop().await.unwrap();
        leads(&latch).await;
        latch.stop().await.unwrap();
    }
}

/// By the deadline, and not by the loss of the connection.
#[tokio::test(start_paused = true)]
async fn latch_that_is_cut_off_leads_until_its_deadline() {
    let memory = MemoryEnsemble::builder().session_timeout(SHORT).build();
    let session = memory.session();
    let election =
        LeaderElection::with_layout(&session, PATH, "host", ElectionLayout::LeaderLatch).unwrap();
    let latch = LeaderLatch::of(election);
    leads(&latch).await;
    let mut watcher = latch.watch();
    assert!(watcher.changed().await.unwrap());
    tokio::time::sleep(SHORT).await;
    assert!(latch.is_leader());
    memory.disconnect(session.session_id().unwrap());
    let cut = Instant::now();
    tokio::time::sleep(SHORT / 5).await;
    assert!(latch.is_leader(), "a short disconnection is no reason");
    assert!(!watcher.changed().await.unwrap());
    assert!(!latch.is_leader());
    let (led, nodes) = (cut.elapsed(), memory.children(PATH).len());
    assert!(led < SHORT, "{led:?}");
    assert_eq!(nodes, 1, "the store still has its node");
}

/// No await between the loss and the question: the task of the latch has not run.
#[tokio::test(start_paused = true)]
async fn latch_asks_the_guard_and_not_a_flag() {
    let memory = MemoryEnsemble::builder().session_timeout(SHORT).build();
    let session = memory.session();
    let latch = start(&session, "host");
    leads(&latch).await;
    memory.stop();
    assert!(latch.is_leader());
    let watcher = latch.watch();
    // The machine sleeps, so no timer of the runtime has fired.
    memory.suspend_machine(2 * SHORT);
    assert!(!latch.is_leader());
    assert!(!watcher.is_leader());
    assert_eq!(latch.term(), None);
}

#[tokio::test(start_paused = true)]
async fn latch_that_is_refused_says_so_and_ends() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let session = memory.session();
    let first = start(&session, "first");
    leads(&first).await;
    memory.deny(PATH, Operation::Create);
    let latch = start(&session, "host");
    let mut watcher = latch.watch();
    let refused = latch.wait_until_leader().await.unwrap_err();
    assert!(
        matches!(
            &refused,
            Error::Latch(LatchError::Ended { source, .. })
                if matches!(**source, Error::Acquire(AcquireError::NotAuthorized { .. }))
        ),
        "{refused:?}"
    );
    assert!(!refused.is_closed());
    assert_eq!(
        refused.to_string(),
        format!("leader latch of {PATH:?} has ended")
    );
    watcher.changed().await.unwrap_err();
    // Nothing goes on.
    memory.allow_all();
    assert!(!latch.is_leader());
    latch.wait_until_leader().await.unwrap_err();
    assert_eq!(memory.children(PATH).len(), 1);
    first.stop().await.unwrap();
}

/// The session runs elsewhere, so it goes on. A watcher does not keep the term.
#[test]
fn latch_whose_own_runtime_is_shut_down_makes_way() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let (of_session, of_latch) = (runtime(), runtime());
    let memory = of_session.block_on(async { MemoryEnsemble::new() });
    let session = of_session.block_on(async { memory.session() });
    let latch = of_latch.block_on(async {
        let latch = start(&session, "host");
        leads(&latch).await;
        latch
    });
    let watcher = latch.watch();
    of_latch.shutdown_timeout(PATIENCE);
    assert!(!latch.is_leader(), "nobody would notice its end");
    assert!(!watcher.is_leader());
    of_session.block_on(async {
        let next = start(&session, "next");
        leads(&next).await;
        assert_eq!(latch.stop().await.unwrap(), None);
        next.stop().await.unwrap();
    });
    drop(watcher);
}

/// As it is when the runtime of a service is shut down under it.
#[test]
fn latch_of_a_runtime_that_is_gone_has_ended() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let own = runtime();
    let memory = MemoryEnsemble::new();
    let latch = own.block_on(async {
        let session = memory.session();
        let latch = start(&session, "host");
        leads(&latch).await;
        latch
    });
    drop(own);
    assert!(!latch.is_leader());
    runtime().block_on(async {
        let ended = latch.wait_until_leader().await.unwrap_err();
        assert!(ended.is_closed(), "{ended}");
        assert_eq!(latch.stop().await.unwrap(), None);
    });
}
