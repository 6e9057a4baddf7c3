//! What the functions for one lock promise on PostgreSQL, called by hand, as in `calls_on_postgres`: they keep all
//! that `requests` keeps, or do nothing and return NULL.

use tokio::time::timeout;
use tokio_postgres::Client;

use super::PATIENCE;
use super::calls_on_postgres::{Caller, NO_TIME, Stage, TIMEOUT, YEAR};
use super::races_on_postgres::{WAITS_FOR_A_LOCK, connection, until};

fn enter(Caller { id, name }: &Caller, first: u64) -> String {
    format!(
        "SELECT lock_recipes.enter('{name}', {id}, {TIMEOUT}, 0, '/', 'd', '/d', 'n-', '', {first})"
    )
}

fn look(Caller { id, name }: &Caller, node: u64) -> String {
    format!(
        "SELECT lock_recipes.look('{name}', {id}, {TIMEOUT}, '/d', '{}', 7)",
        path(node)
    )
}

fn leave(Caller { id, name }: &Caller, node: u64) -> String {
    let node = path(node);
    format!("SELECT lock_recipes.leave('{name}', {id}, {TIMEOUT}, '/', 'd', '/d', '{node}')::text")
}

/// The name of a node.
fn path(node: u64) -> String {
    format!("n-{node:010}")
}

/// The words of an answer.
async fn answer(client: &Client, call: &str) -> Option<Vec<String>> {
    let row = client.query_one(call, &[]).await.unwrap();
    let answer: Option<&str> = row.get(0);
    Some(answer?.split('/').map(str::to_owned).collect())
}

/// The names that a call has listed, and the nodes that it watches, with the numbers of the watches.
fn listed(answer: &[String], start: usize) -> (Vec<&str>, Vec<(&str, &str)>) {
    let count: usize = answer[start].parse().unwrap();
    let (names, watched) = answer[start + 1..].split_at(count);
    let mut names: Vec<_> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    let watched = watched
        .chunks(10)
        .map(|it| (it[0].as_str(), it[1].as_str()));
    (names, watched.collect())
}

impl Stage {
    async fn answer(&self, call: &str) -> Option<Vec<String>> {
        let (client, _) = connection(&self.server).await;
        answer(&client, call).await
    }
}

#[tokio::test]
async fn contender_is_shown_who_is_ahead_and_watches_the_two_next_to_it() {
    let stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    let first = stage.answer(&enter(&one, 1)).await.unwrap();
    assert_eq!(listed(&first, 3), (vec!["n-0000000000"], vec![]));
    for _ in 0..2 {
        stage.answer(&enter(&one, 4)).await.unwrap();
    }
    let last = stage.answer(&enter(&two, 1)).await.unwrap();
    assert_eq!(last[2], "3");
    let (names, watched) = listed(&last, 3);
    assert_eq!(names.len(), 4);
    let three = [
        ("1", "n-0000000003"),
        ("2", "n-0000000002"),
        ("3", "n-0000000001"),
    ];
    assert_eq!(watched, three);
    assert!(stage.answer(&leave(&one, 1)).await.is_some());
    let again = stage.answer(&look(&two, 3)).await.unwrap();
    let (names, watched) = listed(&again, 1);
    assert_eq!(names.len(), 3);
    // It watches the others already.
    assert_eq!(watched, [("7", "n-0000000000")]);
    let again = stage.answer(&look(&two, 3)).await.unwrap();
    assert_eq!(listed(&again, 1).1, vec![]);
    assert!(stage.answer(&look(&two, 1)).await.is_none(), "it is gone");
}

/// Its listing must be of the time when it has its place, not of when it began to wait for it.
#[tokio::test]
async fn contender_that_waits_for_the_commit_of_another_finds_it_ahead() {
    let stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    let (own, _) = connection(&stage.server).await;
    own.batch_execute("BEGIN").await.unwrap();
    answer(&own, &enter(&one, 1)).await.unwrap();
    let (waiting, _) = connection(&stage.server).await;
    let second = enter(&two, 1);
    let answered = tokio::spawn(async move { answer(&waiting, &second).await });
    until(&stage.server, WAITS_FOR_A_LOCK).await;
    own.batch_execute("COMMIT").await.unwrap();
    let answer = timeout(PATIENCE, answered).await.unwrap().unwrap().unwrap();
    let (names, watched) = listed(&answer, 3);
    assert_eq!(names, ["n-0000000000", "n-0000000001"]);
    assert_eq!(watched, [("1", "n-0000000001"), ("2", "n-0000000000")]);
}

#[tokio::test]
async fn numbers_rise_whatever_the_clock_says() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    let ahead = format!("UPDATE lock_recipes.counts SET p = p + {YEAR} WHERE name = 'd'");
    stage.run(&ahead).await;
    let number = |answer: Vec<String>| answer[1].parse::<i64>().unwrap();
    let first = number(stage.answer(&enter(&caller, 1)).await.unwrap());
    let second = number(stage.answer(&enter(&caller, 4)).await.unwrap());
    assert!(second > first, "{second} after {first}");
    let row = stage
        .one("SELECT p, q FROM lock_recipes.counts WHERE name = 'd'")
        .await;
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (second, 2));
}

#[tokio::test]
async fn call_of_an_earlier_connection_does_nothing() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    stage.answer(&enter(&caller, 1)).await.unwrap();
    stage.answer(&enter(&caller, 4)).await.unwrap();
    stage.resume(&caller, "run").await;
    for call in [enter(&caller, 7), look(&caller, 1), leave(&caller, 0)] {
        assert_eq!(stage.answer(&call).await, None, "{call}");
    }
    assert_eq!(stage.nodes_of(&caller).await, 2);
}

#[tokio::test]
async fn session_that_was_not_heard_of_lately_has_to_beat_before() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    stage.answer(&enter(&caller, 1)).await.unwrap();
    let silent = format!(
        "UPDATE lock_recipes.sessions SET deadline = deadline - {}",
        TIMEOUT / 2
    );
    stage.run(&silent).await;
    for call in [enter(&caller, 7), look(&caller, 0), leave(&caller, 0)] {
        assert_eq!(stage.answer(&call).await, None, "{call}");
    }
    assert_eq!(stage.nodes_of(&caller).await, 1);
    assert!(stage.beat(&caller).await);
    assert!(stage.answer(&leave(&caller, 0)).await.is_some());
}

#[tokio::test]
async fn session_does_not_end_while_a_call_of_it_is_being_carried_out() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    for call in [enter(&caller, 1), leave(&caller, 0)] {
        let (own, _) = connection(&stage.server).await;
        own.batch_execute("BEGIN").await.unwrap();
        answer(&own, &call).await.unwrap();
        let waited = stage.close_within(&caller, NO_TIME).await.unwrap_err();
        let gave_up = tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE;
        assert_eq!(waited.code(), Some(&gave_up), "{waited}");
        own.batch_execute("COMMIT").await.unwrap();
    }
}

#[tokio::test]
async fn who_watches_is_rung_once_and_the_session_itself_is_not() {
    let stage = Stage::set().await;
    let (one, two) = (stage.open().await, stage.open().await);
    stage.answer(&enter(&one, 1)).await.unwrap();
    stage.answer(&enter(&two, 4)).await.unwrap();
    stage.answer(&look(&two, 1)).await.unwrap();
    let (client, mut rung) = connection(&stage.server).await;
    let listen = format!(
        "LISTEN lock_recipes_{0}; LISTEN lock_recipes_{1}",
        one.id, two.id
    );
    client.batch_execute(&listen).await.unwrap();
    for (call, rings) in [
        (leave(&one, 0), Some(two.ring("D5"))),
        // Nobody else watches it.
        (leave(&two, 1), None),
    ] {
        assert!(stage.answer(&call).await.is_some());
        client.batch_execute("SELECT 1").await.unwrap();
        assert_eq!(rung.try_recv().ok(), rings, "{call}");
        assert_eq!(rung.try_recv().ok(), None, "{call}");
    }
    assert_eq!(stage.watches().await, 0, "nobody removes them later");
}

/// Directory `/d` with nodes from 0 on. All are of one session and watched by another, with their numbers.
async fn watched_queue(stage: &Stage, length: u64) -> (Caller, Caller, Client, Rings) {
    let (one, two) = (stage.open().await, stage.open().await);
    for node in 0..length {
        stage.answer(&enter(&one, 1)).await.unwrap();
        let watch = format!(
            "INSERT INTO lock_recipes.watches VALUES ('/d', '{}', {}, {node})",
            path(node),
            two.id
        );
        stage.run(&watch).await;
    }
    let (client, rung) = connection(&stage.server).await;
    let listen = format!("LISTEN lock_recipes_{}", two.id);
    client.batch_execute(&listen).await.unwrap();
    (one, two, client, rung)
}

type Rings = tokio::sync::mpsc::UnboundedReceiver<String>;

/// The next but one then lists the queue no more.
#[tokio::test]
async fn only_the_first_is_rung_as_such() {
    let stage = Stage::set().await;
    let (one, two, client, mut rung) = watched_queue(&stage, 8).await;
    // The number of the first is that of nodes without one.
    for (node, said) in [(0, "D0"), (2, "D2"), (1, "F1"), (3, "F3"), (5, "D5")] {
        assert!(stage.answer(&leave(&one, node)).await.is_some());
        client.batch_execute("SELECT 1").await.unwrap();
        assert_eq!(rung.try_recv().ok(), Some(two.ring(said)));
    }
    let (own, _) = connection(&stage.server).await;
    own.batch_execute("BEGIN").await.unwrap();
    answer(&own, &leave(&one, 4)).await.unwrap();
    stage.answer(&leave(&one, 6)).await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();
    let said = "whoever is ahead may stay until it is committed that it goes";
    assert_eq!(rung.try_recv().ok(), Some(two.ring("D6")), "{said}");
    own.batch_execute("COMMIT").await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(rung.try_recv().ok(), Some(two.ring("F4")));
}

/// A reader next to its writer has the writer's number in its name, and none of the store's.
#[tokio::test]
async fn nobody_is_the_first_while_a_node_without_a_number_is_there() {
    let stage = Stage::set().await;
    let (one, two, client, mut rung) = watched_queue(&stage, 4).await;
    stage.answer(&leave(&one, 0)).await.unwrap();
    stage.answer(&enter(&one, 1)).await.unwrap();
    let beside = "'create', '/', 'd', '/d', 'read-0000000001', 'E', '1'";
    stage.done(&one, beside).await;
    stage.answer(&leave(&one, 1)).await.unwrap();
    let gone = "DELETE FROM lock_recipes.nodes WHERE name = 'read-0000000001'";
    stage.run(gone).await;
    stage.answer(&leave(&one, 2)).await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();
    let rings = std::iter::from_fn(|| rung.try_recv().ok());
    let said = ["D0", "D1", "F2"].map(|it| two.ring(it));
    assert_eq!(rings.collect::<Vec<_>>(), said);
}

/// Its session removes the watch at the same time, and that may take as long as a disk.
#[tokio::test]
async fn release_does_not_wait_for_a_watch_that_is_being_removed() {
    let stage = Stage::set().await;
    let (one, two, client, mut rung) = watched_queue(&stage, 1).await;
    let (own, _) = connection(&stage.server).await;
    let unwatch = format!(
        "BEGIN; DELETE FROM lock_recipes.watches WHERE session = {}",
        two.id
    );
    own.batch_execute(&unwatch).await.unwrap();
    let release = leave(&one, 0);
    tokio::select! {
        released = stage.answer(&release) => assert!(released.is_some()),
        () = until(&stage.server, WAITS_FOR_A_LOCK) => panic!("it waits"),
    }
    client.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(rung.try_recv().ok(), None);
}

#[tokio::test]
async fn what_is_not_simple_is_left_alone() {
    let stage = Stage::set().await;
    let caller = stage.open().await;
    assert_eq!(stage.answer(&leave(&caller, 0)).await, None, "no node");
    stage.answer(&enter(&caller, 1)).await.unwrap();
    let own = stage.fenced().await.unwrap();
    assert_eq!(stage.answer(&leave(&caller, 0)).await, None, "it is fenced");
    own.batch_execute("COMMIT").await.unwrap();
    let missing = enter(&caller, 1).replace("'d', '/d'", "'e', '/e'");
    assert_eq!(stage.answer(&missing).await, None, "no directory");
    let below = format!("'/d', '{0}', '/d/{0}'", path(0));
    let below = enter(&caller, 1).replace("'/', 'd', '/d'", &below);
    assert_eq!(
        stage.answer(&below).await,
        None,
        "its directory is ephemeral"
    );
    // Whoever has the name already.
    stage
        .run("UPDATE lock_recipes.counts SET q = 0 WHERE name = 'd'")
        .await;
    let (client, _) = connection(&stage.server).await;
    let refused = client.query_one(&enter(&caller, 1), &[]).await.unwrap_err();
    let exists = tokio_postgres::error::SqlState::UNIQUE_VIOLATION;
    assert_eq!(refused.code(), Some(&exists), "{refused}");
    let q = stage
        .one("SELECT q FROM lock_recipes.counts WHERE name = 'd'")
        .await;
    assert_eq!(q.get::<_, i64>(0), 0);
    assert_eq!(stage.nodes_of(&caller).await, 1);
    let lasting = "UPDATE lock_recipes.nodes SET o = 0 WHERE dir = '/d'";
    stage.run(lasting).await;
    assert_eq!(
        stage.answer(&leave(&caller, 0)).await,
        None,
        "it is lasting"
    );
}
