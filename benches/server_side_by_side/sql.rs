//! Locks made of SQL statements, whatever the database.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::time::sleep;

use super::loops::{Contender, each};
use super::side::{InProcess, Lock, Locks, Side, TaskOf};
use super::work::{POLL, Place, Work};

pub(crate) const NAIVE: &str = "naive row";
pub(crate) const SHEDLOCK: &str = "ShedLock's way";
pub(crate) const ROUND_TRIP: &str = "round trip: SELECT 1";

/// The servers that are compared on.
pub(crate) static STAGES: [&str; 2] = [
    "On a disk, with the server's own settings: a commit is answered when it is there.",
    "In memory, where nothing waits for a disk.",
];

/// A connection to a database.
pub(crate) trait Connection: Send + Sync + Sized + 'static {
    fn open(url: &str) -> impl Future<Output = Self> + Send;

    /// Carries out a statement, which is prepared at its first use, on a lock and for an owner.
    /// Returns whether it changed a row, or else answered with a row (PostgreSQL) or a 1 (MariaDB).
    fn agrees(
        &self,
        statement: &'static str,
        lock: &str,
        owner: &str,
    ) -> impl Future<Output = bool> + Send;
}

/// A way to lock.
#[derive(Debug)]
pub(crate) struct Way {
    /// Instead of the first attempt of a connection at a lock, which follows if this is refused.
    pub(crate) first: Option<&'static str>,
    /// Agrees if the lock is granted.
    pub(crate) attempt: &'static str,
    /// Waits until the lock is granted. Without it, attempts are repeated every [`POLL`].
    pub(crate) wait: Option<&'static str>,
    /// The first that agrees gives the lock back.
    pub(crate) release: &'static [&'static str],
    /// The same lock for readers, if there is one.
    pub(crate) readers: Option<&'static Way>,
    pub(crate) measures_round_trips: bool,
}

/// A side that locks so.
pub(crate) fn side<C: Connection>(name: &'static str, way: &'static Way) -> Box<dyn Side> {
    let clients = Vec::<Arc<Client<C>>>::new();
    InProcess::boxed(name, SqlLocks { way, clients })
}

struct SqlLocks<C> {
    way: &'static Way,
    clients: Vec<Arc<Client<C>>>,
}

struct Client<C> {
    connection: C,
    owner: String,
    /// The locks that it has tried.
    tried: Mutex<HashSet<String>>,
}

impl<C: Connection> SqlLocks<C> {
    async fn client(&mut self, number: usize, place: &Place) -> Arc<Client<C>> {
        while self.clients.len() <= number {
            self.clients.push(Arc::new(Client {
                connection: C::open(&place.url).await,
                owner: format!("{:032x}:1", fastrand::u128(..)),
                tried: Mutex::default(),
            }));
        }
        Arc::clone(&self.clients[number])
    }
}

impl<C: Connection> Locks for SqlLocks<C> {
    type Lock = SqlLock<C>;

    fn does(&self, work: Work) -> bool {
        match work {
            Work::Set { .. } => false,
            _ if work.is_a_queue() => false,
            Work::ReadWrite { .. } => self.way.readers.is_some(),
            Work::RoundTrip => self.way.measures_round_trips,
            _ => true,
        }
    }

    async fn lock(&mut self, client: usize, name: &str, place: &Place) -> SqlLock<C> {
        SqlLock {
            client: self.client(client, place).await,
            way: self.way,
            name: name.to_owned(),
        }
    }

    /// A connection does one thing at a time. Services have several.
    fn client_in_parallel(&self, lock: usize) -> usize {
        lock
    }

    async fn pair(&mut self, task: TaskOf, place: &Place) -> [SqlLock<C>; 2] {
        // As above: a connection for each task.
        let write = self.lock(task.number, &place.lock, place).await;
        let way = self.way.readers.unwrap();
        [
            SqlLock {
                way,
                ..write.clone()
            },
            write,
        ]
    }

    async fn round_trips(&mut self, place: &Place) -> Vec<u64> {
        let client = self.client(0, place).await;
        let round_trip = move || {
            let client = Arc::clone(&client);
            async move {
                assert!(client.connection.agrees("SELECT 1", "", "").await);
            }
        };
        each(round_trip, place.length).await
    }

    async fn close(self) {}
}

struct SqlLock<C> {
    client: Arc<Client<C>>,
    way: &'static Way,
    name: String,
}

impl<C> Clone for SqlLock<C> {
    fn clone(&self) -> Self {
        Self {
            client: Arc::clone(&self.client),
            way: self.way,
            name: self.name.clone(),
        }
    }
}

impl<C: Connection> SqlLock<C> {
    async fn agrees(&self, statement: &'static str) -> bool {
        let Client {
            connection, owner, ..
        } = &*self.client;
        connection.agrees(statement, &self.name, owner).await
    }

    /// Tries once.
    async fn attempt(&self) -> bool {
        if let Some(first) = self.way.first {
            let is_first = self.client.tried.lock().unwrap().insert(self.name.clone());
            if is_first && self.agrees(first).await {
                return true;
            }
        }
        self.agrees(self.way.attempt).await
    }
}

impl<C: Connection> Lock for SqlLock<C> {
    async fn is_refused(&self) -> bool {
        !self.attempt().await
    }
}

impl<C: Connection> Contender for SqlLock<C> {
    type Held = ();

    async fn take(&mut self) {
        if let Some(wait) = self.way.wait {
            assert!(self.agrees(wait).await, "waited in vain");
            return;
        }
        while !self.attempt().await {
            sleep(POLL).await;
        }
    }

    async fn give_back(&mut self, (): ()) {
        for release in self.way.release {
            if self.agrees(release).await {
                return;
            }
        }
        panic!("the lock was lost");
    }
}
