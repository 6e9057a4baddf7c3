//! Several seats at once: all of them or none. Clients never wait for each other in a circle.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{Error, LockFactory, Session, TransactionError, escape_key};

/// Reserves all seats, or returns one that is taken already.
pub(crate) async fn reserve(
    session: &Session,
    seats: &[&str],
    client: &str,
) -> Result<Result<(), String>, Box<dyn StdError>> {
    let locks = LockFactory::new(session, "/seats/locks")?;
    let mut is_unsure = false;
    // Repeated only if the ensemble did not answer, and at most for as long as an acquire may take.
    loop {
        // The set waits in the order of the paths, in whatever order the seats are named.
        let set = locks.multi_lock(seats)?;
        let guard = set.acquire().timeout(Duration::from_secs(5)).await?;
        let mut reservation = guard.transaction();
        for seat in seats {
            let path = format!("/seats/taken-{}", escape_key(seat));
            if let Some((by, _)) = session.read(&path).await? {
                guard.release().await?;
                // All were reserved or none, so one that is ours is enough.
                let is_ours = is_unsure && by == client.as_bytes();
                return Ok(if is_ours {
                    Ok(())
                } else {
                    Err((*seat).to_owned())
                });
            }
            reservation = reservation.create(path, client);
        }
        // The ensemble refuses the whole transaction unless every lock of the set is still held.
        match reservation.commit().await {
            // It may have been carried out. Under the lock again, the seats show it.
            Err(Error::Transaction(TransactionError::Unknown { .. })) => is_unsure = true,
            outcome => {
                outcome?;
                guard.release().await?;
                return Ok(Ok(()));
            }
        }
    }
}
