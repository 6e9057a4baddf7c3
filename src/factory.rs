//! Locks by key.

use recipes_core::{ConfigError, Session, escape_key, validate_path};
use recipes_multilock::{Member, MultiLock};
use recipes_mutex::InterProcessMutex;
use recipes_rwlock::InterProcessReadWriteLock;

/// Makes locks of one root path by key: any string, such as an order number or a file name.
///
/// A cheap handle. The same key is always the same lock, in this process and in others.
///
/// # Examples
/// ```
/// # use zookeeper_recipes::LockFactory;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let seats = LockFactory::new(&session, "/locks/seats")?;
/// let seat = seats.mutex("Row 7/12")?;
/// assert_eq!(seat.path(), "/locks/seats/Row%207%2F12");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockFactory {
    session: Session,
    root: String,
}

impl LockFactory {
    /// Makes a factory of the locks below `root`, an absolute path; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`] names what is wrong with the root.
    pub fn new(session: &Session, root: &str) -> Result<Self, ConfigError> {
        validate_path(root)?;
        Ok(Self {
            session: session.clone(),
            root: root.to_owned(),
        })
    }

    /// Makes the mutex of a key; sends nothing.
    ///
    /// Its path is the root and the key as [`escape_key`] writes it; [`unescape_key`] gives the key
    /// back.
    ///
    /// # Errors
    /// [`ConfigError::OptionsDiffer`] if a live handle of this session, made otherwise, has options
    /// for the same path.
    ///
    /// [`unescape_key`]: crate::unescape_key
    pub fn mutex(&self, key: &str) -> Result<InterProcessMutex, ConfigError> {
        InterProcessMutex::new(&self.session, &self.path(key))
    }

    /// Makes the read/write lock of a key; sends nothing.
    ///
    /// # Errors
    /// As [`mutex`](Self::mutex); [`ConfigError::RecipeDiffers`] if a live handle of this session is
    /// the mutex of the key.
    pub fn read_write_lock(&self, key: &str) -> Result<InterProcessReadWriteLock, ConfigError> {
        InterProcessReadWriteLock::new(&self.session, &self.path(key))
    }

    /// Makes the set of the mutexes of these keys; sends nothing.
    ///
    /// # Errors
    /// As [`MultiLock::new`].
    pub fn multi_lock<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<MultiLock, ConfigError> {
        let members = keys
            .into_iter()
            .map(|key| Member::mutex(self.path(key.as_ref())));
        MultiLock::new(&self.session, members)
    }

    fn path(&self, key: &str) -> String {
        format!("{}/{}", self.root, escape_key(key))
    }
}
