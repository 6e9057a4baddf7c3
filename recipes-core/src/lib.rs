//! Session, lock driver and pure lock core of `zookeeper-recipes`.
//!
//! Users depend on `zookeeper-recipes`, which re-exports what they need from here.

mod acquire;
mod admission;
mod armed;
mod attempt;
mod backend;
mod builder;
mod cleanup;
mod clock;
mod connections;
mod creation;
mod epoch;
mod epoch_keeper;
mod error;
mod evidence;
mod flight;
mod guard_macro;
mod hold;
mod inspect;
mod keeper;
mod lease;
mod limit;
mod local_order;
mod local_queue;
mod lock;
mod lock_internals;
mod lock_path;
#[doc(hidden)]
pub mod log;
mod looks;
mod meter;
mod node_name;
mod nodes;
mod one_line;
mod options;
mod own_watch;
mod owner;
mod participants;
mod path;
#[cfg(all(test, feature = "shuttle"))]
mod races;
mod record;
mod release;
mod requests;
mod retry;
mod revocation;
#[cfg(test)]
mod scripted;
mod session;
mod sync;
mod token;
mod transaction;
mod vacancy;
mod wait_queue;
mod watch_budget;
mod witness;

#[doc(hidden)]
pub use backend::Backend;
pub use builder::SessionBuilder;
pub use error::{
    AcquireError, ConfigError, ConnectError, LostError, LostReason, QueryError, ReleaseError,
    RevokeError, Step, TransactionError, VerifyError,
};
pub use inspect::{
    Basis, Contender, Edge, InspectError, Inspection, Party, Recipe, Scan, Standing, WaitForGraph,
    inspect, scan,
};
pub use lease::GuardState;
#[doc(hidden)]
pub use lock::granted;
pub use lock::{DistributedLock, GuardMember, LockGuard};
#[doc(hidden)]
pub use lock_internals::{LockInternals, Wait, acquire_all, check_set, set_name};
pub use node_name::LockKind;
pub use nodes::{Acl, NodeStat, NodesError};
#[doc(hidden)]
pub use nodes::{
    Connection, Created, EndReason, Listing, MultiError, NewNode, NodeEvent, NodeMode, NodeOp,
    NodeOpDone, NodeWatch, Nodes, Reply,
};
#[doc(hidden)]
pub use one_line::{is_text, one_line};
#[doc(hidden)]
pub use options::SESSION_TIMEOUT_MAX;
pub use options::{LockOptions, ParentMode};
pub use owner::Owner;
pub use participants::Participant;
#[doc(hidden)]
pub use path::validate as validate_path;
pub use path::{escape_key, unescape_key};
pub use record::Identity;
pub use session::{HealthWatcher, Session, SessionHealth};
pub use token::FencingToken;
pub use transaction::{Transaction, TransactionResult};
#[cfg(feature = "sasl-digest-md5")]
pub use zookeeper_client::DigestMd5SaslOptions;
#[cfg(feature = "sasl-gssapi")]
pub use zookeeper_client::GssapiSaslOptions;
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub use zookeeper_client::SaslOptions;
pub use zookeeper_client::{Acls, AuthId, Client, Permission};
#[cfg(feature = "tls")]
pub use zookeeper_client::{TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions};
