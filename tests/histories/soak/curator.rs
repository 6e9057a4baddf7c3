//! Threads of Curator that contend for the same locks.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use lock_recipes::LockKind;
use test_rig::history::{AttemptId, Happening, Journal, Step, monotonic_now};
use test_rig::{CuratorPeer, PeerError};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::orders::{LOCKS, path};

const THREADS: u32 = 4;
/// Threads of Curator are processes from this number on in a history.
const FIRST: u32 = 1 << 30;
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
const ACQUIRE_MAX: Duration = Duration::from_secs(5);
/// Without a server, Curator tries for as long as its retries take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether a process of a history is a thread of Curator.
pub(crate) fn is_one(worker: u32) -> bool {
    worker >= FIRST
}

/// A JVM with threads, each of which has a client of its own.
pub(crate) struct Curators {
    peer: Arc<CuratorPeer>,
    connect_string: String,
    side_by_side: u64,
    contending: Vec<JoinHandle<()>>,
}

impl Curators {
    pub(crate) async fn start(connect_string: String, side_by_side: u64) -> Self {
        Self {
            peer: Arc::new(CuratorPeer::start().await.unwrap()),
            connect_string,
            side_by_side,
            contending: Vec::new(),
        }
    }

    pub(crate) fn process_id(&self) -> Option<u32> {
        self.peer.process_id()
    }

    /// Lets all threads contend for this long.
    pub(crate) fn contend(&mut self, journal: &Arc<Journal>, seed: u64, length: Duration) {
        let end = Instant::now() + length;
        for index in 0..THREADS {
            let mut thread = Thread {
                peer: Arc::clone(&self.peer),
                connect_string: self.connect_string.clone(),
                side_by_side: self.side_by_side,
                journal: Arc::clone(journal),
                worker: FIRST + index,
                name: format!("c{index}"),
                attempts: 0,
                random: Rng::with_seed(seed.wrapping_add(u64::from(FIRST + index) << 32)),
            };
            let contend = async move {
                thread.renew().await;
                while Instant::now() < end {
                    thread.attempt().await;
                }
            };
            self.contending.push(tokio::spawn(contend));
        }
    }

    /// Waits until all have finished. If one does not, a new JVM replaces theirs.
    pub(crate) async fn finish(&mut self, journal: &Journal) -> bool {
        let ended = timeout(PATIENCE, join_all(self.contending.iter_mut())).await;
        let have_ended = ended.is_ok();
        if let Ok(ended) = ended {
            ended.into_iter().for_each(Result::unwrap);
        } else {
            self.contending.iter().for_each(JoinHandle::abort);
            // The thread's commands end with the old JVM.
            self.peer = Arc::new(CuratorPeer::start().await.unwrap());
            for worker in FIRST..FIRST + THREADS {
                journal
                    .write(monotonic_now(), Happening::Killed(worker))
                    .unwrap();
            }
        }
        self.contending.clear();
        have_ended
    }
}

struct Thread {
    peer: Arc<CuratorPeer>,
    connect_string: String,
    side_by_side: u64,
    journal: Arc<Journal>,
    worker: u32,
    /// The name of the thread, its client and its lock.
    name: String,
    attempts: u32,
    random: Rng,
}

impl Thread {
    /// Ends the session, with all nodes that a failed operation may have left, and opens another.
    async fn renew(&self) {
        // There is no session at first.
        self.peer.close(&self.name).await.ok();
        loop {
            let opened = self
                .peer
                .open(&self.name, &self.connect_string, SESSION_TIMEOUT);
            match opened.await {
                Ok(_) => return,
                Err(PeerError::Exited { .. }) => panic!("Curator's JVM has ended"),
                Err(_) => {}
            }
        }
    }

    async fn attempt(&mut self) {
        let [a, b, s] = LOCKS.map(|lock| path(self.random.u64(..self.side_by_side), lock));
        let (kind, path) = match self.random.u8(..10) {
            0..3 => (LockKind::Mutex, a),
            3 | 4 => (LockKind::Mutex, b),
            5..8 => (LockKind::Read, s),
            _ => (LockKind::Write, s),
        };
        let id = AttemptId {
            worker: self.worker,
            number: self.attempts,
            member: 0,
        };
        self.attempts += 1;
        let invoked = Step::Invoked {
            kind,
            permits: 1,
            party: (u64::from(self.worker) << 32) | u64::from(id.number),
            path: path.clone(),
        };
        let note = |step| self.journal.step(monotonic_now(), id, step).unwrap();
        note(invoked);
        let stay = Duration::from_millis(self.random.u64(..15));
        let end = match self.hold(kind, &path, id, stay).await {
            Ok(end) => end,
            Err(_) => {
                self.renew().await;
                Step::LetGo
            }
        };
        note(end);
    }

    /// Acquires the lock, holds it for a while and releases it. Returns how it ended.
    async fn hold(
        &self,
        kind: LockKind,
        path: &str,
        id: AttemptId,
        stay: Duration,
    ) -> Result<Step, PeerError> {
        let (peer, name) = (&self.peer, &self.name);
        let lock = match kind {
            LockKind::Permit | LockKind::Latch => unreachable!("not a lock of this soak"),
            LockKind::Mutex => {
                peer.mutex(name, name, path).await?;
                name.clone()
            }
            LockKind::Read | LockKind::Write => {
                peer.read_write_lock(name, name, path).await?;
                format!("{name}.{}", kind.as_str())
            }
        };
        if !peer.acquire(name, &lock, Some(ACQUIRE_MAX)).await? {
            return Ok(Step::Ended);
        }
        let at = monotonic_now();
        let mut is_granted = false;
        if let Some(node) = peer.lock_path(name, &lock).await? {
            // None: the node that it believes to hold was deleted with its session.
            if let Some(stat) = peer.stat(name, &node).await? {
                let token = stat.czxid;
                let granted = Step::Granted { token, node };
                self.journal.step(at, id, granted).unwrap();
                is_granted = true;
            }
        }
        if is_granted {
            sleep(stay).await;
            let releasing = monotonic_now();
            self.journal.step(releasing, id, Step::Releasing).unwrap();
        }
        peer.release(name, &lock).await?;
        Ok(if is_granted {
            Step::Released
        } else {
            Step::LetGo
        })
    }
}
