//! A set whose last request before the grant is about only one of its nodes.

use std::time::Duration;

use lock_recipes::{Member, MultiLock};
use test_rig::MemoryEnsemble;
use tokio::time::{Instant, sleep};

use super::mutex;

const LATENCY: Duration = Duration::from_secs(1);
const MEMBERS: [&str; 2] = ["/locks/a", "/locks/b"];

/// Servers before 3.7.2 and 3.8.2 do not return when the nodes of a transaction were created. So
/// the first node is read for that once both are listed. Meanwhile the second is removed.
#[tokio::test(start_paused = true)]
async fn set_is_not_granted_behind_the_next_holder_of_a_node_that_was_removed() {
    let memory = MemoryEnsemble::builder().latency(LATENCY).build();
    let (ours, other) = (memory.session(), memory.session());
    let set = MultiLock::new(&ours, MEMBERS.map(Member::mutex)).unwrap();
    let set = tokio::spawn(async move { (set.acquire().await.unwrap(), Instant::now()) });
    while memory.children(MEMBERS[1]).is_empty() {
        sleep(LATENCY / 10).await;
    }
    // The nodes are listed, with nothing ahead, and the answer is in flight.
    let node = format!("{}/{}", MEMBERS[1], memory.children(MEMBERS[1])[0]);
    memory.delete(&node).unwrap();
    let next = mutex(&other, MEMBERS[1]).acquire().await.unwrap();
    let next_at = Instant::now();
    // Time for the next contender, whatever the set does before it is granted.
    sleep(LATENCY * 10).await;
    let token = next.fencing_token();
    let is_beside = next.is_valid() && set.is_finished();
    next.release().await.unwrap();
    let (set, set_at) = set.await.unwrap();
    let member = &set.members()[1];
    assert!(
        !is_beside && member.node_path != node && member.fencing_token > token,
        "{:?} after another was granted {token} the set is granted {}",
        set_at - next_at,
        member.fencing_token
    );
}
