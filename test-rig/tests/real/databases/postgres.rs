//! PostgreSQL.

use test_rig::{Durability, PostgresServer};

use super::*;

const TABLE: &str = "CREATE TABLE t (number int)";

async fn numbers(server: &PostgresServer) -> Result<Vec<String>, ServerError> {
    let rows = server.sql("SELECT number FROM t ORDER BY 1").await?;
    Ok(rows.into_iter().flatten().collect())
}

/// Waits until the server carries out a statement that begins so.
async fn at_work(server: &PostgresServer, statement: &str) -> Outcome {
    let running = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
         AND state = 'active' AND query LIKE '{statement}%'"
    );
    let begun = async {
        while server.sql(&running).await? != [["1"]] {
            tokio::time::sleep(A_MOMENT).await;
        }
        Ok(())
    };
    timeout(PATIENCE, begun).await?
}

#[tokio::test]
async fn servers_run_side_by_side_and_carry_out_statements() -> Outcome {
    let servers = futures::future::try_join_all([(); 3].map(|()| PostgresServer::start())).await?;
    for (index, server) in servers.iter().enumerate() {
        let text = format!("CREATE TABLE of_{index} (a int, b text);");
        let rows = "INSERT INTO pg_temp.x VALUES (1, E'two\\n\"lines\",\\tand\\\\'), (2, NULL);";
        let rows = rows.replace("pg_temp.x", &format!("of_{index}"));
        let read = format!("SELECT * FROM of_{index} ORDER BY a; SELECT true");
        let rows = server.sql(&[text, rows, read].concat()).await?;
        let expected = [
            vec!["1", "two\n\"lines\",\tand\\"],
            vec!["2", "NULL"],
            vec!["t"],
        ];
        assert_eq!(rows, expected);
    }
    for (index, server) in servers.iter().enumerate() {
        let tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'of_%'";
        assert_eq!(server.sql(tables).await?, [[format!("of_{index}")]]);
    }
    let mut identities = Vec::new();
    for server in &servers {
        let identity = "SELECT system_identifier FROM pg_control_system()";
        identities.extend(server.sql(identity).await?);
    }
    identities.sort();
    identities.dedup();
    assert_eq!(identities.len(), servers.len());
    let refused = refusal(servers[0].sql("SELECT 1; SELECT * FROM nowhere").await);
    assert!(
        refused.contains("relation \"nowhere\" does not exist"),
        "{refused}"
    );
    Ok(())
}

#[tokio::test]
async fn stop_and_kill_keep_port_and_data() -> Outcome {
    let server = PostgresServer::start().await?;
    let (port, pid) = (server.port(), server.pid());
    server.sql(TABLE).await?;
    server.sql("INSERT INTO t VALUES (1)").await?;
    // A client that stays does not keep it from ending.
    let waiting = server.sql("INSERT INTO t VALUES (9); SELECT pg_sleep(60)");
    let stopped = async {
        at_work(&server, "SELECT pg_sleep").await?;
        Ok::<_, Box<dyn Error>>(server.stop().await?)
    };
    let (waited, stopped) = timeout(PATIENCE, async { tokio::join!(waiting, stopped) }).await?;
    stopped?;
    assert!(refusal(waited).contains("terminating connection"));
    server.stop().await?;
    assert_eq!(server.pid(), None);
    assert!(server.sql("SELECT 1").await.is_err());
    server.start_again().await?;
    server.start_again().await?;
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(numbers(&server).await?, ["1", "9"]);

    // As it is by default, a commit outlives the process.
    server.sql("INSERT INTO t VALUES (2)").await?;
    server.kill().await?;
    server.kill().await?;
    assert_eq!(server.pid(), None);
    server.start_again().await?;
    assert_eq!(numbers(&server).await?, ["1", "2", "9"]);
    Ok(())
}

#[tokio::test]
async fn kill_ends_all_processes_at_once_even_those_at_work() -> Outcome {
    let server = PostgresServer::start().await?;
    let folder = server.folder().to_owned();
    let busy = "SELECT count(*) FROM generate_series(1, 1000000000)";
    let killed = async {
        at_work(&server, "SELECT count(*) FROM generate_series").await?;
        let running = processes_of(&folder)?;
        server.kill().await?;
        Ok::<_, Box<dyn Error>>((running, processes_of(&folder)?))
    };
    let (answer, killed) = tokio::join!(server.sql(busy), killed);
    let (before, after) = killed?;
    assert!(before > 3 && after == 0, "{before} before, {after} after");
    assert!(refusal(answer).contains("server closed the connection"));
    Ok(())
}

#[tokio::test]
async fn paused_server_answers_nobody_until_it_is_resumed() -> Outcome {
    let server = PostgresServer::start().await?;
    server.sql(TABLE).await?;
    // This client is connected, and its process would go on without its parent.
    let connected = server.sql("SELECT pg_sleep(3); INSERT INTO t VALUES (1)");
    let mut connected = std::pin::pin!(connected);
    assert!(timeout(A_WHILE / 2, &mut connected).await.is_err());
    server.pause()?;
    server.pause()?;
    assert!(timeout(2 * A_WHILE, &mut connected).await.is_err());
    let mut other = std::pin::pin!(server.sql("SELECT 1"));
    assert!(timeout(A_WHILE, &mut other).await.is_err());
    server.resume()?;
    server.resume()?;
    timeout(PATIENCE, connected).await??;
    timeout(PATIENCE, other).await??;
    assert_eq!(numbers(&server).await?, ["1"]);

    server.pause()?;
    server.stop().await?;
    assert!(matches!(
        server.pause(),
        Err(ServerError::NotRunning { .. })
    ));
    assert!(matches!(
        server.resume(),
        Err(ServerError::NotRunning { .. })
    ));
    server.start_again().await?;
    server.pause()?;
    server.kill().await?;
    assert_eq!(processes_of(server.folder())?, 0);
    Ok(())
}

#[tokio::test]
async fn late_commit_is_forgotten_by_a_kill_and_others_are_not() -> Outcome {
    for (durability, expected) in [
        (Durability::Late, &["1"][..]),
        (Durability::Written, &["1", "2"]),
        (Durability::Flushed, &["1", "2"]),
    ] {
        let server = PostgresServer::builder()
            .durability(durability)
            .start()
            .await?;
        server.sql(TABLE).await?;
        server.sql("INSERT INTO t VALUES (1)").await?;
        server.stop().await?;
        server.start_again().await?;
        server.sql("INSERT INTO t VALUES (2)").await?;
        server.kill().await?;
        server.start_again().await?;
        assert_eq!(numbers(&server).await?, expected, "{durability:?}");
    }
    Ok(())
}

#[tokio::test]
async fn options_reach_the_server() -> Outcome {
    let server = PostgresServer::builder()
        .setting("application_name", "it's")
        .max_connections(2)
        .read_only()
        .user("clerk", "it's a 'secret'")
        .start()
        .await?;
    let shown = "SELECT current_setting('application_name'), current_setting('max_connections')";
    // The client has a name of its own.
    assert_eq!(server.sql(shown).await?, [["psql", "5"]]);
    let as_clerk = |password: &str, statement: &str| {
        let psql = Command::new("psql")
            .args([
                "--no-psqlrc",
                "-At",
                "-h",
                "127.0.0.1",
                "-U",
                "clerk",
                "-d",
                "postgres",
            ])
            .args(["-p", &server.port().to_string(), "-c", statement])
            .env("PGPASSWORD", password)
            .output();
        psql.map(|it| String::from_utf8_lossy(&[it.stdout, it.stderr].concat()).into_owned())
    };
    assert_eq!(as_clerk("it's a 'secret'", "SELECT 1")?, "1\n");
    assert!(as_clerk("wrong", "SELECT 1")?.contains("password authentication failed"));
    let write = "CREATE TEMPORARY TABLE t ()";
    let refused = as_clerk("it's a 'secret'", "CREATE SCHEMA s")?;
    assert!(refused.contains("read-only transaction"), "{refused}");
    server.set_read_only(false).await?;
    let refused = as_clerk("it's a 'secret'", "CREATE SCHEMA s")?;
    assert!(refused.contains("permission denied"), "{refused}");
    assert_eq!(as_clerk("it's a 'secret'", write)?, "CREATE TABLE\n");
    assert!(
        server
            .url_of("clerk", "secret")
            .contains("//clerk:secret@127.0.0.1:")
    );
    Ok(())
}

#[tokio::test]
async fn server_with_a_certificate_encrypts() -> Outcome {
    let folder = tempfile::tempdir()?;
    let [certificate, key] = certificate(folder.path())?;
    let server = PostgresServer::builder()
        .tls(&certificate, &key)
        .start()
        .await?;
    let encrypts = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(server.sql(encrypts).await?, [["t"]]);
    Ok(())
}

#[tokio::test]
async fn folder_is_where_it_shall_be_and_goes_with_the_server() -> Outcome {
    let parent = tempfile::tempdir()?;
    // Whoever runs the server must get there.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(parent.path(), open)?;
    let server = PostgresServer::builder()
        .folder_in(parent.path())
        .start()
        .await?;
    let (folder, pid) = (server.folder().to_owned(), server.pid().ok_or("no pid")?);
    assert!(folder.starts_with(parent.path()) && is_running(pid)?);
    drop(server);
    assert!(!folder.exists() && !is_running(pid)?);
    assert_eq!(processes_of(&folder)?, 0);
    Ok(())
}

#[tokio::test]
async fn wrong_option_is_reported_with_the_log() {
    let builder = PostgresServer::builder().setting("fsync", "soon");
    let error = builder.start().await.unwrap_err();
    let ServerError::Ended { log, .. } = &error else {
        panic!("{error}")
    };
    assert!(
        log.contains("soon") || log.contains("requires a Boolean"),
        "{log}"
    );
}

#[tokio::test]
async fn killed_server_leaves_no_shared_memory_behind() -> Outcome {
    let server = PostgresServer::start().await?;
    let running = std::fs::read_to_string(server.folder().join("data/postmaster.pid"))?;
    let segment = running
        .lines()
        .nth(6)
        .and_then(|it| it.split_whitespace().nth(1));
    let segment = segment.ok_or("no segment")?.to_owned();
    let is_there = || -> Result<bool, Box<dyn Error>> {
        let listed = Command::new("ipcs").args(["-m", "-i", &segment]).output()?;
        Ok(String::from_utf8(listed.stdout)?.contains("shmid"))
    };
    server.kill().await?;
    assert!(is_there()?, "PostgreSQL has learnt to clean up");
    drop(server);
    assert!(!is_there()?);
    Ok(())
}

#[tokio::test]
async fn replica_follows_lags_is_cut_off_and_takes_over() -> Outcome {
    let primary = PostgresServer::builder()
        .user("clerk", "secret")
        .start()
        .await?;
    primary.sql(TABLE).await?;
    primary.sql("INSERT INTO t VALUES (1)").await?;
    let replica = PostgresServer::builder()
        .replica_of(&primary)
        .start()
        .await?;
    assert_eq!(numbers(&replica).await?, ["1"]);
    assert!(replica.is_replica().await? && !primary.is_replica().await?);
    let refused = refusal(replica.sql("INSERT INTO t VALUES (0)").await);
    assert!(refused.contains("read-only transaction"), "{refused}");

    primary.sql("INSERT INTO t VALUES (2)").await?;
    replica.has_caught_up_with(&primary).await?;
    assert_eq!(numbers(&replica).await?, ["1", "2"]);

    replica.pause_replay().await?;
    primary.sql("INSERT INTO t VALUES (3)").await?;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(numbers(&replica).await?, ["1", "2"]);
    replica.resume_replay().await?;
    replica.has_caught_up_with(&primary).await?;
    assert_eq!(numbers(&replica).await?, ["1", "2", "3"]);

    replica.cut_off().await?;
    primary.sql("INSERT INTO t VALUES (4)").await?;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(numbers(&replica).await?, ["1", "2", "3"]);
    replica.join_again().await?;
    replica.has_caught_up_with(&primary).await?;
    assert_eq!(numbers(&replica).await?, ["1", "2", "3", "4"]);

    replica.cut_off().await?;
    primary.sql("INSERT INTO t VALUES (5)").await?;
    primary.kill().await?;
    replica.promote().await?;
    replica.sql("INSERT INTO t VALUES (6)").await?;
    assert_eq!(numbers(&replica).await?, ["1", "2", "3", "4", "6"]);
    assert!(!replica.is_replica().await?);
    // It is a primary after a restart too.
    replica.stop().await?;
    replica.start_again().await?;
    replica.sql("INSERT INTO t VALUES (7)").await?;
    Ok(())
}

/// Not a test by itself: the process that the next test kills.
#[tokio::test]
#[ignore = "is run by server_ends_with_a_killed_test_process"]
async fn process_that_is_killed() -> Outcome {
    let server = PostgresServer::start().await?;
    // A halted child would not notice the end of its parent.
    server.pause()?;
    println!("{MARK}{}", server.folder().display());
    std::future::pending().await
}

#[tokio::test]
async fn server_ends_with_a_killed_test_process() -> Outcome {
    server_is_gone_after_a_kill_of("databases::postgres::process_that_is_killed").await
}
