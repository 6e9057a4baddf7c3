//! A configuration of two nodes that change together: readers never see half of a change.
//!
//! Writing both in one transaction is not enough, because they are read one after the other.
//! Readers keep their values if this fails, so a broken ensemble stops no reader.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{Error, InterProcessReadWriteLock, Session, TransactionError};

const HOST: &str = "/config/host";
const PORT: &str = "/config/port";

/// Replaces both values or none.
pub(crate) async fn publish(session: &Session, values: [&str; 2]) -> Result<(), Box<dyn StdError>> {
    let lock = InterProcessReadWriteLock::new(session, "/config/lock")?;
    // Repeated until the ensemble answers.
    loop {
        let writer = lock.write().await?;
        let mut change = writer.transaction();
        for (path, value) in [HOST, PORT].into_iter().zip(values) {
            change = match session.read(path).await? {
                None => change.create(path, value),
                Some(_) => change.set(path, value),
            };
        }
        match change.commit().await {
            // It may have been carried out. Under the lock again, the same change is harmless.
            Err(Error::Transaction(TransactionError::Unknown { .. })) => {}
            outcome => {
                outcome?;
                writer.release().await?;
                return Ok(());
            }
        }
    }
}

/// Reads both as one writer left them, `None` before the first.
pub(crate) async fn load(session: &Session) -> Result<Option<[Vec<u8>; 2]>, Box<dyn StdError>> {
    let lock = InterProcessReadWriteLock::new(session, "/config/lock")?;
    let reader = lock.read().timeout(Duration::from_secs(5));
    let both = async |_: &_| -> Result<_, Error> {
        Ok((session.read(HOST).await?, session.read(PORT).await?))
    };
    // An error if a writer may have written between the two reads.
    let (host, port) = reader.run(both).await?.output?;
    Ok(host.zip(port).map(|((host, _), (port, _))| [host, port]))
}
