use super::*;
use crate::error::LostReason;
use crate::lock::table::Present;
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
    &stage.session.shared.paths
}

fn reserve(stage: &Stage, owner: &Owner, czxid: i64) -> (Reserved, Arc<Hold>) {
    let reserved = Reserved::new(key(owner), stage.lease(czxid));
    let hold = Arc::clone(&reserved.0);
    (reserved, hold)
}

fn held(stage: &Stage, owner: &Owner) -> Option<Arc<Hold>> {
    match table(stage).present(&key(owner)) {
        Present::Held(hold) => Some(hold),
        Present::Nothing => None,
        Present::Acquiring(_) => panic!("nobody acquires"),
    }
}

#[tokio::test(start_paused = true)]
async fn hold_lives_as_long_as_its_guards() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (reserved, hold) = reserve(&stage, &owner, 1);
    assert!(matches!(hold.check(), Some(Ok(()))));
    let first = hold.enter().unwrap().unwrap();
    assert_eq!(first.hold_count(), 1);
    drop(reserved);
    assert!(matches!(hold.check(), Some(Ok(()))));
    let second = first.reenter().unwrap();
    assert_eq!(second.hold_count(), 2);
    assert!(first.leave().is_none());
    assert!(held(&stage, &owner).is_some());
    assert!(stage.log().await.is_empty());
    let last = second.leave().unwrap();
    assert!(Arc::ptr_eq(&last, &hold));
    // The last guard was left, so the hold is over.
    assert!(hold.check().is_none());
    assert!(hold.enter().is_none());
    assert!(held(&stage, &owner).is_none());
}

#[tokio::test(start_paused = true)]
async fn grant_that_nobody_takes_is_given_up_and_the_last_guard_drops_the_lock() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (reserved, hold) = reserve(&stage, &owner, 1);
    drop(reserved);
    assert_eq!(stage.log().await, ["delete /a/n1"]);
    assert!(hold.enter().is_none());
    assert!(held(&stage, &owner).is_none());

    let (reserved, hold) = reserve(&stage, &owner, 2);
    let guard = hold.enter().unwrap().unwrap();
    drop(reserved);
    assert!(stage.log().await.is_empty());
    drop(guard);
    assert_eq!(stage.log().await, ["delete /a/n2"]);
    assert!(held(&stage, &owner).is_none());
}

#[tokio::test(start_paused = true)]
async fn end_of_a_hold_leaves_the_next_one_of_its_owner_in_its_place() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (old_reserved, old) = reserve(&stage, &owner, 1);
    let old_guard = old.enter().unwrap().unwrap();
    drop(old_reserved);
    // A second hold exists after a loss, or when two attempts began at the same time.
    let (_reserved, next) = reserve(&stage, &owner, 2);
    let _guard = next.enter().unwrap().unwrap();
    drop(old_guard);
    let found = held(&stage, &owner).unwrap();
    assert!(Arc::ptr_eq(&found, &next));
    drop(old);
    let found = held(&stage, &owner).unwrap();
    assert!(Arc::ptr_eq(&found, &next));
    table(&stage).end_attempt(&key(&owner), 0);
    assert!(held(&stage, &owner).is_some(), "not an attempt");
}

#[tokio::test(start_paused = true)]
async fn lost_hold_is_told_to_its_owner_while_a_guard_of_it_lives() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (reserved, hold) = reserve(&stage, &owner, 1);
    hold.lease().note_loss(LostReason::NodeRemoved);
    // No guard could learn of the loss.
    assert!(hold.check().is_none());
    assert!(hold.enter().is_none());
    drop(reserved);

    let (reserved, hold) = reserve(&stage, &owner, 2);
    let guard = hold.enter().unwrap().unwrap();
    drop(reserved);
    hold.lease().note_loss(LostReason::NodeRemoved);
    assert!(matches!(hold.check(), Some(Err(_))));
    assert!(matches!(hold.enter(), Some(Err(_))));
    assert!(guard.reenter().is_err());
    assert_eq!(guard.hold_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn lock_of_a_path_is_the_same_while_anybody_has_it() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let lock = stage.lock("/a", 0);
    let (reserved, hold) = reserve(&stage, &owner, 1);
    drop(reserved);
    // This was the last hold of the lock.
    drop(hold);
    assert!(Arc::ptr_eq(&lock, &stage.lock("/a", 0)));
}
