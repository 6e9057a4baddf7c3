use futures::FutureExt;

use super::*;
use crate::lock::factory_root::FactoryRoot;
use crate::scripted::Stage;

fn key(owner: &Owner, kind: LockKind) -> Key {
    Key {
        path: "/a".into(),
        kind,
        owner: owner.clone(),
    }
}

fn stake(stage: &Stage, key: &Key, is_beside: bool) -> Option<Claim> {
    Claim::stake(&stage.session, vec![(key.clone(), is_beside)])
}

fn table(stage: &Stage) -> &PathTable {
    stage.session.paths()
}

fn is_acquiring(stage: &Stage, key: &Key) -> bool {
    matches!(table(stage).present(key), Present::Acquiring(_))
}

#[tokio::test(start_paused = true)]
async fn owner_has_one_claim_at_a_time_which_is_his_own() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let mutex = key(&owner, LockKind::Mutex);
    let claim = stake(&stage, &mutex, false).unwrap();
    assert!(is_acquiring(&stage, &mutex));
    assert!(stake(&stage, &mutex, false).is_none());
    let others = key(&Owner::new(), LockKind::Mutex);
    assert!(matches!(table(&stage).present(&others), Present::Nothing));
    let of_other = stake(&stage, &others, false).unwrap();
    // These claims are not in the table.
    table(&stage).end_claim(&mutex, u64::MAX);
    table(&stage).end_claim(&mutex, of_other.number);
    assert!(is_acquiring(&stage, &mutex));
    drop(claim);
    assert!(matches!(table(&stage).present(&mutex), Present::Nothing));
    assert!(is_acquiring(&stage, &others));
    drop(of_other);
    assert!(matches!(table(&stage).present(&others), Present::Nothing));
    assert!(stake(&stage, &others, false).is_some());
}

#[tokio::test(start_paused = true)]
async fn halves_of_a_lock_are_begun_beside_each_other_only_on_purpose() {
    for (first, second) in [
        (LockKind::Write, LockKind::Read),
        (LockKind::Read, LockKind::Write),
    ] {
        let (stage, owner) = (Stage::new().await, Owner::new());
        let (first, second) = (key(&owner, first), key(&owner, second));
        let _first = stake(&stage, &first, false).unwrap();
        assert!(stake(&stage, &second, false).is_none());
        assert!(stake(&stage, &second, true).is_some());
        // Another owner is not affected.
        let stranger = key(&Owner::new(), LockKind::Write);
        assert!(stake(&stage, &stranger, false).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn path_is_forgotten_with_its_last_entry() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (reads, writes) = (key(&owner, LockKind::Read), key(&owner, LockKind::Write));
    let writer = stake(&stage, &writes, false).unwrap();
    let reader = stake(&stage, &reads, true).unwrap();
    drop(writer);
    assert_eq!(table(&stage).paths.len(), 1);
    table(&stage).forget("/a");
    assert!(is_acquiring(&stage, &reads), "in use");
    drop(reader);
    assert_eq!(table(&stage).paths.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn set_is_claimed_whole_or_not_at_all() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (taken, free) = (
        key(&owner, LockKind::Mutex),
        Key {
            path: "/b".into(),
            kind: LockKind::Mutex,
            owner: owner.clone(),
        },
    );
    let claim = stake(&stage, &taken, false).unwrap();
    let both = vec![(free.clone(), false), (taken.clone(), false)];
    assert!(Claim::stake(&stage.session, both).is_none());
    assert!(matches!(table(&stage).present(&free), Present::Nothing));
    assert!(is_acquiring(&stage, &taken), "it is another's");
    drop(claim);
}

/// Whoever waits for a claim finds the owner's locks free, or held, once it is over.
#[tokio::test(start_paused = true)]
async fn end_of_a_claim_is_reported_when_the_table_shows_it() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let mutex = key(&owner, LockKind::Mutex);
    for is_granted in [false, true] {
        let claim = stake(&stage, &mutex, false).unwrap();
        let Present::Acquiring(over) = table(&stage).present(&mutex) else {
            panic!("it is being acquired");
        };
        let mut over = Box::pin(over.wait());
        assert!((&mut over).now_or_never().is_none());
        let _shares = match is_granted {
            true => claim.hold(vec![stage.lease(1)]),
            false => {
                drop(claim);
                Vec::new()
            }
        };
        assert!(over.now_or_never().is_some());
        let present = table(&stage).present(&mutex);
        assert_eq!(matches!(present, Present::Held(_)), is_granted);
        assert_eq!(matches!(present, Present::Nothing), !is_granted);
    }
}

#[tokio::test(start_paused = true)]
async fn root_of_a_factory_that_is_gone_leaves_nothing() {
    let stage = Stage::new().await;
    let root = FactoryRoot::new(&stage.session, "/r").unwrap();
    drop(FactoryRoot::new(&stage.session, "/r").unwrap());
    assert!(format!("{:?}", table(&stage)).contains("paths: 1"));
    drop(root);
    assert!(format!("{:?}", table(&stage)).contains("paths: 0"));
}
