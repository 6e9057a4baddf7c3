//! Real servers start, fail, restart and end, and report what tests need to know.
#![cfg(unix)]

use std::error::Error;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use test_rig::{ServerError, ZooKeeperEnsemble, ZooKeeperServer};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, SessionState, StateWatcher};

type Outcome = Result<(), Box<dyn Error>>;

/// Far more than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(30);

async fn create(client: &Client, path: &str, mode: CreateMode) -> Result<(), Box<dyn Error>> {
    client
        .create(path, b"data", &mode.with_acls(Acls::anyone_all()))
        .await?;
    Ok(())
}

async fn exists(client: &Client, path: &str) -> Result<bool, Box<dyn Error>> {
    Ok(client.check_stat(path).await?.is_some())
}

/// The session that created the node. The client does not show its number anywhere else.
async fn session_of(client: &Client, path: &str) -> Result<i64, Box<dyn Error>> {
    let (_, stat) = client.get_data(path).await?;
    Ok(stat.ephemeral_owner)
}

fn folder_of(server: &ZooKeeperServer) -> Result<PathBuf, Box<dyn Error>> {
    Ok(server.log_path().parent().ok_or("no folder")?.to_path_buf())
}

async fn until_expired(states: &mut StateWatcher, patience: Duration) -> Outcome {
    let end = async { while states.changed().await != SessionState::Expired {} };
    Ok(timeout(patience, end).await?)
}

#[tokio::test]
async fn server_serves_a_client() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    assert_eq!(
        server.connect_string(),
        format!("127.0.0.1:{}", server.port())
    );
    let client = server.client().await?;
    create(&client, "/node", CreateMode::Ephemeral).await?;
    assert!(exists(&client, "/node").await?);
    assert_eq!(server.four_letter("ruok").await?, "imok");
    Ok(())
}

#[tokio::test]
async fn servers_run_side_by_side() -> Outcome {
    let servers = futures::future::try_join_all([(); 3].map(|()| ZooKeeperServer::start())).await?;
    for (index, server) in servers.iter().enumerate() {
        create(
            &server.client().await?,
            &format!("/of-{index}"),
            CreateMode::Persistent,
        )
        .await?;
    }
    for (index, server) in servers.iter().enumerate() {
        let children = server.client().await?.list_children("/").await?;
        let own: Vec<_> = children
            .iter()
            .filter(|name| name.starts_with("of-"))
            .collect();
        assert_eq!(own, [&format!("of-{index}")]);
    }
    Ok(())
}

#[tokio::test]
async fn restart_keeps_port_and_data() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    let (port, pid) = (server.port(), server.pid());
    create(&server.client().await?, "/kept", CreateMode::Persistent).await?;
    server.restart().await?;
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert!(exists(&server.client().await?, "/kept").await?);
    Ok(())
}

#[tokio::test]
async fn session_outlives_the_kill_of_its_server() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    let client = server.client().await?;
    create(&client, "/held", CreateMode::Ephemeral).await?;
    server.kill().await?;
    server.kill().await?;
    assert_eq!(server.pid(), None);
    assert!(matches!(
        server.four_letter("ruok").await,
        Err(ServerError::NotRunning { .. })
    ));
    server.start_again().await?;
    server.start_again().await?;
    assert!(timeout(PATIENCE, exists(&client, "/held")).await??);
    Ok(())
}

#[tokio::test]
async fn session_outlives_the_stop_of_its_server() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    let client = server.client().await?;
    create(&client, "/held", CreateMode::Ephemeral).await?;
    server.stop().await?;
    server.start_again().await?;
    assert!(timeout(PATIENCE, exists(&client, "/held")).await??);
    Ok(())
}

#[tokio::test]
async fn stop_of_a_paused_server_ends_it() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    server.pause()?;
    server.stop().await?;
    server.stop().await?;
    assert_eq!(server.pid(), None);
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
async fn paused_server_answers_after_resume_only() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    let client = server.client().await?;
    server.pause()?;
    server.pause()?;
    let mut request = std::pin::pin!(exists(&client, "/zookeeper"));
    // Not a synchronization: a server that runs would have answered many times by then.
    assert!(
        timeout(Duration::from_millis(100), &mut request)
            .await
            .is_err()
    );
    server.resume()?;
    server.resume()?;
    assert!(timeout(PATIENCE, request).await??);
    Ok(())
}

#[tokio::test]
async fn expire_deletes_the_ephemeral_nodes_at_once_and_tells_the_owner() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    let (owner, observer) = (server.client().await?, server.client().await?);
    create(&owner, "/held", CreateMode::Ephemeral).await?;
    let session_id = session_of(&owner, "/held").await?;
    let mut states = owner.state_watcher();
    server.expire(session_id).await?;
    assert!(!exists(&observer, "/held").await?);
    until_expired(&mut states, PATIENCE).await?;

    let again = server.expire(session_id).await;
    assert!(
        matches!(again, Err(ServerError::NoSession { .. })),
        "{again:?}"
    );
    Ok(())
}

#[tokio::test]
async fn zxid_moves_on_a_write_and_not_on_a_read() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    let client = server.client().await?;
    let before = server.zxid().await?;
    client.list_children("/").await?;
    assert_eq!(server.zxid().await?, before);
    create(&client, "/node", CreateMode::Persistent).await?;
    assert_eq!(server.zxid().await?, before + 1);
    Ok(())
}

#[tokio::test]
async fn watch_count_counts_watches() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    let client = server.client().await?;
    assert_eq!(server.watch_count().await?, 0);
    let (_, watcher) = client.check_and_watch_stat("/node").await?;
    assert_eq!(server.watch_count().await?, 1);
    create(&client, "/node", CreateMode::Persistent).await?;
    watcher.changed().await;
    assert_eq!(server.watch_count().await?, 0);
    Ok(())
}

#[tokio::test]
async fn options_reach_the_server() -> Outcome {
    let builder = ZooKeeperServer::builder()
        .min_session_timeout(Duration::from_secs(20))
        .property("zookeeper.digest.enabled", "false")
        .config("snapCount", "77777");
    let server = builder.start().await?;
    // It requests six seconds.
    let client = zookeeper_client::Client::connect(&server.connect_string()).await?;
    assert_eq!(client.session_timeout(), Duration::from_secs(20));
    let log = std::fs::read_to_string(server.log_path())?;
    assert!(log.contains("zookeeper.digest.enabled = false"), "{log}");
    Ok(())
}

#[tokio::test]
async fn reaped_container_shows_that_system_properties_work() -> Outcome {
    let builder = ZooKeeperServer::builder().property("znode.container.checkIntervalMs", "50");
    let server = builder.start().await?;
    let client = server.client().await?;
    create(&client, "/queue", CreateMode::Container).await?;
    create(&client, "/queue/node", CreateMode::Ephemeral).await?;
    let (_, watcher) = client.check_and_watch_stat("/queue").await?;
    client.delete("/queue/node", None).await?;
    timeout(PATIENCE, watcher.changed()).await?;
    assert!(!exists(&client, "/queue").await?);
    Ok(())
}

#[tokio::test]
async fn wrong_option_is_reported_with_the_log() {
    let error = ZooKeeperServer::builder()
        .config("tickTime", "soon")
        .start()
        .await
        .unwrap_err();
    let ServerError::Ended { log, .. } = &error else {
        panic!("{error}")
    };
    assert!(log.contains("soon"), "{log}");
}

#[tokio::test]
async fn drop_ends_the_process_and_removes_its_files() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    let pid = server
        .pid()
        .and_then(|pid| Pid::from_raw(pid.try_into().ok()?))
        .ok_or("no pid")?;
    let folder = folder_of(&server)?;
    assert!(test_kill_process(pid).is_ok() && folder.exists());
    drop(server);
    assert!(test_kill_process(pid).is_err());
    assert!(!folder.exists());
    Ok(())
}

#[tokio::test]
async fn ensemble_survives_the_kill_of_its_leader() -> Outcome {
    let ensemble = ZooKeeperEnsemble::start(3).await?;
    assert_eq!(ensemble.connect_string().split(',').count(), 3);
    let client = ensemble.client().await?;
    create(&client, "/kept", CreateMode::Persistent).await?;
    let first = ensemble.leader().await?;
    ensemble.kill(first).await?;
    let second = ensemble.leader().await?;
    assert_ne!(first, second);
    assert!(exists(&ensemble.server(second).client().await?, "/kept").await?);

    ensemble.start_again(first).await?;
    let back = ensemble.server(first).client().await?;
    back.sync("/").await?;
    assert!(exists(&back, "/kept").await?);
    Ok(())
}

#[tokio::test]
async fn ensemble_comes_back_from_a_lost_quorum() -> Outcome {
    let ensemble = ZooKeeperEnsemble::start(3).await?;
    create(&ensemble.client().await?, "/kept", CreateMode::Persistent).await?;
    for index in 0..3 {
        ensemble.kill(index).await?;
    }
    for index in 0..3 {
        ensemble.start_again(index).await?;
    }
    ensemble.leader().await?;
    assert!(exists(&ensemble.client().await?, "/kept").await?);
    Ok(())
}

#[tokio::test]
async fn ensemble_expires_a_session_on_whichever_server_it_is() -> Outcome {
    const SESSION_TIMEOUT: Duration = Duration::from_secs(120);
    let builder = ZooKeeperServer::builder().max_session_timeout(SESSION_TIMEOUT);
    let ensemble = builder.start_ensemble(3).await?;
    for server in ensemble.servers() {
        let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
        let owner = connector.connect(&server.connect_string()).await?;
        create(&owner, "/held", CreateMode::Ephemeral).await?;
        let mut states = owner.state_watcher();
        ensemble.expire(session_of(&owner, "/held").await?).await?;
        // Long before the client misses the reply to a heartbeat, which is due after a third of its
        // timeout.
        until_expired(&mut states, SESSION_TIMEOUT / 4).await?;
        let observer = server.client().await?;
        observer.sync("/").await?;
        assert!(!exists(&observer, "/held").await?);
    }
    Ok(())
}

#[tokio::test]
async fn ensemble_has_a_size() {
    for size in [0, 10] {
        let refused = ZooKeeperEnsemble::start(size).await;
        assert!(matches!(refused, Err(ServerError::Size(refused)) if refused == size));
    }
}

/// Not a test by itself: the process that the next test kills.
#[tokio::test]
#[ignore = "is run by server_ends_with_a_killed_test_process"]
async fn process_that_is_killed() -> Outcome {
    let server = ZooKeeperServer::start().await?;
    // To a group of processes that loses its last parent while one of them is halted, the kernel sends
    // the signal that a terminal sends when it closes.
    server.pause()?;
    println!("{MARK}{}", folder_of(&server)?.display());
    std::future::pending().await
}

const MARK: &str = "folder of the server: ";

#[tokio::test]
async fn server_ends_with_a_killed_test_process() -> Outcome {
    let mut process = Command::new(std::env::current_exe()?)
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "server::process_that_is_killed",
        ])
        .process_group(0)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(process.stdout.take().ok_or("no output")?).lines();
    let folder = loop {
        let line = lines.next_line().await?.ok_or("no server")?;
        // The harness prints the name of the test before it on the same line.
        if let Some((_, folder)) = line.split_once(MARK) {
            break PathBuf::from(folder);
        }
    };
    assert!(folder.exists());
    process.kill().await?;
    let gone = async {
        // The watcher, which removes the folder after the server's end, is no child of this
        // process.
        while folder.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    Ok(timeout(PATIENCE, gone).await?)
}
