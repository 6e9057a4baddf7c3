//! Whether anything runs on PostgreSQL that somebody has planted where a user's names are looked for.
//!
//! Whatever is planted fails when it is used, and the server logs that.

use std::time::Duration;

use lock_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, Member, MultiLock, Postgres, Session,
};
use test_rig::PostgresServer;
use tokio::time::{sleep, timeout};
use tokio_postgres::NoTls;

use super::PATIENCE;
use super::pooler::Pooler;

/// In each schema that users may find names in: every function and operator that the server has, some with the
/// very types for which the server has only a general one, tables, types, and casts.
const PLANT: &str = r#"
CREATE SCHEMA app AUTHORIZATION app;
GRANT CREATE ON DATABASE postgres TO app;
GRANT ALL ON SCHEMA public TO app;
SET search_path = pg_catalog;
DO $plant$
DECLARE
  place text; it record; one text; other text; made integer := 0;
  fails text := ' LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION ''planted''; END $$';
  types text[] := ARRAY['text', 'bigint', 'integer', 'bytea', 'text[]', 'bigint[]', 'bytea[]', 'double precision',
    'oid', 'name'];
BEGIN
  FOREACH place IN ARRAY ARRAY['public', 'app'] LOOP
    EXECUTE format('CREATE FUNCTION %I.planted(a text) RETURNS boolean', place) || fails;
    FOR it IN
      SELECT p.proname, f.arguments, pg_get_function_result(p.oid) AS result
        FROM pg_proc p, LATERAL (SELECT pg_get_function_identity_arguments(p.oid) AS arguments) AS a,
          LATERAL (
            VALUES (a.arguments), (regexp_replace(a.arguments, '\mname\M', 'text', 'g')),
              (regexp_replace(a.arguments, '\many(compatible)?array\M', 'text[]', 'g')),
              (regexp_replace(a.arguments, '\many(compatible)?array\M', 'bigint[]', 'g')),
              (regexp_replace(a.arguments, '\many(compatible)?array\M', 'bytea[]', 'g'))
          ) AS f (arguments)
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prorettype <> 'trigger'::regtype
      UNION ALL VALUES
        ('concat_ws', 'text, bigint, text, text, bigint, bigint, integer, bigint, bigint, bigint, bigint', 'text'),
        ('format', 'text, text, bigint', 'text')
    LOOP
      BEGIN
        EXECUTE format('CREATE FUNCTION %I.%I(%s) RETURNS %s', place, it.proname,
          regexp_replace(it.arguments, '\manyelement\M', 'text', 'g'),
          regexp_replace(it.result, '\many(compatible)?(array|element|nonarray)\M', 'text', 'g')) || fails;
        made := made + 1;
      EXCEPTION WHEN OTHERS THEN
        -- There is one, or only the server itself can have one like it.
      END;
    END LOOP;
    FOR it IN
      SELECT o.oprname AS name, o.oprleft::regtype::text AS l, o.oprright::regtype::text AS r,
          o.oprresult::regtype::text AS result
        FROM pg_operator o WHERE o.oprleft <> 0 AND o.oprname IN ('||', '=', '<>', '<', '<=', '>', '>=', '+', '-',
          '*', '/', '&')
      UNION ALL SELECT o.name, l, r, o.result FROM unnest(types) AS l, unnest(types) AS r, (
          VALUES ('||', 'text'), ('=', 'boolean'), ('<>', 'boolean'), ('<', 'boolean'), ('<=', 'boolean'),
            ('>', 'boolean'), ('>=', 'boolean'), ('+', 'bigint'), ('-', 'bigint'), ('*', 'bigint'),
            ('/', 'bigint'), ('&', 'bigint')
        ) AS o (name, result)
    LOOP
      BEGIN
        EXECUTE format('CREATE OR REPLACE FUNCTION %I.%I(a %s, b %s) RETURNS %s', place,
          'of_' || it.result, it.l, it.r, it.result) || fails;
        EXECUTE format('CREATE OPERATOR %1$I.%2$s (FUNCTION = %1$I.%3$I, LEFTARG = %4$s, RIGHTARG = %5$s)',
          place, it.name, 'of_' || it.result, it.l, it.r);
        made := made + 1;
      EXCEPTION WHEN OTHERS THEN
      END;
    END LOOP;
    FOREACH one IN ARRAY ARRAY['nodes', 'sessions', 'clock', 'meta', 'ended', 'watches', 'containers', 'pg_class',
      'pg_database', 'pg_settings', 'pg_proc', 'pg_namespace', 'pg_type'] LOOP
      EXECUTE format('CREATE VIEW %I.%I AS SELECT %1$I.planted(''a'') AS name', place, one);
    END LOOP;
    -- A type that anything may become, and what is done with it.
    EXECUTE format('CREATE TYPE %I.anything AS ENUM (''a'')', place);
    FOREACH one IN ARRAY ARRAY['text', 'bigint', 'integer', 'bytea', 'boolean'] LOOP
      EXECUTE format('CREATE FUNCTION %I.anything(a %s) RETURNS %1$I.anything', place, one) || fails;
      EXECUTE format('CREATE CAST (%s AS %I.anything) WITH FUNCTION %2$I.anything(%1$s) AS IMPLICIT', one, place);
    END LOOP;
    -- Last, as the names are found from now on.
    FOREACH one IN ARRAY ARRAY['text', 'bytea', 'int8', 'int4', 'bool', 'name', 'oid'] LOOP
      EXECUTE format('CREATE DOMAIN %I.%I AS pg_catalog.%2$I CHECK (%1$I.planted(''a''))', place, one);
    END LOOP;
  END LOOP;
  ASSERT made > 8000, made;
END $plant$
"#;

/// The paths of a user: that of the server, and one that finds others' names before those of the server.
const PATHS: [&str; 2] = [r#""$user", public"#, "app, public, pg_catalog"];

/// A server on which everything is planted.
async fn planted() -> PostgresServer {
    let server = PostgresServer::builder().user("app", "secret");
    let server = server.start().await.unwrap();
    server.sql(PLANT).await.unwrap();
    server
}

/// Whoever connects from now on has this path.
async fn set(server: &PostgresServer, path: &str) {
    let set = format!("ALTER DATABASE postgres SET search_path = {path}");
    server.sql(&set).await.unwrap();
}

async fn session(url: &str) -> Session {
    // A busy machine loses no session with it.
    let builder = Postgres::builder().session_timeout(Duration::from_secs(60));
    let opened = builder.new_server().connect(url);
    timeout(PATIENCE, opened).await.unwrap().unwrap()
}

/// All that a service does, with what the library sends for it.
async fn uses(url: &str, server: &PostgresServer) {
    let (one, two) = (session(url).await, session(url).await);
    let [first, second] = [&one, &two].map(|it| InterProcessMutex::new(it, "/locks/a").unwrap());
    let guard = first.acquire().await.unwrap();
    let waits = tokio::spawn(async move { second.acquire().await.unwrap() });
    // The connections are new ones then, and the sessions go on.
    let ends = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
                WHERE application_name OPERATOR(pg_catalog.=) 'lock_recipes'";
    server.sql(ends).await.unwrap();
    let verified = async { while guard.verify().await.is_err() {} };
    timeout(PATIENCE, verified).await.unwrap();
    // A service's own connection has the path, too.
    let (own, connection) = tokio_postgres::connect(&server.url_of("app", "secret"), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    own.batch_execute("BEGIN").await.unwrap();
    let fence = guard.fence().unwrap();
    own.batch_execute(fence.sql()).await.unwrap();
    own.batch_execute("COMMIT").await.unwrap();
    guard.release().await.unwrap();
    let granted = timeout(PATIENCE, waits).await.unwrap().unwrap();
    granted.release().await.unwrap();
    let both = MultiLock::new(&one, ["/locks/b", "/locks/c"].map(Member::mutex)).unwrap();
    both.acquire().await.unwrap().release().await.unwrap();
    let lock = InterProcessReadWriteLock::new(&two, "/locks/d").unwrap();
    let guard = lock.write().await.unwrap();
    guard.downgrade().await.unwrap().release().await.unwrap();
    one.close().await;
    two.close().await;
}

fn assert_nothing_ran(server: &PostgresServer) {
    let log = server.log();
    assert!(!log.contains("planted"), "{log}");
}

/// The same. A call that fails because something planted runs may be sent again for ever.
async fn uses_what_is_ours(url: &str, server: &PostgresServer) {
    let nothing_runs = async {
        loop {
            assert_nothing_ran(server);
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = uses(url, server) => assert_nothing_ran(server),
        () = nothing_runs => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_that_somebody_has_planted_in_the_path_of_a_user() {
    let server = planted().await;
    let url = server.url_of("app", "secret");
    for (number, path) in PATHS.iter().enumerate() {
        set(&server, path).await;
        uses_what_is_ours(&format!("{url}?schema=made_{number}"), &server).await;
        // An operator carries the statements out with whatever path, and has it afterwards.
        let (operator, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let theirs = "app, public, pg_catalog";
        operator
            .batch_execute(&format!("SET search_path = {theirs}"))
            .await
            .unwrap();
        let schema = format!("carried_out_{number}");
        operator
            .batch_execute(&Postgres::schema(&schema).unwrap())
            .await
            .unwrap();
        let after = operator.query_one("SHOW search_path", &[]).await.unwrap();
        assert_eq!(after.get::<_, &str>(0), theirs);
        uses_what_is_ours(&format!("{url}?schema={schema}"), &server).await;
    }
}

/// It knows nothing of the settings that come with a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_that_is_planted_if_a_pooler_stands_in_between() {
    let server = planted().await;
    for (number, path) in PATHS.iter().enumerate() {
        set(&server, path).await;
        let pooler = Pooler::before_as(&server, "user=app password=secret").await;
        uses_what_is_ours(&format!("{}?schema=pooled_{number}", pooler.url()), &server).await;
    }
}
