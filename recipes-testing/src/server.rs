//! Real servers as child processes.
//!
//! | file | noun |
//! |---|---|
//! | `single`, `ensemble`, `builder` | the handles that tests hold, and how they are set up |
//! | `redis`, `redis_builder`, `store_clock` | the same for Redis, and what the locks' store there remembers of time |
//! | `process`, `slot` | a server's process: its start, its signals, its end; where it is, if it runs |
//! | `installation` | where Java and the server's jars are |
//! | `home`, `config`, `ports` | a server's folder, its `zoo.cfg`, and what it listens on |
//! | `links` | the network between the servers of an ensemble |
//! | `reports`, `four_letter` | what a server reports about itself, and its log |
//! | `raw_session`, `password` | how a session is ended from outside |

mod builder;
mod config;
mod ensemble;
mod error;
mod four_letter;
mod home;
mod installation;
mod links;
#[cfg(test)]
mod log_toolkit;
mod password;
pub(crate) mod ports;
mod process;
mod raw_session;
mod redis;
mod redis_builder;
mod reports;
mod single;
mod slot;
mod store_clock;

pub use builder::ServerBuilder;
pub use ensemble::ZooKeeperEnsemble;
pub use error::ServerError;
pub use redis::RedisServer;
pub use redis_builder::RedisServerBuilder;
pub use single::ZooKeeperServer;
pub use store_clock::StoreClock;
