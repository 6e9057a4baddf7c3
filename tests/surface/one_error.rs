//! A service's own error needs one conversion for every call.

use std::time::Duration;

use lock_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphore,
    InterProcessSemaphoreMutex, LeaderElection, LeaderLatch, LockFactory, LockOptions, Member,
    MultiLock, ReleaseOutcome, Session, SessionOptions,
};
use test_rig::MemoryEnsemble;

#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error(transparent)]
    Lock(#[from] lock_recipes::Error),
    #[error("the carrier did not answer")]
    Carrier(#[from] std::io::Error),
}

async fn sessions(address: &str) -> Result<(), ServiceError> {
    lock_recipes::connect(address).await?;
    lock_recipes::connect_with(address, SessionOptions::new()).await?;
    lock_recipes::ZooKeeper::connect(address).await?;
    lock_recipes::Redis::builder().connect(address).await?;
    lock_recipes::Postgres::builder().connect(address).await?;
    lock_recipes::Postgres::schema("locks")?;
    lock_recipes::MySql::builder().statements(address)?;
    Ok(())
}

async fn locks(session: &Session) -> Result<(), ServiceError> {
    let options = LockOptions::new().purpose("nightly")?.identity(*b"me")?;
    let mutex = InterProcessMutex::with_options(session, "/mutex", &options)?;
    let guard = mutex.acquire().timeout(Duration::from_secs(60)).await?;
    guard.run(std::future::ready(())).await?;
    guard.verify().await?;
    guard.transaction().commit().await?;
    guard.reenter()?.release().await?;
    for participant in mutex.participants().await? {
        participant.revoke(session).await?;
    }
    lock_recipes::inspect(session, "/mutex").await?;
    lock_recipes::scan(session, "/").await?;
    session.read("/mutex").await?;
    guard.release().await?;
    mutex.try_acquire().await?;
    let done = mutex
        .acquire()
        .run(async |_| std::io::Result::Ok(()))
        .await?;
    done.output?;
    assert_eq!(done.release?, ReleaseOutcome::Released);

    let lock = InterProcessReadWriteLock::new(session, "/read-write")?;
    let reader = lock.write().await?.downgrade().await?;
    reader.release().await?;
    let writer = lock.write().await?;
    drop(writer.read().await?);
    drop(writer);
    lock.read_participants().await?;

    let semaphore = InterProcessSemaphore::new(session, "/semaphore", 3)?;
    semaphore.set_permits(4)?;
    semaphore.acquire_many(2)?.await?.release().await?;
    semaphore.try_acquire_many(2)?.await?;
    semaphore.waiters().await?;
    InterProcessSemaphoreMutex::new(session, "/semaphore-mutex")?;

    let factory = LockFactory::new(session, "/factory")?;
    drop(factory.mutex("a/b")?.acquire().await?);
    let set = MultiLock::new(session, [Member::mutex("/a"), Member::mutex("/b")])?;
    MultiLock::from_locks(vec![Box::new(mutex), Box::new(set)])?;
    Ok(())
}

async fn leaders(session: &Session) -> Result<(), ServiceError> {
    let election = LeaderElection::new(session, "/election", "host-1")?;
    let term = election.campaign().await?;
    election.leader().await?;
    election.candidates().await?;
    let mut leaders = election.observe();
    if let Some(leader) = leaders.next().await {
        leader?;
    }
    term.resign().await?;
    let latch = LeaderLatch::start(session, "/latch", "host-1")?;
    latch.wait_until_leader().await?;
    latch.watch().changed().await?;
    latch.stop().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_conversion_is_enough_for_every_call() {
    let session = MemoryEnsemble::new().session();
    locks(&session).await.unwrap();
    leaders(&session).await.unwrap();
    let refused = sessions("nowhere://").await.unwrap_err();
    let ServiceError::Lock(refused) = refused else {
        panic!("{refused}");
    };
    assert!(refused.to_string().contains("nowhere"), "{refused}");
}

/// The fence is refused in memory, by the same error.
#[tokio::test(start_paused = true)]
async fn missing_fence_is_the_same_error() {
    async fn fenced(session: &Session) -> Result<(), ServiceError> {
        let guard = InterProcessMutex::new(session, "/mutex")?.acquire().await?;
        guard.fence()?;
        Ok(())
    }
    let refused = fenced(&MemoryEnsemble::new().session()).await.unwrap_err();
    assert!(matches!(
        refused,
        ServiceError::Lock(lock_recipes::Error::Fence(_))
    ));
}
