//! What the procedures on MariaDB promise, called by hand, one after the other. No session of the library
//! runs meanwhile, so nothing depends on time.

use lock_recipes::MySql;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, Row};
use test_rig::MariaDbServer;
use tokio::time::{sleep, timeout};

use super::{PATIENCE, numbers};

/// Of sessions, in microseconds: longer than a test.
const TIMEOUT: i64 = 3_600_000_000;
const YEAR: i64 = 365 * 24 * 3_600_000_000;

/// A server with an empty directory, `/d`.
struct Stage {
    server: MariaDbServer,
    client: Conn,
}

/// A session, as it is known by a connection.
#[derive(Clone, Copy)]
struct Caller {
    id: i64,
    connection: u64,
}

/// What a call of `requests` has answered: its state, and the answers.
type Answers = (i64, String);

/// Words, as `requests` reads them.
fn said(words: &[&str]) -> String {
    let words = words.iter().map(|it| format!("{:08}{it}", it.len()));
    words.collect()
}

/// The directories to lock, and transactions of operations: a letter, and its words.
fn words(locked: &[&str], multis: &[&[(&str, &[&str])]]) -> String {
    let mut all = said(&[&locked.len().to_string()]) + &said(locked);
    for operations in multis {
        all += &format!("m{}", said(&[&operations.len().to_string()]));
        for (letter, words) in *operations {
            all += &format!("{letter}{}", said(words));
        }
    }
    all
}

const CREATE: (&str, &[&str]) = ("S", &["/d", "n-", ""]);
const DELETE_FIRST: (&str, &[&str]) = ("D", &["/d", "n-0000000000", ""]);

impl Stage {
    async fn set() -> Self {
        let server = MariaDbServer::start().await.unwrap();
        let schema = MySql::schema("lock_recipes_").unwrap();
        server.sql(&format!("DELIMITER ;\n{schema}")).await.unwrap();
        let client = connect(&server).await;
        let mut stage = Self { server, client };
        let operator = stage.open().await;
        let made = words(&["/"], &[&[("P", &["/", "d", ""])]]);
        assert_eq!(stage.asked(&operator, &made).await.0, 0);
        assert!(stage.close(&operator).await);
        stage
    }

    async fn row(&mut self, sql: &str) -> Result<Option<Row>, Error> {
        self.client.query_first(sql).await
    }

    async fn number(&mut self, asked: &str) -> i64 {
        let row = self.row(asked).await.unwrap().unwrap();
        row.get(0).unwrap()
    }

    async fn run(&mut self, sql: &str) {
        self.client.query_drop(sql).await.unwrap();
    }

    async fn open(&mut self) -> Caller {
        self.opened("run").await.0
    }

    /// A new session, and how long nobody may be granted a lock.
    async fn opened(&mut self, run: &str) -> (Caller, i64) {
        let open = format!("CALL lock_recipes_open('s', {TIMEOUT}, 1, '{run}', TRUE)");
        let row = self.row(&open).await.unwrap().unwrap();
        let id = row.get(0).unwrap();
        (Caller { id, connection: 1 }, row.get(1).unwrap())
    }

    /// Goes on over a second connection. Returns how long nobody may be granted a lock.
    async fn resume(&mut self, Caller { id, .. }: &Caller, run: &str) -> i64 {
        let resume = format!("CALL lock_recipes_resume({id}, 's', 2, '1', '{run}')");
        let row = self.row(&resume).await.unwrap().unwrap();
        assert_eq!(row.get::<i64, _>(0), Some(0));
        row.get(1).unwrap()
    }

    async fn asked(&mut self, caller: &Caller, words: &str) -> Answers {
        asked(&mut self.client, caller, words).await.unwrap()
    }

    /// One operation.
    async fn one(&mut self, caller: &Caller, operation: (&str, &[&str])) -> Answers {
        let locked: &[&str] = if operation.0 == "S" { &["/d"] } else { &[] };
        self.asked(caller, &words(locked, &[&[operation]])).await
    }

    /// Creates a node as an acquire does. Returns its number, and the names in the directory.
    async fn enter(&mut self, caller: &Caller) -> Result<(i64, Vec<String>), Error> {
        let Caller { id, connection } = caller;
        let enter = format!(
            "CALL lock_recipes_enter({id}, 's', {connection}, 0, '/', 'd', '/d', 'n-', '')"
        );
        let row: Option<(i64, i64, usize, String, i64, Vec<u8>)> =
            self.client.query_first(enter).await?;
        let (number, _, count, names, ..) = row.unwrap();
        let names: Vec<_> = names.split('/').map(str::to_owned).collect();
        assert_eq!(names.len(), count);
        Ok((number, names))
    }

    /// Deletes the first node as a release does.
    async fn leave(&mut self, Caller { id, connection }: &Caller) -> Result<(), Error> {
        let leave =
            format!("CALL lock_recipes_leave({id}, 's', {connection}, '/d', 'n-0000000000')");
        self.client.query_drop(leave).await
    }

    /// Returns whether all has gone that could go.
    async fn close(&mut self, Caller { id, connection }: &Caller) -> bool {
        let close = format!("CALL lock_recipes_close({id}, 's', {connection})");
        self.number(&close).await == 0
    }

    /// Returns whether the session lives on.
    async fn beat(&mut self, Caller { id, connection }: &Caller) -> bool {
        let beat = format!("CALL lock_recipes_beat({id}, 's', {connection}, 60000000, TRUE)");
        self.number(&beat).await == 0
    }

    async fn nodes_of(&mut self, Caller { id, .. }: &Caller) -> i64 {
        let count = format!("SELECT COUNT(*) FROM lock_recipes_nodes WHERE o = {id}");
        self.number(&count).await
    }
}

async fn connect(server: &MariaDbServer) -> Conn {
    let options = Opts::from_url(&server.url()).unwrap();
    Conn::new(options).await.unwrap()
}

async fn asked(client: &mut Conn, caller: &Caller, words: &str) -> Result<Answers, Error> {
    let Caller { id, connection } = caller;
    let call =
        format!("CALL lock_recipes_requests({id}, 's', {connection}, 0, 60000000, '{words}')");
    let row: Option<(i64, i64, Vec<u8>)> = client.query_first(call).await?;
    let (state, _, answers) = row.unwrap();
    Ok((state, String::from_utf8(answers).unwrap()))
}

#[tokio::test]
async fn refused_transaction_leaves_nothing() {
    let mut stage = Stage::set().await;
    let caller = stage.open().await;
    let missing: (&str, &[&str]) = ("D", &["/d", "missing", ""]);
    let both = words(&["/d"], &[&[CREATE, missing]]);
    // No node, which the second asked for.
    assert_eq!(stage.asked(&caller, &both).await, (0, "1 1 ".to_owned()));
    assert_eq!(stage.nodes_of(&caller).await, 0);
    let numbers = "SELECT q FROM lock_recipes_nodes WHERE name = 'd'";
    assert_eq!(stage.number(numbers).await, 0);
    // Without the second, the first is done.
    let (_, answer) = stage.one(&caller, CREATE).await;
    assert!(answer.starts_with("0 "), "{answer}");
    assert_eq!(stage.nodes_of(&caller).await, 1);
}

#[tokio::test]
async fn fenced_node_stands_until_the_transaction_is_over() {
    let mut stage = Stage::set().await;
    let (holder, other) = (stage.open().await, stage.open().await);
    let (token, _) = stage.enter(&holder).await.unwrap();
    let (mut own, mut second) = (connect(&stage.server).await, connect(&stage.server).await);
    let fence = format!("CALL lock_recipes_fence('/d/n-0000000000', '{token}')");
    own.query_drop("BEGIN").await.unwrap();
    own.query_drop(&fence).await.unwrap();
    // Whoever waits for it holds up all others of the session, here for ever.
    let wait = "SET SESSION innodb_lock_wait_timeout = 1073741824";
    stage.run(wait).await;
    let at_once = async {
        // An operator, the holder itself, and the end of its session.
        for caller in [&other, &holder] {
            for change in [DELETE_FIRST, ("W", &["/d", "n-0000000000", "new", ""])] {
                let (_, answer) = stage.one(caller, change).await;
                assert_eq!(answer, "6 0 ");
            }
        }
        stage.leave(&holder).await.unwrap_err();
    };
    let at_once = timeout(PATIENCE, at_once).await;
    at_once.expect("it waits for somebody's transaction");
    assert!(stage.close(&holder).await);
    assert!(stage.beat(&other).await);
    assert_eq!(stage.nodes_of(&holder).await, 1);
    // It would keep the lock from others for ever if another transaction could begin now.
    second.query_drop("BEGIN").await.unwrap();
    let refused = second.query_drop(&fence).await.unwrap_err();
    assert!(refused.to_string().contains("a lock is lost"), "{refused}");
    own.query_drop("COMMIT").await.unwrap();
    assert!(stage.beat(&other).await);
    assert_eq!(stage.nodes_of(&holder).await, 0);
}

#[tokio::test]
async fn all_nodes_of_a_closed_session_are_deleted_and_no_others() {
    let mut stage = Stage::set().await;
    let (caller, other) = (stage.open().await, stage.open().await);
    stage.enter(&other).await.unwrap();
    let many = format!(
        "INSERT INTO lock_recipes_nodes SELECT '/d', CONCAT('of-', seq), 0, 1, 1, 0, {}, 0, 1, 0, '' \
         FROM {}",
        caller.id,
        numbers(1_200)
    );
    stage.run(&many).await;
    // Some hundred at a time.
    let mut calls = 1;
    while !stage.close(&caller).await {
        assert!(stage.nodes_of(&caller).await > 0);
        calls += 1;
    }
    assert!(calls > 1);
    assert_eq!(stage.nodes_of(&caller).await, 0);
    assert_eq!(stage.nodes_of(&other).await, 1);
}

#[tokio::test]
async fn another_run_of_the_server_begins_with_a_quarantine() {
    let mut stage = Stage::set().await;
    let (first, wait) = stage.opened("run").await;
    assert_eq!(wait, 0);
    assert_eq!(stage.resume(&first, "run").await, 0);
    let (second, wait) = stage.opened("another").await;
    // A holder gives up after half of its timeout.
    assert!(wait > TIMEOUT / 2, "{wait}");
    // It is over.
    stage
        .run("UPDATE lock_recipes_clock SET quarantine = 0")
        .await;
    let wait = stage.resume(&second, "a third").await;
    assert!(wait > TIMEOUT / 2, "{wait}");
}

/// Whoever came last may have a shorter one.
#[tokio::test]
async fn longest_timeout_decides_how_long_a_quarantine_takes() {
    let mut stage = Stage::set().await;
    stage.opened("run").await;
    let open = |run| {
        format!(
            "CALL lock_recipes_open('s', {}, 1, '{run}', TRUE)",
            TIMEOUT / 60
        )
    };
    stage.row(&open("run")).await.unwrap();
    let row = stage.row(&open("another")).await.unwrap().unwrap();
    let wait: i64 = row.get(1).unwrap();
    assert!(wait > TIMEOUT / 2, "{wait}");
}

#[tokio::test]
async fn call_of_an_earlier_connection_does_nothing() {
    let mut stage = Stage::set().await;
    let caller = stage.open().await;
    stage.enter(&caller).await.unwrap();
    stage.resume(&caller, "run").await;
    for operation in [CREATE, DELETE_FIRST] {
        assert_eq!(stage.one(&caller, operation).await.0, 1);
    }
    stage.enter(&caller).await.unwrap_err();
    stage.leave(&caller).await.unwrap_err();
    assert!(!stage.beat(&caller).await);
    stage.close(&caller).await;
    assert_eq!(stage.nodes_of(&caller).await, 1);
    let second = Caller {
        connection: 2,
        ..caller
    };
    stage.leave(&second).await.unwrap();
    assert_eq!(stage.nodes_of(&caller).await, 0);
}

/// Its answer would say that the session lives.
#[tokio::test]
async fn release_does_nothing_while_somebody_ends_its_session() {
    let mut stage = Stage::set().await;
    let caller = stage.open().await;
    stage.enter(&caller).await.unwrap();
    let mut other = connect(&stage.server).await;
    let end = format!("DELETE FROM lock_recipes_sessions WHERE id = {}", caller.id);
    other.query_drop("BEGIN").await.unwrap();
    other.query_drop(end).await.unwrap();
    stage.leave(&caller).await.unwrap_err();
    assert_eq!(stage.nodes_of(&caller).await, 1);
    other.query_drop("ROLLBACK").await.unwrap();
    stage.leave(&caller).await.unwrap();
    assert_eq!(stage.nodes_of(&caller).await, 0);
}

#[tokio::test]
async fn numbers_rise_whatever_the_clock_says_and_in_a_directory_that_is_made_again() {
    let mut stage = Stage::set().await;
    let caller = stage.open().await;
    stage.enter(&caller).await.unwrap();
    // As if the clock had been a year ahead, and was set back.
    let ahead = format!("UPDATE lock_recipes_nodes SET p = p + {YEAR} WHERE name = 'd'");
    stage.run(&ahead).await;
    let given = "SELECT p FROM lock_recipes_nodes WHERE name = 'd'";
    let first = stage.number(given).await;
    let (second, _) = stage.enter(&caller).await.unwrap();
    assert!(second > first, "{second} after {first}");
    stage.one(&caller, CREATE).await;
    let third = stage.number(given).await;
    assert!(third > second, "{third} after {second}");
    stage
        .run("DELETE FROM lock_recipes_nodes WHERE o <> 0")
        .await;
    for (letter, words_of) in [("D", &["/", "d", ""]), ("P", &["/", "d", ""])] {
        let made = words(&["/"], &[&[(letter, words_of)]]);
        let (_, answer) = stage.asked(&caller, &made).await;
        assert!(answer.starts_with("0 "), "{answer}");
    }
    let (fourth, _) = stage.enter(&caller).await.unwrap();
    assert!(fourth > third, "{fourth} after {third}");
}

#[tokio::test]
async fn clock_that_is_set_ends_no_session() {
    let mut stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    stage.enter(&one).await.unwrap();
    for by in [YEAR, -YEAR] {
        // The store remembers the clock when it last looked. To change that is to set it.
        let set = format!("UPDATE lock_recipes_clock SET last = last - ({by})");
        stage.run(&set).await;
        assert!(stage.beat(&two).await, "by {by}");
        assert!(stage.beat(&one).await, "by {by}");
    }
    assert_eq!(stage.nodes_of(&one).await, 1);
}

#[tokio::test]
async fn who_enters_sees_who_is_ahead() {
    let mut stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    for round in 0..40 {
        let (first, second) = (2 * round, 2 * round + 1);
        let names = [first, second].map(|it| format!("n-{it:010}"));
        assert_eq!(stage.enter(&one).await.unwrap().1, names[..1]);
        assert_eq!(stage.enter(&two).await.unwrap().1, names);
        // As `list` and `look` see it.
        for look in ["l00000002/d", "k00000002/d00000000"] {
            let (_, answer) = stage.asked(&two, &(words(&[], &[]) + look)).await;
            assert!(names.iter().all(|it| answer.contains(it)), "{answer}");
        }
        stage
            .run("DELETE FROM lock_recipes_nodes WHERE o <> 0")
            .await;
    }
}

/// Who sees no holder would be granted a lock beside them.
#[tokio::test]
async fn listing_has_its_own_count_whatever_limits_rows_and_lengths() {
    let mut stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    stage.run("SET SESSION sql_select_limit = 1").await;
    stage.enter(&one).await.unwrap();
    let (_, names) = stage.enter(&two).await.unwrap();
    assert_eq!(names, ["n-0000000000", "n-0000000001"]);
    // Others begin their listings there.
    let low = "SELECT low FROM lock_recipes_nodes WHERE name = 'd'";
    assert!(stage.number(low).await <= 1);
    // A connection of MySQL that has called it once goes on with the length that it had then.
    stage.client = connect(&stage.server).await;
    stage.run("SET SESSION group_concat_max_len = 4").await;
    let Caller { id, connection } = two;
    let enter =
        format!("CALL lock_recipes_enter({id}, 's', {connection}, 0, '/', 'd', '/d', 'n-', '')");
    let cut = stage.row(&enter).await.unwrap().unwrap();
    let (count, names): (i64, String) = (cut.get(2).unwrap(), cut.get(3).unwrap());
    assert_eq!((count, names.len()), (3, 4));
}

/// A call locks the directories in which it creates. One of them does not exist yet. While the call waits
/// for the other, another session makes it, and is granted the lock.
#[tokio::test]
async fn number_rises_in_a_directory_that_is_made_while_a_call_waits_for_another() {
    let mut stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    let mut other = connect(&stage.server).await;
    other.query_drop("BEGIN").await.unwrap();
    let lock = "SELECT 1 FROM lock_recipes_nodes WHERE dir = '/' AND name = 'd' FOR UPDATE";
    other.query_drop(lock).await.unwrap();
    let new: (&str, &[&str]) = ("S", &["/a", "n-", ""]);
    let both = words(&["/a", "/d"], &[&[new, CREATE]]);
    let mut client = connect(&stage.server).await;
    let call = tokio::spawn(async move { asked(&mut client, &one, &both).await.unwrap() });
    let waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
    let waited = async {
        while stage.row(waits).await.unwrap().unwrap().get(1) == Some("0".to_owned()) {
            sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waited).await.unwrap();
    let make: &[&[(&str, &[&str])]] = &[&[("P", &["/", "a", ""])], &[new]];
    let made = stage.asked(&two, &words(&["/"], make)).await;
    assert_eq!(made.0, 0, "{made:?}");
    let highest = "SELECT MAX(c) FROM lock_recipes_nodes WHERE dir = '/a'";
    let token = stage.number(highest).await;
    other.query_drop("COMMIT").await.unwrap();
    let (state, answer) = timeout(PATIENCE, call).await.unwrap().unwrap();
    // The client sends it again if it finds no directory.
    let next = stage.number(highest).await;
    match answer.starts_with("0 ") {
        true => assert!(next > token, "{next} after {token}"),
        false => assert_eq!((state, answer.as_str(), next), (0, "1 0 ", token)),
    }
}
