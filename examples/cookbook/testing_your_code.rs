//! Code under a lock, and its unit tests without a server. They use an ensemble in memory and a
//! paused clock, which advances only when all tasks wait, so timeouts cost no time.

use lock_recipes::{Error, InterProcessMutex, LostError};

/// How a run of the export ended.
#[derive(Debug)]
pub(crate) enum Export {
    Done,
    SomebodyElseIsAtIt,
    Lost(LostError),
}

/// The code under test.
pub(crate) async fn export(
    lock: &InterProcessMutex,
    upload: impl Future<Output = ()>,
) -> Result<Export, Error> {
    let exported = lock.try_acquire().run(async move |_| upload.await);
    match exported.await {
        Ok(Some(_)) => Ok(Export::Done),
        Ok(None) => Ok(Export::SomebodyElseIsAtIt),
        Err(Error::Lost(lost)) => Ok(Export::Lost(lost)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::{Export, export};
    use lock_recipes::{InterProcessMutex, LostReason};
    use test_rig::MemoryEnsemble; // yours: lock_recipes::testing::MemoryEnsemble

    #[tokio::test(start_paused = true)]
    async fn session_that_expires_stops_the_upload() {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let lock = InterProcessMutex::new(&session, "/locks/export").unwrap();
        // This replaces an upload that hangs. The session expires meanwhile.
        let upload = async {
            ensemble.expire(session.session_id().unwrap());
            std::future::pending().await
        };
        let ended = export(&lock, upload).await.unwrap();
        assert!(matches!(ended, Export::Lost(lost) if lost.reason == LostReason::SessionExpired));
    }
}
