//! The variables of a connection. None may decide who is granted a lock.
//!
//! A server, a database of users (`init_connect`) or a driver may have set any of them. So each is set here, or is
//! of no consequence for the reason that stands with it. A test compares both lists with the server's.

use std::time::Duration;

/// Stands for as long as a session waits for a lock of others, in seconds.
const WAIT: &str = "{wait}";

/// What a session sets, and to what.
const SET: &[(&str, &str)] = &[
    // When a statement commits.
    ("autocommit", "1"),
    // The end of a transaction would begin the next, or end the connection.
    ("completion_type", "NO_CHAIN"),
    // What a statement sees and locks.
    ("tx_isolation", "'READ-COMMITTED'"),
    ("tx_read_only", "0"),
    // Without both checks, InnoDB locks the whole of an empty table that is inserted into.
    ("unique_checks", "1"),
    ("foreign_key_checks", "1"),
    // What a statement returns. A name that is left out of a listing would be a holder whom nobody sees.
    ("sql_select_limit", "18446744073709551615"),
    ("group_concat_max_len", "1073741824"),
    ("sql_mode", "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"),
    ("sql_auto_is_null", "0"),
    // Long lists of nodes would be tables on the disk.
    ("in_predicate_conversion_threshold", "0"),
    ("sql_buffer_result", "0"),
    // What a statement is refused for.
    ("sql_big_selects", "1"),
    ("sql_safe_updates", "0"),
    ("max_session_mem_used", "9223372036854775807"),
    ("max_statement_time", "0"),
    ("tmp_disk_table_size", "18446744073709551615"),
    // How long a connection is kept. Nobody waits longer for a lock of others, or for a client that stands still
    // while it reads an answer.
    ("innodb_lock_wait_timeout", WAIT),
    ("lock_wait_timeout", WAIT),
    ("net_write_timeout", WAIT),
    ("wait_timeout", "86400"),
    ("idle_transaction_timeout", "0"),
    ("idle_readonly_transaction_timeout", "0"),
    ("idle_write_transaction_timeout", "0"),
];

/// What it does not set, and why that makes no difference.
const OF_NO_CONSEQUENCE: &[(&str, &[&str])] = &[
    (
        "text is bytes here: `SET NAMES binary` sets what a connection has, and tables and procedures have no \
         character set of the database",
        &[
            "character_set_client",
            "character_set_collations",
            "character_set_connection",
            "character_set_database",
            "character_set_filesystem",
            "character_set_results",
            "character_set_server",
            "collation_connection",
            "collation_database",
            "collation_server",
        ],
    ),
    (
        "set to the time of the server by itself, as some servers let nobody set it",
        &["timestamp"],
    ),
    (
        "times here are in UTC, and numbers",
        &["time_zone", "default_week_format", "lc_time_names"],
    ),
    (
        "how rows are found, not which: every statement names its index, or reads rows by their keys, and more rows \
         that are locked make others wait",
        &[
            "eq_range_index_dive_limit",
            "expensive_subquery_limit",
            "histogram_size",
            "histogram_type",
            "join_cache_level",
            "max_rowid_filter_size",
            "max_seeks_for_key",
            "new_mode",
            "optimizer_adjust_secondary_key_costs",
            "optimizer_extra_pruning_depth",
            "optimizer_join_limit_pref_ratio",
            "optimizer_max_sel_arg_weight",
            "optimizer_max_sel_args",
            "optimizer_prune_level",
            "optimizer_scan_setup_cost",
            "optimizer_search_depth",
            "optimizer_selectivity_sampling_limit",
            "optimizer_switch",
            "optimizer_use_condition_selectivity",
            "optimizer_where_cost",
            "use_stat_tables",
        ],
    ),
    (
        "how much memory a statement takes before it uses files",
        &[
            "big_tables",
            "bulk_insert_buffer_size",
            "join_buffer_size",
            "join_buffer_space_limit",
            "max_heap_table_size",
            "mrr_buffer_size",
            "net_buffer_length",
            "preload_buffer_size",
            "query_alloc_block_size",
            "query_prealloc_size",
            "range_alloc_block_size",
            "read_buffer_size",
            "read_rnd_buffer_size",
            "rowid_merge_buff_size",
            "sort_buffer_size",
            "tmp_memory_table_size",
            "tmp_table_size",
            "transaction_alloc_block_size",
            "transaction_prealloc_size",
        ],
    ),
    (
        "how large files of a statement may be: it needs none",
        &[
            "innodb_tmpdir",
            "max_tmp_session_space_usage",
            "max_tmp_tables",
        ],
    ),
    (
        "of sorting, dividing, patterns, vectors and recursion, which no statement here does",
        &[
            "block_encryption_mode",
            "default_regex_flags",
            "div_precision_increment",
            "max_length_for_sort_data",
            "max_recursive_iterations",
            "max_sort_length",
            "max_sp_recursion_depth",
            "mhnsw_default_distance",
            "mhnsw_default_m",
            "mhnsw_ef_search",
            "standard_compliant_cte",
            "updatable_views_with_limit",
        ],
    ),
    (
        "of columns that no table here has: generated numbers, moments, checks, versions, compression, full text",
        &[
            "auto_increment_increment",
            "auto_increment_offset",
            "check_constraint_checks",
            "column_compression_threshold",
            "column_compression_zlib_level",
            "column_compression_zlib_strategy",
            "column_compression_zlib_wrap",
            "explicit_defaults_for_timestamp",
            "identity",
            "innodb_ft_enable_stopword",
            "innodb_ft_user_stopword_table",
            "insert_id",
            "last_insert_id",
            "system_versioning_alter_history",
            "system_versioning_asof",
            "system_versioning_insert_history",
        ],
    ),
    (
        "of engines that no table here has: each is InnoDB by its definition, and not created if the server makes \
         another of it",
        &[
            "aria_repair_threads",
            "aria_sort_buffer_size",
            "aria_stats_method",
            "deadlock_search_depth_long",
            "deadlock_search_depth_short",
            "deadlock_timeout_long",
            "deadlock_timeout_short",
            "default_storage_engine",
            "default_tmp_storage_engine",
            "enforce_storage_engine",
            "keep_files_on_create",
            "low_priority_updates",
            "max_delayed_threads",
            "max_insert_delayed_threads",
            "myisam_repair_threads",
            "myisam_sort_buffer_size",
            "myisam_stats_method",
            "storage_engine",
        ],
    ),
    (
        "of the definition of tables: where it does not suit them, they are not created",
        &[
            "alter_algorithm",
            "analyze_max_length",
            "analyze_sample_percentage",
            "innodb_compression_default",
            "innodb_default_encryption_key_id",
            "innodb_strict_mode",
            "old_alter_table",
            "sql_if_exists",
            "sql_quote_show_create",
        ],
    ),
    (
        "of LOCK TABLES, which nobody says here",
        &["innodb_table_locks"],
    ),
    (
        "at READ COMMITTED no snapshot outlives a statement, and what is refused for it is sent again",
        &["innodb_snapshot_isolation"],
    ),
    (
        "the same as others that are set",
        &[
            "transaction_isolation",
            "transaction_read_only",
            "max_join_size",
        ],
    ),
    (
        "what is cached of InnoDB goes with the transaction that changes it",
        &[
            "query_cache_strip_comments",
            "query_cache_type",
            "query_cache_wlock_invalidate",
        ],
    ),
    (
        "what is logged, counted, told in other words, or remembered of errors",
        &[
            "error_count",
            "lc_messages",
            "log_disabled_statements",
            "log_queries_not_using_indexes",
            "log_slow_admin_statements",
            "log_slow_always_query_time",
            "log_slow_disabled_statements",
            "log_slow_filter",
            "log_slow_max_warnings",
            "log_slow_min_examined_row_limit",
            "log_slow_query",
            "log_slow_query_time",
            "log_slow_rate_limit",
            "log_slow_slave_statements",
            "log_slow_verbosity",
            "log_warnings",
            "long_query_time",
            "max_error_count",
            "min_examined_row_limit",
            "note_verbosity",
            "optimizer_trace",
            "optimizer_trace_max_mem_size",
            "profiling",
            "profiling_history_size",
            "progress_report_time",
            "slow_query_log",
            "sql_log_off",
            "sql_notes",
            "sql_warnings",
            "warning_count",
        ],
    ),
    (
        "how the connection is made or kept: a lost one is replaced",
        &[
            "external_user",
            "interactive_timeout",
            "max_user_connections",
            "net_read_timeout",
            "net_retry_count",
            "proxy_user",
            "pseudo_thread_id",
            "redirect_url",
            "session_track_schema",
            "session_track_state_change",
            "session_track_system_variables",
            "session_track_transaction_info",
            "tcp_nodelay",
            "thread_pool_priority",
        ],
    ),
    (
        "what replicas get, which promise nothing. Statements are not logged: such a server is refused",
        &[
            "binlog_alter_two_phase",
            "binlog_annotate_row_events",
            "binlog_direct_non_transactional_updates",
            "binlog_format",
            "binlog_row_image",
            "default_master_connection",
            "gtid_domain_id",
            "gtid_seq_no",
            "last_gtid",
            "max_relay_log_size",
            "pseudo_slave_mode",
            "server_id",
            "skip_parallel_replication",
            "skip_replication",
            "sql_log_bin",
            "sql_slave_skip_counter",
        ],
    ),
    (
        "of Galera, which is refused, or allowed and then promises nothing",
        &[
            "wsrep_causal_reads",
            "wsrep_dirty_reads",
            "wsrep_gtid_seq_no",
            "wsrep_on",
            "wsrep_osu_method",
            "wsrep_retry_autocommit",
            "wsrep_sync_wait",
            "wsrep_trx_fragment_size",
            "wsrep_trx_fragment_unit",
        ],
    ),
    (
        "of old clients, formats and hints that are not used here",
        &[
            "old",
            "old_mode",
            "old_passwords",
            "rand_seed1",
            "rand_seed2",
        ],
    ),
    ("what the server says, and nobody sets", &["in_transaction"]),
    (
        "no session can set it: a server with a low one is refused",
        &["max_allowed_packet"],
    ),
];

/// What `init_connect` has begun is not ours, and neither is another time than that of the server, which some servers
/// let nobody set (1290).
const UNDO: &str = "BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR 1290 BEGIN END; ROLLBACK; \
                    SET SESSION timestamp = DEFAULT; END";

/// The statements that make a connection independent of what it was given, in their order.
pub(super) fn statements(database: &str, session_timeout: Duration) -> [String; 3] {
    let wait = (session_timeout.as_secs() / 8).max(1).to_string();
    let set = SET.iter().map(|(name, value)| match *value {
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

/// All variables of a session that are known, and why it does not set them if it does not.
pub fn variables_of_mysql() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let left = OF_NO_CONSEQUENCE.iter();
    let left = left.flat_map(|(why, names)| names.iter().map(|name| (*name, Some(*why))));
    SET.iter().map(|(name, _)| (*name, None)).chain(left)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_variable_has_one_fate() {
        let mut names = HashSet::new();
        for (name, _) in variables_of_mysql() {
            assert!(names.insert(name), "{name} twice");
        }
    }

    #[test]
    fn connection_waits_for_an_eighth_of_the_timeout() {
        let [set, _, database] = statements("a`b", Duration::from_secs(80));
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
