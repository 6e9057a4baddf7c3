//! What holds on PostgreSQL and MariaDB, and what a user may do wrong there.
//!
//! | file | question |
//! |---|---|
//! | `calls_on_postgres` | what do the functions there promise, each by itself? |
//! | `simple_calls_on_postgres` | and those for the acquire and the release of one lock? |
//! | `calls_on_mariadb` | and the procedures on MariaDB? |
//! | `fence` | does a transaction commit only while the lock is held? |
//! | `ended_holder` | what can a holder whose session has ended still do to others? |
//! | `growth_on_postgres` | does all go that is left behind there, and what does it cost until then? |
//! | `pooler` | does a lock work through a pooler that shares connections? |
//! | `on_postgres` | does an operator, or a transaction of the service, cost a lock there? |
//! | `names_on_postgres` | does anything run there that others have planted where a user's names are found? |
//! | `races_on_postgres` | what if transactions cross there? |
//! | `races_on_mariadb` | and on MariaDB? |
//! | `locked` | what has a call locked while it waits, on both? |
//! | `settings_on_postgres` | does anything that is set there for a user give a lock to two? |
//! | `guide_rights`, `guide_rights_mysql` | have the users of the operators' guides the rights that they need, and no more? |
//! | `refused_by_postgres` | does each mistake of a user there get one clear error? |
//! | `refused_by_mariadb` | and on MariaDB? |
//! | `hosts_on_postgres` | is a host passed over that is silent, of several in one URL? |
//! | `socket_on_postgres` | a server of PostgreSQL at a Unix socket |
//! | `variables_of_mariadb` | does any setting there decide who is granted a lock? |
//! | `on_mariadb` | is a lock handed on, over lost connections and sessions, on MariaDB? |
//! | `change_of_store` | are the tokens of a table right when its locks move to another store? |
//! | `dropped` | is nobody granted a lock at once in a schema that is new, on a server that is not? |
//! | `database` | the service's own connection to the database |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

mod calls_on_mariadb;
mod calls_on_postgres;
mod change_of_store;
mod database;
mod dropped;
mod ended_holder;
mod fence;
mod growth_on_postgres;
#[path = "../support/guide.rs"]
mod guide;
mod guide_rights;
mod guide_rights_mysql;
mod hand_off_on_postgres;
mod hosts_on_postgres;
mod locked;
mod names_on_postgres;
mod on_mariadb;
mod on_postgres;
mod pooler;
mod races_on_mariadb;
mod races_on_postgres;
#[path = "../support/reads.rs"]
mod reads;
mod refused_by_mariadb;
mod refused_by_postgres;
mod settings_on_postgres;
mod simple_calls_on_postgres;
mod socket_on_postgres;
mod variables_of_mariadb;

use std::time::Duration;

/// What must happen, happens in this time.
const PATIENCE: Duration = Duration::from_secs(120);

/// A table of the numbers from 1 on, with the column `seq`, for MariaDB and MySQL.
fn numbers(count: usize) -> String {
    let many = "information_schema.collations";
    format!("(SELECT ROW_NUMBER() OVER () AS seq FROM {many} a, {many} b LIMIT {count}) numbers")
}
