//! Members of etcd that are cut off, replaced, or lead no more, while a lock is held and waited for.

use std::time::Duration;

use lock_recipes::{Error, GuardState, LockGuard, VerifyError};
use test_rig::{EtcdCluster, EtcdServer};
use tokio::time::{Instant, sleep, timeout};

use super::deposed::{PATIENCE, await_queue_of};
use super::etcd_leaders::{connect, start, url_of_others};
use crate::mutex;

/// Long enough that no session is over half of it without an answer.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks until there is an answer whether a guard holds: what was on its way when a connection broke has none.
pub(super) async fn verified(guard: &LockGuard) -> Result<(), Error> {
    let verified = async {
        loop {
            match guard.verify().await {
                Err(Error::Verify(VerifyError::Unknown { .. })) => {
                    sleep(Duration::from_millis(5)).await;
                }
                verified => return verified,
            }
        }
    };
    timeout(PATIENCE, verified).await.unwrap()
}

/// What happens to the member to which the holder is connected, or to its leader, leaves each in its place.
async fn all_goes_on(near_leader: bool, happens: impl AsyncFnOnce(&EtcdCluster, usize)) {
    let cluster = start().await;
    let leader = cluster.leader().await.unwrap();
    let near = if near_leader {
        leader
    } else {
        (leader + 1) % 3
    };
    let server: &EtcdServer = cluster.server(near);
    let others = url_of_others(&cluster, near);
    let url = format!("{},{}", server.url(), others.trim_start_matches("etcd://"));
    let here = connect(&url, SESSION_TIMEOUT).await;
    let there = connect(&others, SESSION_TIMEOUT).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    await_queue_of(&there, 2).await;
    let before = mutex(&there).participants().await.unwrap();
    let begun = Instant::now();
    happens(&cluster, near).await;
    verified(&guard).await.unwrap();
    let is_held = async {
        while guard.state() != GuardState::Held {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, is_held).await.unwrap();
    println!("held again after {:.2} s", begun.elapsed().as_secs_f64());
    let after = mutex(&there).participants().await.unwrap();
    let places = |all: &[lock_recipes::Participant]| -> Vec<_> {
        all.iter().map(|it| it.path.clone()).collect()
    };
    assert_eq!(places(&after), places(&before));
    assert!(!waiter.is_finished());
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_goes_to_another_member_when_its_own_is_cut_off() {
    all_goes_on(false, async |cluster, near| cluster.cut_off(near)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_stays_when_another_member_comes_to_lead() {
    all_goes_on(true, async |cluster, near| {
        cluster.move_leader((near + 1) % 3).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_stays_when_its_member_is_replaced() {
    all_goes_on(false, async |cluster, near| {
        cluster.replace(near).await.unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_stays_when_the_leader_is_replaced() {
    all_goes_on(true, async |cluster, near| {
        cluster.replace(near).await.unwrap()
    })
    .await;
}
