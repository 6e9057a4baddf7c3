//! The processes below this one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};

use crate::failure::warn;

/// How often the kernel is asked whether a process is gone that is not our child; it tells only
/// parents, and ends a process within a millisecond.
const POLL: Duration = Duration::from_millis(2);

/// From now on processes whose parents end become children of this one, if they are below it.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A process, as it stands in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    pid: i32,
    parent: i32,
    is_running: bool,
}

impl Entry {
    /// Reads `pid (name) state parent ...`; the name may have anything in it.
    fn parse(stat: &str) -> Option<Self> {
        let (pid, _) = stat.split_once(" (")?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut words = rest.split(' ');
        // Zombies and the dead run no more.
        let is_running = !matches!(words.next()?, "Z" | "X" | "x");
        Some(Self {
            pid: pid.parse().ok()?,
            parent: words.next()?.parse().ok()?,
            is_running,
        })
    }
}

/// All processes that can be seen.
fn entries() -> Vec<Entry> {
    let Ok(folders) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let is_process = |name: &str| name.bytes().all(|it| it.is_ascii_digit());
    let folders = folders.filter_map(|it| it.ok()?.file_name().into_string().ok());
    let stats = folders
        .filter(|name| is_process(name))
        // One that has gone meanwhile has no entry any more.
        .filter_map(|name| fs::read(format!("/proc/{name}/stat")).ok());
    stats
        .filter_map(|stat| Entry::parse(&String::from_utf8_lossy(&stat)))
        .collect()
}

/// Those of the processes that are below `root` and run.
fn below(root: i32, entries: &[Entry]) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        children.entry(entry.parent).or_default().push(entry);
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([root]);
    let mut parents = vec![root];
    // Each process is visited once.
    while let Some(parent) = parents.pop() {
        for entry in children.get(&parent).into_iter().flatten() {
            if seen.insert(entry.pid) {
                parents.push(entry.pid);
                if entry.is_running {
                    found.push(entry.pid);
                }
            }
        }
    }
    found
}

/// The descendants of this process that run.
pub(crate) fn descendants() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get();
    let found = below(own, &entries());
    found.into_iter().filter_map(Pid::from_raw).collect()
}

/// Sends a signal to all of them.
pub(crate) fn signal_all(signal: Signal) {
    for pid in descendants() {
        // It may have gone, or be another user's.
        let _ = kill_process(pid, signal);
    }
}

/// Kills all of them, and those that they start meanwhile, and returns when none of them runs; with
/// the children of this process among them.
pub(crate) async fn end_all() -> Vec<(Pid, WaitStatus)> {
    let mut ended = Vec::new();
    let mut strangers = BTreeSet::new();
    // Ends with the last of them: what is killed starts no more.
    loop {
        let mut is_one_left = false;
        for pid in descendants() {
            match kill_process(pid, Signal::KILL) {
                Err(Errno::PERM) => {
                    if strangers.insert(pid.as_raw_nonzero()) {
                        let pid = pid.as_raw_nonzero();
                        warn(&format!("process {pid} is another user's and goes on"));
                    }
                }
                Ok(()) | Err(_) => is_one_left = true,
            }
        }
        ended.extend(std::iter::from_fn(reap));
        if !is_one_left {
            return ended;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Takes note of one child that has ended.
pub(crate) fn reap() -> Option<(Pid, WaitStatus)> {
    // Without children it is an error.
    wait(WaitOptions::NOHANG).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::{Entry, below};

    fn entry(pid: i32, parent: i32, is_running: bool) -> Entry {
        Entry {
            pid,
            parent,
            is_running,
        }
    }

    #[test]
    fn names_of_processes_may_have_anything_in_them() {
        let stat = "12 (a) Z 1 (b)) S 7 12 12 0 -1";
        assert_eq!(Entry::parse(stat), Some(entry(12, 7, true)));
        assert_eq!(Entry::parse("9 (x) Z 1 9"), Some(entry(9, 1, false)));
        for broken in ["", "12", "12 (x", "12 (x) S", "x (x) S 1", "1 (x) S y"] {
            assert_eq!(Entry::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn descendants_of_a_zombie_are_found_and_it_is_not() {
        let all = [
            entry(1, 0, true),
            entry(10, 1, true),
            entry(11, 10, false),
            entry(12, 11, true),
            entry(13, 12, true),
            entry(20, 1, true),
        ];
        let mut found = below(10, &all);
        found.sort_unstable();
        assert_eq!(found, [12, 13]);
    }

    #[test]
    fn processes_that_were_read_at_different_moments_end_the_search() {
        // A number was used again between two reads.
        let all = [entry(10, 11, true), entry(11, 10, true)];
        assert_eq!(below(10, &all), [11]);
    }
}
