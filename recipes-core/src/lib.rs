//! Session, lock driver and pure lock core of `lock-recipes`.
//!
//! Users depend on `lock-recipes`, which re-exports what they need from here.
//!
//! # Map
//!
//! Each room imports from rooms below it only; `scripts/check` reads every `crate::` path. The files
//! `error`, `kind`, `clock`, `log` and `sync` serve them all.
//!
//! | room | asks |
//! |---|---|
//! | `inspect` | who holds and who waits, in the whole store? |
//! | `driver` | who holds what already, how long may it take? |
//! | `attempt` | what to send now? |
//! | `lock` | who holds, by which node, what comes next? |
//! | `session` | is it still ours, what is left to delete? |
//! | `rules` | may it hold, what next? |
//! | `telemetry` | what do spans and metrics say? |
//! | `names` | what is it called? |
//! | `store` | how is it asked? |

mod attempt;
mod clock;
mod driver;
mod error;
mod inspect;
mod kind;
mod lock;
mod log;
mod names;
#[cfg(all(test, feature = "shuttle"))]
mod races;
mod rules;
#[cfg(test)]
mod scripted;
mod session;
mod store;
mod sync;
mod telemetry;

pub use driver::guard::LockGuard;
pub use driver::guard_member::GuardMember;
pub use driver::locks::DistributedLock;
pub use driver::request::{Acquire, TryAcquire};
pub use driver::work::Done;
pub use error::{
    AcquireError, ConfigError, ConnectError, Error, FenceError, LatchError, LostError, LostReason,
    QueryError, ReleaseError, Step, TimeoutReason, TransactionError, VerifyError,
};
pub use inspect::participants::Participant;
pub use inspect::{
    Basis, Contender, Edge, Inspection, Party, Recipe, Scan, Standing, WaitForGraph, inspect, scan,
};
pub use lock::lease_state::GuardState;
pub use lock::release::ReleaseOutcome;
pub use lock::session::Session;
pub use lock::transaction::{Transaction, TransactionResult};
pub use names::key::{escape_key, unescape_key};
pub use names::node_name::LockKind;
pub use names::owner::Owner;
pub use names::record::Identity;
pub use names::token::FencingToken;
pub use session::health::{HealthWatcher, SessionHealth};
pub use session::options::{LockOptions, ParentMode, SessionOptions};
pub use store::Guarantee;
pub use store::fence::{Dialect, Fence};
#[doc(hidden)]
pub use store::limit::{RequestLimit, RequestTooLarge};
#[doc(hidden)]
pub use store::nodes::{
    Connection, Created, EndReason, Listing, MultiError, NewNode, NodeEvent, NodeMode, NodeOp,
    NodeOpDone, NodeWatch, Nodes, Reliant, Reply, commit, connection_changes, list_each,
};
pub use store::nodes::{NodeStat, NodesError};
#[doc(hidden)]
pub use store::panics::caught;
#[doc(hidden)]
pub use store::retry::Backoff;
#[doc(hidden)]
pub use store::{Store, Traits};

/// What the recipes, the facade and the command line need. It is not for users, and changes without
/// notice.
#[doc(hidden)]
pub mod internal {
    pub mod log {
        //! Targets of log events, and what they say of errors.
        pub use crate::log::{Causes, LOCK, STORE};
        pub use crate::names::session_id::SessionId;
    }

    pub use crate::clock::human;
    pub use crate::driver::internals::LockInternals;
    pub use crate::driver::locks::{Locks, sealed};
    pub use crate::driver::one_or_more::OneOrMore;
    pub use crate::driver::permits::SemaphoreInternals;
    pub use crate::error::address::{check_secrets, decoded, parameters, without_secrets};
    pub use crate::inspect::first::{FirstWatcher, Queued};
    pub use crate::inspect::front::{Front, inspect_front};
    pub use crate::inspect::{inspect_with_strangers, scan_with_strangers};
    pub use crate::lock::factory_root::FactoryRoot;
    pub use crate::names::node_name::{BESIDE, REVISION_DIGITS};
    pub use crate::names::owner::encloses;
    pub use crate::names::path::validate as validate_path;
    pub use crate::names::printable::{is_text, one_line};
    pub use crate::names::record::host_name;
    pub use crate::store::machine::suspended as machine_slept;
}
