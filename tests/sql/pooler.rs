//! A pooler that shares connections stands in between.

use std::process::Stdio;
use std::time::Duration;

use lock_recipes::{InterProcessMutex, Postgres, Session};
use tempfile::TempDir;
use test_rig::{PostgresServer, TestEnsemble};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::PATIENCE;

const PATH: &str = "/locks/orders";

/// PgBouncer in front of a server, which lends a connection for a transaction. Killed when dropped.
pub(super) struct Pooler {
    _process: Child,
    _folder: TempDir,
    url: String,
}

impl Pooler {
    async fn before(server: &PostgresServer) -> Self {
        Self::before_as(server, "user=postgres").await
    }

    /// The user, and what else is said of its connections to the server.
    pub(super) async fn before_as(server: &PostgresServer, user: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n\
             unix_socket_dir =\nignore_startup_parameters = extra_float_digits\n",
            server.port()
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(
            &file,
            settings.replace("* =", &format!("postgres = {user}")),
        )
        .unwrap();
        let program = match std::path::Path::new("/usr/sbin/pgbouncer").exists() {
            true => "/usr/sbin/pgbouncer",
            false => "pgbouncer",
        };
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            // It refuses to be root.
            command.args(["-u", "nobody"]);
            std::fs::set_permissions(
                folder.path(),
                std::os::unix::fs::PermissionsExt::from_mode(0o755),
            )
            .unwrap();
        }
        command.arg(&file).stdin(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().unwrap();
        let listens = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, listens).await.unwrap();
        Self {
            _process: process,
            _folder: folder,
            url: server.url_at(&format!("127.0.0.1:{port}")),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    async fn session(&self) -> Session {
        let options = Postgres::builder().session_timeout(Duration::from_secs(20));
        options.new_server().connect(&self.url).await.unwrap()
    }
}

/// It keeps the connections of its clients when the server behind it is another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_may_have_forgotten_locks_is_noticed_behind_a_pooler() {
    let server = PostgresServer::builder().setting("fsync", "off");
    let server = server.start().await.unwrap();
    let pooler = Pooler::before(&server).await;
    let session = pooler.session().await;
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    let guard = timeout(PATIENCE, lock.acquire()).await.unwrap().unwrap();
    let waited = "SELECT quarantine > 0 FROM lock_recipes.clock";
    assert_eq!(server.sql(waited).await.unwrap(), [["t"]]);
    guard.release().await.unwrap();
}

/// Four connections for six sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_work_through_a_pooler_that_shares_connections() {
    let server = PostgresServer::start().await.unwrap();
    let pooler = Pooler::before(&server).await;
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(pooler.session().await);
    }
    let lock = |session: &Session| InterProcessMutex::new(session, PATH).unwrap();
    let guard = lock(&sessions[0]).acquire().await.unwrap();
    let mut token = guard.fencing_token();
    let waiters: Vec<_> = sessions[1..]
        .iter()
        .map(|session| tokio::spawn(lock(session).acquire()))
        .collect();
    let ensemble = TestEnsemble::Postgres(server.into());
    ensemble.await_children(PATH, 6).await;
    guard.release().await.unwrap();
    let mut guards = Vec::new();
    for waiter in waiters {
        // In whatever order they have joined, each is granted once the one before is released.
        guards.push(tokio::spawn(async move {
            let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
            let token = guard.fencing_token();
            guard.release().await.unwrap();
            token
        }));
    }
    let mut tokens = Vec::new();
    for guard in guards {
        tokens.push(guard.await.unwrap());
    }
    tokens.sort_unstable();
    for next in tokens {
        assert!(next > token);
        token = next;
    }
    ensemble.await_children(PATH, 0).await;
    for session in sessions {
        session.close().await;
    }
}
