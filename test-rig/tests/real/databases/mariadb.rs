//! MariaDB.

use test_rig::{Durability, MariaDbServer};

use super::*;

const TABLE: &str = "CREATE TABLE t (number int)";

async fn numbers(server: &MariaDbServer) -> Result<Vec<String>, ServerError> {
    let rows = server.sql("SELECT number FROM t ORDER BY 1").await?;
    Ok(rows.into_iter().flatten().collect())
}

#[tokio::test]
async fn servers_run_side_by_side_and_carry_out_statements() -> Outcome {
    let servers = futures::future::try_join_all([(); 3].map(|()| MariaDbServer::start())).await?;
    for (index, server) in servers.iter().enumerate() {
        let text = format!(
            "CREATE TABLE of_{index} (a int, b text);
             INSERT INTO of_{index} VALUES (1, 'two\\n\"lines\",\\tand\\\\'), (2, NULL);
             SELECT * FROM of_{index} ORDER BY a; SELECT true"
        );
        let expected = [
            vec!["1", "two\n\"lines\",\tand\\"],
            vec!["2", "NULL"],
            vec!["1"],
        ];
        assert_eq!(server.sql(&text).await?, expected);
    }
    for (index, server) in servers.iter().enumerate() {
        assert_eq!(server.sql("SHOW TABLES").await?, [[format!("of_{index}")]]);
    }
    let server = &servers[0];
    server
        .sql("CREATE PROCEDURE twice(n int) BEGIN SELECT n; SELECT 2 * n; END -- so it is")
        .await?;
    assert_eq!(server.sql("CALL twice(4)").await?, [["4"], ["8"]]);
    let refused = refusal(server.sql("SELECT 1; SELECT * FROM nowhere").await);
    assert!(
        refused.contains("'locks.nowhere' doesn't exist"),
        "{refused}"
    );
    Ok(())
}

#[tokio::test]
async fn stop_and_kill_keep_port_and_data() -> Outcome {
    let server = MariaDbServer::start().await?;
    let (port, pid) = (server.port(), server.pid());
    server.sql(TABLE).await?;
    server.sql("INSERT INTO t VALUES (1)").await?;
    // A client that stays does not keep it from ending.
    let waiting = server.sql("INSERT INTO t VALUES (9); SELECT SLEEP(60)");
    let stopped = async {
        let running = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                       WHERE ID <> CONNECTION_ID() AND INFO LIKE 'SELECT SLEEP%'";
        while server.sql(running).await? != [["1"]] {
            tokio::time::sleep(A_MOMENT).await;
        }
        Ok::<_, Box<dyn Error>>(server.stop().await?)
    };
    let (waited, stopped) = timeout(PATIENCE, async { tokio::join!(waiting, stopped) }).await?;
    stopped?;
    assert!(waited.is_err());
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
    assert_eq!((server.pid(), processes_of(server.folder())?), (None, 0));
    server.start_again().await?;
    assert_eq!(numbers(&server).await?, ["1", "2", "9"]);
    Ok(())
}

#[tokio::test]
async fn paused_server_answers_nobody_until_it_is_resumed() -> Outcome {
    let server = MariaDbServer::start().await?;
    server.sql(TABLE).await?;
    assert!(greets(server.port(), PATIENCE).await?);
    let connected = server.sql("SELECT SLEEP(3); INSERT INTO t VALUES (1)");
    let mut connected = std::pin::pin!(connected);
    assert!(timeout(A_WHILE / 2, &mut connected).await.is_err());
    server.pause()?;
    server.pause()?;
    assert!(timeout(2 * A_WHILE, &mut connected).await.is_err());
    assert!(!greets(server.port(), A_WHILE).await?);
    server.resume()?;
    server.resume()?;
    timeout(PATIENCE, connected).await??;
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
    Ok(())
}

#[tokio::test]
async fn late_commit_is_forgotten_by_a_kill_and_others_are_not() -> Outcome {
    for (durability, expected) in [
        (Durability::Late, &["1"][..]),
        (Durability::Written, &["1", "2"]),
        (Durability::Flushed, &["1", "2"]),
    ] {
        let server = MariaDbServer::builder()
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
    let server = MariaDbServer::builder()
        .setting("innodb_lock_wait_timeout", "7")
        .max_connections(12)
        .read_only()
        .user("clerk", "it's a \\ 'secret'")
        .start()
        .await?;
    let shown = "SELECT @@innodb_lock_wait_timeout, @@max_connections, @@read_only";
    assert_eq!(server.sql(shown).await?, [["7", "12", "1"]]);
    let as_clerk = |password: &str, statement: &str| {
        let client = Command::new("mariadb")
            .args(["--no-defaults", "-NB", "-h", "127.0.0.1", "-u", "clerk"])
            .args(["-P", &server.port().to_string(), "-e", statement])
            .env("MYSQL_PWD", password)
            .output();
        client.map(|it| String::from_utf8_lossy(&[it.stdout, it.stderr].concat()).into_owned())
    };
    let secret = "it's a \\ 'secret'";
    assert_eq!(as_clerk(secret, "SELECT 1")?, "1\n");
    assert!(as_clerk("wrong", "SELECT 1")?.contains("Access denied"));
    server.sql("GRANT ALL ON locks.* TO clerk").await?;
    let refused = as_clerk(secret, "CREATE TABLE locks.t (a int)")?;
    assert!(refused.contains("--read-only"), "{refused}");
    server.set_read_only(false).await?;
    assert_eq!(as_clerk(secret, "CREATE TABLE locks.t (a int)")?, "");
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
    let server = MariaDbServer::builder()
        .tls(&certificate, &key)
        .start()
        .await?;
    let asked = Command::new("mariadb")
        .args([
            "--no-defaults",
            "-NB",
            "-h",
            "127.0.0.1",
            "-u",
            "root",
            "--ssl",
        ])
        .args([
            "-P",
            &server.port().to_string(),
            "-e",
            "SHOW STATUS LIKE 'Ssl_version'",
        ])
        .output()?;
    let asked = String::from_utf8(asked.stdout)?;
    assert!(asked.contains("TLS"), "{asked}");
    Ok(())
}

#[tokio::test]
async fn folder_is_where_it_shall_be_and_goes_with_the_server() -> Outcome {
    let parent = tempfile::tempdir()?;
    let server = MariaDbServer::builder()
        .folder_in(parent.path())
        .start()
        .await?;
    let (folder, pid) = (server.folder().to_owned(), server.pid().ok_or("no pid")?);
    assert!(folder.starts_with(parent.path()) && is_running(pid)?);
    drop(server);
    assert!(!folder.exists() && !is_running(pid)?);
    Ok(())
}

#[tokio::test]
async fn wrong_option_is_reported_with_the_log() {
    let builder = MariaDbServer::builder().setting("innodb_page_size", "17");
    let error = builder.start().await.unwrap_err();
    let ServerError::Ended { log, .. } = &error else {
        panic!("{error}")
    };
    assert!(
        log.contains("innodb_page_size") || log.contains("innodb-page-size"),
        "{log}"
    );
}

/// Not a test by itself: the process that the next test kills.
#[tokio::test]
#[ignore = "is run by server_ends_with_a_killed_test_process"]
async fn process_that_is_killed() -> Outcome {
    let server = MariaDbServer::start().await?;
    println!("{MARK}{}", server.folder().display());
    std::future::pending().await
}

#[tokio::test]
async fn server_ends_with_a_killed_test_process() -> Outcome {
    server_is_gone_after_a_kill_of("databases::mariadb::process_that_is_killed").await
}
