//! A candidate in the background.

use std::fmt;

use recipes_core::internal::log::LOCK;
use recipes_core::{Error, FencingToken, LatchError, ReleaseOutcome, Session};
use tokio::sync::{oneshot, watch};
use tracing::{debug, warn};

use crate::candidate::Candidate;
use crate::election::{ElectionLayout, LeaderElection};
use crate::latch_watcher::LatchWatcher;
use crate::leadership::Leadership;

/// A candidate in the background: it leads whenever it can, until it is stopped or dropped.
///
/// After the loss of a term it campaigns again. Ask [`is_leader`](Self::is_leader) before each piece
/// of work that only the leader may do. If work takes longer than that, or must not be done twice
/// whatever happens, campaign in a [`LeaderElection`] and work within [`run`](recipes_core::LockGuard::run), or send
/// the [number of the term](Self::term) along.
///
/// # Guarantees
/// - It leads only by a node of its own session of the store, while that session is alive: what is
///   left of an earlier session never makes it lead.
/// - It does not lead any more before another candidate can, also while the connection is down. This
///   holds as [`LockGuard::is_valid`](recipes_core::LockGuard::is_valid) says.
/// - It ends only with an error that is reported: [`LatchError`].
///
/// There is no preferred leader. All candidates are equal, and the first to come is the first to
/// lead.
///
/// # Examples
/// ```
/// # use recipes_leader::LeaderLatch;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let latch = LeaderLatch::start(&session, "/elections/billing", "host-7")?;
/// latch.wait_until_leader().await?;
/// if latch.is_leader() {
///     // ... one piece of the leader's work ...
/// }
/// latch.stop().await?;
/// # Ok(())
/// # }
/// ```
///
/// Curator `LeaderLatch`; differs: no listener is called from a thread of the connection, leadership
/// ends by a deadline, and a latch whose campaign is refused says so.
#[must_use = "the latch is stopped as soon as it is dropped"]
pub struct LeaderLatch {
    election: LeaderElection,
    state: watch::Receiver<State>,
    stop: oneshot::Sender<Stop>,
}

/// Where the outcome of a resignation goes.
type Stop = oneshot::Sender<Result<Option<ReleaseOutcome>, Error>>;

/// What a latch is doing. Whether it leads is not remembered here: the guard knows.
pub(crate) enum State {
    /// It campaigns, or waits for its turn.
    Campaigning,
    /// It was granted this term, which may be lost by now.
    Granted(Leadership),
    /// It was stopped or dropped.
    Stopped,
    /// Its campaign failed for good.
    Ended(Error),
}

impl State {
    /// The term that it leads in now.
    pub(crate) fn term(&self) -> Option<&Leadership> {
        match self {
            Self::Granted(leadership) if leadership.is_valid() => Some(leadership),
            _ => None,
        }
    }

    /// Why it never leads again, if so.
    pub(crate) fn end(&self, path: &str) -> Option<LatchError> {
        let path = || path.to_owned();
        match self {
            Self::Campaigning | Self::Granted(_) => None,
            Self::Stopped => Some(LatchError::Stopped { path: path() }),
            Self::Ended(source) => Some(LatchError::Ended {
                path: path(),
                source: Box::new(source.clone()),
            }),
        }
    }
}

impl LeaderLatch {
    /// Starts a candidate with this id, on the current tokio runtime. The nodes are those of
    /// Curator's `LeaderLatch`.
    ///
    /// # Errors
    /// As [`LeaderElection::new`]; nothing is started or sent then.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(session: &Session, path: &str, id: &str) -> Result<Self, Error> {
        LeaderElection::with_layout(session, path, id, ElectionLayout::LeaderLatch).map(Self::of)
    }

    /// Starts a candidate of this election, on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn of(election: LeaderElection) -> Self {
        let (sender, state) = watch::channel(State::Campaigning);
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(lead(election.clone(), sender, stopped));
        Self {
            election,
            state,
            stop,
        }
    }

    /// Whether this latch leads now.
    ///
    /// # Guarantees
    /// Turns false before another candidate can lead, while clocks run at sane rates and the process
    /// is not paused between this call and what follows it. It asks for no answer of the store.
    #[doc(alias = "hasLeadership")]
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.state.borrow().term().is_some()
    }

    /// The number of the term that this latch leads in now, if it does:
    /// [`Leadership::fencing_token`].
    #[must_use]
    pub fn term(&self) -> Option<FencingToken> {
        self.state.borrow().term().map(Leadership::fencing_token)
    }

    /// Waits until this latch leads, and returns the number of the term.
    ///
    /// # Errors
    /// [`LatchError::Ended`] if it never will.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "await")]
    pub async fn wait_until_leader(&self) -> Result<FencingToken, Error> {
        let mut watcher = self.watch();
        // Ends with a term that is not over yet, or with the latch.
        loop {
            watcher.changed().await?;
            if let Some(term) = self.term() {
                return Ok(term);
            }
        }
    }

    /// Follows whether this latch leads. The watcher may outlive the latch.
    #[must_use]
    pub fn watch(&self) -> LatchWatcher {
        LatchWatcher::new(self.path(), self.state.clone())
    }

    /// Reads who leads; as [`LeaderElection::leader`].
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    pub async fn leader(&self) -> Result<Option<Candidate>, Error> {
        self.election.leader().await
    }

    /// The election that it is a candidate of.
    #[must_use]
    pub fn election(&self) -> &LeaderElection {
        &self.election
    }

    /// Path of the directory with the candidates' nodes.
    #[must_use]
    pub fn path(&self) -> &str {
        self.election.path()
    }

    /// The id of this candidate.
    #[must_use]
    pub fn id(&self) -> &str {
        self.election.id()
    }

    /// Resigns if it leads, and stops being a candidate. Returns the outcome of the resignation;
    /// `None` if it did not lead. The node of a candidate that did not lead is deleted in the
    /// background.
    ///
    /// # Errors
    /// As [`Leadership::resign`]: [`ReleaseError::Lost`](recipes_core::ReleaseError::Lost) if it led, and the term
    /// was lost.
    ///
    /// # Cancel safety
    /// The stop goes on in the background when the future is dropped.
    #[doc(alias = "close")]
    pub async fn stop(self) -> Result<Option<ReleaseOutcome>, Error> {
        let (sender, outcome) = oneshot::channel();
        // Without its task it has ended, and its term with it.
        if self.stop.send(sender).is_err() {
            return Ok(None);
        }
        outcome.await.unwrap_or(Ok(None))
    }
}

/// What the task of a latch says about itself. When a runtime is shut down, the task is dropped
/// wherever it is, and its term must not live on with those who watch the latch.
struct Told(watch::Sender<State>);

impl Told {
    fn replace(&self, state: State) -> State {
        self.0.send_replace(state)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let leads = matches!(*self.0.borrow(), State::Granted(_));
        if leads {
            drop(self.replace(State::Campaigning));
        }
    }
}

/// Campaigns and leads until the latch is stopped or dropped, or a campaign fails for good.
async fn lead(
    election: LeaderElection,
    state: watch::Sender<State>,
    mut stopped: oneshot::Receiver<Stop>,
) {
    let state = Told(state);
    let (lock, id) = (election.path().to_owned(), election.id().to_owned());
    let stop = loop {
        let granted = tokio::select! {
            biased;
            stop = &mut stopped => break stop,
            granted = election.campaign() => granted,
        };
        let leadership = match granted {
            Ok(leadership) => leadership,
            Err(error) => {
                if !error.is_closed() {
                    warn!(target: LOCK, lock, id, %error, "latch has ended");
                }
                drop(state.replace(State::Ended(error)));
                return;
            }
        };
        let (term, lost) = (leadership.fencing_token(), leadership.lost());
        debug!(target: LOCK, lock, id, %term, "latch leads");
        drop(state.replace(State::Granted(leadership)));
        tokio::select! {
            biased;
            stop = &mut stopped => break stop,
            lost = lost => {
                debug!(target: LOCK, lock, id, %term, %lost, "latch has lost its term");
                // Drops the guard, so that its node is deleted if it still exists.
                drop(state.replace(State::Campaigning));
            }
        }
    };
    // It steps down first, and resigns then.
    let State::Granted(leadership) = state.replace(State::Stopped) else {
        return;
    };
    // A latch that was dropped resigns in the background.
    if let Ok(answer) = stop {
        let resigned = leadership.resign().await;
        drop(answer.send(resigned.map(Some)));
    }
}

impl fmt::Debug for LeaderLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderLatch")
            .field("path", &self.path())
            .field("id", &self.id())
            .field("is_leader", &self.is_leader())
            .finish()
    }
}
