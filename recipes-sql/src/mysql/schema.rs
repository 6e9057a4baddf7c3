//! The tables and procedures.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use recipes_core::NodesError;
use std::sync::Arc;

use super::checks::MySqlRefusal;
use super::errors::refused;

/// The version of all files together. Services with different versions cannot share the tables.
pub(super) const VERSION: i64 = 4;

/// Tables, with a semicolon after each statement; and procedures, with two slashes.
const FILES: [&str; 5] = [
    include_str!("schema.sql"),
    include_str!("requests.sql"),
    include_str!("enter.sql"),
    include_str!("sessions.sql"),
    include_str!("fence.sql"),
];
/// What the procedures are called, after the prefix.
const NAMES: [&str; 10] = [
    "beat", "close", "enter", "fence", "leave", "open", "purge", "requests", "resume", "tidy",
];
const PROCEDURES: i64 = 10;
/// As in the files, for the client of the server.
const DELIMITER: &str = "DELIMITER //";

/// Names have 64 characters at most.
const PREFIX_BYTES_MAX: usize = 48;

/// Whether names can begin so.
pub(super) fn check(prefix: &str) -> Result<(), String> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let begins = prefix.chars().next().is_some_and(|it| !it.is_ascii_digit());
    match begins && prefix.len() <= PREFIX_BYTES_MAX && prefix.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "prefix {prefix:?} must be letters, digits and underscores, at most {PREFIX_BYTES_MAX}, \
             and not begin with a digit"
        )),
    }
}

/// All statements, for a person to read and for the client `mysql` or `mariadb` to run.
pub(super) fn script(prefix: &str) -> String {
    let mut script: String = FILES.join("\n");
    script += &format!("\nDELIMITER ;\n\n{};\n", version(prefix));
    script.replace("@prefix@", prefix)
}

fn version(prefix: &str) -> String {
    format!("INSERT IGNORE INTO {prefix}meta VALUES ({VERSION})")
}

/// The statements, one by one. Each does nothing if it was done.
fn statements(prefix: &str) -> Vec<String> {
    let mut statements = Vec::new();
    for file in FILES {
        let is_statement = |line: &&str| !line.trim_start().starts_with("--");
        let text: Vec<_> = file.lines().filter(is_statement).collect();
        let text = text.join("\n");
        let (text, delimiter) = match text.split_once(DELIMITER) {
            Some((_, procedures)) => (procedures, "//"),
            None => (text.as_str(), ";"),
        };
        let parts = text.split(delimiter).map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        statements.extend(parts.map(|part| part.replace("@prefix@", prefix)));
    }
    // Last, when all is there.
    statements.push(version(prefix));
    statements
}

/// Checks that the tables are there.
pub(super) async fn find(connection: &mut Conn, prefix: &str) -> Result<(), NodesError> {
    match found(connection, prefix).await.map_err(refused)? {
        Some((VERSION, _)) => Ok(()),
        Some((found, _)) => Err(other_version(prefix, found)),
        None => Err(none(prefix)),
    }
}

fn other_version(prefix: &str, found: i64) -> NodesError {
    let prefix = prefix.to_owned();
    NodesError::Refused(Arc::new(MySqlRefusal::Schema { prefix, found }))
}

fn incomplete(said: String) -> NodesError {
    NodesError::Refused(Arc::new(MySqlRefusal::NoSchema { said }))
}

fn none(prefix: &str) -> NodesError {
    incomplete(format!("there is no table {prefix}meta with a version"))
}

/// Checks that the tables are there, and creates them if they are not and this is allowed.
pub(super) async fn prepare(
    connection: &mut Conn,
    prefix: &str,
    may_create: bool,
) -> Result<(), NodesError> {
    match found(connection, prefix).await.map_err(refused)? {
        Some((VERSION, PROCEDURES)) => Ok(()),
        // To find out why it sees none is left to the first call.
        Some((VERSION, 0)) => Ok(()),
        Some((found, _)) if found != VERSION => Err(other_version(prefix, found)),
        _ if may_create => {
            // Others may be at it, too.
            for statement in statements(prefix) {
                connection.query_drop(statement).await.map_err(refused)?;
            }
            Ok(())
        }
        Some((_, count)) => {
            let said = format!("{count} of {PROCEDURES} procedures are there");
            Err(incomplete(said))
        }
        None => Err(none(prefix)),
    }
}

/// The version that is there, and how many procedures the user sees.
async fn found(connection: &mut Conn, prefix: &str) -> Result<Option<(i64, i64)>, Error> {
    let names = NAMES.map(|name| format!("'{prefix}{name}'")).join(", ");
    let found = format!(
        "SELECT MAX(version), (SELECT COUNT(*) FROM information_schema.ROUTINES \
         WHERE ROUTINE_SCHEMA = DATABASE() AND ROUTINE_NAME IN ({names})) FROM {prefix}meta"
    );
    match connection.query_first::<(Option<i64>, i64), _>(found).await {
        Ok(found) => Ok(found.and_then(|(version, count)| Some((version?, count)))),
        Err(Error::Server(error)) if error.code == 1146 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_split_into_statements() {
        let statements = statements("my_");
        let begins = |it: &str| statements.iter().filter(|one| one.starts_with(it)).count();
        assert_eq!(begins("CREATE TABLE IF NOT EXISTS my_"), 7);
        for name in NAMES {
            assert_eq!(
                begins(&format!("CREATE PROCEDURE IF NOT EXISTS my_{name}(")),
                1
            );
        }
        assert_eq!(i64::try_from(NAMES.len()), Ok(PROCEDURES));
        assert_eq!(begins("INSERT IGNORE INTO my_"), 3);
        assert_eq!(begins("SET NAMES binary, SESSION sql_mode"), 1);
        assert_eq!(statements.len(), 21);
        assert!(
            statements
                .iter()
                .all(|it| !it.contains(['@']) || it.contains("@@"))
        );
        assert_eq!(statements.last().unwrap(), &version("my_"));
    }

    #[test]
    fn script_is_for_the_client() {
        let script = script("my_");
        assert!(script.contains("\nDELIMITER //\n") && script.contains("\nDELIMITER ;\n"));
        assert!(!script.contains("@prefix@"));
    }
}
