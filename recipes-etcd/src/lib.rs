//! Locks of `lock-recipes` on etcd, in one queue with Go's `concurrency` package and `etcdctl`.
//!
//! Users depend on `lock-recipes`, which re-exports what they need from here.
//!
//! | file | noun |
//! |---|---|
//! | `server` | `Etcd`, where a service begins |
//! | `builder` | what a service sets |
//! | `address` | the members that a URL names |
//! | `servers` | which member is connected to next |
//! | `checks` | what a member must be like, and what it then promises |
//! | `keys` | nodes as keys: what contenders of all programs are called |
//! | `wire` | one connection |
//! | `calls` | the calls that it carries |
//! | `session` | the lease of a session, its key, and what they prove |
//! | `lease` | which keep-alives count |
//! | `words` | requests as transactions |
//! | `answers` | what is answered |
//! | `refusals` | what the errors of the client mean |
//! | `news` | the stream of events |
//! | `watching` | which keys are watched, and from when on all of their events are known |
//! | `queues` | who may be ahead in the queues in which the session stands |
//! | `reads` | a connection of somebody who only reads |

mod address;
mod answers;
mod builder;
mod calls;
mod checks;
mod keys;
mod lease;
mod news;
mod queues;
mod reads;
mod refusals;
mod server;
mod servers;
mod session;
mod watching;
mod wire;
mod words;

pub use builder::EtcdBuilder;
pub use checks::EtcdRefusal;
pub use server::Etcd;

/// Target of log events about a store.
const STORE: &str = recipes_core::internal::log::STORE;
