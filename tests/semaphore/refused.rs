//! Input that is refused before any request.

use std::time::Duration;

use lock_recipes::{ConfigError, Error, InterProcessMutex, InterProcessSemaphore, LockOptions};
use test_rig::MemoryEnsemble;

use super::{LEASES, PATH};

#[tokio::test(start_paused = true)]
async fn impossible_numbers_and_paths_are_refused_before_any_request() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    ensemble.reset_requests();
    for permits in [0, 10_001, usize::MAX] {
        let error = InterProcessSemaphore::new(&session, PATH, permits).unwrap_err();
        assert!(
            matches!(error, Error::Config(ConfigError::NoPermits { .. })),
            "{error}"
        );
        let told = format!("a semaphore cannot have {permits} permits: 1 to 10000 can be set");
        assert_eq!(error.to_string(), told);
    }
    for path in ["", "limits", "/limits/", "/", "/limits//exports"] {
        let error = InterProcessSemaphore::new(&session, path, 1).unwrap_err();
        assert!(
            matches!(error, Error::Config(ConfigError::InvalidPath { .. })),
            "{error}"
        );
    }
    let limit = InterProcessSemaphore::new(&session, PATH, 2).unwrap();
    for requested in [0, 3] {
        let error = limit.acquire_many(requested).unwrap_err();
        let told =
            format!("{requested} permits of semaphore \"{PATH}\" were requested, which has 2");
        assert_eq!(error.to_string(), told);
        assert!(limit.try_acquire_many(requested).is_err());
    }
    assert!(limit.set_permits(0).is_err());
    assert_eq!(limit.permits(), 2);
    // Its directories are those of no other recipe.
    let error = InterProcessMutex::new(&session, LEASES).unwrap_err();
    assert!(
        matches!(error, Error::Config(ConfigError::RecipeDiffers { .. })),
        "{error}"
    );
    let identity = LockOptions::new().identity(vec![0; 1 << 20]).unwrap_err();
    assert!(matches!(
        identity,
        Error::Config(ConfigError::IdentityTooLarge { .. })
    ));
    assert_eq!(ensemble.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn error_of_a_timeout_does_not_repeat_the_directory_for_each_lease() {
    let session = MemoryEnsemble::new().session();
    let limit = InterProcessSemaphore::new(&session, PATH, 9).unwrap();
    let held = limit.acquire_many(9).unwrap().await.unwrap();
    let late = limit
        .acquire_many(8)
        .unwrap()
        .timeout(Duration::from_secs(1));
    let told = late.await.unwrap_err().to_string();
    // In the list, and as the one that is busy.
    assert_eq!(told.matches(LEASES).count(), 2, "{told}");
    assert_eq!(held.path(), PATH);
}
