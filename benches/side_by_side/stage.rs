//! One real server, and the ways to it.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use test_rig::{FaultProxy, ZooKeeperServer};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

use super::crowd;

/// The delay of the distant way in each direction.
const EACH_WAY: Duration = Duration::from_micros(500);
/// After this long without a change, no change is expected.
const QUIET: Duration = Duration::from_millis(300);
/// The longest queue forms within this time.
const PATIENCE: Duration = Duration::from_secs(240);
/// The proxy logs each frame. In its own process nothing reads that log, so it is cleared.
const FORGET_EVERY: Duration = Duration::from_millis(100);
/// The first argument of the process that is the proxy.
pub(crate) const PROXY: &str = "proxy";

/// How the server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Over loopback.
    Local,
    /// Over loopback and a proxy that delays.
    Distant,
    /// Over loopback and a proxy that counts.
    Counted,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Distant => "1.5 ms",
            Self::Counted => "counted",
        })
    }
}

pub(crate) struct Stage {
    pub(crate) server: ZooKeeperServer,
    pub(crate) counting: FaultProxy,
    distant: ProxyProcess,
    operator: Client,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        // Directories that are empty between two cycles are not deleted, so no raw create fails.
        let server =
            ZooKeeperServer::builder().property("znode.container.checkIntervalMs", "3600000");
        let server = server.max_session_timeout(crowd::SESSION_TIMEOUT);
        let server = server.heap_mib(1024).optimized().start().await.unwrap();
        let upstream = server.connect_string();
        Self {
            counting: FaultProxy::start(&upstream).await.unwrap(),
            distant: ProxyProcess::start(&upstream).await,
            operator: server.client().await.unwrap(),
            server,
        }
    }

    pub(crate) fn connect_string(&self, way: Way) -> String {
        match way {
            Way::Local => self.server.connect_string(),
            Way::Distant => self.distant.connect_string.clone(),
            Way::Counted => self.counting.connect_string(),
        }
    }

    /// Waits until this many contenders are in the queue and all of them wait.
    pub(crate) async fn queued(&self, path: &str, contenders: usize) {
        let quiet = async {
            let mut before = None;
            loop {
                let stat = self.operator.check_stat(path).await.unwrap();
                let length = stat.map_or(0, |it| it.num_children);
                // A server with many listings to send does not answer.
                let watches = self.server.watch_count().await.ok();
                let now = watches.map(|watches| (length, watches));
                let is_complete = usize::try_from(length).unwrap() == contenders;
                if is_complete && now.is_some() && now == before {
                    return;
                }
                before = now;
                sleep(QUIET).await;
            }
        };
        let formed = timeout(PATIENCE, quiet).await;
        formed.expect("the queue does not form");
    }

    /// Waits until the counting proxy has logged all frames.
    pub(crate) async fn noted(&self) {
        let mut before = None;
        loop {
            let now = Some(self.counting.log().len());
            if now == before {
                return;
            }
            before = now;
            sleep(QUIET).await;
        }
    }
}

/// A proxy in a process of its own, so that it takes no time from the sides.
struct ProxyProcess {
    connect_string: String,
    /// The process ends when its standard input is closed.
    _process: Child,
}

impl ProxyProcess {
    async fn start(upstream: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([PROXY, upstream]).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            connect_string: lines.next_line().await.unwrap().unwrap(),
            _process: process,
        }
    }
}

/// Runs the proxy's process: prints where it listens, and ends when its standard input is closed.
pub(crate) async fn proxy(upstream: &str) {
    let proxy = FaultProxy::start(upstream).await.unwrap();
    proxy.set_latency(EACH_WAY);
    println!("{}", proxy.connect_string());
    let mut closed = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    while timeout(FORGET_EVERY, &mut closed).await.is_err() {
        proxy.clear_log();
    }
}
