//! Sides that use this library's ZooKeeper client: its own lock, and the least cost of a lock.

use std::collections::HashMap;

use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, LockOptions, LockPrefix};

use super::loops::{Contender, cycles, each, together};
use super::work::{Place, Work};

/// As long as the data that this library writes into a node.
const DATA: [u8; 64] = [b'-'; 64];
/// As long as the name that Curator and this library give to a node.
const NAME: &str = "_c_00000000-0000-0000-0000-000000000000-lock-";

/// Clients by the server that they are connected to. They stay connected for all measurements.
#[derive(Default)]
pub(crate) struct Clients(HashMap<String, Vec<Client>>);

impl Clients {
    /// Returns this many clients of that server.
    pub(crate) async fn get(&mut self, at: &str, count: usize) -> &[Client] {
        let clients = self.0.entry(at.to_owned()).or_default();
        while clients.len() < count {
            clients.push(Client::connect(at).await.unwrap());
        }
        &clients[..count]
    }
}

pub(crate) fn directory() -> CreateOptions<'static> {
    CreateMode::Container.with_acls(Acls::anyone_all())
}

/// The side that uses `Client::lock`.
#[derive(Default)]
pub(crate) struct BuiltIn(Clients);

impl BuiltIn {
    pub(crate) async fn perform(&mut self, work: Work, place: &Place) -> Vec<u64> {
        let sessions = match work {
            Work::Uncontended => 1,
            Work::Contended { sessions } => sessions,
            _ => unreachable!("not compared: {work:?}"),
        };
        let clients = self.0.get(&place.at, sessions).await.iter();
        let contend = clients.map(|client| ItsLock {
            client: client.clone(),
            path: place.path.clone(),
        });
        let mut contenders: Vec<_> = contend.collect();
        match work {
            Work::Uncontended => cycles(contenders.remove(0), place.length).await,
            _ => together(contenders, place.length).await,
        }
    }
}

struct ItsLock {
    client: Client,
    path: String,
}

impl Contender for ItsLock {
    /// The path of the lock's node.
    type Held = String;

    async fn take(&mut self) -> String {
        let prefix = LockPrefix::new_curator(&self.path, "lock-").unwrap();
        let options = LockOptions::new(Acls::anyone_all());
        let options = options.with_ancestor_options(directory()).unwrap();
        let held = self.client.lock(prefix, &DATA, options).await.unwrap();
        let node = held.lock_path().to_owned();
        // Dropping it would delete the node in the background, and no code can wait for that.
        std::mem::forget(held);
        node
    }

    async fn give_back(&mut self, node: String) {
        self.client.delete(&node, None).await.unwrap();
    }
}

/// The side that only creates and deletes a node, without finding out whether it is first.
#[derive(Default)]
pub(crate) struct Raw(Clients);

impl Raw {
    pub(crate) async fn perform(&mut self, work: Work, place: &Place) -> Vec<u64> {
        let client = self.0.get(&place.at, 1).await[0].clone();
        let (path, length) = (place.path.clone(), place.length);
        client.mkdir(&path, &directory()).await.unwrap();
        match work {
            Work::Uncontended => cycles(Node { client, path }, length).await,
            Work::Parallel { locks } => {
                let mut nodes = Vec::new();
                for index in 0..locks {
                    let path = format!("{path}/{index}");
                    client.mkdir(&path, &directory()).await.unwrap();
                    let client = client.clone();
                    nodes.push(Node { client, path });
                }
                together(nodes, length).await
            }
            Work::Read => {
                let read = move || {
                    let stat = client.check_stat(&path);
                    async { assert!(stat.await.unwrap().is_some(), "it is there") }
                };
                each(read, length).await
            }
            _ => unreachable!("not compared: {work:?}"),
        }
    }
}

struct Node {
    client: Client,
    path: String,
}

impl Contender for Node {
    type Held = String;

    async fn take(&mut self) -> String {
        let prefix = format!("{}/{NAME}", self.path);
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let created = self.client.create(&prefix, &DATA, &options).await;
        format!("{prefix}{}", created.unwrap().1)
    }

    async fn give_back(&mut self, node: String) {
        self.client.delete(&node, None).await.unwrap();
    }
}
