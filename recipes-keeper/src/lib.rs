//! Keeps sessions of `lock-recipes` over connections, for every store but ZooKeeper.
//!
//! It is for crates of stores, not for users, and changes without notice. Such a store has nodes,
//! sessions and watches inside its server, as functions of ours or of its own; this crate has the other end of
//! them, and knows no client.
//!
//! | file | noun |
//! |---|---|
//! | `wire` | the seam: server, connection, calls, answers |
//! | `reading` | who only reads, without a session |
//! | `silence` | how long sessions have been silent |
//! | `guarded` | wires below which a client may panic |
//! | `first` | which of several servers is connected to |
//! | `sessions` | a store whose sessions are kept here |
//! | `shared` | what the wires of a session share |
//! | `kept` | a session, as its requests and its keeper see it |
//! | `keeper` | keeps a session alive, over as many connections as it takes |
//! | `patience` | how long a try to connect may take |
//! | `resume` | takes a session up again over a new connection |
//! | `flight` | requests that are on their way, in one call |
//! | `traffic` | the calls that are on their way over one connection |
//! | `owned` | the nodes that a session has, as far as it was told |
//! | `asked` | what is asked of a server |
//! | `queue` | requests that wait for the connection |
//! | `watches` | who waits for news of which node |
//! | `client` | the requests of one session |
//! | `answers` | what the server's answers mean for a lock |
//! | `parts` | the parts of an answer |
//! | `moment` | time that goes on while the machine sleeps |

mod answers;
mod asked;
mod client;
mod first;
mod flight;
mod guarded;
mod keeper;
mod kept;
mod moment;
mod owned;
mod parts;
mod patience;
mod queue;
mod reading;
mod resume;
mod sessions;
mod shared;
mod silence;
mod traffic;
mod watches;
mod wire;

pub use answers::{news, reason, told};
pub use asked::{Asked, letter, version_word};
pub use first::first_of;
pub use kept::{CONTAINER_REST, Terms};
pub use moment::Moment;
pub use parts::{Parts, counted, signed, stat};
pub use reading::{ReadNode, Reads};
pub use sessions::{Sessions, TRAITS};
pub use shared::Shared;
pub use silence::{Clocks, Lives, Silence, is_long};
pub use watches::{Rewatch, Seen, Watches};
pub use wire::{
    Answers, CallError, Called, Caller, Facts, Loss, LossSender, Open, Opened, Outcome, Resume,
    Resumed, Said, Server, Source, Watched, Wire, duration, micros, until_lost,
};

/// Target of log events about a store.
const STORE: &str = recipes_core::internal::log::STORE;
