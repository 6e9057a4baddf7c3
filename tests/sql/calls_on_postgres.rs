//! What the functions on PostgreSQL promise, called by hand, one after the other. No session of the library
//! runs meanwhile, so nothing depends on time.

use lock_recipes::Postgres;
use sha2::{Digest, Sha256};
use test_rig::PostgresServer;
use tokio::time::timeout;
use tokio_postgres::{Client, Error, Row};

use super::PATIENCE;
use super::races_on_postgres::{WAITS_FOR_A_LOCK, connection, until};

/// Of sessions, in microseconds: longer than a test.
pub(super) const TIMEOUT: i64 = 3_600_000_000;
/// A call with it gives up waiting for a lock at once.
pub(super) const NO_TIME: i64 = 80_000;
pub(super) const YEAR: i64 = 365 * 24 * 3_600_000_000;

/// Creates a node in the directory `/d` that goes with the session.
const CREATE: &str = "'create', '/', 'd', '/d', 'n-', 'S', '1'";
const DELETE_FIRST: &str = "'delete', '/', 'd', '/d', 'n-0000000000', ''";

/// A server with an empty directory, `/d`.
pub(super) struct Stage {
    pub(super) server: PostgresServer,
    client: Client,
}

/// A session, as it is known by its first connection.
pub(super) struct Caller {
    pub(super) id: i64,
    pub(super) name: String,
}

impl Caller {
    /// How it is rung when the node is deleted on which it has a watch: 'D' or 'F', and the watch's number.
    pub(super) fn ring(&self, said: &str) -> String {
        let proof = Sha256::digest(format!("{}/{said}", self.name));
        format!("lock_recipes_{} {said}/{proof:x}", self.id)
    }
}

/// A call that carries out requests.
fn call(caller: &Caller, words: &str) -> String {
    call_in(&[], caller, words)
}

/// The same, and it locks these children of the root first.
fn call_in(names: &[&str], Caller { id, name }: &Caller, words: &str) -> String {
    let (dirs, names) = (vec!["/"; names.len()].join(","), names.join(","));
    format!(
        "SELECT lock_recipes.requests('{name}', {id}, {TIMEOUT}, 60000000, 0, true, '{{{dirs}}}', \
           '{{{names}}}', ARRAY[{words}], ARRAY[''::bytea])"
    )
}

/// The first answer in it, or why nothing was done.
fn answer(row: &Row) -> Vec<String> {
    let words: Vec<Option<Vec<u8>>> = row.get(0);
    let mut answers = words.split(Option::is_none);
    let before = answers.next().unwrap();
    let words = answers.next().unwrap_or(before).iter().flatten();
    words
        .map(|it| String::from_utf8(it.clone()).unwrap())
        .collect()
}

impl Stage {
    pub(super) async fn set() -> Self {
        let server = PostgresServer::start().await.unwrap();
        let (client, _) = connection(&server).await;
        let stage = Self { server, client };
        let schema = Postgres::schema("lock_recipes").unwrap();
        stage.run(&schema).await;
        let operator = stage.open().await;
        stage
            .done(&operator, "'create', '', '', '/', 'd', 'P', '1'")
            .await;
        assert!(stage.close(&operator).await.unwrap());
        stage
    }

    pub(super) async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    pub(super) async fn one(&self, sql: &str) -> Row {
        self.client.query_one(sql, &[]).await.unwrap()
    }

    async fn number(&self, asked: &str) -> i64 {
        self.one(&format!("SELECT ({asked})::bigint")).await.get(0)
    }

    pub(super) async fn open(&self) -> Caller {
        self.opened("run").await.0
    }

    /// A new session, and how long nobody may be granted a lock.
    async fn opened(&self, run: &str) -> (Caller, i64) {
        let open = format!("SELECT id, wait FROM lock_recipes.open('s', {TIMEOUT}, '{run}', true)");
        let row = self.one(&open).await;
        let id: i64 = row.get(0);
        let name = format!("{id}:{TIMEOUT}:s:1");
        (Caller { id, name }, row.get(1))
    }

    /// Goes on over a second connection. Returns how long nobody may be granted a lock.
    pub(super) async fn resume(&self, caller: &Caller, run: &str) -> i64 {
        let id = caller.id;
        let resume = format!(
            "SELECT wait FROM lock_recipes.resume('{id}:{TIMEOUT}:s', {id}, {TIMEOUT}, 2, '{run}', \
               false, '{{1}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')"
        );
        self.one(&resume).await.get(0)
    }

    /// How many watches there are.
    pub(super) async fn watches(&self) -> i64 {
        self.number("SELECT count(*) FROM lock_recipes.watches")
            .await
    }

    async fn asked(&self, caller: &Caller, words: &str) -> Vec<String> {
        answer(&self.one(&call(caller, words)).await)
    }

    /// As `asked`. It is not refused.
    pub(super) async fn done(&self, caller: &Caller, words: &str) -> Vec<String> {
        let answer = self.asked(caller, words).await;
        assert_eq!(answer[0], "", "{words}: {answer:?}");
        answer
    }

    /// Creates a node. Returns its number.
    async fn enter(&self, caller: &Caller) -> i64 {
        self.done(caller, CREATE).await[2].parse().unwrap()
    }

    /// Returns whether all has gone that could go.
    pub(super) async fn close(&self, caller: &Caller) -> Result<bool, Error> {
        self.close_within(caller, TIMEOUT).await
    }

    pub(super) async fn close_within(
        &self,
        Caller { id, name }: &Caller,
        time: i64,
    ) -> Result<bool, Error> {
        let close = format!("SELECT NOT lock_recipes.close('{name}', {id}, {time})");
        Ok(self.client.query_one(&close, &[]).await?.get(0))
    }

    /// Returns whether the session lives on.
    pub(super) async fn beat(&self, Caller { id, name }: &Caller) -> bool {
        let beat = format!(
            "SELECT step IS NOT NULL FROM lock_recipes.beat('{name}', {id}, {TIMEOUT}, 60000000)"
        );
        self.one(&beat).await.get(0)
    }

    pub(super) async fn nodes_of(&self, caller: &Caller) -> i64 {
        let count = "SELECT count(*) FROM lock_recipes.nodes WHERE o =";
        self.number(&format!("{count} {}", caller.id)).await
    }

    /// A user's transaction that goes on, if the fence with the first node lets it.
    pub(super) async fn fenced(&self) -> Result<Client, Error> {
        let (own, _) = connection(&self.server).await;
        let fence = "BEGIN; SELECT lock_recipes.fence(dir || '/' || name, c) \
                     FROM lock_recipes.nodes WHERE o <> 0 AND seq = 0";
        own.batch_execute(fence).await.map(|()| own)
    }
}

#[tokio::test]
async fn refused_transaction_leaves_nothing() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    let before = stage.number("SELECT sum(q) FROM lock_recipes.counts").await;
    let missing = "'delete', '/', 'd', '/d', 'missing', ''";
    let words = format!("'together', '13', {CREATE}, {missing}");
    assert_eq!(stage.asked(&caller, &words).await, ["NoNode", "1"]);
    assert_eq!(stage.nodes_of(&caller).await, 0);
    let after = stage.number("SELECT sum(q) FROM lock_recipes.counts").await;
    assert_eq!(after, before);
    // Without the second, the first is done.
    stage.done(&caller, CREATE).await;
}

/// What a transaction relies on must be so when it is committed.
#[tokio::test]
async fn node_that_a_transaction_has_checked_stands_until_its_commit() {
    let stage = Stage::set().await;
    let (holder, operator) = (stage.open().await, stage.open().await);
    stage.enter(&holder).await;
    let (own, _) = connection(&stage.server).await;
    own.batch_execute("BEGIN").await.unwrap();
    let check = "'check', '/d', 'n-0000000000', ''";
    let both = call(&holder, &format!("'together', '11', {check}, {CREATE}"));
    let checked = answer(&own.query_one(&both, &[]).await.unwrap());
    assert_eq!(checked[0], "", "{checked:?}");
    assert_eq!(stage.asked(&operator, DELETE_FIRST).await[0], "Busy");
    own.batch_execute("COMMIT").await.unwrap();
    stage.done(&operator, DELETE_FIRST).await;
}

#[tokio::test]
async fn fenced_node_stands_until_the_transaction_is_over() {
    let stage = Stage::set().await;
    let (holder, other) = (stage.open().await, stage.open().await);
    stage.enter(&holder).await;
    let own = stage.fenced().await.unwrap();
    // An operator, the holder itself, and the end of its session.
    for caller in [&other, &holder] {
        assert_eq!(stage.asked(caller, DELETE_FIRST).await[0], "Busy");
    }
    assert!(stage.close(&holder).await.unwrap());
    assert!(stage.beat(&other).await);
    assert_eq!(stage.nodes_of(&holder).await, 1);
    // It would keep the lock from others for ever if another transaction could begin now.
    let refused = stage.fenced().await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "LR001", "{refused}");
    own.batch_execute("COMMIT").await.unwrap();
    assert!(stage.beat(&other).await);
    assert_eq!(stage.nodes_of(&holder).await, 0);
}

#[tokio::test]
async fn all_nodes_of_a_closed_session_are_deleted_and_no_others() {
    let stage = Stage::set().await;
    let (caller, other) = (stage.open().await, stage.open().await);
    stage.enter(&other).await;
    let many = format!(
        "INSERT INTO lock_recipes.nodes \
           SELECT '/d', 'of-' || i, 0, 1, 1, 0, {}, '' FROM generate_series(1, 1200) AS i",
        caller.id
    );
    stage.run(&many).await;
    // Some hundred at a time.
    let mut calls = 1;
    while !stage.close(&caller).await.unwrap() {
        assert!(stage.nodes_of(&caller).await > 0);
        calls += 1;
    }
    assert!(calls > 1);
    assert_eq!(stage.nodes_of(&caller).await, 0);
    assert_eq!(stage.nodes_of(&other).await, 1);
}

#[tokio::test]
async fn another_run_of_the_server_begins_with_a_quarantine() {
    let stage = Stage::set().await;
    let (first, wait) = stage.opened("run").await;
    assert_eq!(wait, 0);
    assert_eq!(stage.resume(&first, "run").await, 0);
    let (second, wait) = stage.opened("another").await;
    // A holder gives up after half of its timeout.
    assert!(wait > TIMEOUT / 2, "{wait}");
    let wait = stage.resume(&second, "a third").await;
    assert!(wait > TIMEOUT / 2, "{wait}");
}

/// Whoever came last may have a shorter one.
#[tokio::test]
async fn longest_timeout_decides_how_long_a_quarantine_takes() {
    let stage = Stage::set().await;
    stage.opened("run").await;
    let open = |run| {
        format!(
            "SELECT wait FROM lock_recipes.open('s', {}, '{run}', true)",
            TIMEOUT / 60
        )
    };
    stage.one(&open("run")).await;
    let wait: i64 = stage.one(&open("another")).await.get(0);
    assert!(wait > TIMEOUT / 2, "{wait}");
}

#[tokio::test]
async fn call_of_an_earlier_connection_does_nothing() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    stage.enter(&caller).await;
    stage.resume(&caller, "run").await;
    for words in [CREATE, DELETE_FIRST] {
        assert_eq!(stage.asked(&caller, words).await, ["ended"]);
    }
    assert!(!stage.beat(&caller).await);
    stage.close(&caller).await.unwrap();
    let second = Caller {
        id: caller.id,
        name: caller.name.replace(":s:1", ":s:2"),
    };
    assert_eq!(stage.nodes_of(&caller).await, 1);
    stage.done(&second, DELETE_FIRST).await;
}

/// The client takes an answer for the proof that the session lives for three quarters of its timeout.
#[tokio::test]
async fn session_that_was_not_heard_of_lately_has_to_beat_before_a_request() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    let silent = format!(
        "UPDATE lock_recipes.sessions SET deadline = deadline - {}",
        TIMEOUT / 2
    );
    stage.run(&silent).await;
    assert_eq!(stage.asked(&caller, CREATE).await, ["late"]);
    assert_eq!(stage.nodes_of(&caller).await, 0);
    assert!(stage.beat(&caller).await);
    stage.enter(&caller).await;
}

/// Otherwise it would leave a node that goes with nobody.
#[tokio::test]
async fn session_does_not_end_while_a_request_of_it_is_being_carried_out() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    let (own, _) = connection(&stage.server).await;
    own.batch_execute("BEGIN").await.unwrap();
    let row = own.query_one(&call(&caller, CREATE), &[]).await.unwrap();
    assert_eq!(answer(&row)[0], "");
    let waited = stage.close_within(&caller, NO_TIME).await.unwrap_err();
    let gave_up = tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE;
    assert_eq!(waited.code(), Some(&gave_up), "{waited}");
    // Another session ends it, when it is due.
    let due =
        "UPDATE lock_recipes.sessions SET deadline = 0; UPDATE lock_recipes.clock SET due = 0";
    stage.run(due).await;
    let other = stage.open().await;
    assert!(stage.beat(&other).await);
    own.batch_execute("COMMIT").await.unwrap();
    assert_eq!(stage.nodes_of(&caller).await, 1);
    assert!(stage.beat(&other).await);
    assert_eq!(stage.nodes_of(&caller).await, 0);
}

#[tokio::test]
async fn numbers_rise_whatever_the_clock_says_and_in_a_directory_that_is_made_again() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    stage.enter(&caller).await;
    // As if the clock had been a year ahead, and was set back.
    let ahead = format!("UPDATE lock_recipes.counts SET p = p + {YEAR} WHERE name = 'd'");
    stage.run(&ahead).await;
    let given = "SELECT p FROM lock_recipes.counts WHERE name = 'd'";
    let first = stage.number(given).await;
    let second = stage.enter(&caller).await;
    assert!(second > first, "{second} after {first}");
    let own = "DELETE FROM lock_recipes.nodes WHERE o <> 0";
    stage.run(own).await;
    stage.done(&caller, "'delete', '', '', '/', 'd', ''").await;
    stage
        .done(&caller, "'create', '', '', '/', 'd', 'P', '1'")
        .await;
    let third = stage.enter(&caller).await;
    assert!(third > second, "{third} after {second}");
}

#[tokio::test]
async fn clock_that_is_set_ends_no_session() {
    let stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    stage.enter(&one).await;
    for by in [YEAR, -YEAR] {
        // The store remembers the clock when it last looked. To change that is to set it.
        let set = format!("UPDATE lock_recipes.clock SET last = last - ({by}), due = 0");
        stage.run(&set).await;
        assert!(stage.beat(&two).await, "by {by}");
        assert!(stage.beat(&one).await, "by {by}");
    }
    assert_eq!(stage.nodes_of(&one).await, 1);
}

/// It would ask much later.
#[tokio::test]
async fn who_watches_is_rung_by_others_when_the_node_is_changed_and_deleted() {
    let stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    stage.enter(&one).await;
    stage.done(&two, "'watch', '/d', 'n-0000000000', '1'").await;
    let (client, mut rung) = connection(&stage.server).await;
    let channel = format!("lock_recipes_{}", two.id);
    client
        .batch_execute(&format!("LISTEN {channel}"))
        .await
        .unwrap();
    for (caller, words, rings) in [
        (&two, "'set', '/d', 'n-0000000000', '', '1'", None),
        (
            &one,
            "'set', '/d', 'n-0000000000', '', '1'",
            Some(channel.clone()),
        ),
        (&one, DELETE_FIRST, Some(two.ring("D1"))),
    ] {
        stage.done(caller, words).await;
        // What was rung at the commit has come when a later statement of the connection is answered.
        client.batch_execute("SELECT 1").await.unwrap();
        assert_eq!(rung.try_recv().ok(), rings, "{words}");
    }
    assert_eq!(
        stage.watches().await,
        0,
        "whoever was rung is not rung again"
    );
}

/// A call locks the directories in which it creates. One of them does not exist yet. While the call waits
/// for the other, another session makes it, and is granted the lock.
#[tokio::test]
async fn number_rises_in_a_directory_that_is_made_while_a_call_waits_for_another() {
    let stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    let (other, _) = connection(&stage.server).await;
    let lock = "BEGIN; SELECT FROM lock_recipes.counts WHERE dir = '/' AND name = 'd' FOR UPDATE";
    other.batch_execute(lock).await.unwrap();
    let create = "'create', '/', 'a', '/a', 'n-', 'S', '1'";
    let both = format!("'together', '14', {create}, {CREATE}");
    let both = call_in(&["a", "d"], &one, &both);
    let (waiting, _) = connection(&stage.server).await;
    let answered =
        tokio::spawn(async move { answer(&waiting.query_one(&both, &[]).await.unwrap()) });
    until(&stage.server, WAITS_FOR_A_LOCK).await;
    stage
        .done(&two, "'create', '', '', '/', 'a', 'P', '1'")
        .await;
    let token = stage.done(&two, create).await[2].clone();
    other.batch_execute("COMMIT").await.unwrap();
    let answer = timeout(PATIENCE, answered).await.unwrap().unwrap();
    // The client sends it again if it finds no directory.
    match answer[0].as_str() {
        "" => assert!(answer[2].parse::<i64>().unwrap() > token.parse().unwrap()),
        _ => assert_eq!(answer, ["NoNode", "0"]),
    }
}
