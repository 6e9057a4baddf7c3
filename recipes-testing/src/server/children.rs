//! The processes that a server has started, as PostgreSQL has one for each connection.
//!
//! They are read from `/proc`. Where there is none (not Linux), a server seems to have no others.
//! Only a parent that stands still is asked for its children: it starts no more then, and does not
//! take notice of those that end, so that no process id is used again meanwhile.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// A signal that cannot be refused takes effect within microseconds. Reading the state takes ten.
const STATES_MAX: usize = 1_000_000;

/// Halts all children and returns when none of them runs any more.
pub(super) fn pause(parent: Pid) -> io::Result<()> {
    signal(parent, Signal::STOP, &['T', 't'])
}

/// Lets all children go on.
pub(super) fn resume(parent: Pid) -> io::Result<()> {
    signal(parent, Signal::CONT, &[])
}

/// Kills all children and returns when all have ended.
pub(super) fn kill(parent: Pid) -> io::Result<()> {
    signal(parent, Signal::KILL, &[])
}

/// Sends the signal, and waits until all children are in one of the states or have ended. Does not
/// wait for those that are to go on.
fn signal(parent: Pid, signal: Signal, states: &[char]) -> io::Result<()> {
    let children = of(parent)?;
    for child in &children {
        match kill_process(*child, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if signal == Signal::CONT {
        return Ok(());
    }
    for child in children {
        let has_obeyed = |stat: Stat| states.contains(&stat.state) || "ZX".contains(stat.state);
        let mut asked = 0..STATES_MAX;
        // A process that cannot be read is gone.
        while !stat(child.as_raw_nonzero().get()).is_none_or(has_obeyed) {
            if asked.next().is_none() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn of(parent: Pid) -> io::Result<Vec<Pid>> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Ok(Vec::new());
    };
    let mut children = Vec::new();
    for process in processes {
        let name = process?.file_name();
        let Some(pid) = name.to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        if stat(pid).is_some_and(|it| it.parent == parent.as_raw_nonzero().get()) {
            children.extend(Pid::from_raw(pid));
        }
    }
    Ok(children)
}

/// What `/proc/<pid>/stat` says.
struct Stat {
    state: char,
    parent: i32,
}

fn stat(pid: i32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may have blanks and brackets in it.
    let mut fields = line.rsplit_once(") ")?.1.split(' ');
    Some(Stat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
    })
}
