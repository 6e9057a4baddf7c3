//! Members that serve no clients.

use std::process::Stdio;
use std::time::Duration;

use test_rig::EtcdCluster;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::{PATIENCE, mutex, options, shell};

fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// Starts a fourth member that only learns, which is killed when it is dropped. Returns its address for clients.
async fn learner(cluster: &EtcdCluster) -> (Child, String) {
    let leader = cluster.server(cluster.leader().await.unwrap());
    let (clients, peers) = (free_port(), free_port());
    let peers = format!("http://127.0.0.1:{peers}");
    let added = shell(
        leader,
        &format!("member add learner --learner --peer-urls={peers}"),
    )
    .await;
    let setting = |name: &str| {
        let line = added.lines().find_map(|it| it.strip_prefix(name)).unwrap();
        line.trim_matches(['=', '"']).to_owned()
    };
    let clients = format!("127.0.0.1:{clients}");
    let program = leader.client().with_file_name("etcd");
    let process = Command::new(program)
        .arg("--name=learner")
        .arg(format!("--data-dir={}/learner", leader.folder().display()))
        .arg(format!("--listen-client-urls=http://{clients}"))
        .arg(format!("--advertise-client-urls=http://{clients}"))
        .arg(format!("--listen-peer-urls={peers}"))
        .arg(format!("--initial-advertise-peer-urls={peers}"))
        .arg(format!(
            "--initial-cluster={}",
            setting("ETCD_INITIAL_CLUSTER=")
        ))
        .arg("--initial-cluster-state=existing")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    (process, clients)
}

/// A member that learns refuses clients, and has no part in a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_that_only_learns_is_passed_over_on_etcd() {
    let cluster = EtcdCluster::start(1).await.unwrap();
    let (_process, learner) = learner(&cluster).await;
    let answers = async {
        while tokio::net::TcpStream::connect(&learner).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, answers).await.unwrap();
    let alone = options().connect_timeout(Duration::from_millis(500));
    alone
        .connect(&format!("etcd://{learner}"))
        .await
        .unwrap_err();
    let others = cluster.server(0).address();
    let url = format!("etcd://{learner},{others}");
    let session = options().connect(&url).await.unwrap();
    let guard = mutex(&session).acquire().await.unwrap();
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
}
