//! Locks of `lock-recipes` on Redis.
//!
//! Users depend on `lock-recipes`, which re-exports what they need from here.
//!
//! | file | noun |
//! |---|---|
//! | `server` | `Redis`: the server, or the Sentinels that name it, and where sessions come from |
//! | `builder` | what a service sets |
//! | `address` | the servers that a URL names |
//! | `checks` | what a server must be like, and what it then promises |
//! | `scripts` | what runs inside the server; the keys are listed in `scripts/store.lua` |
//! | `wire` | one connection |
//! | `kept` | a session, as its requests and its keeper see it |
//! | `keeper` | keeps a session alive, over as many connections as it takes |
//! | `resume` | takes a session up again over a new connection |
//! | `flight` | requests that are on their way, in one script |
//! | `owned` | the nodes that a session has, as far as it was told |
//! | `asked` | what is asked of the scripts, and in which words |
//! | `queue` | requests that wait for the connection |
//! | `watches` | who waits for news of which node |
//! | `client` | the requests of one session |
//! | `answers` | what the server's answers and errors mean for a lock |

mod address;
mod answers;
mod asked;
mod builder;
mod checks;
mod client;
mod flight;
mod keeper;
mod kept;
mod moment;
mod owned;
mod queue;
mod resume;
mod scripts;
mod server;
mod watches;
mod wire;

/// Target of log events about a store.
const STORE: &str = recipes_core::internal::log::STORE;

#[doc(hidden)]
pub use address::without_password;
pub use builder::RedisBuilder;
pub use checks::RedisRefusal;
pub use server::Redis;
#[doc(hidden)]
pub use server::TRAITS;
