//! One call for each key in a period, over all processes. For example a reminder for each customer,
//! or a request to each partner.
//!
//! The process that calls keeps the lock until the period is over. Others find the lock busy and
//! skip the call, which costs one read. If a process ends or loses its session, its keys are free
//! early.

use std::error::Error;
use std::time::Duration;

use lock_recipes::{LockFactory, Owner};
use tokio::time::{Instant, sleep_until};

/// Makes the call, or returns `None` if a call was made for this key within the period.
pub(crate) async fn call_at_most_once<T>(
    keys: &LockFactory,
    key: &str,
    period: Duration,
    call: impl Future<Output = T>,
) -> Result<Option<T>, Box<dyn Error>> {
    let lock = keys.mutex(key)?;
    // A new owner: in a caller's scope, a second call would re-enter.
    let Some(guard) = lock.try_acquire().owner(&Owner::new()).await? else {
        return Ok(None);
    };
    let over = Instant::now() + period;
    let answer = guard.run(call).await?;
    tokio::spawn(async move {
        sleep_until(over).await;
        drop(guard);
    });
    Ok(Some(answer))
}
