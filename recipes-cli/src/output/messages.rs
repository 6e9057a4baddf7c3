//! Standard error, written by a thread of its own.
//!
//! A full pipe, or a terminal that was halted with Ctrl-S, blocks whoever writes to it. Whoever has
//! to kill a command in time must not wait for that. So messages wait in a queue, and are dropped
//! when it is full.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Messages that wait at the same time. A log of everything has some hundred in a burst.
const WAITING_MAX: usize = 1000;
/// How often the end of the process checks whether somebody reads.
const CHECK: Duration = Duration::from_millis(10);
/// After that many checks in a row nobody reads, and the rest is dropped.
const UNREAD_CHECKS_MAX: u32 = 10;
/// After that many checks a busy machine has had its time.
const CHECKS_MAX: u32 = 1000;

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    // If the thread cannot be started, `flush` writes what waits.
    drop(thread::Builder::new().spawn(|| MESSAGES.write_all()));
    Messages::default()
});

#[derive(Debug, Default)]
struct Messages {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    /// Messages that found the queue full, since the last one that did not.
    dropped: u64,
    is_written: bool,
    has_writer: bool,
}

impl Queue {
    fn push(&mut self, message: Vec<u8>) {
        match self.waiting.len() < WAITING_MAX {
            true => self.waiting.push_back(message),
            false => self.dropped += 1,
        }
    }

    /// The next message. After the last of those that waited, the number of those that did not fit.
    fn pop(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front().or_else(|| {
            let dropped = std::mem::take(&mut self.dropped);
            let text = format!("lockctl: {dropped} messages are missing here: nobody read them\n");
            (dropped > 0).then(|| text.into_bytes())
        })
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0 && !self.is_written
    }
}

impl Messages {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes messages until the process ends.
    fn write_all(&self) {
        let mut queue = self.queue();
        queue.has_writer = true;
        loop {
            let next = queue.pop();
            queue.is_written = next.is_some();
            self.changed.notify_all();
            queue = match next {
                Some(message) => {
                    drop(queue);
                    write(&message);
                    self.queue()
                }
                None => {
                    let waited = self.changed.wait(queue);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

fn write(message: &[u8]) {
    // If stderr cannot be written, there is no other place to report that.
    drop(io::stderr().write_all(message));
}

/// Prints one or more whole lines, now or soon.
pub(crate) fn send(lines: Vec<u8>) {
    MESSAGES.queue().push(lines);
    MESSAGES.changed.notify_all();
}

/// Waits until everything is printed, but only as long as somebody reads. The process ends after it.
pub(crate) fn flush() {
    let mut unread = 0;
    let mut queue = MESSAGES.queue();
    for _ in 0..CHECKS_MAX {
        if queue.is_done() {
            return;
        }
        let waited = MESSAGES.changed.wait_timeout(queue, CHECK);
        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        unread = if is_readable() { 0 } else { unread + 1 };
        if unread == UNREAD_CHECKS_MAX {
            return;
        }
    }
    if !queue.has_writer {
        while let Some(message) = queue.pop() {
            write(&message);
        }
    }
}

/// Whether standard error takes more at present.
fn is_readable() -> bool {
    let errors = io::stderr();
    let mut asked = [PollFd::new(&errors, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // An error means that writing fails at once.
    poll(&mut asked, Some(&now)).map_or(true, |ready| ready > 0)
}

/// Standard error for a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        send(lines.to_vec());
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Queue, WAITING_MAX};

    #[test]
    fn messages_that_do_not_fit_are_counted_once_where_they_are_missing() {
        let mut queue = Queue::default();
        for number in 0..WAITING_MAX + 3 {
            queue.push(format!("{number}\n").into_bytes());
        }
        let mut printed = Vec::new();
        printed.extend(std::iter::from_fn(|| queue.pop()));
        assert_eq!(printed.len(), WAITING_MAX + 1);
        assert_eq!(printed[WAITING_MAX - 1], b"999\n");
        let missing = b"lockctl: 3 messages are missing here: nobody read them\n";
        assert_eq!(printed[WAITING_MAX], missing);
        assert!(queue.is_done());
        queue.push(b"later\n".to_vec());
        assert_eq!(queue.pop().as_deref(), Some(&b"later\n"[..]));
        assert_eq!(queue.pop(), None);
    }
}
