//! One call for each key in a period, over all processes: a reminder for each customer, a request
//! for each partner.
//!
//! Whoever has called keeps the lock until the period is over; others find it busy and do without,
//! which costs one read. A process that ends before that, or loses its session, frees its keys early.

use std::error::Error;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use zookeeper_recipes::{LockFactory, Owner};

/// Makes the call, or says `None`: somebody has called for this key within the period.
pub(crate) async fn call_at_most_once<T>(
    keys: &LockFactory,
    key: &str,
    period: Duration,
    call: impl Future<Output = T>,
) -> Result<Option<T>, Box<dyn Error>> {
    let lock = keys.mutex(key)?;
    // An owner of its own: in a caller's scope a second call would re-enter.
    let Some(guard) = lock.try_acquire_as(&Owner::new()).await? else {
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
