//! etcd's servers start, fail, halt, restart and end; clusters elect, are cut, and replace members.
#![cfg(unix)]

use std::error::Error;
use std::time::Duration;

use futures::FutureExt as _;
use test_rig::{EtcdCluster, EtcdServer, ServerError};
use tokio::time::{sleep, timeout};

use super::databases::{certificate, refusal};

type Outcome = Result<(), Box<dyn Error>>;

/// Far more than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
const A_MOMENT: Duration = Duration::from_millis(20);

async fn put(server: &EtcdServer, key: &str, value: &str) -> Result<(), ServerError> {
    server.command(&["put", key, value]).await.map(drop)
}

async fn get(server: &EtcdServer, key: &str) -> Result<String, ServerError> {
    let words = ["get", key, "--print-value-only"];
    server.command(&words).await.map(|it| it.trim().to_owned())
}

/// What the server itself knows, whatever a majority has decided meanwhile.
async fn get_here(server: &EtcdServer, key: &str) -> Result<String, ServerError> {
    let words = ["get", key, "--print-value-only", "--consistency=s"];
    server.command(&words).await.map(|it| it.trim().to_owned())
}

#[tokio::test]
async fn servers_run_side_by_side() -> Outcome {
    let servers = futures::future::try_join_all([(); 3].map(|()| EtcdServer::start())).await?;
    for (index, server) in servers.iter().enumerate() {
        put(server, "key", &index.to_string()).await?;
    }
    for (index, server) in servers.iter().enumerate() {
        assert_eq!(get(server, "key").await?, index.to_string());
        assert_eq!(server.url(), format!("etcd://127.0.0.1:{}", server.port()));
    }
    let refused = refusal(servers[0].command(&["lease", "revoke", "7"]).await);
    assert!(refused.contains("requested lease not found"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn restart_keeps_port_and_data() -> Outcome {
    let server = EtcdServer::start().await?;
    let port = server.port();
    put(&server, "key", "1").await?;
    server.kill().await?;
    assert!(server.pid().is_none());
    let refused = get(&server, "key").await;
    assert!(matches!(refused, Err(ServerError::NotRunning { .. })));
    server.start_again().await?;
    assert_eq!(
        (get(&server, "key").await?.as_str(), server.port()),
        ("1", port)
    );
    server.stop().await?;
    server.start_again().await?;
    assert_eq!(get(&server, "key").await?, "1");
    Ok(())
}

#[tokio::test]
async fn paused_server_answers_after_resume_only() -> Outcome {
    let server = EtcdServer::start().await?;
    server.pause()?;
    {
        let mut answer = std::pin::pin!(put(&server, "key", "1"));
        let early = timeout(Duration::from_millis(300), &mut answer).await;
        assert!(early.is_err());
        server.resume()?;
        timeout(PATIENCE, answer).await??;
    }
    server.pause()?;
    server.stop().await?;
    assert!(server.pid().is_none());
    Ok(())
}

#[tokio::test]
async fn requests_are_counted() -> Outcome {
    const PUTS: &str = "grpc_server_started_total{grpc_method=\"Put\"";
    let server = EtcdServer::start().await?;
    let before = server.metric(PUTS).await?;
    put(&server, "key", "1").await?;
    put(&server, "key", "2").await?;
    assert!((server.metric(PUTS).await? - before - 2.0).abs() < 0.1);
    Ok(())
}

#[tokio::test]
async fn wrong_option_is_reported_with_the_log() {
    let server = EtcdServer::builder().setting("no-such-flag", "1");
    let error = server.start().await.unwrap_err();
    let ServerError::Ended { log, .. } = &error else {
        panic!("{error}");
    };
    assert!(log.contains("no-such-flag"), "{log}");
}

#[tokio::test]
async fn drop_ends_the_process_and_removes_its_files() -> Outcome {
    let server = EtcdServer::start().await?;
    let folder = server.folder().to_owned();
    assert!(folder.exists());
    drop(server);
    assert!(!folder.exists());
    Ok(())
}

#[tokio::test]
async fn client_with_tls_is_served() -> Outcome {
    let folder = tempfile::tempdir()?;
    let [certificate, key] = certificate(folder.path())?;
    let server = EtcdServer::builder()
        .tls(&certificate, &key)
        .start()
        .await?;
    put(&server, "key", "1").await?;
    assert_eq!(get(&server, "key").await?, "1");
    Ok(())
}

#[tokio::test]
async fn cluster_survives_the_kill_of_its_leader() -> Outcome {
    let cluster = EtcdCluster::start(3).await?;
    assert_eq!(cluster.url().matches("127.0.0.1").count(), 3);
    let leader = cluster.leader().await?;
    put(cluster.server(leader), "key", "1").await?;
    cluster.kill(leader).await?;
    let next = cluster.leader().await?;
    assert_ne!(next, leader);
    put(cluster.server(next), "key", "2").await?;
    cluster.start_again(leader).await?;
    assert_eq!(get(cluster.server(leader), "key").await?, "2");
    Ok(())
}

#[tokio::test]
async fn cluster_comes_back_from_a_lost_majority() -> Outcome {
    let cluster = EtcdCluster::start(3).await?;
    put(cluster.server(0), "key", "1").await?;
    cluster.kill(0).await?;
    cluster.kill(1).await?;
    cluster.server(2).pause()?;
    assert!(cluster.leader().now_or_never().is_none());
    // Nobody can be a leader's majority, and it does not wait for one.
    cluster.start_again(0).await?;
    cluster.server(2).resume()?;
    cluster.start_again(1).await?;
    cluster.leader().await?;
    assert_eq!(get(cluster.server(1), "key").await?, "1");
    Ok(())
}

#[tokio::test]
async fn leader_hands_its_office_to_the_chosen_member() -> Outcome {
    let cluster = EtcdCluster::start(3).await?;
    for _ in 0..3 {
        let next = (cluster.leader().await? + 1) % 3;
        // It returns once this one leads. The next election may come at any time.
        cluster.move_leader(next).await?;
    }
    Ok(())
}

#[tokio::test]
async fn leader_that_is_cut_off_is_deposed_and_still_answers_clients() -> Outcome {
    let cluster = EtcdCluster::builder().links().start_cluster(3).await?;
    let old = cluster.leader().await?;
    put(cluster.server(old), "key", "1").await?;
    cluster.cut_off(old);
    let new = cluster.leader().await?;
    assert_ne!(new, old);
    put(cluster.server(new), "key", "2").await?;
    // It knows nothing of it, and cannot ask.
    assert_eq!(get_here(cluster.server(old), "key").await?, "1");
    let words = ["get", "key", "--command-timeout=1s"];
    assert!(cluster.server(old).command(&words).await.is_err());
    let third = 3 - old - new;
    assert_eq!(get(cluster.server(third), "key").await?, "2");
    // A member that comes back finds the others, but not the one that is cut off.
    cluster.restart(third).await?;
    assert_eq!(get(cluster.server(third), "key").await?, "2");
    cluster.join_again(old);
    let learned = async {
        while get_here(cluster.server(old), "key").await? != "2" {
            sleep(A_MOMENT).await;
        }
        Ok(())
    };
    timeout(PATIENCE, learned).await?
}

#[tokio::test]
async fn member_without_a_majority_leads_nobody() -> Outcome {
    let cluster = EtcdCluster::builder().links().start_cluster(3).await?;
    let leader = cluster.leader().await?;
    let rest: Vec<_> = (0..3).filter(|it| *it != leader).collect();
    cluster.cut_off_together(&rest);
    let next = cluster.leader().await?;
    assert_ne!(next, leader);
    put(cluster.server(next), "key", "1").await?;
    rest.iter().for_each(|it| cluster.join_again(*it));
    assert_eq!(get(cluster.server(leader), "key").await?, "1");
    Ok(())
}

#[tokio::test]
async fn replaced_members_have_what_was_written_before() -> Outcome {
    let cluster = EtcdCluster::builder().links().start_cluster(3).await?;
    let before = cluster.url();
    put(cluster.server(0), "key", "1").await?;
    let leader = cluster.leader().await?;
    cluster.replace(leader).await?;
    let follower = (cluster.leader().await? + 1) % 3;
    cluster.kill(follower).await?;
    cluster.replace(follower).await?;
    assert_eq!(cluster.url(), before);
    for index in [leader, follower] {
        assert_eq!(get(cluster.server(index), "key").await?, "1");
    }
    // The links know the new ones.
    let leader = cluster.leader().await?;
    cluster.cut_off(leader);
    assert_ne!(cluster.leader().await?, leader);
    Ok(())
}

#[tokio::test]
async fn cluster_has_a_size() {
    for size in [0, 10] {
        let error = EtcdCluster::start(size).await.unwrap_err();
        assert!(
            matches!(error, ServerError::Size(it) if it == size),
            "{error}"
        );
    }
}
