//! Every decision, without I/O and without a clock. Tests or a model checker stand beside each.
//!
//! | file | decides |
//! |---|---|
//! | `admission` | who of a queue holds the lock, and for whom the others wait |
//! | `acquire` | what an attempt does next: the state machine of all acquires |
//! | `delay` | why an acquire ran out of time |
//! | `evidence` | until when a lease is valid, and which heartbeat comes next |
//! | `local_order` | whose turn it is among the waiters of this process |
//! | `mixed` | whether a directory has nodes of another recipe, and who of the two is refused |
//! | `read_groups` | which readers of a session share a node |
//! | `vacancy` | whether a new node is the only one of its directory |

pub(crate) mod acquire;
pub(crate) mod admission;
pub(crate) mod delay;
pub(crate) mod evidence;
pub(crate) mod local_order;
pub(crate) mod mixed;
#[cfg(test)]
pub(crate) mod random_names;
pub(crate) mod read_groups;
pub(crate) mod vacancy;
