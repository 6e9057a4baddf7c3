//! At most a few calls at a time for each key, over all processes. For example three requests at a
//! time to each partner, however many machines send them.
//!
//! A machine that fails gives its places back within the session timeout. The number may change while
//! the service runs: `set_permits`.

use std::error::Error;

use lock_recipes::LockFactory;

/// Makes the call as soon as fewer than `most` of this key are under way.
pub(crate) async fn call<T>(
    keys: &LockFactory,
    key: &str,
    most: usize,
    call: impl Future<Output = T>,
) -> Result<T, Box<dyn Error>> {
    let place = keys.semaphore(key, most)?.acquire();
    // Dropped when the place is lost: then another machine may already make one call more.
    let made = place.run(async move |_| call.await).await?;
    Ok(made.output)
}
