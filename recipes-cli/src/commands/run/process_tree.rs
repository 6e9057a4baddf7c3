//! The processes below this one: those that the command has started.
//!
//! They are found in `/proc`, and in the command's cgroup if it has one. A process that forks and
//! ends at once slips through a look at `/proc`: its child is not yet listed when the list is made,
//! and it is gone itself when its file is read. But as a *subreaper* this process gets each such
//! child as its own, in the same moment in which the parent ends, and the kernel tells a process
//! without fault whether it has children. So the end of all is certain, however often a look misses
//! one. Where there are children that cannot or must not be killed, repeated looks tell.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    set_child_subreaper, wait, waitid,
};

use super::cgroup::Cgroup;
use super::process_table::{Look, Spared};
use crate::exit::warn;

/// The first pause between checks whether a process that is not our child has ended. The kernel
/// notifies only parents. It ends most processes within a millisecond.
const POLL_MIN: Duration = Duration::from_millis(2);
/// The longest pause between checks. Each check reads all of `/proc`.
const POLL_MAX: Duration = Duration::from_millis(100);
/// So many looks in a row must find the same children, of which none can be killed: processes of
/// other users, children of before, or zombies that a debugger has.
const EMPTY_LOOKS: u32 = 5;
/// Looks for new children between two looks at all of `/proc`. Each takes some 20 us, so that even a
/// child that lives for 100 us is met.
const CHILD_LOOKS: u32 = 50;

const UNSEEN: &str = "cannot see which processes run";

/// Makes descendants whose parents end children of this process, from now on.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// What the command has started.
#[derive(Debug, Default)]
pub(crate) struct ProcessTree {
    spared: Spared,
    cgroup: Option<Cgroup>,
}

/// What one round of kills has found.
enum Round {
    /// Something that ends now, or soon.
    Some,
    /// Nothing that can be killed.
    None,
    Unseen(io::Error),
}

impl ProcessTree {
    pub(crate) fn new(spared: Spared, cgroup: Option<Cgroup>) -> Self {
        Self { spared, cgroup }
    }

    /// Processes that run. One that another has started in this moment may be missing.
    fn running(&self, look: &Look) -> io::Result<HashSet<Pid>> {
        let below = look.running_below_this(&self.spared).into_iter();
        Ok(below.chain(self.in_cgroup()?).collect())
    }

    /// The running processes that get signals from this one. A run inside passes a signal on by
    /// itself, so its command would get the signal twice.
    fn reached(&self) -> io::Result<HashSet<Pid>> {
        let look = Look::now()?;
        Ok(&self.running(&look)? - &look.of_nested_runs())
    }

    fn in_cgroup(&self) -> io::Result<Vec<Pid>> {
        self.cgroup
            .as_ref()
            .map_or(Ok(Vec::new()), Cgroup::processes)
    }

    /// Removes what stays of an ended tree.
    pub(crate) fn remove(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    /// Whether anything runs. Reaps what does not.
    pub(crate) fn may_be_left() -> bool {
        while reap().is_some() {}
        has_children()
    }

    /// Sends a signal to all but what runs inside look after, and warns about each that it cannot reach.
    pub(crate) fn signal_all(&self, signal: Signal) {
        let number = signal.as_raw();
        let reached = match self.reached() {
            Ok(reached) => reached,
            Err(error) => return warn(&format!("{UNSEEN}: {error}; signal {number} is not sent")),
        };
        for pid in reached {
            // Any other error means that the process has ended.
            if kill_process(pid, signal) == Err(Errno::PERM) {
                let pid = pid.as_raw_nonzero();
                warn(&format!(
                    "process {pid} is another user's: signal {number} does not reach it"
                ));
            }
        }
    }

    /// Kills all, and what they start meanwhile. Returns when none of them runs, with the children
    /// of this process among them.
    pub(crate) async fn end_all(&self) -> Vec<(Pid, WaitStatus)> {
        let mut ended = Vec::new();
        let mut strangers = HashSet::new();
        let mut is_unseen = false;
        let mut last_children = None;
        let mut empty_looks = 0;
        let mut pause = POLL_MIN;
        // The loop ends with the last of them: a killed process starts no more.
        loop {
            let round = self.kill_all(&mut strangers);
            ended.extend(self.kill_new_children());
            if !has_children() && !self.is_populated() {
                return ended;
            }
            let children = children();
            let is_empty = match round {
                Round::Some => false,
                // Links of a chain come and go. What is there all the time, a look has seen.
                Round::None if children.is_some() => children == last_children,
                Round::None => !strangers.is_empty() || !self.spared.is_empty(),
                Round::Unseen(error) => {
                    if !std::mem::replace(&mut is_unseen, true) {
                        warn(&format!("{UNSEEN}: {error}; the lock is kept meanwhile"));
                    }
                    false
                }
            };
            last_children = children;
            empty_looks = if is_empty { empty_looks + 1 } else { 0 };
            if empty_looks >= EMPTY_LOOKS && !self.is_populated() {
                return ended;
            }
            tokio::time::sleep(pause).await;
            pause = match is_empty {
                true => POLL_MIN,
                false => longer(pause),
            };
        }
    }

    fn is_populated(&self) -> bool {
        let populated = self.cgroup.as_ref().map(Cgroup::is_populated);
        populated.is_some_and(|it| it.unwrap_or(true))
    }

    /// Kills all that one look finds.
    fn kill_all(&self, strangers: &mut HashSet<Pid>) -> Round {
        match self.try_kill_all(strangers) {
            Ok(true) => Round::Some,
            Ok(false) => Round::None,
            Err(error) => Round::Unseen(error),
        }
    }

    fn try_kill_all(&self, strangers: &mut HashSet<Pid>) -> io::Result<bool> {
        // The kernel lets nobody fork meanwhile, and asks whose the processes are of nobody.
        self.cgroup.as_ref().map_or(Ok(()), Cgroup::kill)?;
        let mut is_one_left = false;
        for pid in self.running(&Look::now()?)? {
            match kill_process(pid, Signal::KILL) {
                Err(Errno::PERM) if !self.in_cgroup()?.contains(&pid) => {
                    if strangers.insert(pid) {
                        let pid = pid.as_raw_nonzero();
                        warn(&format!("process {pid} is another user's and goes on"));
                    }
                }
                Ok(()) | Err(_) => is_one_left = true,
            }
        }
        Ok(is_one_left)
    }

    /// Kills children as they come, until no new ones come. Returns those that have ended.
    fn kill_new_children(&self) -> Vec<(Pid, WaitStatus)> {
        let mut ended = Vec::new();
        let mut killed = HashSet::new();
        let mut quiet_looks = 0;
        for _ in 0..CHILD_LOOKS {
            let mut is_new = false;
            for pid in children().into_iter().flatten() {
                if !self.spared.has_pid(pid) && killed.insert(pid) {
                    is_new |= kill_process(pid, Signal::KILL).is_ok();
                }
            }
            // Afterwards its number may be another's.
            for (pid, status) in std::iter::from_fn(reap) {
                killed.remove(&pid);
                ended.push((pid, status));
            }
            quiet_looks = if is_new { 0 } else { quiet_looks + 1 };
            if quiet_looks == EMPTY_LOOKS || !has_children() {
                break;
            }
        }
        ended
    }
}

/// Whether this process has children, be they zombies. The kernel looks at all of them at once, so
/// that none can be missed.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// Children of this process, as quickly as they can be listed. Some that come or go may be missing.
/// `None` if the kernel does not list them.
fn children() -> Option<HashSet<Pid>> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = threads.map(|it| fs::read_to_string(it?.path().join("children")));
    let lists: Vec<_> = lists.collect::<Result<_, _>>().ok()?;
    let pids = lists.iter().flat_map(|it| it.split_whitespace());
    let pids = pids.filter_map(|it| Pid::from_raw(it.parse().ok()?));
    Some(pids.collect()).filter(|_| !lists.is_empty())
}

/// A process that waits for a device or a file system may take minutes to end.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(POLL_MAX)
}

pub(crate) fn reap() -> Option<(Pid, WaitStatus)> {
    // It is an error if there are no children.
    wait(WaitOptions::NOHANG).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::{POLL_MAX, POLL_MIN, longer};

    #[test]
    fn processes_that_take_their_time_are_asked_for_less_and_less_often() {
        let pauses: Vec<_> = std::iter::successors(Some(POLL_MIN), |it| Some(longer(*it)))
            .take(8)
            .map(|it| it.as_millis())
            .collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 100, 100]);
        assert_eq!(longer(POLL_MAX), POLL_MAX);
    }
}
