//! The handle of an election.

use std::fmt;

use recipes_core::internal::{LockInternals, Locks};
use recipes_core::{
    Acquire, ConfigError, Error, LockGuard, LockKind, LockOptions, Session, TryAcquire,
};

use crate::candidate::Candidate;
use crate::leadership::Leadership;
use crate::observer::LeaderObserver;

/// Which nodes an election has. All candidates of one path need the same layout: whoever comes with
/// the other one is refused with
/// [`AcquireError::RecipeDiffers`](recipes_core::AcquireError::RecipeDiffers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElectionLayout {
    /// That of Curator's `LeaderSelector`, `_c_{uuid}-lock-{sequence}`. An
    /// `InterProcessMutex` on the same path excludes the leader.
    #[default]
    LeaderSelector,
    /// That of Curator's `LeaderLatch`, `_c_{uuid}-latch-{sequence}`.
    LeaderLatch,
}

impl ElectionLayout {
    fn kind(self) -> LockKind {
        match self {
            Self::LeaderSelector => LockKind::Mutex,
            Self::LeaderLatch => LockKind::Latch,
        }
    }
}

/// An election over all processes that use its path: one of the candidates leads, and the others
/// wait for their turn.
///
/// A cheap handle of one candidate's id; clones are the same. Several ids may campaign in one path
/// through one session. Each [`campaign`](Self::campaign) is a candidate of its own, also of one
/// [owner](Acquire::owner): who leads already and campaigns again waits for itself.
///
/// To lead whenever possible, in the background, use a [`LeaderLatch`](crate::LeaderLatch).
///
/// # Guarantees
/// - There is one leader at a time, and it learns of a lost term before another candidate leads.
///   This holds while clocks run at sane rates and processes are not paused. If they may be, use the
///   number of the term, [`Leadership::fencing_token`], which always rises.
/// - First come, first served. There is no preferred leader: a candidate that should rather not lead
///   campaigns later, or [resigns](Leadership::resign) when it sees a better one among the
///   [`candidates`](Self::candidates).
/// - A resignation wakes the next candidate, and the one after it, so that it can prepare. A leader
///   that crashes is followed within its session timeout.
///
/// # Examples
/// ```
/// # use recipes_leader::LeaderElection;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let election = LeaderElection::new(&session, "/elections/billing", "host-7")?;
/// let term = election.campaign().await?;
/// println!("leading term {}", term.fencing_token());
/// term.run(async { /* the work of the leader */ }).await?;
/// term.resign().await?;
/// # Ok(())
/// # }
/// ```
///
/// Curator `LeaderSelector`; differs: a term is a guard and no callback, it has a number, and its
/// loss is reported by a deadline and not by the state of the connection.
#[derive(Clone)]
pub struct LeaderElection {
    lock: LockInternals,
    id: String,
}

impl LeaderElection {
    /// Makes the election of an absolute path such as `/elections/billing`, for a candidate with
    /// this id; sends nothing. The nodes are those of Curator's `LeaderSelector`.
    ///
    /// The id tells others who leads. It need not be unique.
    ///
    /// # Errors
    /// - [`ConfigError::InvalidPath`] names what is wrong with the path.
    /// - [`ConfigError::EmptyId`] for an empty id, [`ConfigError::IdentityTooLarge`] for one of more
    ///   than 1,000,000 bytes, [`ConfigError::IdentityReserved`] for Curator's revocation request.
    /// - [`ConfigError::RecipeDiffers`] if a live handle of this session uses the path with other
    ///   nodes; [`ConfigError::OptionsDiffer`] if it has [`LockOptions`].
    pub fn new(session: &Session, path: &str, id: &str) -> Result<Self, Error> {
        Self::with_layout(session, path, id, ElectionLayout::default())
    }

    /// Makes the election of a path whose nodes have this layout; sends nothing.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_layout(
        session: &Session,
        path: &str,
        id: &str,
        layout: ElectionLayout,
    ) -> Result<Self, Error> {
        Self::check(id)?;
        let lock = LockInternals::new(session, path, layout.kind(), &LockOptions::new())?;
        Ok(Self {
            lock: lock.with_data(id.as_bytes())?.not_reentrant(),
            id: id.to_owned(),
        })
    }

    /// Whether a candidate can have this id, for the command line.
    ///
    /// # Errors
    /// Those of [`new`](Self::new) that are about the id.
    #[doc(hidden)]
    pub fn check(id: &str) -> Result<(), ConfigError> {
        match id.is_empty() {
            true => Err(ConfigError::EmptyId),
            false => LockInternals::check_data(id.as_bytes()),
        }
    }

    /// Path of the directory with the candidates' nodes.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// The id that this handle campaigns with.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Makes a request that becomes a candidate, and waits until it leads: as long as it takes, or
    /// as its [`timeout`](Acquire::timeout) says.
    ///
    /// [`Acquire`] lists the errors, and says what is left if the request is dropped.
    pub fn campaign(&self) -> Acquire<Leadership> {
        Acquire::new(self.locks(), Leadership::new)
    }

    /// As [`campaign`](Self::campaign), with the guard of all locks.
    #[doc(hidden)]
    pub fn campaign_any(&self) -> Acquire<LockGuard> {
        Acquire::new(self.locks(), |guard| guard)
    }

    /// Makes a request that leads if there is no other candidate, and returns `None` otherwise.
    pub fn try_campaign(&self) -> TryAcquire<Leadership> {
        TryAcquire::new(self.locks(), Leadership::new)
    }

    fn locks(&self) -> Locks {
        Locks::One(self.lock.clone())
    }

    /// Reads who leads; `None` if there is no candidate.
    ///
    /// It is the first candidate in the queue. A leader that has died leads in this sense until the
    /// store ends its session.
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getLeader")]
    pub async fn leader(&self) -> Result<Option<Candidate>, Error> {
        Ok(self.lock.first().await?.map(Candidate::new))
    }

    /// Lists the leader and those who wait, in the order in which they lead, over all processes.
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getParticipants")]
    pub async fn candidates(&self) -> Result<Vec<Candidate>, Error> {
        let queued = self.lock.queued().await?;
        Ok(queued.into_iter().map(Candidate::new).collect())
    }

    /// Follows who leads, from now on.
    ///
    /// See [`LeaderObserver`] for what it reports, and how soon.
    pub fn observe(&self) -> LeaderObserver {
        LeaderObserver::new(self.lock.watch_first())
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection")
            .field("path", &self.path())
            .field("id", &self.id)
            .finish()
    }
}
