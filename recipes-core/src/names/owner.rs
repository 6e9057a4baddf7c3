//! Owners, which re-enter locks, and how records name them.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use uuid::Uuid;

/// A random number that identifies this process.
static PROCESS: LazyLock<u64> = LazyLock::new(|| {
    // The halves have their fixed bits in different places, so all bits of the result are random.
    let (high, low) = Uuid::new_v4().as_u64_pair();
    high ^ low
});

static NEXT_OWNER: AtomicU64 = AtomicU64::new(1);

tokio::task_local! {
    static SCOPE: Owner;
}

/// An explicit owner of locks. It takes the place of the thread that owns a lock in Curator.
///
/// Acquires of one owner re-enter what the owner holds, through any handle of the same path and
/// session. Acquires of different owners exclude each other. An acquire outside any
/// [`scope`](Self::scope) that names no owner gets an owner of its own.
///
/// A scope is one logical thread: its acquires share the lock, whether they run side by side or are
/// nested. Spawned tasks are outside the scope of their spawner.
///
/// # Examples
/// ```
/// # use recipes_core::Owner;
/// # async fn example() {
/// let request = Owner::new();
/// request
///     .scope(async {
///         // Every acquire in here belongs to `request`.
///     })
///     .await;
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    number: u64,
}

impl Owner {
    /// Makes a new owner, different from every other in this process. Clones are the same owner.
    #[expect(
        clippy::new_without_default,
        reason = "two defaults would not be equal"
    )]
    #[must_use]
    pub fn new() -> Self {
        Self {
            number: NEXT_OWNER.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Runs a future whose acquires belong to this owner.
    ///
    /// # Cancel safety
    /// The same as the future's.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        SCOPE.scope(self.clone(), future)
    }

    /// Returns the name of this owner in the records of its nodes: sixteen hexadecimal digits for
    /// the process, a dash, and a number. It differs from the name of every other owner in any
    /// process.
    #[must_use]
    pub fn id(&self) -> String {
        OwnerLabel::from(self).to_string()
    }

    /// Returns the owner of the scope that is running, if any.
    #[must_use]
    pub fn current() -> Option<Self> {
        SCOPE.try_with(Clone::clone).ok()
    }
}

/// The contender that the record of a node names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerLabel {
    /// An owner, by its number.
    Owner(u64),
    /// The task of an acquire without an owner.
    Task(Task),
}

impl OwnerLabel {
    /// The task that is running.
    pub(crate) fn task() -> Self {
        Self::Task(Task::current())
    }
}

impl From<&Owner> for OwnerLabel {
    fn from(owner: &Owner) -> Self {
        Self::Owner(owner.number)
    }
}

/// The form in records.
impl fmt::Display for OwnerLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = *PROCESS;
        match self {
            Self::Owner(number) => write!(f, "{process:016x}-{number}"),
            Self::Task(Task::Spawned(id)) => write!(f, "{process:016x}-task{id}"),
            Self::Task(Task::Blocking(id)) => write!(f, "{process:016x}-{id:?}"),
        }
    }
}

/// The owner that the record of a node names: in a session that is nested in an owner of another
/// process, the chain of all of them, outermost first, with slashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerChain<'a> {
    pub(crate) within: Option<&'a str>,
    pub(crate) label: OwnerLabel,
}

impl From<OwnerLabel> for OwnerChain<'_> {
    fn from(label: OwnerLabel) -> Self {
        Self {
            within: None,
            label,
        }
    }
}

/// The form in records.
impl fmt::Display for OwnerChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.within {
            Some(within) => write!(f, "{within}{NESTED}{}", self.label),
            None => self.label.fmt(f),
        }
    }
}

/// Between an owner and one that is nested in it.
const NESTED: char = '/';

/// The owners in whose chain an owner is, outermost first and itself last.
pub(crate) fn enclosing(owner: &str) -> impl Iterator<Item = &str> {
    let ends = owner.match_indices(NESTED).map(|(end, _)| end);
    let ends = ends.chain([owner.len()]);
    ends.filter_map(|end| owner.get(..end))
}

/// Whether an owner cannot go on before another does: it is the same, or the other is nested in it.
#[must_use]
pub fn encloses(owner: &str, other: &str) -> bool {
    enclosing(other).any(|it| it == owner)
}

/// The task that acquired a lock. It is recorded to warn a task that waits for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Spawned(tokio::task::Id),
    /// Outside any task, as in `main`.
    Blocking(ThreadId),
}

impl Task {
    pub(crate) fn current() -> Self {
        tokio::task::try_id().map_or_else(|| Self::Blocking(thread::current().id()), Self::Spawned)
    }
}

#[cfg(test)]
mod tests {
    use super::{Owner, OwnerChain, OwnerLabel, encloses, enclosing};

    #[test]
    fn chain_names_the_outermost_owner_first() {
        let owner = Owner::new();
        let label = OwnerLabel::from(&owner);
        assert_eq!(OwnerChain::from(label).to_string(), owner.id());
        let within = Some("a-1/b-2");
        let nested = OwnerChain { within, label }.to_string();
        assert_eq!(nested, format!("a-1/b-2/{}", owner.id()));
        let all = ["a-1", "a-1/b-2", &nested];
        assert_eq!(enclosing(&nested).collect::<Vec<_>>(), all);
    }

    #[test]
    fn owner_encloses_itself_and_what_is_nested_in_it_only() {
        for (owner, other, does) in [
            ("a-1", "a-1", true),
            ("a-1", "a-1/b-2", true),
            ("a-1", "a-1/b-2/c-3", true),
            ("a-1/b-2", "a-1", false),
            ("a-1/b-2", "a-1/b-3", false),
            ("a-1", "a-12", false),
            ("b-2", "a-1/b-2", false),
        ] {
            assert_eq!(encloses(owner, other), does, "{owner} {other}");
        }
    }
}
