//! Follows who leads.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{self, BoxStream, Stream, StreamExt};
use recipes_core::Error;
use recipes_core::internal::FirstWatcher;

use crate::candidate::Candidate;

/// Follows who leads: a [`Stream`] of leaders, the present one first. `None` means that there is no
/// candidate.
///
/// # Guarantees
/// - Each item is another term than the one before, also if the same candidate leads again. Terms
///   come in their order, and one that lasts until it is reported is not skipped. A term that ends
///   within the two requests that it takes to look may be.
/// - A change of the leader is reported at once: the observer watches the leader's node, and the
///   candidates notice nothing of it. The store cannot report the first candidate of an election
///   that has none. So an empty election is looked at again after 50 ms, and then more and more
///   seldom, up to once a second.
/// - It goes on over lost connections and the end of the store's session. It waits while the store
///   does not answer.
///
/// It ends after an error: [`QueryError::SessionClosed`](recipes_core::QueryError::SessionClosed) when the session is
/// closed, and another [`QueryError`](recipes_core::QueryError) if the store refuses for good.
///
/// What it reports has been true, and may be over. Who must know that it leads asks its
/// [`Leadership`](crate::Leadership).
///
/// # Examples
/// ```
/// # use recipes_leader::LeaderElection;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// # let election = LeaderElection::new(&session, "/elections/billing", "host-7")?;
/// # let term = election.campaign().await?;
/// let mut leaders = election.observe();
/// while let Some(leader) = leaders.next().await {
///     match leader? {
///         Some(leader) => println!("{} leads term {}", leader.id, leader.term),
///         None => println!("nobody leads"),
///     }
/// #   break;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "it observes only while it is polled"]
pub struct LeaderObserver {
    leaders: BoxStream<'static, Result<Option<Candidate>, Error>>,
}

impl LeaderObserver {
    pub(crate) fn new(watcher: FirstWatcher) -> Self {
        let leaders = stream::unfold(Some(watcher), async |watcher| {
            let mut watcher = watcher?;
            let leader = watcher.changed().await;
            let watcher = leader.is_ok().then_some(watcher);
            let leader = leader.map(|leader| leader.map(Candidate::new));
            Some((leader.map_err(Error::from), watcher))
        });
        Self {
            leaders: leaders.boxed(),
        }
    }

    /// Waits for the next leader; `None` after an error.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn next(&mut self) -> Option<Result<Option<Candidate>, Error>> {
        self.leaders.next().await
    }
}

impl Stream for LeaderObserver {
    type Item = Result<Option<Candidate>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.leaders.poll_next_unpin(cx)
    }
}

impl fmt::Debug for LeaderObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderObserver").finish_non_exhaustive()
    }
}
