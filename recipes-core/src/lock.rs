//! One lock in this process: who holds it, by which node, who comes next.
//!
//! Guard, hold, lease, node, epoch, session: many to one, each step.
//!
//! | file | noun |
//! |---|---|
//! | `session` | the handle of a session: its core and its table |
//! | `lock_path` | the lock's path, and what all its users in this session share |
//! | `factory_root` | a path with locks below it, which is no lock itself |
//! | `target` | a lock to acquire: which one, how, for whom |
//! | `table` | who holds or attempts what, by owner |
//! | `hold` | one owner's share of a lock: its guards |
//! | `lease` | the right to a node of ours; the last one deletes it in the end |
//! | `lease_state` | what is known of a lease |
//! | `held_node` | what is known of a node that leases share, and its loss |
//! | `release` | the end of leases, and its outcome |
//! | `fence` | a check of a lease inside a transaction of the user's own database |
//! | `transaction` | writes of the user that are bound to a lease |
//! | `revocation` | a request to give the lock up |
//! | `directory` | the lock directory, where a watch on it saves listings |
//! | `local_queue` | the waiters of this process |
//! | `shared_reads` | the readers of this process that share nodes |

pub(crate) mod directory;
pub(crate) mod factory_root;
pub(crate) mod fence;
pub(crate) mod held_node;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod lease_state;
pub(crate) mod local_queue;
pub(crate) mod lock_path;
pub(crate) mod release;
pub(crate) mod revocation;
pub(crate) mod session;
pub(crate) mod shared_reads;
pub(crate) mod table;
pub(crate) mod target;
pub(crate) mod transaction;
