//! Several seats at once: all of them or none, and nobody waits for each other in a circle.

use std::error::Error;
use std::time::Duration;

use zookeeper_recipes::{LockFactory, Session, escape_key};

/// Reserves all seats; says which one is taken already, if one is.
pub(crate) async fn reserve(
    session: &Session,
    seats: &[&str],
    client: &str,
) -> Result<Result<(), String>, Box<dyn Error>> {
    let locks = LockFactory::new(session, "/seats/locks")?;
    // In whatever order the seats are named, the set waits for them in the order of their paths.
    let guard = locks
        .multi_lock(seats)?
        .acquire_timeout(Duration::from_secs(5))
        .await?;
    let mut reservation = guard.transaction();
    for seat in seats {
        let path = format!("/seats/taken-{}", escape_key(seat));
        if session.read(&path).await?.is_some() {
            guard.release().await?;
            return Ok(Err((*seat).to_owned()));
        }
        reservation = reservation.create(path, client);
    }
    // Refused as a whole unless every lock of the set is still held.
    reservation.commit().await?;
    guard.release().await?;
    Ok(Ok(()))
}
