//! Servers, the processes that contend on them, and the faults that hit both.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use recipes_testing::history::{Happening, Journal, monotonic_now};
use recipes_testing::{ServerError, ZooKeeperEnsemble, ZooKeeperServer};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::orders::{LOCKS, Orders, Scenes, path, register};
use crate::talk::Talk;
use crate::trouble::{Trouble, Which};
use crate::worker::SESSION_TIMEOUT;

/// Processes that contend at one time.
pub(crate) const WORKERS: usize = 4;
/// Contenders that have not finished this long after the last fault never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a contender may wait with no node ahead: until the session of a dead contender has
/// expired and all others have reconnected, on a busy machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);
/// A server may not answer at all while it is down or starts.
const ANSWER_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Stage {
    pub(crate) ensemble: ZooKeeperEnsemble,
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

impl Stage {
    /// Starts the processes.
    pub(crate) async fn new(
        ensemble: ZooKeeperEnsemble,
        seed: u64,
        scenes: Scenes,
        folder: &Path,
    ) -> Self {
        let client = ensemble.client().await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir("/registers", &options).await.unwrap();
        for lock in locks(scenes) {
            client
                .create(&register(&lock), b"", &options)
                .await
                .unwrap();
        }
        let mut stage = Self {
            ensemble,
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
            connect_string: self.connect_string(worker),
            journal: self.folder.join(format!("worker-{worker}")),
            start: self.start,
            scenes: self.scenes,
        }
    }

    /// Each worker has another server first in its list. It connects to that one as long as it can.
    fn connect_string(&self, worker: u32) -> String {
        let servers = self.ensemble.servers().iter();
        let mut servers: Vec<_> = servers.map(ZooKeeperServer::connect_string).collect();
        let first = usize::try_from(worker).unwrap() % servers.len();
        servers.rotate_left(first);
        servers.join(",")
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

    pub(crate) async fn bring(
        &mut self,
        trouble: Trouble,
        random: &mut Rng,
    ) -> Result<(), Box<dyn Error>> {
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
                let session = timeout(ANSWER_MAX, self.somebody(random)).await;
                if let Ok(Ok(Some(session))) = session {
                    self.note(Happening::Evicted(session));
                    match self.ensemble.expire(session).await {
                        Err(ServerError::NoSession { .. }) => {}
                        done => done?,
                    }
                }
            }
            _ => {
                self.note(Happening::Down);
                self.bring_to_servers(trouble, random).await?;
                self.note(Happening::Up);
            }
        }
        Ok(())
    }

    /// Kills a process. Another takes its place.
    pub(crate) async fn replace(&mut self, index: usize) {
        self.workers[index].1.kill().await;
        self.note(Happening::Killed(self.workers[index].0));
        self.workers[index] = self.start_worker();
    }

    /// All servers serve again when this returns.
    async fn bring_to_servers(
        &self,
        trouble: Trouble,
        random: &mut Rng,
    ) -> Result<(), Box<dyn Error>> {
        let servers = self.ensemble.servers();
        let count = servers.len();
        let (chief, follower) = match count {
            1 => (0, 0),
            _ => {
                let chief = self.ensemble.leader().await?;
                // Clients avoid a server that was down, so it is not always the same one.
                (chief, (chief + random.usize(1..count)) % count)
            }
        };
        let chosen = |which| match which {
            Which::Leader => chief,
            Which::Follower => follower,
        };
        match trouble {
            Trouble::RestartServer => self.ensemble.restart(chief).await?,
            Trouble::KillServer(which, pause) => {
                self.ensemble.kill(chosen(which)).await?;
                sleep(pause).await;
                self.ensemble.start_again(chosen(which)).await?;
            }
            Trouble::PauseServer(which, pause) => {
                servers[chosen(which)].pause()?;
                sleep(pause).await;
                servers[chosen(which)].resume()?;
            }
            Trouble::RestartAll => {
                for index in 0..count {
                    self.ensemble.restart(index).await?;
                }
            }
            Trouble::LoseQuorum(pause) => {
                for index in 1..count {
                    self.ensemble.kill((chief + index) % count).await?;
                }
                sleep(pause).await;
                for index in 1..count {
                    self.ensemble.start_again((chief + index) % count).await?;
                }
            }
            Trouble::CutOff(which, pause) => {
                self.ensemble.cut_off(chosen(which));
                sleep(pause).await;
                self.ensemble.join_again(chosen(which));
            }
            Trouble::PauseWorker(..) | Trouble::KillWorker(_) | Trouble::Evict => {}
        }
        for server in servers {
            await_service(server).await?;
        }
        Ok(())
    }

    /// Starts all servers again after a fault that was not completed.
    pub(crate) async fn mend(&self, trouble: Trouble) {
        if matches!(trouble, Trouble::Evict) {
            return;
        }
        let servers = self.ensemble.servers();
        (0..servers.len()).for_each(|index| self.ensemble.join_again(index));
        for server in servers {
            server.kill().await.unwrap();
        }
        for index in 0..servers.len() {
            self.ensemble.start_again(index).await.unwrap();
        }
        for server in servers {
            await_service(server).await.unwrap();
        }
        self.note(Happening::Up);
    }

    /// The session of a random node that exists now.
    async fn somebody(&self, random: &mut Rng) -> Result<Option<i64>, zookeeper_client::Error> {
        let client = Client::connect(&self.ensemble.connect_string()).await?;
        let mut locks = locks(self.scenes);
        random.shuffle(&mut locks);
        for lock in locks {
            let Ok(nodes) = client.list_children(&lock).await else {
                continue;
            };
            if let Some(node) = random.choice(nodes) {
                let stat = client.check_stat(&format!("{lock}/{node}")).await?;
                return Ok(stat.map(|stat| stat.ephemeral_owner));
            }
        }
        Ok(None)
    }

    /// Waits until the nodes of dead processes are deleted with their sessions. Then it records the
    /// nodes that are left, and returns how many there are.
    pub(crate) async fn note_what_is_left(&self) -> usize {
        let mut count = 0;
        let client = self.ensemble.client().await.unwrap();
        let until = Instant::now() + SESSION_TIMEOUT + PATIENCE / 3;
        for lock in locks(self.scenes) {
            loop {
                // A follower may not have learned yet what the leader has deleted.
                client.sync(&lock).await.unwrap();
                let nodes = client.list_children(&lock).await.unwrap_or_default();
                if nodes.is_empty() || Instant::now() > until {
                    count += nodes.len();
                    let left = nodes.iter().map(|node| format!("{lock}/{node}"));
                    left.for_each(|node| self.note(Happening::Left(node)));
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
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

/// Waits until the server accepts clients. Without a leader it closes their connections.
async fn await_service(server: &ZooKeeperServer) -> Result<(), Box<dyn Error>> {
    let served = async {
        // The client itself waits a while for a server that does not answer.
        while !matches!(timeout(ANSWER_MAX, server.client()).await, Ok(Ok(_))) {}
    };
    let served = timeout(2 * PATIENCE, served).await;
    Ok(served.map_err(|_| format!("port {} does not serve", server.port()))?)
}

fn locks(scenes: Scenes) -> Vec<String> {
    let all = (0..scenes.histories()).flat_map(|history| LOCKS.map(|lock| path(history, lock)));
    all.collect()
}
