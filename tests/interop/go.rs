//! The same mutex, acquired by this library and by go-zookeeper's `Lock`.

use test_rig::{ForeignPeer, Naming};

use crate::foreign::{self, Stage};

async fn stage() -> Stage {
    let go = ForeignPeer::go().await.unwrap();
    Stage::set_up(go, Naming::Own).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waits_for_the_other_in_the_order_that_is_shown() {
    foreign::each_waits_for_the_other(stage().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_of_ours_and_eight_of_gos_share_one_queue() {
    foreign::share_one_queue(stage().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_locks_pass_from_one_to_the_other() {
    let peers = [
        ForeignPeer::go().await.unwrap(),
        ForeignPeer::go().await.unwrap(),
    ];
    foreign::lost_locks_pass_from_one_to_the_other(peers, Naming::Own).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_gives_up_is_passed() {
    foreign::waiter_that_gives_up_is_passed(stage().await).await;
}
