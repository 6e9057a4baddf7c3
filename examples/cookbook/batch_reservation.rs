//! Several seats at once: all of them or none. Clients never wait for each other in a circle.

use std::error::Error;
use std::time::Duration;

use lock_recipes::{LockFactory, Session, escape_key};

/// Reserves all seats, or returns one that is taken already.
pub(crate) async fn reserve(
    session: &Session,
    seats: &[&str],
    client: &str,
) -> Result<Result<(), String>, Box<dyn Error>> {
    let locks = LockFactory::new(session, "/seats/locks")?;
    // The set waits in the order of the paths, in whatever order the seats are named.
    let guard = locks
        .multi_lock(seats)?
        .acquire()
        .timeout(Duration::from_secs(5))
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
    // The ensemble refuses the whole transaction unless every lock of the set is still held.
    reservation.commit().await?;
    guard.release().await?;
    Ok(Ok(()))
}
