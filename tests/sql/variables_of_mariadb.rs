//! No variable of a MariaDB or MySQL server decides who is granted a lock.
//!
//! Judged outside the lock: by who is inside, and by the tokens.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use lock_recipes::{InterProcessMutex, MySql};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};
use recipes_sql::variables_of_mysql;
use test_rig::MariaDbServer;
use tokio::time::{sleep, timeout};

use super::PATIENCE;

/// More than the least limit of rows that is dangerous.
const CONTENDERS: usize = 4;
const ROUNDS: usize = 2;
/// Each sets a share of the variables.
const SERVERS: usize = 3;
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the dangerous values are not at the ends.
const BETWEEN: [(&str, &[&str]); 2] = [
    ("SQL_SELECT_LIMIT", &["1", "2", "3"]),
    // The least kills the server.
    ("MAX_SESSION_MEM_USED", &["65536"]),
];
/// What no session can set. It is not opened then.
const REFUSED: [&str; 1] = ["max_allowed_packet"];

/// What MySQL does not tell of a variable: its kind, and its words.
const WORDS: [(&str, &str, &str); 11] = [
    ("binlog_format", "ENUM", "MIXED,STATEMENT,ROW"),
    ("binlog_row_image", "ENUM", "FULL,MINIMAL,NOBLOB"),
    ("completion_type", "ENUM", "NO_CHAIN,CHAIN,RELEASE"),
    ("explain_format", "ENUM", "TRADITIONAL,JSON,TREE"),
    (
        "internal_tmp_mem_storage_engine",
        "ENUM",
        "MEMORY,TempTable",
    ),
    ("session_track_gtids", "ENUM", "OFF,OWN_GTID,ALL_GTIDS"),
    (
        "session_track_transaction_info",
        "ENUM",
        "OFF,STATE,CHARACTERISTICS",
    ),
    (
        "sql_mode",
        "SET",
        "ANSI_QUOTES,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES,\
         NO_UNSIGNED_SUBTRACTION,ONLY_FULL_GROUP_BY,PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT,REAL_AS_FLOAT,\
         STRICT_ALL_TABLES",
    ),
    ("terminology_use_previous", "ENUM", "NONE,BEFORE_8_0_26"),
    (
        "transaction_isolation",
        "ENUM",
        "READ-UNCOMMITTED,READ-COMMITTED,REPEATABLE-READ,SERIALIZABLE",
    ),
    ("updatable_views_with_limit", "ENUM", "YES,NO"),
];

/// A variable, and what it can be set to.
#[derive(Debug)]
struct Variable {
    name: String,
    before: String,
    extremes: Vec<String>,
}

type Described = (
    String,
    Option<String>,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
);

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// More memory than a test may take for each statement, or each connection.
const MEMORY_MAX: u64 = 256 << 20;

/// A server that takes so much memory dies on a small machine, and shows nothing.
fn takes_memory(name: &str, value: &str) -> bool {
    let is_large = value.parse::<u64>().is_ok_and(|it| it > MEMORY_MAX);
    is_large && (name.ends_with("_SIZE") || name.ends_with("_LIMIT") && name.contains("BUFFER"))
}

/// MariaDB 10.11 itself may end with a segmentation fault when a connection begins with so little (seen once in some
/// twenty runs); it begins before a client can set anything.
fn kills_the_server(name: &str, value: &str) -> bool {
    name == "MAX_SESSION_MEM_USED" && value == "8192"
}

/// The least and the most, or all values that have a name, but what it is.
fn variable((name, before, kind, least, most, named): Described) -> Variable {
    let named = named.unwrap_or_default();
    let named: Vec<_> = named.split(',').filter(|it| !it.is_empty()).collect();
    let extremes = match kind.as_str() {
        "BOOLEAN" => ["OFF", "ON"].map(quoted).to_vec(),
        "ENUM" => named.iter().map(|it| quoted(it)).collect(),
        "SET" => {
            let one = named.iter().map(|it| quoted(it));
            one.chain([quoted(""), quoted(&named.join(","))]).collect()
        }
        "FLAGSET" => {
            let flags = named.iter().filter(|it| **it != "default");
            let set = flags.flat_map(|it| ["off", "on"].map(|to| format!("{it}={to}")));
            let others = set.filter(|it| !before.as_deref().unwrap_or_default().contains(it));
            others.map(|it| quoted(&it)).collect()
        }
        "VARCHAR" => Vec::new(),
        _ => {
            let between = BETWEEN
                .iter()
                .filter(|(it, _)| *it == name)
                .flat_map(|(_, it)| it.iter());
            let between = between.map(|it| (*it).to_owned());
            let ends = least.into_iter().chain(most);
            let ends = ends.filter(|it| !takes_memory(&name, it) && !kills_the_server(&name, it));
            ends.chain(between).collect()
        }
    };
    let is_number = !matches!(
        kind.as_str(),
        "ENUM" | "SET" | "FLAGSET" | "VARCHAR" | "BOOLEAN"
    );
    let before = before.unwrap_or_default();
    let before = if is_number { before } else { quoted(&before) };
    let others = extremes.into_iter().filter(|it| *it != before);
    Variable {
        name: name.to_lowercase(),
        extremes: others.collect(),
        before,
    }
}

/// Those that decide something, and those of no consequence.
async fn variables(server: &MariaDbServer, operator: &mut Conn) -> (Vec<Variable>, Vec<Variable>) {
    let of_mariadb = "SELECT variable_name, global_value, variable_type, numeric_min_value, numeric_max_value, \
                      enum_value_list FROM information_schema.system_variables \
                      WHERE variable_scope LIKE 'SESSION%' ORDER BY 1";
    let of_mysql = "SELECT variable_name, variable_value, UPPER(data_type), min_value, max_value, NULL \
                    FROM performance_schema.variables_metadata \
                    LEFT JOIN performance_schema.global_variables USING (variable_name) \
                    WHERE variable_scope LIKE 'SESSION%' ORDER BY 1";
    let all: Vec<Described> = match server.is_mysql() {
        true => with_words(operator.query(of_mysql).await.unwrap()),
        false => operator.query(of_mariadb).await.unwrap(),
    };
    let set = variables_of_mysql().filter(|(_, why)| why.is_none());
    let set = set.map(|(name, _)| name);
    let decide: BTreeSet<_> = set.chain(REFUSED).collect();
    let all = all.into_iter().map(variable);
    all.partition(|it| decide.contains(it.name.as_str()))
}

/// MySQL does not tell which words a variable may have.
fn with_words(mut all: Vec<Described>) -> Vec<Described> {
    for (name, before, kind, _, _, named) in &mut all {
        let flags = before.as_deref().unwrap_or_default();
        if name == "optimizer_switch" {
            let flags = flags.split(',').filter_map(|it| it.split_once('='));
            let flags: Vec<_> = flags.map(|(flag, _)| flag).collect();
            *named = Some(flags.join(","));
            *kind = "FLAGSET".to_owned();
        } else if let Some((_, to, words)) = WORDS.iter().find(|(it, ..)| it == name) {
            *named = Some((*words).to_owned());
            *kind = (*to).to_owned();
        } else if !["BOOLEAN", "INTEGER", "NUMERIC"].contains(&kind.as_str()) {
            *kind = "VARCHAR".to_owned();
        }
    }
    all
}

async fn operator(server: &MariaDbServer) -> Conn {
    let options = Opts::from_url(&server.url()).unwrap();
    Conn::new(options).await.unwrap()
}

/// Contenders for one lock, each in a session of its own. Returns what is wrong, if anything.
async fn contend(server: &MariaDbServer, operator: &mut Conn, prefix: &str) -> Result<(), String> {
    let builder = MySql::builder().new_server().prefix(prefix);
    let builder = builder
        .session_timeout(SESSION_TIMEOUT)
        .connect_timeout(PATIENCE);
    let sessions = (0..CONTENDERS).map(|_| builder.clone());
    let url = server.url();
    let sessions = sessions.map(|it| {
        let url = url.clone();
        async move { it.connect(&url).await }
    });
    let mut open = Vec::new();
    for session in join_all(sessions).await {
        match session {
            Ok(session) => open.push(session),
            Err(error) => return Err(format!("not connected: {error:?}")),
        }
    }
    // The next beat ends sessions and tidies up.
    let due = format!("UPDATE {prefix}clock SET last = 0, due = 0");
    operator.query_drop(due).await.unwrap();
    let (inside, highest) = (AtomicUsize::new(0), Mutex::new(None));
    let rounds = open.iter().map(|session| async {
        let lock = InterProcessMutex::new(session, "/locks/orders").unwrap();
        for _ in 0..ROUNDS {
            let guard = lock.acquire().await.map_err(|error| format!("{error:?}"))?;
            if inside.fetch_add(1, Ordering::SeqCst) != 0 {
                return Err("two are inside".to_owned());
            }
            let token = guard.fencing_token();
            if highest.lock().unwrap().replace(token) >= Some(token) {
                return Err("a token does not rise".to_owned());
            }
            guard.verify().await.map_err(|error| format!("{error:?}"))?;
            sleep(Duration::from_millis(2)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard
                .release()
                .await
                .map_err(|error| format!("{error:?}"))?;
        }
        Ok(())
    });
    let ended = timeout(PATIENCE, join_all(rounds)).await;
    let ended = ended.map_err(|_| "nobody is granted the lock".to_owned())?;
    ended.into_iter().collect::<Result<(), String>>()?;
    for session in open {
        session.close().await;
    }
    Ok(())
}

/// Those of a newer server are in no list here. Whoever adds them says what they do to a session.
#[tokio::test]
async fn every_variable_of_a_session_is_known() {
    let server = MariaDbServer::start().await.unwrap();
    let known: BTreeSet<_> = variables_of_mysql().map(|(name, _)| name).collect();
    let (decide, others) = variables(&server, &mut operator(&server).await).await;
    let there = decide.iter().chain(&others).map(|it| it.name.as_str());
    let unknown: Vec<_> = there.filter(|it| !known.contains(it)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// A server on which any variable can be set.
async fn start() -> MariaDbServer {
    // Otherwise nobody can switch the cache on. MySQL has none.
    let server = MariaDbServer::builder().setting("loose_query_cache_type", "ON");
    let server = server.setting("loose_query_cache_size", "1048576");
    server.start().await.unwrap()
}

/// Sets a share of the variables that decide something, one after the other. Returns those that could be set.
async fn set_to_extremes(share: usize) -> BTreeSet<String> {
    let server = start().await;
    let mut operator = operator(&server).await;
    let mut tried = BTreeSet::new();
    let (variables, _) = variables(&server, &mut operator).await;
    for Variable {
        name,
        before,
        extremes,
    } in variables.into_iter().skip(share).step_by(SERVERS)
    {
        for (number, extreme) in extremes.iter().enumerate() {
            let set = format!("SET GLOBAL {name} = {extreme}");
            // Some are of one session, and some values are none.
            if operator.query_drop(&set).await.is_err() {
                continue;
            }
            tried.insert(name.clone());
            let prefix = format!("{name}_{number}_");
            match contend(&server, &mut operator, &prefix).await {
                Err(why) if REFUSED.contains(&name.as_str()) => {
                    assert!(why.starts_with("not"), "{set}: {why}");
                }
                contended => contended.unwrap_or_else(|why| panic!("{set}: {why}")),
            }
            let back = format!("SET GLOBAL {name} = {before}");
            operator.query_drop(back).await.unwrap();
        }
    }
    tried
}

/// Sets all that is said to be of no consequence: each to its first extreme, then each to its second, and so
/// on. What has fewer stays at its last. Returns those that could be set.
async fn set_together() -> BTreeSet<String> {
    let server = start().await;
    let mut operator = operator(&server).await;
    let mut tried = BTreeSet::new();
    let (_, variables) = variables(&server, &mut operator).await;
    let rounds = variables.iter().map(|it| it.extremes.len()).max().unwrap();
    for round in 0..rounds {
        for Variable { name, extremes, .. } in &variables {
            let Some(extreme) = extremes.get(round) else {
                continue;
            };
            let set = format!("SET GLOBAL {name} = {extreme}");
            if operator.query_drop(&set).await.is_ok() {
                tried.insert(name.clone());
            }
        }
        let contended = contend(&server, &mut operator, &format!("round_{round}_")).await;
        contended.unwrap_or_else(|why| panic!("round {round}: {why}"));
    }
    tried
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_variable_decides_who_is_granted_a_lock() {
    let alone = join_all((0..SERVERS).map(set_to_extremes));
    let (alone, together) = join(alone, set_together()).await;
    let alone: BTreeSet<_> = alone.into_iter().flatten().collect();
    // Nearly all others are of one session, or hold text.
    assert!(
        alone.len() > 18 && together.len() > 95,
        "{alone:?}, {together:?}"
    );
}

/// It runs for each user but administrators, before anything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_runs_for_each_connection_makes_no_difference() {
    let server = MariaDbServer::builder()
        .user("app", "secret")
        .start()
        .await
        .unwrap();
    server.sql("CREATE DATABASE other").await.unwrap();
    for database in ["locks", "other"] {
        let grant = format!("GRANT ALL ON {database}.* TO app@'%'");
        server.sql(&grant).await.unwrap();
    }
    let runs = "'USE other; SET sql_select_limit = 0, completion_type = 1, timestamp = 1; START TRANSACTION'";
    server.set("init_connect", runs).await.unwrap();
    let builder = MySql::builder()
        .new_server()
        .session_timeout(SESSION_TIMEOUT);
    let url = server.url_of("app", "secret");
    let (first, second) = (
        builder.clone().connect(&url).await.unwrap(),
        builder.connect(&url).await.unwrap(),
    );
    let lock = |session| InterProcessMutex::new(session, "/locks/orders").unwrap();
    let guard = timeout(PATIENCE, lock(&first).acquire()).await;
    let guard = guard.unwrap().unwrap();
    assert!(lock(&second).try_acquire().await.unwrap().is_none());
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'other'";
    assert_eq!(server.sql(tables).await.unwrap(), [["0"]]);
    // The service's transactions may be in any database, and say it in other letters.
    let fence = guard.fence().unwrap();
    let mut own = Conn::new(Opts::from_url(&url.replace("/locks", "/other")).unwrap())
        .await
        .unwrap();
    let settings =
        "SET character_set_connection = ucs2, sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'";
    own.query_drop(settings).await.unwrap();
    own.query_drop("START TRANSACTION").await.unwrap();
    own.query_drop(fence.sql()).await.unwrap();
    own.query_drop("COMMIT").await.unwrap();
    guard.release().await.unwrap();
    drop(lock(&second).acquire().await.unwrap());
    // With another time, no session would ever end.
    let time = "SELECT last > (UNIX_TIMESTAMP() - 3600) * 1000000 FROM lock_recipes_clock";
    assert_eq!(server.sql(time).await.unwrap(), [["1"]]);
}
