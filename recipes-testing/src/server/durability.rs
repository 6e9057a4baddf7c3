//! What a database server promises when it answers a commit.

/// When a commit of a [`PostgresServer`](crate::PostgresServer) or a
/// [`MariaDbServer`](crate::MariaDbServer) is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// When it is on the disk: nothing forgets it, and `guarantee()` is `OneCopy`. In memory, where servers have their
    /// data unless a test says otherwise, that takes no time.
    ///
    /// The defaults of PostgreSQL and MariaDB, but not of these test servers: most tests do not ask what a crash of the
    /// machine forgets.
    Flushed,
    /// When the operating system has it: it is there after [`kill`](crate::PostgresServer::kill), and
    /// may be forgotten if the machine fails.
    ///
    /// PostgreSQL: `fsync = off`; MariaDB: `innodb_flush_log_at_trx_commit = 2`.
    #[default]
    Written,
    /// Before it is anywhere: the last commits may be forgotten after
    /// [`kill`](crate::PostgresServer::kill).
    ///
    /// PostgreSQL: `synchronous_commit = off`, and the log is written every ten seconds; MariaDB:
    /// `innodb_flush_log_at_trx_commit = 0`, and the log is written when its buffer is full.
    Late,
}
