//! Locks on MySQL and MariaDB.
//!
//! | file | noun |
//! |---|---|
//! | `server` | `MySql`: where a service begins |
//! | `builder` | what a service sets |
//! | `address` | the server that a URL names |
//! | `connecting` | how a connection is made, and its server judged |
//! | `product` | MySQL, or MariaDB |
//! | `checks` | what a server must be like, and what it then promises |
//! | `schema` | the tables and procedures, listed in `mysql/schema.sql` |
//! | `errors` | what the server's errors mean |
//! | `fence` | the statement for the user's transaction |
//! | `settled` | what a connection sets, whatever it was given |
//! | `variables` | all variables of a connection, and why each is harmless |
//! | `wire` | the two connections of a session |
//! | `lane` | the connection for changes and reads |
//! | `side` | the connection for beats and polls |
//! | `line` | one connection |
//! | `reads` | a connection of somebody who only reads |
//! | `looks` | statements that see what nodes are like |
//! | `procedures` | calls of procedures |
//! | `batch` | what is asked, as the procedures want it |
//! | `answers` | what the procedures answer, as the keeper wants it |

mod address;
mod answers;
mod batch;
mod builder;
mod checks;
mod connecting;
mod errors;
mod fence;
mod lane;
mod line;
mod looks;
mod procedures;
mod product;
mod reads;
mod schema;
mod server;
mod settled;
mod side;
mod variables;
mod wire;

pub use builder::MySqlBuilder;
pub use checks::MySqlRefusal;
pub use server::MySql;
pub use variables::variables_of_mysql;
