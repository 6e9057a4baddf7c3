//! What is left behind on PostgreSQL goes as fast as it is made, and costs nobody anything until then. Most
//! of it is called by hand, as in `calls_on_postgres`.

use lock_recipes::{InterProcessMutex, Postgres};
use test_rig::PostgresServer;
use tokio::time::timeout;
use tokio_postgres::Client;

use super::PATIENCE;
use super::calls_on_postgres::{Caller, Stage, TIMEOUT};
use super::races_on_postgres::{connection, until};

/// So many are made, one right after the other.
const MANY: usize = 400;
/// Of as many it may be too early to say that nobody needs them.
const FEW: i64 = 20;

impl Stage {
    async fn count(&self, what: &str) -> i64 {
        let count = format!("SELECT count(*) FROM lock_recipes.{what}");
        self.one(&count).await.get(0)
    }
}

#[tokio::test]
async fn empty_directories_are_removed_as_fast_as_they_are_made() {
    let stage = Stage::set().await;
    let Caller { id, name } = stage.open().await;
    for number in 0..MANY {
        // Each is due a moment later.
        let make = format!(
            "SELECT lock_recipes.requests('{name}', {id}, {TIMEOUT}, 1, 0, true, '{{/}}', '{{d}}', \
               ARRAY['create', '/', 'd', '/d', 'order-{number}', 'C', '1'], ARRAY[''::bytea])"
        );
        stage.run(&make).await;
    }
    let nodes = stage.count("nodes WHERE dir = '/d'").await;
    let containers = stage.count("containers").await;
    assert!(
        nodes <= FEW && containers <= FEW,
        "{nodes} and {containers}"
    );
}

#[tokio::test]
async fn dead_sessions_are_ended_as_fast_as_they_are_opened() {
    let stage = Stage::set().await;
    for number in 0..MANY {
        // Nobody hears of it again, and it is due when some others were opened.
        let open = format!(
            "INSERT INTO lock_recipes.nodes \
               SELECT '/d', 'n-{number}', 0, 1, 1, 0, id, '' \
               FROM lock_recipes.open('s', 1000, 'run', true)"
        );
        stage.run(&open).await;
    }
    for kept in ["sessions", "ended", "nodes WHERE o <> 0"] {
        let count = stage.count(kept).await;
        assert!(count <= FEW, "{count} of {kept}");
    }
}

#[tokio::test]
async fn watches_that_a_connection_leaves_behind_go_with_it() {
    let stage = Stage::set().await;
    let (holder, Caller { id, name }) = (stage.open().await, stage.open().await);
    let create = "'create', '/', 'd', '/d', 'n-', 'S', '1'";
    let node = stage.done(&holder, create).await[2].clone();
    let name = name.trim_end_matches(":1");
    for round in 1..=5 {
        // The answers are lost to these, and one was known before.
        for number in [round, 10 + round] {
            let caller = Caller {
                id,
                name: format!("{name}:{round}"),
            };
            let watch = format!("'watch', '/d', 'n-0000000000', '{number}'");
            stage.done(&caller, &watch).await;
        }
        let goes_on = format!(
            "SELECT news FROM lock_recipes.resume('{name}', {id}, {TIMEOUT}, {}, 'run', false, \
               '{{{round}}}', '{{{round}}}', '{{/d}}', '{{n-0000000000}}', '{{{node}}}', '{{{node}}}')",
            round + 1
        );
        let news: Vec<String> = stage.one(&goes_on).await.get(0);
        assert_eq!(news, [""]);
        let watches = format!("watches WHERE session = {id}");
        assert_eq!(stage.count(&watches).await, 1, "{round}");
        let known = format!("{watches} AND number = {round}");
        assert_eq!(stage.count(&known).await, 1, "{round}");
    }
}

/// Whether it was a look or a ring that told of the deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_go_when_the_waits_are_over() {
    let server = PostgresServer::start().await.unwrap();
    let session = async || {
        let builder = Postgres::builder().new_server();
        builder.connect(&server.url()).await.unwrap()
    };
    let sessions = [session().await, session().await];
    let locks = sessions
        .each_ref()
        .map(|it| InterProcessMutex::new(it, "/locks/a").unwrap());
    let mut guard = locks[0].acquire().await.unwrap();
    for round in 1..=20 {
        let waits = tokio::spawn(locks[round % 2].acquire());
        until(
            &server,
            "(SELECT count(*) FROM lock_recipes.nodes WHERE o <> 0) = 2",
        )
        .await;
        guard.release().await.unwrap();
        guard = timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    }
    guard.release().await.unwrap();
    until(&server, "NOT EXISTS (SELECT FROM lock_recipes.watches)").await;
    for session in sessions {
        session.close().await;
    }
}

/// A connection with the settings of a session.
async fn settled(server: &PostgresServer) -> Client {
    let (client, _) = connection(server).await;
    let settings = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
                    SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off";
    client.batch_execute(settings).await.unwrap();
    client
}

/// How many pages of tables and indexes a call reads. All are in memory.
async fn pages(client: &Client, call: &str) -> u64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS) SELECT lock_recipes.{call}");
    let rows = client.query(&explain, &[]).await.unwrap();
    let mut lines = rows.iter().map(|row| row.get::<_, &str>(0));
    let read = lines
        .find_map(|it| it.split_once("Buffers: shared "))
        .unwrap()
        .1;
    let counts = read.split_whitespace().filter_map(|it| {
        let count = it.strip_prefix("hit=").or(it.strip_prefix("read="))?;
        count.parse::<u64>().ok()
    });
    counts.sum()
}

impl Stage {
    /// Those of an acquire of the only lock and its release, if no table was analyzed just before: a
    /// plan that is made anew reads the catalog.
    async fn pages(&self, client: &Client, caller: &Caller) -> u64 {
        let mut least = u64::MAX;
        for _ in 0..10 {
            least = least.min(self.pages_of_one(client, caller).await);
        }
        least
    }

    async fn pages_of_one(&self, client: &Client, Caller { id, name }: &Caller) -> u64 {
        let enter = format!("enter('{name}', {id}, {TIMEOUT}, 0, '/', 'd', '/d', 'n-', '', 1)");
        let entered = pages(client, &enter).await;
        let node = self
            .one("SELECT name FROM lock_recipes.nodes WHERE o <> 0")
            .await;
        let node: &str = node.get(0);
        let leave = format!("leave('{name}', {id}, {TIMEOUT}, '/', 'd', '/d', '{node}')");
        entered + pages(client, &leave).await
    }
}

/// A report, a backup: what was deleted since it began, nobody can clean up.
#[tokio::test]
async fn acquire_beside_a_transaction_that_is_open_for_long_costs_what_it_costs_without() {
    const CYCLES: u32 = 20_000;
    let stage = Stage::set().await;
    let caller = stage.open().await;
    let client = settled(&stage.server).await;
    let Caller { id, name } = &caller;
    let cycles = format!(
        "DO $$ DECLARE entered text; BEGIN FOR i IN 1..{CYCLES} LOOP \
           entered := lock_recipes.enter('{name}', {id}, {TIMEOUT}, 0, '/', 'd', '/d', 'n-', '', 1); \
           COMMIT; \
           PERFORM lock_recipes.leave('{name}', {id}, {TIMEOUT}, '/', 'd', '/d', split_part(entered, '/', 5)); \
           COMMIT; \
           UPDATE lock_recipes.clock SET own = own + 1 \
             WHERE i % 4 = 0 AND own = (SELECT max(own) FROM lock_recipes.clock); \
           COMMIT; \
         END LOOP; END $$"
    );
    client.batch_execute(&cycles).await.unwrap();
    stage
        .run("VACUUM lock_recipes.nodes, lock_recipes.counts, lock_recipes.clock")
        .await;
    let without = stage.pages(&client, &caller).await;
    let (report, _) = connection(&stage.server).await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lock_recipes.nodes";
    report.batch_execute(begin).await.unwrap();
    client.batch_execute(&cycles).await.unwrap();
    let beside = stage.pages(&client, &caller).await;
    assert!(
        beside * 10 <= without * 13,
        "{beside} pages instead of {without}"
    );
    report.batch_execute("COMMIT").await.unwrap();
}
