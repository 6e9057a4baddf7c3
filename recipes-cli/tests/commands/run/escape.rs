//! Commands that start chains of processes, of which each forks the next one and ends at once. A
//! look at the processes of the machine misses most of them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use recipes_core::LockGuard;
use recipes_multilock::{Member, MultiLock};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use test_rig::{Direction, FaultProxy, TestEnsemble};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::family::Family;
use super::{LONG, SHORT, server, start};
use crate::lockctl::PATIENCE;

/// How long a link sleeps before it forks.
const PAUSES_US: [u32; 4] = [300, 1000, 5000, 20_000];
/// Runs of each pause, unless the variable `CHAINS` says otherwise.
const RUNS: usize = 2;
/// Runs at the same time.
const AT_ONCE: usize = 4;
/// A chain that lives writes something within this time on any machine.
const SILENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The command ends, and leaves the chain.
    Normal,
    /// The store does not answer any more.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    /// As this machine is.
    AsItIs,
    /// Without a control group that lockctl could use.
    WithoutCgroups,
}

fn runs() -> usize {
    let asked = std::env::var("CHAINS").ok();
    asked.map_or(RUNS, |it| it.parse().unwrap())
}

async fn chain() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/run/chain.c");
    let compiled = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(folder.path().join("chain"))
        .arg(source)
        .status()
        .await;
    assert!(compiled.expect("a C compiler is needed").success());
    folder
}

/// The command in a mount namespace in which no control groups are mounted. Its process stays the
/// same.
fn without_cgroups(command: &Command) -> Command {
    let hide = r#"
        for folder in $(sed -n 's/^[^ ]* \([^ ]*\) cgroup2 .*/\1/p' /proc/self/mounts); do
            mount -t tmpfs none "$folder" || exit 70
        done
        exec "$@"
    "#;
    let command = command.as_std();
    let mut hidden = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        hidden.arg("--map-root-user");
    }
    hidden.args(["--mount", "sh", "-c", hide, "-"]);
    hidden.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => hidden.env(name, value),
            None => hidden.env_remove(name),
        };
    }
    hidden.current_dir(command.get_current_dir().unwrap());
    hidden.kill_on_drop(true);
    hidden
}

/// The number of the last link, and when it was there, on the clock of the machine.
fn last_link(family: &Family) -> Option<(u64, Duration)> {
    let text = family.read("beat");
    let (link, at) = text.trim().split_once(' ')?;
    let at = Duration::from_nanos(at.trim().parse().ok()?);
    Some((link.parse().ok()?, at))
}

fn now() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap()
}

struct Trial {
    /// How long the chain lived after the grant to the next contender.
    escaped_for: Option<Duration>,
    had_cgroup: bool,
}

/// A command with a chain, and a contender that gets the lock after it.
async fn trial(
    ensemble: &TestEnsemble,
    path: &str,
    chain: &Path,
    pause_us: u32,
    (end, machine): (End, Machine),
) -> Trial {
    let family = Family::new();
    let direct = server(ensemble).connect_string();
    let proxy = FaultProxy::start(&direct).await.unwrap();
    let chain = chain.join("chain");
    let chain = chain.display();
    let script = format!("{chain} {pause_us} beat; until [ -e go ]; do sleep 0.01; done; exit 3");
    let session = if end == End::Lost { SHORT } else { LONG };
    let arguments = [session, "--log=lockctl=debug", path];
    let mut run = family.run(&proxy.connect_string(), &arguments, &script);
    if machine == Machine::WithoutCgroups {
        run = without_cgroups(&run);
    }
    let run = run.stderr(Stdio::piped()).spawn().unwrap();
    let living = async || last_link(&family).filter(|(link, _)| *link > 10);
    ensemble.until("a chain", living).await;

    let session = ensemble.session().await;
    let lock = MultiLock::new(&session, [Member::mutex(path)]).unwrap();
    let next = tokio::spawn(async move { LockGuard::from(lock.acquire().await.unwrap()) });
    ensemble.await_children(path, 2).await;
    match end {
        End::Normal => std::fs::write(family.path("go"), "").unwrap(),
        End::Lost => {
            proxy.black_hole(Direction::ToServer);
            proxy.black_hole(Direction::FromServer);
        }
    }
    let granted = timeout(PATIENCE, next).await.expect("no grant").unwrap();
    let granted_at = now();
    let since = Instant::now();
    while since.elapsed() < SILENCE {
        tokio::time::sleep(SILENCE / 20).await;
    }
    let (_, last_at) = last_link(&family).unwrap();
    std::fs::write(family.path("stop"), "").unwrap();
    drop(granted);
    let ended = timeout(PATIENCE, run.wait_with_output()).await;
    let ended = ended.expect("lockctl does not end").unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    let code = if end == End::Lost { 76 } else { 3 };
    assert_eq!(ended.status.code(), Some(code), "{said}");
    let had_cgroup = said.contains("is ended by its cgroup");
    assert_ne!(had_cgroup, said.contains("looks through /proc"), "{said}");
    Trial {
        escaped_for: last_at.checked_sub(granted_at).filter(|it| !it.is_zero()),
        had_cgroup,
    }
}

async fn nothing_escapes(end: End, machine: Machine) {
    let ensemble = start().await;
    let chain = chain().await;
    for pause_us in PAUSES_US {
        let mut trials = Vec::new();
        for first in (0..runs()).step_by(AT_ONCE) {
            let paths = first..runs().min(first + AT_ONCE);
            let paths: Vec<_> = paths.map(|it| format!("/locks/{pause_us}-{it}")).collect();
            let kind = (end, machine);
            let some = paths
                .iter()
                .map(|path| trial(&ensemble, path, chain.path(), pause_us, kind));
            trials.extend(join_all(some).await);
        }
        let with = trials.iter().filter(|it| it.had_cgroup).count();
        let escaped: Vec<_> = trials.iter().filter_map(|it| it.escaped_for).collect();
        println!(
            "{end:?}, {pause_us} us, {machine:?}: {} escapes in {} runs, {with} with a cgroup",
            escaped.len(),
            trials.len()
        );
        assert!(escaped.is_empty(), "{end:?}, {pause_us} us: {escaped:?}");
        assert!(machine == Machine::AsItIs || with == 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chain_outlives_the_release_after_the_end_of_its_command() {
    nothing_escapes(End::Normal, Machine::AsItIs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chain_outlives_the_loss_of_the_lock() {
    nothing_escapes(End::Lost, Machine::AsItIs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chain_outlives_the_release_where_there_are_no_cgroups() {
    nothing_escapes(End::Normal, Machine::WithoutCgroups).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chain_outlives_the_loss_where_there_are_no_cgroups() {
    nothing_escapes(End::Lost, Machine::WithoutCgroups).await;
}
