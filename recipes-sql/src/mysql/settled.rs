//! What a connection sets, whatever it was given.

use std::time::Duration;

use super::product::Product;

/// Stands for as long as a session waits for a lock of others, in seconds.
const WAIT: &str = "{wait}";

/// What a session sets, and to what.
type Settings = &'static [(&'static str, &'static str)];

/// On both products.
const SET: Settings = &[
    // When a statement commits.
    ("autocommit", "1"),
    // The end of a transaction would begin the next, or end the connection.
    ("completion_type", "NO_CHAIN"),
    // Without both checks, InnoDB locks the whole of an empty table that is inserted into.
    ("unique_checks", "1"),
    ("foreign_key_checks", "1"),
    // What a statement returns. A name that is left out of a listing would be a holder whom nobody sees.
    ("sql_select_limit", "18446744073709551615"),
    ("group_concat_max_len", "1073741824"),
    ("sql_mode", "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"),
    ("sql_auto_is_null", "0"),
    ("sql_buffer_result", "0"),
    // The time at which the tables were made is a part of a store's run.
    ("time_zone", "'+00:00'"),
    // What a statement is refused for.
    ("sql_big_selects", "1"),
    ("sql_safe_updates", "0"),
    // How long a connection is kept. Nobody waits longer for a lock of others, or for a client that stands still
    // while it reads an answer.
    ("innodb_lock_wait_timeout", WAIT),
    ("lock_wait_timeout", WAIT),
    ("net_write_timeout", WAIT),
    ("wait_timeout", "86400"),
];

/// On MariaDB.
const SET_ON_MARIADB: Settings = &[
    // What a statement sees and locks.
    ("tx_isolation", "'READ-COMMITTED'"),
    ("tx_read_only", "0"),
    // Long lists of nodes would be tables on the disk.
    ("in_predicate_conversion_threshold", "0"),
    // What a statement is refused for.
    ("max_session_mem_used", "9223372036854775807"),
    ("max_statement_time", "0"),
    ("tmp_disk_table_size", "18446744073709551615"),
    // How long a connection is kept.
    ("idle_transaction_timeout", "0"),
    ("idle_readonly_transaction_timeout", "0"),
    ("idle_write_transaction_timeout", "0"),
];

/// On MySQL.
const SET_ON_MYSQL: Settings = &[
    // What a statement sees and locks.
    ("transaction_isolation", "'READ-COMMITTED'"),
    ("transaction_read_only", "0"),
    // What a statement is refused for.
    ("max_execution_time", "0"),
    // A statement that another engine cannot carry out would be refused.
    ("use_secondary_engine", "OFF"),
];

/// What `init_connect` has begun is not ours.
const UNDO: &str = "ROLLBACK";

/// The statements that make a connection independent of what it was given, in their order.
pub(super) fn statements(
    product: Product,
    database: &str,
    session_timeout: Duration,
) -> [String; 3] {
    let own = match product {
        Product::MariaDb => SET_ON_MARIADB,
        Product::MySql => SET_ON_MYSQL,
    };
    let wait = (session_timeout.as_secs() / 8).max(1).to_string();
    let set = SET.iter().chain(own).map(|(name, value)| match *value {
        WAIT => format!(", SESSION {name} = {wait}"),
        value => format!(", SESSION {name} = {value}"),
    });
    let database = database.replace('`', "``");
    [
        format!("SET NAMES binary{}", set.collect::<String>()),
        UNDO.to_owned(),
        format!("USE `{database}`"),
    ]
}

/// What is set on either product.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let set = SET.iter().chain(SET_ON_MARIADB).chain(SET_ON_MYSQL);
    set.map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_waits_for_an_eighth_of_the_timeout() {
        for product in [Product::MariaDb, Product::MySql] {
            let [set, _, database] = statements(product, "a`b", Duration::from_secs(80));
            assert!(
                set.starts_with("SET NAMES binary, SESSION autocommit = 1, "),
                "{set}"
            );
            assert!(
                set.contains("SESSION innodb_lock_wait_timeout = 10"),
                "{set}"
            );
            assert_eq!(database, "USE `a``b`");
        }
    }
}
