//! Servers, the processes that contend on them, and the faults that hit both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use test_rig::history::{Happening, Journal, monotonic_now};
use tokio::time::sleep;

use crate::orders::{Orders, Scenes, directories, register, written};
use crate::servers::{Done, Servers};
use crate::talk::Talk;
use crate::trouble::Trouble;
use crate::worker::SESSION_TIMEOUT;

/// Processes that contend at one time.
pub(crate) const WORKERS: usize = 4;
/// Contenders that have not finished this long after the last fault never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How long a contender may wait with no node ahead: until the session of a dead contender has
/// expired and all others have reconnected. On a busy machine a database leaves several tries of a session of two seconds
/// without an answer: 15 s were seen.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Stage<S> {
    pub(crate) servers: S,
    /// Processes in the order of their places. If one is killed, another takes its place.
    pub(crate) workers: Vec<(u32, Talk)>,
    seed: u64,
    scenes: Scenes,
    /// The folder to which all processes write their events.
    folder: PathBuf,
    journal: Journal,
    start: u64,
    started: u32,
}

impl<S: Servers> Stage<S> {
    /// Starts the processes.
    pub(crate) async fn new(servers: S, seed: u64, scenes: Scenes, folder: &Path) -> Self {
        let registers = (0..scenes.histories()).flat_map(written);
        let registers = registers.map(|lock| register(&lock));
        let all: Vec<_> = ["/registers".to_owned()]
            .into_iter()
            .chain(registers)
            .collect();
        servers.create(&all).await;
        let mut stage = Self {
            servers,
            workers: Vec::new(),
            seed,
            scenes,
            folder: folder.to_owned(),
            journal: journal(folder),
            start: monotonic_now(),
            started: 0,
        };
        for _ in 0..WORKERS {
            let worker = stage.start_worker();
            stage.workers.push(worker);
        }
        stage
    }

    fn start_worker(&mut self) -> (u32, Talk) {
        let worker = self.started;
        self.started += 1;
        let orders = self.orders(worker).to_string();
        (worker, Talk::start("worker_process", &orders))
    }

    fn orders(&self, worker: u32) -> Orders {
        Orders {
            worker,
            seed: self.seed.wrapping_add(u64::from(worker) << 48),
            address: self.servers.address(worker),
            journal: self.folder.join(format!("worker-{worker}")),
            start: self.start,
            scenes: self.scenes,
        }
    }

    /// Lets processes that have finished their scenes play them again.
    pub(crate) async fn again(&mut self, seed: u64, folder: &Path) {
        self.seed = seed;
        self.folder = folder.to_owned();
        self.journal = journal(folder);
        self.start = monotonic_now();
        for index in 0..self.workers.len() {
            let orders = self.orders(self.workers[index].0);
            self.workers[index].1.tell(&orders.to_string()).await;
        }
    }

    pub(crate) fn note(&self, what: Happening) {
        self.journal.write(monotonic_now(), what).unwrap();
    }

    pub(crate) async fn bring(&mut self, trouble: Trouble, random: &mut Rng) -> Done {
        match trouble {
            Trouble::PauseWorker(index, pause) => {
                self.note(Happening::Paused(self.workers[index].0));
                self.workers[index].1.signal(Signal::STOP);
                sleep(pause).await;
                self.workers[index].1.signal(Signal::CONT);
                self.note(Happening::Resumed(self.workers[index].0));
            }
            Trouble::KillWorker(index) => self.replace(index).await,
            Trouble::Evict => {
                let locks = locks(self.scenes);
                if let Some(session) = self.servers.somebody(&locks, random).await {
                    self.note(Happening::Evicted(session));
                    self.servers.expire(session).await?;
                }
            }
            _ => {
                self.note(Happening::Down);
                self.servers.bring(trouble, random).await?;
                self.note(Happening::Up);
            }
        }
        Ok(())
    }

    /// Brings a fault that hits servers while a process is halted. It goes on after others had time
    /// to be granted a lock, but before it must notice that its own may be lost.
    pub(crate) async fn bring_unseen(
        &mut self,
        trouble: Trouble,
        index: usize,
        random: &mut Rng,
    ) -> Done {
        self.note(Happening::Paused(self.workers[index].0));
        self.workers[index].1.signal(Signal::STOP);
        self.bring(trouble, random).await?;
        sleep(SESSION_TIMEOUT / 5).await;
        self.workers[index].1.signal(Signal::CONT);
        self.note(Happening::Resumed(self.workers[index].0));
        Ok(())
    }

    /// Kills a process. Another takes its place.
    pub(crate) async fn replace(&mut self, index: usize) {
        self.workers[index].1.kill().await;
        self.note(Happening::Killed(self.workers[index].0));
        self.workers[index] = self.start_worker();
    }

    /// Waits until the nodes of dead processes are deleted with their sessions. Then it records the
    /// nodes that are left, and returns how many there are.
    pub(crate) async fn note_what_is_left(&self) -> usize {
        let left = self.servers.left(&locks(self.scenes)).await;
        let count = left.len();
        left.into_iter()
            .for_each(|node| self.note(Happening::Left(node)));
        count
    }
}

pub(crate) fn events(folder: &Path) -> String {
    let files = folder.read_dir().unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    texts.collect()
}

fn journal(folder: &Path) -> Journal {
    Journal::open(&folder.join("trouble")).unwrap()
}

fn locks(scenes: Scenes) -> Vec<String> {
    (0..scenes.histories()).flat_map(directories).collect()
}
