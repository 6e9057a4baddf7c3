//! Whether anything that a user, a database or a connection may have set on PostgreSQL gives a lock to two.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use lock_recipes::{ConnectError, Error, InterProcessMutex, Postgres, Session};
use test_rig::PostgresServer;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use super::PATIENCE;
use super::pooler::Pooler;

/// All that somebody else may set than who starts the server.
const VARIABLES: &str = "LOAD 'plpgsql';
    SELECT name, category, vartype, coalesce(min_val, ''), coalesce(max_val, ''),
      coalesce(array_to_string(enumvals, ','), '')
    FROM pg_settings WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend')";

/// What is not told by the least and the greatest value.
const VALUES: [(&str, &[&str]); 13] = [
    ("statement_timeout", &["1"]),
    ("idle_in_transaction_session_timeout", &["1"]),
    ("lock_timeout", &["1"]),
    // Longer than from the beginning of a connection to the first statement.
    ("idle_session_timeout", &["300"]),
    ("transaction_timeout", &["300"]),
    // Seconds.
    ("post_auth_delay", &["0"]),
    ("plpgsql.extra_errors", &["'all'"]),
    ("plpgsql.extra_warnings", &["'all'"]),
    ("search_path", &["nowhere"]),
    ("DateStyle", &["'SQL, DMY'"]),
    ("TimeZone", &["'Pacific/Kiritimati'"]),
    ("client_encoding", &["LATIN1"]),
    ("default_text_search_config", &["simple"]),
];

struct Variable {
    name: String,
    rule: &'static str,
    values: Vec<String>,
}

async fn variables(server: &PostgresServer) -> Vec<Variable> {
    let mut unthought = Vec::new();
    let mut variables = Vec::new();
    for row in server.sql(VARIABLES).await.unwrap() {
        let [name, category, kind, least, greatest, words] = row.try_into().unwrap();
        let Some(rule) = Postgres::variable(&name, &category) else {
            unthought.push((name, category));
            continue;
        };
        let named = VALUES.iter().find(|(it, _)| *it == name);
        let values = match (named, kind.as_str()) {
            (Some((_, values)), _) => values.iter().map(|it| (*it).to_owned()).collect(),
            (None, "bool") => vec!["on".to_owned(), "off".to_owned()],
            (None, "integer" | "real") => vec![least, greatest],
            (None, "enum") => words.split(',').map(|it| format!("'{it}'")).collect(),
            (None, _) => Vec::new(),
        };
        variables.push(Variable { name, rule, values });
    }
    assert!(
        unthought.is_empty(),
        "variables that the list in `variables.rs` lacks: {unthought:?}"
    );
    variables
}

async fn open(url: &str) -> Result<Session, Error> {
    Postgres::builder().new_server().connect(url).await
}

/// Three contenders take the lock by turns. Whoever holds it is alone, and its token is a higher one.
async fn contend(url: &str, what: &str) {
    let (inside, last) = (Arc::new(AtomicI64::new(0)), Arc::new(Mutex::new(None)));
    let mut contenders = JoinSet::new();
    for _ in 0..3 {
        let session = open(url)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let (inside, last, what) = (Arc::clone(&inside), Arc::clone(&last), what.to_owned());
        contenders.spawn(async move {
            let lock = InterProcessMutex::new(&session, "/locks/a").unwrap();
            for _ in 0..3 {
                let guard = lock
                    .acquire()
                    .await
                    .unwrap_or_else(|it| panic!("{what}: {it:?}"));
                assert_eq!(
                    inside.fetch_add(1, Ordering::SeqCst),
                    0,
                    "{what}: two hold it"
                );
                let token = guard.fencing_token();
                let before = last.lock().unwrap().replace(token);
                assert!(before < Some(token), "{what}: {token} after {before:?}");
                yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
            session.close().await;
        });
    }
    timeout(PATIENCE, async {
        while let Some(it) = contenders.join_next().await {
            it.unwrap()
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what}: nobody gets it"));
}

/// Sets it for the user. False if the server does not have it set so.
async fn set(server: &PostgresServer, name: &str, value: &str) -> bool {
    let set = format!("ALTER ROLE app SET {name} = {value}");
    server.sql(&set).await.is_ok()
}

/// A server with the schema, and the URL of a user.
async fn start() -> (PostgresServer, String) {
    let server = PostgresServer::builder().user("app", "secret");
    let server = server.start().await.unwrap();
    server
        .sql("GRANT CREATE ON DATABASE postgres TO app")
        .await
        .unwrap();
    let url = server.url_of("app", "secret");
    contend(&url, "nothing").await;
    (server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_elses_settings_give_a_lock_to_two_or_to_nobody() {
    let (server, url) = start().await;
    let (mut alone, mut rounds) = (0, Vec::new());
    for Variable { name, rule, values } in variables(&server).await {
        for (round, value) in values.into_iter().enumerate() {
            if !["set", "refused"].contains(&rule) {
                // All together. What has fewer values stays at its last.
                rounds.resize(rounds.len().max(round + 1), Vec::new());
                rounds[round].push((name.clone(), value));
            } else if set(&server, &name, &value).await {
                let what = format!("{name} = {value}");
                match open(&url).await {
                    Err(Error::Connect(ConnectError::Refused { .. })) if rule == "refused" => {
                        assert_eq!(value, "on", "{what}");
                    }
                    opened => {
                        assert!(rule != "refused" || value == "off", "{what}");
                        opened.unwrap().close().await;
                        contend(&url, &what).await;
                    }
                }
                server.sql("ALTER ROLE app RESET ALL").await.unwrap();
                alone += 1;
            }
        }
    }
    let mut together = 0;
    for (round, values) in rounds.into_iter().enumerate() {
        for (name, value) in values {
            together += usize::from(set(&server, &name, &value).await);
        }
        contend(&url, &format!("round {round}")).await;
    }
    // Some can be set when the server is started only, or not so far.
    assert!(alone > 30 && together > 250, "{alone} and {together}");
}

/// There the session cannot set it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolation_that_shows_the_past_is_refused_behind_a_pooler() {
    let (server, _) = start().await;
    let pooler = Pooler::before_as(&server, "user=app password=secret").await;
    contend(pooler.url(), "nothing").await;
    for (name, value) in [
        ("plpgsql.extra_errors", "'all'"),
        ("row_security", "on"),
        ("enable_sort", "on"),
    ] {
        assert!(set(&server, name, value).await);
        let pooler = Pooler::before_as(&server, "user=app password=secret").await;
        contend(pooler.url(), name).await;
    }
    assert!(set(&server, "default_transaction_isolation", "serializable").await);
    let pooler = Pooler::before_as(&server, "user=app password=secret").await;
    let refused = open(pooler.url()).await.unwrap_err();
    assert!(
        matches!(refused, Error::Connect(ConnectError::Refused { .. })),
        "{refused}"
    );
}
