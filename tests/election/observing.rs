//! What an observer sees, and what that costs.

use std::time::Duration;

use futures::StreamExt;
use lock_recipes::{
    Candidate, Error, InterProcessMutex, LeaderElection, LeaderObserver, QueryError, ReleaseError,
};
use test_rig::{
    MemoryEnsemble, Operation, TestEnsemble, on_ensembles_of_their_own, on_every_ensemble,
};
use tokio::time::Instant;

use crate::{LAYOUTS, PATH, election};

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

on_every_ensemble!(
    observer_sees_each_term_once_and_in_order,
    terms_of_one_candidate_in_a_row_are_told_apart,
    observer_goes_on_in_the_next_session,
    observer_ends_with_its_session,
);
on_ensembles_of_their_own!(observer_goes_on_after_a_restart_of_the_server);
on_ensembles_of_their_own!(watches: observer_watches_the_leader_alone);

/// The next leader.
async fn next(observer: &mut LeaderObserver) -> Option<Candidate> {
    let next = tokio::time::timeout(PATIENCE, observer.next()).await;
    next.expect("no news").unwrap().unwrap()
}

async fn observer_sees_each_term_once_and_in_order(ensemble: TestEnsemble) {
    for (layout, path) in LAYOUTS {
        let (ours, theirs) = (ensemble.session().await, ensemble.session().await);
        let observed = LeaderElection::with_layout(&theirs, path, "observer", layout).unwrap();
        let mut observer = observed.observe();
        assert_eq!(next(&mut observer).await, None);
        let mut leading = None;
        let mut queue = std::collections::VecDeque::new();
        for round in 0..10 {
            let id = format!("host-{round}");
            let candidate = LeaderElection::with_layout(&ours, path, &id, layout).unwrap();
            queue.push_back(tokio::spawn(candidate.campaign()));
            ensemble
                .await_children(path, queue.len() + leading.iter().len())
                .await;
            // Two candidates behind each leader.
            if queue.len() < 3 {
                continue;
            }
            if let Some(term) = leading.take() {
                let term: lock_recipes::Leadership = term;
                term.resign().await.unwrap();
            }
            let term = queue.pop_front().unwrap().await.unwrap().unwrap();
            let seen = next(&mut observer).await.expect("a leader");
            assert_eq!(seen.id, format!("host-{}", round - 2));
            assert_eq!(seen.term, term.fencing_token());
            assert!(seen.is_leader);
            leading = Some(term);
        }
        drop((queue, leading));
        // Those who waited may lead for a moment, in order; then nobody.
        let mut last = None;
        while let Some(leader) = next(&mut observer).await {
            assert!(Some(leader.term) > last);
            last = Some(leader.term);
        }
        ensemble.await_children(path, 0).await;
    }
}

async fn terms_of_one_candidate_in_a_row_are_told_apart(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let candidate = election(&session, "the same");
    let mut observer = candidate.observe();
    assert_eq!(next(&mut observer).await, None);
    let mut term = candidate.campaign().await.unwrap();
    for _ in 0..3 {
        let seen = next(&mut observer).await.expect("a leader");
        assert_eq!(
            (seen.id.as_str(), seen.term),
            ("the same", term.fencing_token())
        );
        let again = tokio::spawn(candidate.campaign());
        ensemble.await_children(PATH, 2).await;
        term.resign().await.unwrap();
        term = again.await.unwrap().unwrap();
    }
    let last = next(&mut observer).await.expect("a leader");
    assert_eq!(last.term, term.fencing_token());
    // A write into the leader's node is no other term.
    ensemble.set(&last.node_path, b"other data").await;
    term.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
}

async fn observer_goes_on_in_the_next_session(ensemble: TestEnsemble) {
    let (leading, observing) = (ensemble.session().await, ensemble.session().await);
    let mut observer = election(&observing, "observer").observe();
    let first = election(&leading, "first").campaign().await.unwrap();
    let next_one = tokio::spawn(election(&leading, "second").campaign());
    ensemble.await_children(PATH, 2).await;
    while next(&mut observer).await.is_none() {}
    ensemble.expire(&observing).await;
    first.resign().await.unwrap();
    let second = next_one.await.unwrap().unwrap();
    assert_eq!(next(&mut observer).await.unwrap().id, "second");
    // Polled while its session ends, too.
    let mut seen = Box::pin(next(&mut observer));
    assert!(futures::poll!(&mut seen).is_pending());
    ensemble.expire(&observing).await;
    second.resign().await.unwrap();
    assert_eq!(seen.await, None);
}

async fn observer_goes_on_after_a_restart_of_the_server(ensemble: TestEnsemble) {
    let (leading, observing) = (ensemble.session().await, ensemble.session().await);
    let mut observer = election(&observing, "observer").observe();
    let first = election(&leading, "first").campaign().await.unwrap();
    while next(&mut observer).await.is_none() {}
    ensemble.stop().await;
    let mut seen = Box::pin(next(&mut observer));
    assert!(futures::poll!(&mut seen).is_pending());
    ensemble.start_again().await;
    // A term is lost if the server is down for longer than it is valid.
    match first.resign().await {
        Ok(_) | Err(Error::Release(ReleaseError::Lost(_))) => {}
        Err(error) => panic!("{error}"),
    }
    assert_eq!(seen.await, None);
}

async fn observer_ends_with_its_session(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let candidate = election(&session, "host");
    let mut observer = candidate.observe();
    assert_eq!(next(&mut observer).await, None);
    session.close().await;
    let last = observer.next().await.unwrap().unwrap_err();
    assert!(
        matches!(last, Error::Query(QueryError::SessionClosed { .. })),
        "{last}"
    );
    assert!(observer.next().await.is_none());
    let refused = candidate.leader().await.unwrap_err();
    assert!(refused.is_closed(), "{refused}");
}

/// Leader and waiters have their own watches; the observer adds one.
async fn observer_watches_the_leader_alone(ensemble: TestEnsemble) {
    // A server counts the watches of one session on one node as one.
    let (leading, observing) = (ensemble.session().await, ensemble.session().await);
    let waiting = [ensemble.session().await, ensemble.session().await];
    let term = election(&leading, "first").campaign().await.unwrap();
    let second = tokio::spawn(election(&waiting[0], "second").campaign());
    ensemble.await_children(PATH, 2).await;
    let third = tokio::spawn(election(&waiting[1], "third").campaign());
    ensemble.await_children(PATH, 3).await;
    // Its own, the second's two, the third's three.
    ensemble.await_watches(6).await;
    let mut observer = Box::pin(election(&observing, "observer").observe());
    assert_eq!(
        observer.as_mut().next().await.unwrap().unwrap().unwrap().id,
        "first"
    );
    ensemble.await_watches(7).await;
    drop(observer);
    ensemble.await_watches(6).await;
    third.abort();
    drop(term);
    drop(second.await.unwrap().unwrap());
}

/// How soon and how often it looks at an election without candidates.
#[tokio::test(start_paused = true)]
async fn empty_election_is_listed_once_a_second() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let (observing, leading) = (memory.session(), memory.session());
    let mut observer = election(&observing, "observer").observe();
    assert_eq!(next(&mut observer).await, None);
    let mut leader = Box::pin(observer.next());
    for _ in 0..60 {
        assert!(futures::poll!(&mut leader).is_pending());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    memory.reset_requests();
    let watching = tokio::time::timeout(Duration::from_secs(60), &mut leader);
    watching.await.unwrap_err();
    let lists = memory.request_count(Operation::List);
    assert!((59..=61).contains(&lists), "{lists} lists in a minute");
    let _term = election(&leading, "host").campaign().await.unwrap();
    let since = Instant::now();
    assert_eq!(leader.await.unwrap().unwrap().unwrap().id, "host");
    assert!(
        since.elapsed() <= Duration::from_secs(1),
        "{:?}",
        since.elapsed()
    );
}

/// The next leader is reported in the moment in which it leads, so that short terms are seen.
#[tokio::test(start_paused = true)]
async fn change_of_the_leader_is_reported_at_once() {
    const ONE_WAY: Duration = Duration::from_millis(1);
    let memory = MemoryEnsemble::builder()
        .without_session_timeout()
        .latency(ONE_WAY)
        .build();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (observing, leading) = (memory.session(), memory.session());
    let candidate = election(&leading, "host");
    let mut term = candidate.campaign().await.unwrap();
    let mut observer = election(&observing, "observer").observe();
    assert_eq!(
        next(&mut observer).await.unwrap().term,
        term.fencing_token()
    );
    for _ in 0..10 {
        let again = tokio::spawn(candidate.campaign());
        ensemble.await_children(PATH, 2).await;
        let since = Instant::now();
        let resigned = tokio::spawn(term.resign());
        let seen = next(&mut observer).await.unwrap();
        // The resignation and the news of it, a list and a read: three round trips.
        let waited = since.elapsed();
        assert!(waited <= 10 * ONE_WAY, "{waited:?}");
        term = again.await.unwrap().unwrap();
        assert_eq!(seen.term, term.fencing_token());
        resigned.await.unwrap().unwrap();
    }
}

/// While nothing changes, it sends nothing.
#[tokio::test(start_paused = true)]
async fn observer_of_a_leader_sends_nothing() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let (observing, leading) = (memory.session(), memory.session());
    let term = election(&leading, "host").campaign().await.unwrap();
    let mut observer = election(&observing, "observer").observe();
    assert_eq!(observer.next().await.unwrap().unwrap().unwrap().id, "host");
    let reads = |memory: &MemoryEnsemble| {
        [Operation::List, Operation::Read, Operation::Watch].map(|it| memory.request_count(it))
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = reads(&memory);
    let waiting = tokio::time::timeout(Duration::from_secs(60), observer.next());
    waiting.await.unwrap_err();
    assert_eq!(reads(&memory), before);
    term.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
}

/// However many observers a session has, those who wait are granted at once.
#[tokio::test(start_paused = true)]
async fn observers_leave_room_for_those_who_wait_in_memory() {
    let second = Duration::from_secs(1);
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let (observing, leading) = (memory.session(), memory.session());
    let _term = election(&leading, "host").campaign().await.unwrap();
    let mut observers: Vec<_> = (0..1_000)
        .map(|_| election(&observing, "observer").observe())
        .collect();
    for observer in &mut observers {
        assert_eq!(next(observer).await.unwrap().id, "host");
    }
    let lock = |session| InterProcessMutex::new(session, "/locks/orders").unwrap();
    let held = lock(&leading).acquire().await.unwrap();
    let waiting = tokio::spawn(lock(&observing).acquire());
    tokio::time::sleep(10 * second).await;
    let released = Instant::now();
    drop(held);
    drop(waiting.await.unwrap().unwrap());
    assert!(released.elapsed() < second / 10, "{:?}", released.elapsed());
}
