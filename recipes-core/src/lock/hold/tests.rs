use super::*;
use crate::error::LostReason;
use crate::lock::table::{Claim, Present};
use crate::names::node_name::LockKind;
use crate::scripted::Stage;

fn key(owner: &Owner) -> Key {
    Key {
        path: "/a".into(),
        kind: LockKind::Mutex,
        owner: owner.clone(),
    }
}

fn table(stage: &Stage) -> &PathTable {
    stage.session.paths()
}

fn begin(stage: &Stage, owner: &Owner, czxid: i64) -> (Share, Arc<Hold>) {
    let share = Hold::begin(key(owner), stage.lease(czxid));
    let hold = Arc::clone(share.hold());
    (share, hold)
}

fn held(stage: &Stage, owner: &Owner) -> Option<Arc<Hold>> {
    match table(stage).present(&key(owner)) {
        Present::Held(hold) => Some(hold),
        Present::Nothing => None,
        Present::Acquiring(_) => panic!("nobody acquires"),
    }
}

fn is_over<T>(standing: &HoldState<T>) -> bool {
    matches!(standing, HoldState::Over)
}

#[tokio::test(start_paused = true)]
async fn hold_lives_as_long_as_its_guards() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (first, hold) = begin(&stage, &owner, 1);
    assert!(matches!(hold.check(), HoldState::Good(())));
    assert_eq!(first.hold_count(), 1);
    let second = first.reenter().unwrap();
    assert_eq!(second.hold_count(), 2);
    let HoldState::Good(third) = hold.join() else {
        panic!("it is held");
    };
    assert_eq!(second.hold_count(), 3);
    assert!(first.leave().is_none() && third.leave().is_none());
    assert!(held(&stage, &owner).is_some());
    assert!(stage.log().await.is_empty());
    let last = second.leave().unwrap();
    assert!(Arc::ptr_eq(&last, &hold));
    // The last guard was left, so the hold is over.
    assert!(is_over(&hold.check()));
    assert!(is_over(&hold.join()));
    assert!(held(&stage, &owner).is_none());
}

#[tokio::test(start_paused = true)]
async fn last_guard_that_is_dropped_gives_the_lock_up() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (share, hold) = begin(&stage, &owner, 1);
    drop(share);
    assert_eq!(stage.log().await, ["delete /a/n1"]);
    assert!(is_over(&hold.join()));
    assert!(held(&stage, &owner).is_none());

    let (share, hold) = begin(&stage, &owner, 2);
    let HoldState::Good(guard) = hold.join() else {
        panic!("it is held");
    };
    drop(share);
    assert!(stage.log().await.is_empty());
    drop(guard);
    assert_eq!(stage.log().await, ["delete /a/n2"]);
    assert!(held(&stage, &owner).is_none());
}

#[tokio::test(start_paused = true)]
async fn end_of_a_hold_leaves_the_next_one_of_its_owner_in_its_place() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (old_guard, old) = begin(&stage, &owner, 1);
    // A second hold exists after a loss.
    let (_guard, next) = begin(&stage, &owner, 2);
    drop(old_guard);
    let found = held(&stage, &owner).unwrap();
    assert!(Arc::ptr_eq(&found, &next));
    drop(old);
    let found = held(&stage, &owner).unwrap();
    assert!(Arc::ptr_eq(&found, &next));
    let claim = Claim::stake(&stage.session, vec![(key(&owner), false)]);
    assert!(claim.is_none());
    assert!(held(&stage, &owner).is_some(), "not a claim");
}

#[tokio::test(start_paused = true)]
async fn lost_hold_is_told_to_its_owner_while_a_guard_of_it_lives() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (guard, hold) = begin(&stage, &owner, 1);
    hold.lease().note_loss(LostReason::NodeRemoved);
    assert!(matches!(hold.check(), HoldState::Lost(_)));
    assert!(matches!(hold.join(), HoldState::Lost(_)));
    assert!(guard.reenter().is_err());
    assert_eq!(guard.hold_count(), 1);
    drop(guard);
    // No guard is left that could report the loss.
    assert!(is_over(&hold.check()));
    assert!(is_over(&hold.join()));
}

#[tokio::test(start_paused = true)]
async fn lock_of_a_path_is_the_same_while_anybody_has_it() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let lock = stage.lock("/a", 0);
    let (share, hold) = begin(&stage, &owner, 1);
    drop(share);
    // This was the last hold of the lock.
    drop(hold);
    assert!(Arc::ptr_eq(&lock, &stage.lock("/a", 0)));
}
