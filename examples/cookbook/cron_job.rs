//! A job that a clock starts on several machines and that runs on one of them.
//!
//! The lock alone keeps two machines from running the job *at the same time*. A machine whose clock
//! is late would run it again. So the end of the job is recorded, in a transaction that commits
//! only while the lock is held. If a machine dies before that, the next one runs the job: a job can
//! run in part and then again.

use std::error::Error as StdError;

use lock_recipes::{Error, InterProcessMutex, NodeStat, Session, TransactionError};

/// Runs `job`, unless another machine runs it or it was done for this `slot` or a later one. A slot
/// is a string such as `2026-11-21`. Returns whether the job ran.
pub(crate) async fn run_once(
    session: &Session,
    name: &str,
    slot: &str,
    job: impl Future<Output = ()>,
) -> Result<bool, Box<dyn StdError>> {
    let lock = InterProcessMutex::new(session, &format!("/cron/{name}/lock"))?;
    let Some(guard) = lock.try_acquire().await? else {
        return Ok(false);
    };
    let done = format!("/cron/{name}/done");
    let last = session.read(&done).await?;
    if is_done(last.as_ref(), slot) {
        guard.release().await?;
        return Ok(false);
    }
    guard.run(job).await?;
    let mark = match last {
        None => guard.transaction().create(&done, slot),
        Some((_, stat)) => guard.transaction().set_version(&done, slot, stat.version),
    };
    let guard = match mark.commit().await {
        // The end may be recorded. Under the lock again, the record shows it.
        Err(unknown @ Error::Transaction(TransactionError::Unknown { .. })) => {
            drop(guard);
            let again = lock.acquire().await?;
            if !is_done(session.read(&done).await?.as_ref(), slot) {
                return Err(unknown.into());
            }
            again
        }
        outcome => {
            outcome?;
            guard
        }
    };
    guard.release().await?;
    Ok(true)
}

fn is_done(last: Option<&(Vec<u8>, NodeStat)>, slot: &str) -> bool {
    last.is_some_and(|(last, _)| last.as_slice() >= slot.as_bytes())
}
