//! A command and the processes that it starts.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use test_rig::TestEnsemble;
use tokio::process::Command;

use crate::lockctl::lockctl;

/// A shell with a child, a grandchild that ignores SIGTERM, and one that has left the process
/// group, the session and its parent. Each records its process. The shell records its token first.
pub(crate) const SCRIPT: &str = r#"
echo "$LOCKCTL_TOKENS" > token
sleep 1000 & echo "child $!" >> family
sh -c 'trap "" TERM HUP; echo "stubborn $$" >> family; exec sleep 1000' &
(setsid sh -c 'echo "daemon $$" >> family; exec sleep 1000' &)
echo "shell $$" >> family
wait
"#;

/// Members that record themselves.
const MEMBERS: usize = 4;

#[derive(Debug)]
pub(crate) struct Family {
    folder: TempDir,
}

/// One process. A later one with its number is not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) pid: i32,
    started: String,
}

impl Family {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `lockctl run` of a script in this folder; the arguments are those before the `--`.
    pub(crate) fn run(&self, connect: &str, arguments: &[&str], script: &str) -> Command {
        let all: Vec<_> = [&["run"], arguments, &["--", "sh", "-c", script]].concat();
        let mut command = lockctl(connect, &all);
        command.current_dir(self.folder.path());
        command
    }

    /// `lockctl run` of the family.
    pub(crate) fn command(&self, connect: &str, arguments: &[&str]) -> Command {
        self.run(connect, arguments, SCRIPT)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The recorded members that exist.
    pub(crate) fn written(&self) -> Vec<Member> {
        self.read("family").lines().filter_map(member).collect()
    }

    pub(crate) async fn members(&self, ensemble: &TestEnsemble) -> Vec<Member> {
        ensemble
            .until("a family", async || {
                let members = self.written();
                (members.len() == MEMBERS).then_some(members)
            })
            .await
    }

    pub(crate) fn token(&self) -> i64 {
        self.read("token").trim().parse().unwrap()
    }
}

/// Kills the processes that outlive a failed test.
impl Drop for Family {
    fn drop(&mut self) {
        for member in self.written() {
            if let Some(pid) = Pid::from_raw(member.pid) {
                // It has ended, as it should.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn member(line: &str) -> Option<Member> {
    let (name, pid) = line.split_once(' ')?;
    let pid = pid.parse().ok()?;
    Some(Member {
        name: name.to_owned(),
        pid,
        started: stat(pid)?.started,
    })
}

struct Stat {
    state: String,
    parent: i32,
    started: String,
}

fn stat(pid: i32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let words: Vec<_> = rest.split(' ').collect();
    Some(Stat {
        state: words[0].to_owned(),
        parent: words[1].parse().unwrap(),
        started: words[19].to_owned(),
    })
}

impl Member {
    /// Whether it runs, or could run. A zombie cannot.
    pub(crate) fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|it| it.started == self.started && it.state != "Z")
    }

    pub(crate) fn parent(&self) -> i32 {
        stat(self.pid).unwrap().parent
    }
}

/// Whether a process runs, or could run.
pub(crate) fn is_there(pid: i32) -> bool {
    stat(pid).is_some_and(|it| it.state != "Z")
}

/// Whether a signal or a terminal has halted it, or a child for which it waits that has not run its
/// program yet, as a shell does that starts one by `vfork`.
pub(crate) fn is_halted(pid: i32) -> bool {
    match stat(pid).as_ref().map(|it| it.state.as_str()) {
        Some("T") => true,
        Some("D") => {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            let mut children = children.split_whitespace().map(|it| it.parse().unwrap());
            children.any(is_halted)
        }
        _ => false,
    }
}

pub(crate) fn alive(members: &[Member]) -> Vec<&Member> {
    members.iter().filter(|it| it.is_alive()).collect()
}

pub(crate) fn named<'a>(members: &'a [Member], name: &str) -> &'a Member {
    members.iter().find(|it| it.name == name).unwrap()
}

/// Waits until none of them runs.
pub(crate) async fn gone(ensemble: &TestEnsemble, members: &[Member]) {
    let gone = async || alive(members).is_empty().then_some(());
    ensemble.until("the end of the family", gone).await;
}
