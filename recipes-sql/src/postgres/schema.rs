//! What the server keeps and runs.

use std::sync::Arc;

use recipes_core::NodesError;
use tokio_postgres::Error as PgError;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::answers::refusal;
use super::checks::PostgresRefusal;
use super::line::{Call, Line};
use super::variables;

/// The version of tables and functions. Another one is another protocol.
pub(crate) const VERSION: i32 = 5;
/// The default schema.
pub(crate) const SCHEMA: &str = "lock_recipes";

const TABLES: &str = include_str!("schema.sql");
/// The functions of all files, as each uses what stands before it.
const FUNCTIONS: &str = concat!(
    include_str!("nodes.sql"),
    include_str!("requests.sql"),
    include_str!("enter.sql"),
    include_str!("sessions.sql"),
    include_str!("beats.sql"),
);

/// Names have 63 bytes on a server; some are made of it.
const NAME_BYTES_MAX: usize = 48;

/// Why a name cannot be that of a schema.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let is_letter = |it: u8| it.is_ascii_lowercase() || it == b'_';
    let fits = |it: u8| is_letter(it) || it.is_ascii_digit();
    let starts_well = name.bytes().next().is_some_and(is_letter);
    if starts_well && name.bytes().all(fits) && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "schema {name:?} must have lower-case letters, digits and underscores only, at most \
         {NAME_BYTES_MAX}"
    ))
}

/// The schema's name in statements. It may be a word of the language.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// Types, collations and what the validation of functions looks up are the server's own, whatever path the
/// operator has. It is the same afterwards.
const PATH: [&str; 2] = [
    "SELECT pg_catalog.set_config('lock_recipes.path', pg_catalog.current_setting('search_path'), false),\n  \
     pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);\n",
    "\nSELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('lock_recipes.path'), false);\n",
];

/// The statements that create it, as far as it does not exist.
pub(crate) fn statements(name: &str) -> String {
    let all = format!("{TABLES}\n{FUNCTIONS}");
    let all = all.replace("@settings@", &variables::of_each_call());
    let [begins, ends] = PATH;
    format!("{begins}\n{all}{ends}").replace("@schema@", &quoted(name))
}

/// The same, in one transaction, one session after the other.
pub(crate) fn creation(name: &str) -> String {
    // Creating what exists meanwhile would fail. The number is arbitrary.
    format!(
        "BEGIN; SET LOCAL lock_timeout = 0; SELECT pg_catalog.pg_advisory_xact_lock(7021893415);\n{}\nCOMMIT;",
        statements(name)
    )
}

/// A schema that exists.
pub(super) struct Seen {
    pub(super) version: i32,
    /// Whether the user may use all that is in it.
    pub(super) may_use: bool,
    /// Whether the user may read what a session that only reads does.
    pub(super) may_read: bool,
}

/// Looks at a schema. None if it does not exist, or not as a whole.
pub(super) async fn look(line: &Line, name: &str) -> Result<Option<Seen>, PgError> {
    let quoted = quoted(name);
    let exists = Call::new(
        "SELECT pg_catalog.to_regclass($1) IS NOT NULL".to_owned(),
        &[Type::TEXT],
    );
    let meta = format!("{quoted}.meta");
    if !line.one(&exists, &[&meta]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let text = format!(
        "SELECT m.version, pg_catalog.bool_and(
           pg_catalog.has_table_privilege(t.oid, 'SELECT')
           AND pg_catalog.has_table_privilege(t.oid, 'INSERT')
           AND pg_catalog.has_table_privilege(t.oid, 'UPDATE')
           AND pg_catalog.has_table_privilege(t.oid, 'DELETE'))
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc p
             WHERE p.pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace($1)
               AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE')),
           pg_catalog.bool_and(t.relname OPERATOR(pg_catalog.<>) ALL (ARRAY['nodes', 'counts']::pg_catalog.name[])
             OR pg_catalog.has_table_privilege(t.oid, 'SELECT'))
         FROM {quoted}.meta m, pg_catalog.pg_class t
         WHERE t.relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace($1)
           AND t.relkind OPERATOR(pg_catalog.=) 'r' AND t.relname OPERATOR(pg_catalog.<>) 'meta'
         GROUP BY m.version"
    );
    let row = line
        .one(&Call::new(text, &[Type::TEXT]), &[&quoted])
        .await?;
    Ok(Some(Seen {
        version: row.try_get(0)?,
        may_use: row.try_get(1)?,
        may_read: row.try_get(2)?,
    }))
}

/// What an error means for a user who may lack a right.
pub(super) fn denied(error: PgError, why: PostgresRefusal) -> NodesError {
    match error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        true => NodesError::Refused(Arc::new(why)),
        false => refusal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_needs_no_quotes_but_for_words_of_the_language() {
        for name in ["lock_recipes", "_a1", "user"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["", "1a", "A", "a b", "a\"b", "a'b", "ä", &"a".repeat(49)] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    /// Those in SQL are put in the place of their calls.
    #[test]
    fn every_function_has_a_path_of_its_own() {
        let functions = statements("orders");
        let functions = functions.split("CREATE OR REPLACE FUNCTION ").skip(1);
        for function in functions.map(|it| it.split("$$").next().unwrap_or_default()) {
            let has_path = function.contains("SET search_path = pg_catalog, pg_temp");
            assert!(has_path || function.contains("LANGUAGE sql"), "{function}");
        }
    }

    /// Any other is planned anew by each statement that calls it, which took more time than all the rest of a look.
    #[test]
    fn every_function_in_sql_can_be_put_in_the_place_of_its_call() {
        let functions = statements("orders");
        let mut in_sql = 0;
        for function in functions.split("CREATE OR REPLACE FUNCTION ").skip(1) {
            let mut parts = function.split("$$");
            let (head, body) = (parts.next().unwrap(), parts.next().unwrap());
            if head.contains("LANGUAGE sql") {
                in_sql += 1;
                assert!(
                    head.contains("RETURNS SETOF") || !body.contains("FROM"),
                    "{function}"
                );
            }
        }
        assert!(in_sql > 8, "{in_sql}");
    }

    #[test]
    fn every_name_in_the_statements_is_of_the_schema() {
        let statements = statements("orders");
        assert!(!statements.contains('@'), "a placeholder is left");
        let version = format!("\"orders\".meta VALUES (true, {VERSION})");
        assert!(statements.contains(&version), "another version");
        for (create, after) in [
            ("CREATE TABLE IF NOT EXISTS ", "\"orders\"."),
            ("CREATE UNLOGGED TABLE IF NOT EXISTS ", "\"orders\"."),
            ("CREATE OR REPLACE FUNCTION ", "\"orders\"."),
        ] {
            let mut parts = statements.split(create);
            assert!(parts.by_ref().count() > 1);
            assert!(
                statements
                    .split(create)
                    .skip(1)
                    .all(|it| it.starts_with(after))
            );
        }
    }
}
