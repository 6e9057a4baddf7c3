//! What a server must be like, and what it then promises.

use recipes_core::Guarantee;
use recipes_keeper::Facts;
use thiserror::Error;
use tokio_postgres::Row;

use super::schema::VERSION;
use super::variables;

/// The oldest server whose functions are known to do what ours rely on.
pub(super) const SERVER_MIN: i32 = 12;

/// Why a session is not opened on a server that answers.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostgresRefusal {
    /// It follows another server, and takes no writes.
    #[error("the server is a replica: connect to the primary, or name all servers in the URL")]
    Replica,
    /// Its transactions are read-only.
    #[error(
        "the server is read-only (default_transaction_read_only): connect to one that takes writes"
    )]
    ReadOnly,
    /// It is too old for what the locks need.
    #[error("the server is PostgreSQL {found}; at least {SERVER_MIN} is needed")]
    Version {
        /// Its version.
        found: i32,
    },
    /// Paths are Unicode, and the database cannot have all of it.
    #[error("the database has encoding {found}: the locks need one with UTF8")]
    Encoding {
        /// Its encoding.
        found: String,
    },
    /// A variable is set for the user, or the database, with which rows may be missing.
    #[error("{name} is {found} on the server: set it to {wanted} for this user")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        found: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// Another level of isolation would show the past. A session sets its own, but not behind a pooler.
    #[error(
        "transactions begin with isolation level {found}: set default_transaction_isolation to \
         'read committed' for this user"
    )]
    Isolation {
        /// The level.
        found: String,
    },
    /// The schema does not exist, and must not be created.
    #[error(
        "schema {schema:?} does not exist, so there are no locks: a session that may create it has not been \
         opened (create_schema), and nobody has carried out its statements (`Postgres::schema`)"
    )]
    NoSchema {
        /// The schema.
        schema: String,
    },
    /// The schema does not exist, and the user has no right to create it.
    #[error(
        "user {user:?} may not create schema {schema:?}: grant CREATE on the database, or have its \
         statements (`Postgres::schema`) carried out by who may"
    )]
    MayNotCreate {
        /// The user.
        user: String,
        /// The schema.
        schema: String,
    },
    /// The user has no right to use the schema.
    #[error(
        "user {user:?} may not use schema {schema:?}: grant USAGE on it, SELECT, INSERT, UPDATE and \
         DELETE on all of its tables, and EXECUTE on all of its functions"
    )]
    MayNotUse {
        /// The user.
        user: String,
        /// The schema.
        schema: String,
    },
    /// The user has no right to read the schema, in a session that only reads.
    #[error(
        "user {user:?} may not read schema {schema:?}: grant USAGE on it, and SELECT on its tables meta, \
         nodes and counts"
    )]
    MayNotRead {
        /// The user.
        user: String,
        /// The schema.
        schema: String,
    },
    /// Another version of this crate uses the schema.
    #[error(
        "schema {schema:?} is of version {found}, and this is version {VERSION}: use a schema of its \
         own"
    )]
    SchemaVersion {
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
    },
    /// The server has as many connections as it takes. The session tries again.
    #[error(
        "the server takes no more connections ({said}): a session needs two; raise max_connections \
         or the user's limit"
    )]
    TooManyConnections {
        /// What the server said.
        said: String,
    },
    /// The user, the password, or the rule for hosts.
    #[error("the server does not accept the user or the password: {said}")]
    Credentials {
        /// What the server said.
        said: String,
    },
    /// The database does not exist, or the user may not connect to it.
    #[error("the database cannot be used: {said}")]
    Database {
        /// What the server said.
        said: String,
    },
    /// Encryption is wanted, and the server has none.
    #[error(
        "the server does not encrypt, as sslmode wants it to: set `ssl` there, or leave sslmode out"
    )]
    Plain,
}

/// When the server was started, in microseconds. No two servers are, and none twice.
const STARTED: &str = "(pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) \
     OPERATOR(pg_catalog.*) 1000000)::bigint";

/// Asks what [`Found`] has. All names are qualified: users may have any path.
pub(super) fn question() -> String {
    let required = variables::required();
    let required = required.map(|(name, _)| format!("pg_catalog.current_setting('{name}')"));
    let required = required.collect::<Vec<_>>().join(", ");
    format!(
        "SELECT pg_catalog.pg_is_in_recovery(),
           pg_catalog.current_setting('transaction_read_only'),
           pg_catalog.current_setting('server_version_num'),
           pg_catalog.current_setting('server_encoding'),
           pg_catalog.current_setting('transaction_isolation'),
           pg_catalog.current_setting('fsync'),
           (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c),
           CASE WHEN pg_catalog.pg_is_in_recovery() THEN ''
             ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) END,
           {STARTED},
           current_user,
           pg_catalog.current_setting('lock_recipes.settled', true),
           ARRAY[{required}]"
    )
}

/// What a server has said about itself.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    is_replica: bool,
    is_read_only: bool,
    pub(super) version: i32,
    encoding: String,
    isolation: String,
    flushes: bool,
    system: String,
    timeline: String,
    started: i64,
    pub(crate) user: String,
    /// The session timeout for which settings were made with the connection. A pooler drops them.
    pub(crate) settled: String,
    /// What the variables are that have to be something.
    required: Vec<String>,
}

impl Found {
    pub(crate) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let is_on = |at| row.try_get::<_, String>(at).map(|it| it == "on");
        let number: String = row.try_get(2)?;
        let timeline: String = row.try_get(7)?;
        Ok(Self {
            is_replica: row.try_get(0)?,
            is_read_only: is_on(1)?,
            // 150003 is 15.3.
            version: number.parse::<i32>().unwrap_or_default() / 10_000,
            encoding: row.try_get(3)?,
            isolation: row.try_get(4)?,
            flushes: is_on(5)?,
            system: row.try_get::<_, i64>(6)?.to_string(),
            timeline: timeline.chars().take(8).collect(),
            started: row.try_get(8)?,
            user: row.try_get(9)?,
            settled: row.try_get::<_, Option<String>>(10)?.unwrap_or_default(),
            required: row.try_get(11)?,
        })
    }

    /// What a statement ends with, so that only this run of the server carries it out. A pooler keeps its clients'
    /// connections when the server behind it is another, which may have forgotten locks.
    pub(crate) fn only_here(&self, is_direct: bool) -> String {
        match is_direct {
            true => String::new(),
            false => format!(" WHERE {STARTED} OPERATOR(pg_catalog.=) {}", self.started),
        }
    }

    /// Judges the server.
    pub(crate) fn judge(&self) -> Result<Facts, PostgresRefusal> {
        if self.version < SERVER_MIN {
            return Err(PostgresRefusal::Version {
                found: self.version,
            });
        }
        if self.is_replica {
            return Err(PostgresRefusal::Replica);
        }
        if self.is_read_only {
            return Err(PostgresRefusal::ReadOnly);
        }
        if self.encoding != "UTF8" {
            return Err(PostgresRefusal::Encoding {
                found: self.encoding.clone(),
            });
        }
        if self.isolation != "read committed" {
            return Err(PostgresRefusal::Isolation {
                found: self.isolation.clone(),
            });
        }
        for ((name, wanted), found) in variables::required().zip(&self.required) {
            if found != wanted {
                let found = found.clone();
                return Err(PostgresRefusal::Variable {
                    name,
                    found,
                    wanted,
                });
            }
        }
        // A promotion begins another timeline. A server that does not flush may forget by each start.
        let run = format!("{} {}", self.system, self.timeline);
        Ok(Facts {
            run: match self.flushes {
                true => run,
                false => format!("{run} {}", self.started),
            },
            guarantee: match self.flushes {
                true => Guarantee::OneCopy,
                false => Guarantee::BestEffort,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        Found {
            is_replica: false,
            is_read_only: false,
            version: 15,
            encoding: "UTF8".to_owned(),
            isolation: "read committed".to_owned(),
            flushes: true,
            system: "7012".to_owned(),
            timeline: "00000001".to_owned(),
            started: 5,
            user: "app".to_owned(),
            settled: String::new(),
            required: variables::required()
                .map(|(_, wanted)| wanted.to_owned())
                .collect(),
        }
    }

    #[test]
    fn server_that_flushes_keeps_its_run_over_a_restart() {
        let restarted = Found {
            started: 6,
            ..found()
        };
        let facts = found().judge().unwrap();
        assert_eq!(facts.guarantee, Guarantee::OneCopy);
        assert_eq!(facts.run, restarted.judge().unwrap().run);
    }

    #[test]
    fn server_that_does_not_flush_begins_a_run_with_each_start() {
        let forgets = |started| Found {
            flushes: false,
            started,
            ..found()
        };
        let [first, second] = [5, 6].map(|it| forgets(it).judge().unwrap());
        assert_eq!(first.guarantee, Guarantee::BestEffort);
        assert_ne!(first.run, second.run);
    }

    #[test]
    fn promotion_begins_a_run() {
        let promoted = Found {
            timeline: "0000000A".to_owned(),
            ..found()
        };
        let facts = promoted.judge().unwrap();
        assert_ne!(facts.run, found().judge().unwrap().run);
    }

    #[test]
    fn server_that_cannot_keep_locks_is_refused() {
        let refused = |change: fn(&mut Found)| {
            let mut found = found();
            change(&mut found);
            found.judge().unwrap_err()
        };
        assert_eq!(refused(|it| it.is_replica = true), PostgresRefusal::Replica);
        assert_eq!(
            refused(|it| it.is_read_only = true),
            PostgresRefusal::ReadOnly
        );
        assert_eq!(
            refused(|it| it.version = 11),
            PostgresRefusal::Version { found: 11 }
        );
        let encoding = refused(|it| it.encoding = "LATIN1".to_owned());
        assert!(matches!(encoding, PostgresRefusal::Encoding { .. }));
        let variable = refused(|it| it.required[0] = "on".to_owned());
        assert!(
            variable.to_string().contains("zero_damaged_pages is on"),
            "{variable}"
        );
        let isolation = refused(|it| it.isolation = "serializable".to_owned());
        assert!(isolation.to_string().contains("serializable"));
    }
}
