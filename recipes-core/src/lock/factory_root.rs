//! The path below which a factory makes locks by key.

use std::sync::Arc;

use crate::error::ConfigError;
use crate::lock::session::Session;
use crate::names::path;

/// A path below which a factory makes locks. As long as it lives, its session refuses a lock of
/// this path: the directories of the keys would be strangers in the queue.
#[doc(hidden)]
#[derive(Debug)]
pub struct FactoryRoot {
    session: Session,
    path: Arc<str>,
}

impl FactoryRoot {
    /// The root of a path in a session, one for all factories.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`]; [`ConfigError::RootIsLock`] if the session has a live handle
    /// or guard of a lock of this path.
    pub fn new(session: &Session, path: &str) -> Result<Arc<Self>, ConfigError> {
        path::validate(path)?;
        let root = session.paths().root(path, |path| Self {
            session: session.clone(),
            path,
        });
        let path = || path.to_owned();
        root.ok_or_else(|| ConfigError::RootIsLock { path: path() })
    }
}

impl Drop for FactoryRoot {
    fn drop(&mut self) {
        self.session.paths().forget(&self.path);
    }
}
