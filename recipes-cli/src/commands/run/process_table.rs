//! The table of processes in `/proc`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io::{self, ErrorKind};

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::wire::SUPERVISOR;

/// The kernel cuts the names of processes to this length.
const NAME_MAX: usize = 15;

/// A process, as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    pid: i32,
    parent: i32,
    is_running: bool,
    is_supervisor: bool,
    /// Ticks from the start of the machine to the start of the process.
    started: u64,
}

impl Entry {
    /// Identifies the process, even if a later one has its number.
    fn identity(&self) -> Identity {
        (self.pid, self.started)
    }

    /// Parses `pid (name) state parent ...`. The name may contain anything.
    fn parse(stat: &str) -> Option<Self> {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut words = rest.split(' ');
        let state = words.next()?;
        let parent = words.next()?.parse().ok()?;
        let threads: u32 = words.nth(15)?.parse().ok()?;
        Some(Self {
            pid: pid.parse().ok()?,
            parent,
            // Zombies and dead processes do not run. But a first thread may have ended before
            // others.
            is_running: threads > 1 || !matches!(state, "Z" | "X" | "x"),
            is_supervisor: SUPERVISOR.get(..NAME_MAX) == Some(name),
            started: words.nth(1)?.parse().ok()?,
        })
    }
}

type Identity = (i32, u64);

/// Processes below this one that it must leave alone, with all that they start.
///
/// A program that becomes `lockctl` may have children, such as the one that a shell's
/// `2> >(logger)` started.
#[derive(Debug, Default)]
pub(crate) struct Spared(BTreeSet<Identity>);

impl Spared {
    /// All processes below this one at present.
    pub(crate) fn all() -> io::Result<Self> {
        let entries = entries()?;
        let found = below(own_pid(), &entries, &Self::default());
        Ok(Self(found.iter().map(|it| it.identity()).collect()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it may be one of them.
    pub(super) fn has_pid(&self, pid: Pid) -> bool {
        let number = pid.as_raw_nonzero().get();
        let mut of_it = self.0.range((number, 0)..=(number, u64::MAX));
        of_it.next().is_some()
    }
}

/// All processes that can be seen. It fails if one that exists may be missing.
fn entries() -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for folder in fs::read_dir("/proc")? {
        let name = folder?.file_name();
        let is_process = |name: &&str| name.bytes().all(|it| it.is_ascii_digit());
        let Some(name) = name.to_str().filter(is_process) else {
            continue;
        };
        match fs::read(format!("/proc/{name}/stat")) {
            Ok(stat) => entries.push(Entry::parse(&String::from_utf8_lossy(&stat)).ok_or_else(
                || io::Error::new(ErrorKind::InvalidData, format!("/proc/{name}/stat is odd")),
            )?),
            // The process has ended meanwhile. Or /proc hides processes of other users, which could
            // not be signalled either.
            Err(error) if is_gone(&error) || error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|it| gone.contains(&it))
}

fn below<'a>(root: i32, entries: &'a [Entry], spared: &Spared) -> Vec<&'a Entry> {
    let mut children: BTreeMap<i32, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        children.entry(entry.parent).or_default().push(entry);
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([root]);
    let mut parents = vec![root];
    // Each process is visited once.
    while let Some(parent) = parents.pop() {
        for entry in children.get(&parent).into_iter().flatten().copied() {
            if !spared.0.contains(&entry.identity()) && seen.insert(entry.pid) {
                parents.push(entry.pid);
                found.push(entry);
            }
        }
    }
    found
}

/// One look at the processes of the machine.
#[derive(Debug)]
pub(super) struct Look(Vec<Entry>);

impl Look {
    pub(super) fn now() -> io::Result<Self> {
        entries().map(Self)
    }

    /// The processes below this one that run.
    pub(super) fn running_below_this(&self, spared: &Spared) -> Vec<Pid> {
        let found = below(own_pid(), &self.0, spared).into_iter();
        let running = found.filter(|it| it.is_running);
        running.filter_map(|it| Pid::from_raw(it.pid)).collect()
    }

    /// The supervisors that a process has started.
    pub(super) fn supervisors_of(&self, parent: Pid) -> Vec<Pid> {
        let parent = parent.as_raw_nonzero().get();
        let is_its = |it: &&Entry| it.is_supervisor && it.parent == parent;
        let found = self.0.iter().filter(is_its);
        found.filter_map(|it| Pid::from_raw(it.pid)).collect()
    }

    /// Processes to which the runs inside this one pass signals on.
    pub(super) fn of_nested_runs(&self) -> HashSet<Pid> {
        let found = nested(own_pid(), &self.0).into_iter();
        found.filter_map(|it| Pid::from_raw(it.pid)).collect()
    }
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Other supervisors below the root, and all below them. Not those that are children of the root: the
/// run that has started such a one has ended, so nobody passes anything on to it.
fn nested<'a>(root: i32, entries: &'a [Entry]) -> Vec<&'a Entry> {
    let none = Spared::default();
    let found = below(root, entries, &none).into_iter();
    let supervisors = found.filter(|it| it.is_supervisor && it.parent != root);
    let with_theirs = |it: &'a Entry| std::iter::once(it).chain(below(it.pid, entries, &none));
    supervisors.flat_map(with_theirs).collect()
}

/// Whether the process was halted, by a signal or a terminal.
pub(crate) fn is_halted(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state = |stat: &str| {
        stat.rsplit_once(") ")
            .map(|(_, rest)| rest.starts_with('T'))
    };
    stat.is_ok_and(|it| state(&it).unwrap_or(false))
}

/// Whether a shell can resume a job: a process of the group has a parent in another group of the
/// same session. This process does not count, though the kernel counts it.
pub(crate) fn has_shell(group: Pid) -> io::Result<bool> {
    let own = own_pid();
    let group = group.as_raw_nonzero().get();
    let mut places = BTreeMap::new();
    for Entry { pid, parent, .. } in entries()? {
        // One that has ended meanwhile resumes nothing.
        if let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) {
            if let Some(place) = place(&String::from_utf8_lossy(&stat)) {
                places.insert(pid, (parent, place));
            }
        }
    }
    let is_resumable = |(parent, (_, session)): &(i32, (i32, i32))| {
        let of_parent = places.get(parent).map(|(_, place)| *place);
        *parent != own
            && of_parent.is_some_and(|(other, in_session)| other != group && in_session == *session)
    };
    let members = places.values().filter(|(_, (of, _))| *of == group);
    Ok(members.clone().any(is_resumable))
}

/// Process group and session in `pid (name) state parent group session ...`.
fn place(stat: &str) -> Option<(i32, i32)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ').skip(2);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Entry, Spared, below, nested};

    fn entry(pid: i32, parent: i32, is_running: bool) -> Entry {
        Entry {
            pid,
            parent,
            is_running,
            is_supervisor: false,
            started: 50,
        }
    }

    fn pids(found: &[&Entry]) -> Vec<i32> {
        let mut pids: Vec<_> = found.iter().map(|it| it.pid).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn names_of_processes_may_have_anything_in_them() {
        let rest = "12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 50 9";
        let stat = format!("12 (a) Z 1 (b)) S 7 {rest}");
        assert_eq!(Entry::parse(&stat), Some(entry(12, 7, true)));
        let stat = format!("9 (x) Z 1 {rest}");
        assert_eq!(Entry::parse(&stat), Some(entry(9, 1, false)));
        // Its first thread has ended, but two others have not.
        let stat = stat.replace(" 20 0 1 0 50 9", " 20 0 3 0 50 9");
        assert_eq!(Entry::parse(&stat), Some(entry(9, 1, true)));
        for broken in [
            "",
            "12",
            "12 (x",
            "12 (x) S",
            "x (x) S 1",
            "1 (x) S y",
            "9 (x) S 1 9",
        ] {
            assert_eq!(Entry::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn descendants_of_a_zombie_are_found() {
        let all = [
            entry(1, 0, true),
            entry(10, 1, true),
            entry(11, 10, false),
            entry(12, 11, true),
            entry(13, 12, true),
            entry(20, 1, true),
        ];
        assert_eq!(pids(&below(10, &all, &Spared::default())), [11, 12, 13]);
    }

    #[test]
    fn spared_processes_are_left_alone_with_theirs_and_later_ones_of_their_number_are_not() {
        let all = [
            entry(10, 1, true),
            entry(11, 10, true),
            entry(12, 11, true),
            entry(13, 10, true),
            entry(14, 13, true),
        ];
        let spared = Spared([(11, 50), (13, 49)].into());
        assert_eq!(pids(&below(10, &all, &spared)), [13, 14]);
    }

    #[test]
    fn runs_inside_a_run_look_after_what_is_below_their_supervisors() {
        let rest = "12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 50 9";
        let stat = format!("12 (lockctl-supervi) S 7 {rest}");
        let supervisor = entry(12, 7, true);
        let supervisor = Entry {
            is_supervisor: true,
            ..supervisor
        };
        assert_eq!(Entry::parse(&stat), Some(supervisor));
        let supervisor = |pid, parent| Entry {
            pid,
            parent,
            ..supervisor
        };
        let all = [
            supervisor(10, 1),
            entry(11, 10, true),
            supervisor(12, 11),
            entry(13, 12, true),
            // One inside that one, and one whose lockctl was killed.
            supervisor(14, 13),
            entry(15, 14, true),
            supervisor(16, 10),
            entry(17, 16, true),
            supervisor(20, 1),
        ];
        let mut found = pids(&nested(10, &all));
        found.dedup();
        assert_eq!(found, [12, 13, 14, 15]);
    }

    #[test]
    fn processes_that_were_read_at_different_moments_end_the_search() {
        // A process number was reused between two reads.
        let all = [entry(10, 11, true), entry(11, 10, true)];
        assert_eq!(pids(&below(10, &all, &Spared::default())), [11]);
    }
}
