//! Real servers as child processes.
//!
//! | file | noun |
//! |---|---|
//! | `single`, `ensemble`, `builder` | the handles that tests hold, and how they are set up |
//! | `redis`, `redis_builder`, `store_clock` | the same for Redis, and what the locks' store there remembers of time |
//! | `postgres`, `mariadb` | the same for databases |
//! | `daemon`, `durability`, `sql_client` | what these have in common: how they run, when they answer a commit, how a test asks them |
//! | `folder`, `template` | a database's folder, and what is in it at first |
//! | `process`, `slot` | a server's process: its start, its signals, its end; where it is, if it runs |
//! | `children`, `account` | the processes that a server has started; whom it runs as, if not as root |
//! | `installation` | where Java and the server's jars are |
//! | `home`, `config`, `ports` | a server's folder, its `zoo.cfg`, and what it listens on |
//! | `links` | the network between the servers of an ensemble |
//! | `reports`, `four_letter` | what a server reports about itself, and its log |
//! | `raw_session`, `password` | how a session is ended from outside |

mod account;
mod builder;
mod children;
mod config;
mod daemon;
mod durability;
mod ensemble;
mod error;
mod folder;
mod four_letter;
mod home;
mod installation;
mod links;
#[cfg(test)]
mod log_toolkit;
mod mariadb;
mod password;
pub(crate) mod ports;
mod postgres;
mod process;
mod raw_session;
mod redis;
mod redis_builder;
mod reports;
mod single;
mod slot;
mod sql_client;
mod store_clock;
mod template;

pub use builder::ServerBuilder;
pub use durability::Durability;
pub use ensemble::ZooKeeperEnsemble;
pub use error::ServerError;
pub use mariadb::{MariaDbServer, MariaDbServerBuilder};
pub use postgres::{PostgresServer, PostgresServerBuilder};
pub use redis::RedisServer;
pub use redis_builder::RedisServerBuilder;
pub use single::ZooKeeperServer;
pub use store_clock::StoreClock;
