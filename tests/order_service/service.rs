//! Processes of the example service.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use futures::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

/// The example's executable. `cargo test` builds it before it runs anything; `--test order_service`
/// alone does not, so it is built here where it is missing or older than its sources.
fn executable() -> &'static Path {
    static EXECUTABLE: LazyLock<PathBuf> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let executable = profile.join("examples/order_service");
        if !is_up_to_date(&executable) {
            build_into(profile);
        }
        assert!(
            executable.exists(),
            "{executable:?} is missing: run `cargo build --example order_service`"
        );
        executable
    });
    &EXECUTABLE
}

/// Cargo lists the sources of an executable in a file beside it: `executable: source source ...`.
fn is_up_to_date(executable: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|it| it.modified());
    let sources = std::fs::read_to_string(executable.with_extension("d")).unwrap_or_default();
    let (Ok(built), Some((_, sources))) = (changed(executable), sources.split_once(": ")) else {
        return false;
    };
    let mut sources = sources.split_whitespace().map(Path::new);
    sources.all(|source| changed(source).is_ok_and(|changed| changed <= built))
}

fn build_into(profile: &Path) {
    let Some(cargo) = std::env::var_os("CARGO") else {
        return;
    };
    let mut build = std::process::Command::new(cargo);
    build.args(["build", "--quiet", "--example", "order_service"]);
    build.arg("--target-dir").arg(profile.parent().unwrap());
    build
        .arg("--profile")
        .arg(match profile.file_name().unwrap() {
            debug if debug == "debug" => "dev".as_ref(),
            profile => profile,
        });
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    let built = build.status().unwrap();
    assert!(built.success(), "cannot build the example: {build:?}");
}

/// Shows a service's log as the test's own, which is to be seen where the test fails.
async fn show(log: ChildStderr) {
    let mut lines = BufReader::new(log).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        eprintln!("{line}");
    }
}

/// A process of the service; killed when dropped.
pub(crate) struct Service {
    pub(crate) process: Child,
    pub(crate) url: String,
}

impl Service {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(executable())
            .args(arguments)
            .env_remove("ZOOKEEPER_CONNECT")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        tokio::spawn(show(process.stderr.take().unwrap()));
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap();
        let Some(line) = line else {
            panic!("the service did not start")
        };
        let url = line.strip_prefix("listening on ").unwrap().to_owned();
        Self { process, url }
    }

    /// Starts one on each list of arguments, all on one server.
    pub(crate) async fn start_on<const N: usize>(
        server: &str,
        arguments: [&[&str]; N],
    ) -> Vec<Self> {
        let starts = arguments.map(async |arguments| {
            Self::start(&[&["--connect", server], arguments].concat()).await
        });
        join_all(starts).await
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().unwrap().try_into().unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.process.wait().await.unwrap();
        assert!(status.success(), "{status}");
    }
}
