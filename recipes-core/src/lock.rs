//! One lock in this process: who holds it, by which node, who comes next.
//!
//! Guard, hold, lease, epoch, session: many to one, each step.
//!
//! | file | noun |
//! |---|---|
//! | `lock_path` | the lock's path, and what all its users in this session share |
//! | `table` | who holds or attempts what, by owner |
//! | `hold` | one owner's share of a lock: its guards |
//! | `lease` | one node of ours; it can be lost |
//! | `release` | the end of leases, and its outcome |
//! | `transaction` | writes of the user that are bound to a lease |
//! | `revocation` | a request to give the lock up |
//! | `local_queue` | the waiters of this process |

pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod local_queue;
pub(crate) mod lock_path;
pub(crate) mod release;
pub(crate) mod revocation;
pub(crate) mod table;
pub(crate) mod transaction;
