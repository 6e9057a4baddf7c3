//! A check of a lock inside a transaction of the service's own database.

use std::fmt;

/// A statement that keeps a lock while a transaction of the service runs, from
/// [`LockGuard::fence`](crate::LockGuard::fence).
///
/// It is for stores that are a database, in which the service has its data too. Run it in the
/// transaction that writes the data, before the commit. It fails if the lock is held no more; then
/// roll back. If it succeeds, nobody else is granted the lock before that transaction
/// is over, whatever happens to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    dialect: Dialect,
    sql: String,
}

/// For which databases a [`Fence`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
}

impl Dialect {
    /// Returns the SQLSTATE with which a fence fails if the lock is not held any more. On MySQL and MariaDB it is
    /// also that of a transaction which cannot have a fence.
    #[must_use]
    pub const fn refusal(self) -> &'static str {
        match self {
            Self::Postgres => "LR001",
            Self::MySql => "45000",
        }
    }
}

impl Fence {
    /// A store's statement.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(dialect: Dialect, sql: String) -> Self {
        Self { dialect, sql }
    }

    /// Returns for which databases the statement is: those of the lock's store. A service that has its data in
    /// another one cannot use it.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns the statement, without parameters. It returns a row of no meaning.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }
}

/// The statement.
impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sql)
    }
}
