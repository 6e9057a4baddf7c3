//! A store as that on Redis: its clock, its sessions, and what it forgets. The same on a real server:
//! `tests/redis`, files `clock`, `forgotten`, `back` and `connection`.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use recipes_core::{Connection, Created, EndReason, Guarantee, Nodes, NodesError, SessionOptions};
use test_rig::{Faults, MemoryEnsemble};
use tokio::time::{Instant, sleep};

use super::common::{connect, ephemeral, persistent, sequential, set_watch, sorted_list};

const TIMEOUT: Duration = Duration::from_secs(8);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn on_redis() -> MemoryEnsemble {
    MemoryEnsemble::builder().on_redis(TIMEOUT).build()
}

/// Returns once a session has found that its connection is lost, and goes on over another one.
async fn goes_on(nodes: &dyn Nodes) {
    loop {
        match nodes.sync("/").await {
            Ok(()) => return,
            Err(NodesError::Unknown(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn session_that_is_silent_ends_at_its_timeout_and_its_client_learns_late() {
    let memory = on_redis();
    let (here, there) = (connect(&memory).await, connect(&memory).await);
    assert_eq!(here.guarantee(), Guarantee::BestEffort);
    there.create(&ephemeral("/a")).await.unwrap();
    let mut link = there.connection();
    memory.disconnect(there.session());
    sleep(TIMEOUT - TIMEOUT / 6).await;
    assert!(memory.exists("/a"));
    // Another session's beat is what ends it.
    sleep(TIMEOUT / 2).await;
    assert!(!memory.exists("/a"));
    assert_eq!(memory.sessions(), [here.session()]);
    assert_eq!(link.next().await, Some(Connection::Disconnected));
    assert_eq!(link.next().now_or_never(), None);
    memory.reconnect(there.session());
    let ended = Connection::Ended(EndReason::Expired);
    assert_eq!(link.next().await, Some(ended));
    let refused = there.list("/").await;
    assert!(matches!(refused, Err(NodesError::SessionEnded)));
}

#[tokio::test(start_paused = true)]
async fn time_in_which_nobody_asked_counts_as_a_quarter_of_a_timeout() {
    let memory = on_redis();
    let here = connect(&memory).await;
    here.create(&ephemeral("/a")).await.unwrap();
    memory.stop();
    sleep(10 * TIMEOUT).await;
    memory.restart();
    memory.set_clock_forward(YEAR);
    here.sync("/").await.unwrap();
    memory.set_clock_forward(YEAR);
    here.sync("/").await.unwrap();
    assert!(memory.exists("/a"));
    assert_eq!(here.grants_from(), None, "the same run of the server");
}

#[tokio::test(start_paused = true)]
async fn numbers_follow_the_clock_and_rise_when_it_is_set_back() {
    let memory = on_redis();
    let here = connect(&memory).await;
    let first = here.create(&persistent("/a")).await.unwrap().czxid;
    memory.set_clock_forward(YEAR);
    let second = here.create(&persistent("/b")).await.unwrap().czxid;
    let year = i64::try_from(YEAR.as_micros()).unwrap();
    // The first came right after that of the session, in the same microsecond.
    assert!(second.unwrap() - first.unwrap() > year - 10);
    memory.set_clock_back(2 * YEAR);
    let third = here.create(&persistent("/c")).await.unwrap().czxid;
    assert_eq!(third.unwrap(), second.unwrap() + 1);
    assert!(memory.clock_is_behind_by() > YEAR);
}

#[tokio::test(start_paused = true)]
async fn server_that_forgets_has_what_it_had_and_grants_nothing_for_a_while() {
    let memory = on_redis();
    let (here, there) = (connect(&memory).await, connect(&memory).await);
    here.create(&persistent("/d")).await.unwrap();
    let kept = there.create(&sequential("/d/n-")).await.unwrap();
    let before = memory.checkpoint();
    let lost = here.create(&sequential("/d/n-")).await.unwrap();
    let watch = set_watch(&*here, &lost.path).await;
    let late = connect(&memory).await;
    let mut link = late.connection();
    there.delete(&kept.path).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    memory.forget(before);
    assert_eq!(memory.children("/d"), ["n-0000000000"]);
    memory.restart();
    let over = Instant::now() + TIMEOUT * 3 / 4;
    for session in [&here, &there] {
        goes_on(&**session).await;
        assert_eq!(session.grants_from(), Some(over));
    }
    // The session that was opened since is known no more.
    let ended = Connection::Ended(EndReason::Expired);
    while link.next().await != Some(ended) {}
    assert_eq!(watch.await, recipes_core::NodeEvent::Deleted);
    // Its client had deleted it.
    assert!(sorted_list(&*here, "/d").await.is_empty());
    // The sequence is given again, the number is not.
    let again = here.create(&sequential("/d/n-")).await.unwrap();
    assert_eq!(again.path, lost.path);
    assert!(again.czxid > lost.czxid);
}

#[tokio::test(start_paused = true)]
async fn session_that_was_closed_is_back_without_a_client_for_the_rest_of_its_timeout() {
    let memory = on_redis();
    let (here, there) = (connect(&memory).await, connect(&memory).await);
    there.create(&ephemeral("/a")).await.unwrap();
    let before = memory.checkpoint();
    drop(there);
    here.sync("/").await.unwrap();
    assert!(!memory.exists("/a"));
    memory.forget(before);
    memory.restart();
    assert!(memory.exists("/a"));
    sleep(TIMEOUT + TIMEOUT / 3).await;
    assert!(!memory.exists("/a"));
}

/// The run before may have ended the session, and this one has forgotten it.
#[tokio::test(start_paused = true)]
async fn session_that_was_silent_for_half_of_its_timeout_has_no_node_on_another_run() {
    for (silent, is_kept) in [
        (TIMEOUT / 2 - Duration::from_secs(1), true),
        (TIMEOUT / 2, false),
    ] {
        let memory = on_redis();
        let here = connect(&memory).await;
        here.create(&ephemeral("/a")).await.unwrap();
        memory.disconnect(here.session());
        sleep(silent).await;
        memory.forget(memory.checkpoint());
        memory.restart();
        assert!(memory.exists("/a"));
        memory.reconnect(here.session());
        goes_on(&*here).await;
        assert_eq!(memory.exists("/a"), is_kept, "{silent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_the_session_knows_to_be_gone_is_deleted_when_it_is_back() {
    for knows in [true, false] {
        let memory = on_redis();
        let here = connect(&memory).await;
        here.create(&ephemeral("/a")).await.unwrap();
        let before = memory.checkpoint();
        memory.delete("/a").unwrap();
        if knows {
            here.gone("/a");
        }
        memory.forget(before);
        memory.restart();
        goes_on(&*here).await;
        assert_eq!(memory.exists("/a"), !knows);
    }
}

#[tokio::test(start_paused = true)]
async fn store_that_has_forgotten_everything_trusts_only_who_has_never_been_there() {
    let memory = on_redis();
    let dawn = memory.checkpoint();
    // Before there was a store, its builder says that it is new.
    let store = memory.store();
    let first = store.connect().await.unwrap();
    assert_eq!(first.grants_from(), None);
    memory.forget(dawn.clone());
    memory.restart();
    let over = Some(Instant::now() + TIMEOUT * 3 / 4);
    let next = store.connect().await.unwrap();
    assert_eq!(next.grants_from(), over);
    drop((first, next));
    // For how long it has been up does not tell when it was flushed.
    memory.forget(dawn);
    memory.restart();
    sleep(2 * TIMEOUT).await;
    let over = Some(Instant::now() + TIMEOUT * 3 / 4);
    assert_eq!(memory.store().connect().await.unwrap().grants_from(), over);
}

/// A firewall that has forgotten the connection. Nobody says that it is of no more use.
#[tokio::test(start_paused = true)]
async fn silent_connection_is_given_up_and_the_session_goes_on_over_another() {
    let faults = Faults {
        mute_per_mille: 1000,
        ..Faults::default()
    };
    let memory = MemoryEnsemble::builder().faults(faults);
    let memory = memory.on_redis(TIMEOUT).build();
    let here = connect(&memory).await;
    here.create(&ephemeral("/a")).await.unwrap();
    memory.disconnect(here.session());
    memory.reconnect(here.session());
    let silent = Instant::now();
    let lost = here.list("/").await;
    assert!(matches!(lost, Err(NodesError::Unknown(_))), "{lost:?}");
    // A quarter of the timeout, as a look at the clock each 24th of it finds.
    let took = silent.elapsed();
    assert!(
        took > TIMEOUT / 4 && took < TIMEOUT / 4 + TIMEOUT / 12,
        "{took:?}"
    );
    goes_on(&*here).await;
    assert!(memory.exists("/a"));
}

/// Creates a node, a second after the session has connected.
async fn create_under(
    faults: Faults,
    memory: &MemoryEnsemble,
    nodes: &dyn Nodes,
) -> Result<Created, NodesError> {
    sleep(Duration::from_secs(1)).await;
    memory.set_faults(faults);
    let created = nodes.create(&persistent("/a")).await;
    memory.set_faults(Faults::default());
    created
}

/// As a database does to end a deadlock.
#[tokio::test(start_paused = true)]
async fn call_that_is_undone_has_done_nothing_and_costs_no_connection() {
    let memory = on_redis();
    let here = connect(&memory).await;
    let connected = memory.caught_up_by(here.session());
    let faults = Faults {
        undone_per_mille: 1000,
        ..Faults::default()
    };
    let undone = create_under(faults, &memory, &*here).await;
    assert!(matches!(undone, Err(NodesError::Throttled)), "{undone:?}");
    assert!(!memory.exists("/a"));
    here.create(&persistent("/a")).await.unwrap();
    assert_eq!(memory.caught_up_by(here.session()), connected);
}

#[tokio::test(start_paused = true)]
async fn answer_that_is_cut_costs_the_connection_and_may_stand_for_something_done() {
    let memory = on_redis();
    let here = connect(&memory).await;
    let connected = memory.caught_up_by(here.session());
    let faults = Faults {
        cut_answer_per_mille: 1000,
        ..Faults::default()
    };
    let cut = create_under(faults, &memory, &*here).await;
    assert!(matches!(cut, Err(NodesError::Unknown(_))), "{cut:?}");
    assert!(memory.exists("/a"));
    goes_on(&*here).await;
    assert!(memory.caught_up_by(here.session()) > connected);
}

/// The last option is what the sessions of an ensemble get, and its kind stays.
#[tokio::test(start_paused = true)]
async fn store_as_redis_stays_one_whatever_the_ensemble_grants() {
    let builder = MemoryEnsemble::builder().on_redis(TIMEOUT);
    let memory = builder.without_session_timeout().build();
    let here = connect(&memory).await;
    assert_eq!(here.guarantee(), Guarantee::BestEffort);
    assert_eq!(here.session_timeout(), Some(TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn who_only_reads_is_no_session_and_goes_on_over_another_connection() {
    let memory = on_redis();
    let here = connect(&memory).await;
    here.create(&persistent("/a")).await.unwrap();
    let reads = SessionOptions::new().read_only(true);
    let reads = memory.store_with(None, reads).connect().await.unwrap();
    assert_eq!(memory.sessions(), [here.session()]);
    let refused = reads.create(&persistent("/b")).await.unwrap_err();
    assert!(matches!(refused, NodesError::Refused(_)), "{refused}");
    memory.stop();
    memory.restart();
    goes_on(&*reads).await;
    // Its beats are answered, and keep nobody alive.
    sleep(10 * TIMEOUT).await;
    assert_eq!(sorted_list(&*reads, "/").await, ["a"]);
    assert_eq!(memory.sessions(), [here.session()]);
}
