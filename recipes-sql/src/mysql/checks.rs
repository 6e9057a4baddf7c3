//! What a server must be like, and what it then promises.

use std::collections::HashMap;

use recipes_core::Guarantee;
use recipes_keeper::Facts;
use thiserror::Error;

use super::schema::VERSION;

/// Why a session is not opened on a server that answers.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MySqlRefusal {
    /// It follows another server. Name that one.
    #[error("the server is a replica of {primary}: connect to that")]
    Replica {
        /// Host and port.
        primary: String,
    },
    /// It takes no writes.
    #[error("the server is read-only: connect to the primary, or set read_only = OFF")]
    ReadOnly,
    /// It is a node of a Galera cluster, which does not replicate row locks.
    #[error(
        "the server is a node of a Galera cluster, which does not replicate row locks: let all \
         sessions use one node and call allow_galera(), or use another server"
    )]
    Galera,
    /// It is a member of a group that lets several members write, which does not replicate row locks.
    #[error(
        "the server's replication group lets several members write, and does not replicate row locks: \
         set group_replication_single_primary_mode = ON, or use another server"
    )]
    Group,
    /// It logs statements, and then takes no writes at READ COMMITTED.
    #[error(
        "the server logs statements (binlog_format = STATEMENT), which does not go with READ COMMITTED: \
         set it to MIXED or ROW"
    )]
    StatementLog,
    /// Its packets are too short for the listing of a queue.
    #[error("the server's max_allowed_packet is {found} bytes: set it to {PACKET_MIN} or more")]
    Packet {
        /// What it is.
        found: u64,
    },
    /// It is too old, or another product.
    #[error("the server is {found}; MySQL 8.4, MariaDB 10.6 or later is needed")]
    Version {
        /// What it calls itself.
        found: String,
    },
    /// Another version of this library has created the tables.
    #[error(
        "the tables of {prefix} have schema {found}, this library needs {VERSION}: use another \
         prefix, or stop all services that use them, drop them, and start again"
    )]
    Schema {
        /// What the names of the tables begin with.
        prefix: String,
        /// The version that is there.
        found: i64,
    },
    /// The tables or procedures are missing, and not to be created, or no longer there.
    #[error(
        "the schema of the locks is incomplete ({said}): let somebody run what `MySql::schema` \
         returns, or allow create_schema(true)"
    )]
    NoSchema {
        /// What the server said.
        said: String,
    },
    /// The user may not do what the locks need.
    #[error(
        "a right is missing ({said}): GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE on the database, \
         and CREATE, INDEX, CREATE ROUTINE for the first session"
    )]
    Rights {
        /// What the server said.
        said: String,
    },
    /// User or password are wrong.
    #[error("the server does not accept user or password: {said}")]
    Credentials {
        /// What the server said.
        said: String,
    },
    /// Encryption is wanted, and the server has none.
    #[error(
        "the server does not encrypt, as ssl-mode wants it to: set `ssl_cert` and `ssl_key` there, or leave ssl-mode out"
    )]
    Plain,
    /// The server takes only connections that are encrypted.
    #[error(
        "the server takes only connections that are encrypted (require_secure_transport): add \
         ssl-mode=required to the address"
    )]
    Secure,
    /// There is no such database, or not for this user.
    #[error("the database cannot be used: {said}")]
    Database {
        /// What the server said.
        said: String,
    },
    /// The server has no connection left. A session needs two.
    #[error("no connection is left ({said}): a session needs two; raise max_connections")]
    Connections {
        /// What the server said.
        said: String,
    },
}

/// What the service allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    pub(super) galera: bool,
}

/// What a server has said about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// Its global variables and counters by name, as far as it has them.
    pub(super) variables: HashMap<String, String>,
    /// When it was started, in seconds.
    pub(super) started: i64,
    /// The server that it follows, if it may say.
    pub(super) primary: Option<String>,
}

/// A listing of some thousand contenders is as long.
const PACKET_MIN: u64 = 1 << 19;

/// The variables that are looked at.
pub(super) const VARIABLES: [&str; 11] = [
    "binlog_format",
    "group_replication_group_name",
    "group_replication_single_primary_mode",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "max_allowed_packet",
    "read_only",
    "server_uid",
    "server_uuid",
    "sync_binlog",
    "wsrep_on",
];
/// What a server counts, or says of its state.
pub(super) const STATUS: [&str; 1] = ["Innodb_redo_log_enabled"];

/// Judges a server.
pub(super) fn judge(said: &Said, allowed: Allowed) -> Result<Facts, MySqlRefusal> {
    let is = |name: &str, value: &str| said.variables.get(name).is_some_and(|it| it == value);
    if let Some(primary) = &said.primary {
        return Err(MySqlRefusal::Replica {
            primary: primary.clone(),
        });
    }
    // Whoever may write nevertheless is an administrator, and the locks are not for them alone.
    if is("read_only", "ON") {
        return Err(MySqlRefusal::ReadOnly);
    }
    if is("log_bin", "ON") && is("binlog_format", "STATEMENT") {
        return Err(MySqlRefusal::StatementLog);
    }
    let packet = said.variables.get("max_allowed_packet");
    if let Some(found) = packet
        .and_then(|it| it.parse().ok())
        .filter(|it| *it < PACKET_MIN)
    {
        return Err(MySqlRefusal::Packet { found });
    }
    let is_galera = is("wsrep_on", "ON");
    if is_galera && !allowed.galera {
        return Err(MySqlRefusal::Galera);
    }
    let text = |name: &str| said.variables.get(name).map_or("", String::as_str);
    let is_member = !text("group_replication_group_name").is_empty();
    if is_member && is("group_replication_single_primary_mode", "OFF") {
        return Err(MySqlRefusal::Group);
    }
    let is_logged = !is("log_bin", "ON") || is("sync_binlog", "1");
    let is_flushed = is("innodb_flush_log_at_trx_commit", "1");
    let is_redone = !is("Innodb_redo_log_enabled", "OFF");
    let keeps = is_flushed && is_redone && is_logged && !is_galera && !is_member;
    // Each product has one of them.
    let uid = format!("{}{}", text("server_uid"), text("server_uuid"));
    Ok(Facts {
        // A server that keeps all is the same after a restart.
        run: match keeps {
            true => uid.clone(),
            false => format!("{uid} {}", said.started),
        },
        guarantee: match keeps {
            true => Guarantee::OneCopy,
            false => Guarantee::BestEffort,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(changes: &[(&str, &str)]) -> Said {
        let defaults = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "OFF"),
            ("read_only", "OFF"),
            ("server_uid", "abc"),
            ("sync_binlog", "0"),
            ("wsrep_on", "OFF"),
        ];
        let all = defaults.iter().chain(changes);
        Said {
            variables: all
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            started: 5,
            ..Said::default()
        }
    }

    fn judged(changes: &[(&str, &str)]) -> Result<Guarantee, MySqlRefusal> {
        judge(&said(changes), Allowed::default()).map(|it| it.guarantee)
    }

    #[test]
    fn server_that_keeps_what_it_has_acknowledged_is_one_copy() {
        assert_eq!(judged(&[]), Ok(Guarantee::OneCopy));
        let (log, flush) = (("log_bin", "ON"), "innodb_flush_log_at_trx_commit");
        assert_eq!(judged(&[log]), Ok(Guarantee::BestEffort));
        assert_eq!(judged(&[log, ("sync_binlog", "1")]), Ok(Guarantee::OneCopy));
        assert_eq!(judged(&[(flush, "2")]), Ok(Guarantee::BestEffort));
    }

    #[test]
    fn restart_begins_a_run_only_where_commits_may_be_lost() {
        let run = |changes: &[(&str, &str)]| judge(&said(changes), Allowed::default()).unwrap().run;
        assert_eq!(run(&[]), "abc");
        assert_eq!(run(&[("innodb_flush_log_at_trx_commit", "0")]), "abc 5");
    }

    #[test]
    fn server_that_cannot_keep_locks_is_refused() {
        assert_eq!(judged(&[("read_only", "ON")]), Err(MySqlRefusal::ReadOnly));
        assert_eq!(judged(&[("wsrep_on", "ON")]), Err(MySqlRefusal::Galera));
        let packet = |bytes| judged(&[("max_allowed_packet", bytes)]);
        assert_eq!(packet("65536"), Err(MySqlRefusal::Packet { found: 65_536 }));
        assert_eq!(packet("1048576"), Ok(Guarantee::OneCopy));
        let allowed = judge(&said(&[("wsrep_on", "ON")]), Allowed { galera: true });
        assert_eq!(allowed.unwrap().guarantee, Guarantee::BestEffort);
        let replica = Said {
            primary: Some("db1:3306".to_owned()),
            ..said(&[])
        };
        let refused = judge(&replica, Allowed::default()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the server is a replica of db1:3306: connect to that"
        );
    }

    #[test]
    fn mysql_says_the_same_in_other_words() {
        let server = [("server_uid", ""), ("server_uuid", "f-1")];
        let facts = |more: &[(&str, &str)]| {
            let all: Vec<_> = server.iter().chain(more).copied().collect();
            judge(&said(&all), Allowed::default())
        };
        assert_eq!(facts(&[]).unwrap().run, "f-1");
        // Whoever loads much data may switch it off.
        let redo = facts(&[("Innodb_redo_log_enabled", "OFF")]).unwrap();
        assert_eq!(redo.guarantee, Guarantee::BestEffort);
        let group = |mode| {
            facts(&[
                ("group_replication_group_name", "g"),
                ("group_replication_single_primary_mode", mode),
            ])
        };
        assert_eq!(group("OFF").unwrap_err(), MySqlRefusal::Group);
        assert_eq!(group("ON").unwrap().guarantee, Guarantee::BestEffort);
    }
}
