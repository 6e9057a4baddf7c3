//! The server's variables: what a user, a database or a connection may have set that could change what a statement
//! returns, locks or sees, or when it commits; and what is done about each.

use std::time::Duration;

/// What is done about a variable.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The session sets it for its connections. Behind a pooler each call does.
    Set(&'static str),
    /// The session sets it for its connections, if the server is of this version or later.
    OfConnection(i32, Value),
    /// A server on which it is something else is refused.
    Is(&'static str),
    /// Nothing, and why.
    Harmless(&'static str),
}
use Rule::{Harmless, Is, OfConnection, Set};

#[derive(Clone, Copy, Debug)]
enum Value {
    Fixed(&'static str),
    /// Depends on the session timeout.
    Of(fn(Duration) -> u128),
}
use Value::{Fixed, Of};

/// The oldest version that is accepted.
const ALWAYS: i32 = super::checks::SERVER_MIN;

/// A call that has arrived in part keeps what it has locked, and the server waits for the rest of it. If the
/// client is cut off, the connection must not outlast its session by much.
fn keepalive_s(session_timeout: Duration) -> u128 {
    u128::from((session_timeout.as_secs() / 4).max(1))
}

/// As `settle` has it.
fn lock_timeout_ms(session_timeout: Duration) -> u128 {
    (session_timeout.as_micros() / 8_000).max(10)
}

/// All that may be set by somebody else than who starts the server: variables by name, or all of a category of
/// `pg_settings` that have no line of their own.
///
/// Set is what has an effect, also where none is known to do harm. A test looks that nothing is missing.
const RULES: &[(&[&str], Rule)] = &[
    (&["row_security"], Set("off")), // An answer that a policy would cut is an error.
    (&["synchronous_commit"], Set("on")),
    // A plan is made once, and must be good for tables that grow and shrink all the time: by an index, in its order.
    (&["plan_cache_mode"], Set("force_generic_plan")),
    (
        &["enable_seqscan", "enable_bitmapscan", "enable_sort", "jit"],
        Set("off"),
    ),
    (&["plpgsql.extra_errors"], Set("none")),
    (&["transform_null_equals"], Set("off")),
    (&["lock_timeout"], OfConnection(ALWAYS, Of(lock_timeout_ms))), // And each call.
    (
        &["default_transaction_isolation"], // A call fails at another.
        OfConnection(ALWAYS, Fixed("read committed")),
    ),
    (
        &["statement_timeout", "idle_in_transaction_session_timeout"],
        OfConnection(ALWAYS, Fixed("0")),
    ),
    (&["idle_session_timeout"], OfConnection(14, Fixed("0"))),
    (&["transaction_timeout"], OfConnection(17, Fixed("0"))),
    (
        &["default_table_access_method"],
        OfConnection(ALWAYS, Fixed("heap")),
    ),
    (
        &["tcp_keepalives_idle", "tcp_keepalives_interval"],
        OfConnection(ALWAYS, Of(keepalive_s)),
    ),
    (&["tcp_keepalives_count"], OfConnection(ALWAYS, Fixed("3"))),
    // Pages with nodes on them may be taken for empty.
    (
        &["zero_damaged_pages", "ignore_checksum_failure"],
        Is("off"),
    ),
    (&["default_transaction_read_only"], Is("off")),
    (
        &[
            "transaction_isolation",
            "transaction_read_only",
            "transaction_deferrable",
        ],
        Harmless("of a transaction that has begun, which the defaults decide"),
    ),
    (
        &["default_transaction_deferrable"],
        Harmless("for transactions that are serializable and read only"),
    ),
    (
        &["search_path"],
        Harmless("each function has its own, and the client qualifies all names"),
    ),
    (
        &["session_replication_role"],
        Harmless("there is no trigger, rule or foreign key"),
    ),
    (
        &["deadlock_timeout"],
        Harmless("nobody waits longer for a lock than `lock_timeout`"),
    ),
    (
        &[
            "client_connection_check_interval",
            "tcp_user_timeout",
            "exit_on_error",
        ],
        Harmless("a connection is over earlier; sessions go on over another"),
    ),
    (
        &["post_auth_delay"],
        Harmless("the server is slow before the first statement"),
    ),
    (
        &["client_min_messages"],
        Harmless("errors are sent whatever it is"),
    ),
    (
        &["bytea_output", "xmlbinary", "xmloption"],
        Harmless("answers are binary, and nothing is XML"),
    ),
    (
        &[
            "check_function_bodies",
            "default_tablespace",
            "default_toast_compression",
            "temp_tablespaces",
        ],
        Harmless("where and how tables and functions are stored"),
    ),
    (
        &[
            "restrict_nonsystem_relation_kind",
            "gin_fuzzy_search_limit",
            "gin_pending_list_limit",
        ],
        Harmless("for views, foreign tables and kinds of index that are not used"),
    ),
    (
        &[
            "vacuum_failsafe_age",
            "vacuum_freeze_min_age",
            "vacuum_freeze_table_age",
            "vacuum_multixact_failsafe_age",
            "vacuum_multixact_freeze_min_age",
            "vacuum_multixact_freeze_table_age",
            "vacuum_cleanup_index_scale_factor",
            "Resource Usage / Cost-Based Vacuum Delay",
            "Vacuuming",
        ],
        Harmless("for VACUUM, which sessions do not send"),
    ),
    (
        &[
            "commit_delay",
            "commit_siblings",
            "wal_compression",
            "wal_init_zero",
            "wal_recycle",
            "wal_skip_threshold",
        ],
        Harmless("a commit takes longer, and is answered when it is on disk"),
    ),
    (
        &["event_triggers", "createrole_self_grant"],
        Harmless("for statements that define something"),
    ),
    (
        &[
            "allow_in_place_tablespaces",
            "allow_system_table_mods",
            "backtrace_functions",
            "ignore_system_indexes",
            "jit_debugging_support",
            "jit_dump_bitcode",
            "jit_expressions",
            "jit_profiling_support",
            "jit_tuple_deforming",
            "trace_notify",
            "trace_sort",
            "trace_recovery_messages",
            "wal_consistency_checking",
            "operator_precedence_warning",
            "debug_discard_caches",
            "force_parallel_mode",
            "debug_parallel_query",
            "debug_logical_replication_streaming",
            "debug_copy_parse_plan_trees",
            "debug_write_read_parse_plan_trees",
            "debug_raw_expression_coverage_test",
            "optimize_bounded_sort",
        ],
        Harmless("for developers of the server: it is slower, or says more"),
    ),
    (
        &[
            "plpgsql.variable_conflict",
            "plpgsql.check_asserts",
            "plpgsql.extra_warnings",
            "plpgsql.print_strict_params",
        ],
        Harmless("each function says what it needs; none asserts anything"),
    ),
    (
        &["lock_recipes.settled"],
        Harmless("set with the others, and says so"),
    ),
    (
        // Rows come in another order, or later. No statement depends on an order that it does not ask for.
        &["Query Tuning"],
        Harmless("another plan for the same rows"),
    ),
    (
        &["Resource Usage"],
        Harmless(
            "memory, disk, workers: a statement that lacks them is slower, or fails and has done nothing",
        ),
    ),
    (
        // No date and no broken number becomes text; the client asks for UTF8 when it connects.
        &["Client Connection Defaults / Locale and Formatting"],
        Harmless("how what is not used is written"),
    ),
    (
        &[
            "Client Connection Defaults / Shared Library Preloading",
            "Client Connection Defaults / Other Defaults",
            "File Locations",
        ],
        Harmless("what a superuser has had the server load may do anything"),
    ),
    (
        // No literal has a backslash but those of a fence, which says E''; no array literal has an element.
        &["Version and Platform Compatibility / Previous PostgreSQL Versions"],
        Harmless("for texts that are not used"),
    ),
    (
        &["Reporting and Logging", "Statistics"],
        Harmless("what the server writes down"),
    ),
    (
        &["Connections and Authentication / Authentication"],
        Harmless("how passwords are set"),
    ),
    (&["Replication"], Harmless("for connections of replicas")),
];

/// What is done about a variable of this category: it is "set", "refused", or nothing is, and why. `None` if
/// nobody has thought of it.
pub(super) fn rule(name: &str, category: &str) -> Option<&'static str> {
    let is_in = |of: &&str| {
        let rest = category.strip_prefix(*of);
        rest.is_some_and(|it| it.is_empty() || it.starts_with(" / "))
    };
    let named = RULES.iter().find(|(names, _)| names.contains(&name));
    let found = named.or_else(|| RULES.iter().find(|(of, _)| of.iter().any(is_in)));
    found.map(|(_, rule)| match rule {
        Set(_) | OfConnection(..) => "set",
        Is(_) => "refused",
        Harmless(why) => *why,
    })
}

fn all() -> impl Iterator<Item = (&'static str, Rule)> {
    RULES
        .iter()
        .flat_map(|(names, rule)| names.iter().map(|name| (*name, *rule)))
}

/// What comes with a connection.
pub(super) fn options(session_timeout: Duration) -> String {
    let set = all().filter_map(|(name, rule)| {
        let value = match rule {
            Set(value) => value.to_owned(),
            OfConnection(ALWAYS, Fixed(value)) => value.replace(' ', "\\ "),
            OfConnection(ALWAYS, Of(value)) => value(session_timeout).to_string(),
            _ => return None,
        };
        Some(format!("-c {name}={value}"))
    });
    set.collect::<Vec<_>>().join(" ")
}

/// What is sent right after it, as older servers do not know it.
pub(super) fn later(version: i32) -> String {
    let set = all().filter_map(|(name, rule)| match rule {
        OfConnection(since, Fixed(value)) if ALWAYS < since && since <= version => {
            Some(format!("SET {name} = '{value}';"))
        }
        _ => None,
    });
    set.collect()
}

/// What each call sets behind a pooler, as arguments of PERFORM.
pub(super) fn of_each_call() -> String {
    let set = all().filter_map(|(name, rule)| match rule {
        Set(value) => Some(format!("set_config('{name}', '{value}', true)")),
        _ => None,
    });
    set.collect::<Vec<_>>().join(",\n    ")
}

/// What must be so: names and values.
pub(super) fn required() -> impl Iterator<Item = (&'static str, &'static str)> {
    all().filter_map(|(name, rule)| match rule {
        Is(value) => Some((name, value)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_has_the_rule_of_its_name_or_else_of_its_category() {
        let query = "Query Tuning / Planner Method Configuration";
        assert_eq!(rule("enable_seqscan", query), Some("set"));
        assert_eq!(
            rule("enable_hashjoin", query),
            Some("another plan for the same rows")
        );
        assert_eq!(
            rule("zero_damaged_pages", "Developer Options"),
            Some("refused")
        );
        assert_eq!(rule("new", "Developer Options"), None);
        assert_eq!(rule("new", "Query Tuning 2"), None);
    }

    #[test]
    fn no_variable_has_two_rules() {
        let mut names: Vec<_> = all().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn older_servers_are_sent_what_they_know() {
        let options = options(Duration::from_secs(20));
        assert!(options.contains("-c lock_timeout=2500 "), "{options}");
        assert!(options.contains(r"isolation=read\ committed "), "{options}");
        assert!(!options.contains("idle_session_timeout"), "{options}");
        assert_eq!(later(13), "");
        assert_eq!(later(16), "SET idle_session_timeout = '0';");
        assert!(later(17).contains("transaction_timeout"));
    }
}
