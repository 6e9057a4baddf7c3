//! The world of a script: in memory, or on a real server.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use recipes_zookeeper::{Acls, ZooKeeper};
use test_rig::{MemoryEnsemble, ZooKeeperServer};
use zookeeper_client::{Client, CreateMode, Error};

use crate::client;
use crate::gate::Gate;
use crate::seen::Leaf;
use crate::served::Served;

pub(crate) const CREDENTIALS: &str = "user:secret";

/// Long enough that a busy machine loses no session, also while it is cut off.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(1_200);
/// The client for ZooKeeper waits for a part of it before it tries to connect again.
const ZOOKEEPER_SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// The user to whom a server allows everything.
pub(crate) struct SuperUser {
    credentials: &'static str,
    /// Name, and SHA-1 of name and password, as `DigestAuthenticationProvider` prints it.
    pub(crate) digest: &'static str,
}

pub(crate) const SUPER_USER: SuperUser = SuperUser {
    credentials: "super:super",
    digest: "super:gG7s8t3oDEtIqF6DM9LlI/R+9Ss=",
};

#[derive(Clone)]
pub(crate) struct RealServer {
    server: Arc<ZooKeeperServer>,
    operator: Client,
}

impl RealServer {
    pub(crate) async fn new(server: ZooKeeperServer) -> Self {
        let connector = Client::connector().with_session_timeout(ZOOKEEPER_SESSION_TIMEOUT);
        let operator = connector
            .with_auth("digest", SUPER_USER.credentials.as_bytes())
            .connect(&server.connect_string())
            .await
            .unwrap();
        Self {
            server: Arc::new(server),
            operator,
        }
    }
}

#[derive(Clone)]
pub(crate) enum World {
    Memory(MemoryEnsemble),
    Real(RealServer),
    Served(Served),
}

impl World {
    /// Whether it is a database.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self, Self::Served(_))
    }

    pub(crate) fn is_etcd(&self) -> bool {
        matches!(self, Self::Served(served) if served.is_etcd())
    }

    /// The double that is compared with this world.
    pub(crate) fn double(&self) -> Self {
        // As newer ZooKeeper servers and ours do; the oldest server does not.
        let tells = matches!(self, Self::Served(_));
        // Only a script ends a session: how long a step takes must not show.
        let double = MemoryEnsemble::builder()
            .without_session_timeout()
            .stats_in_transactions(tells)
            .tells_who_was_first(tells);
        Self::Memory(double.build())
    }

    pub(crate) async fn create(&self, directory: &str) {
        match self {
            Self::Memory(ensemble) => ensemble.create(directory, b"").unwrap(),
            Self::Real(RealServer { operator, .. }) => {
                let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
                operator.create(directory, b"", &options).await.unwrap();
            }
            Self::Served(served) => served.create(directory).await,
        }
    }

    pub(crate) async fn open(&self, credentials: bool, cut_off: bool) -> client::Client {
        let lists = client::Lists::default();
        let next = lists.clone();
        let mut options = ZooKeeper::builder()
            .session_timeout(SESSION_TIMEOUT)
            .acl_by_path(move |_| next.next());
        let credentials = credentials.then_some(CREDENTIALS);
        match self {
            Self::Memory(ensemble) => {
                let store = ensemble.store_with(credentials, options);
                client::Client::new(store.connect().await.unwrap(), lists, None)
            }
            Self::Real(RealServer { server, .. }) => {
                if let Some(credentials) = credentials {
                    options = options.auth("digest", credentials.as_bytes());
                }
                let gate = match cut_off {
                    true => Some(Gate::before(server.port()).await.unwrap()),
                    false => None,
                };
                let through = gate.as_ref().map(Gate::connect_string);
                let address = through.unwrap_or_else(|| server.connect_string());
                options = options.session_timeout(ZOOKEEPER_SESSION_TIMEOUT);
                let store = options.store(&address).unwrap();
                client::Client::new(store.connect().await.unwrap(), lists, gate)
            }
            Self::Served(served) => served.open(cut_off).await,
        }
    }

    pub(crate) async fn expire(&self, session: i64) {
        match self {
            Self::Memory(ensemble) => drop(ensemble.expire(session)),
            Self::Real(RealServer { server, .. }) => server.expire(session).await.unwrap(),
            Self::Served(served) => served.expire(session).await,
        }
    }

    pub(crate) fn cut(&self, client: &client::Client) {
        match self {
            Self::Memory(ensemble) => drop(ensemble.disconnect(client.id)),
            Self::Real(_) => client.gate.iter().for_each(Gate::shut),
            Self::Served(_) => {
                client.gate.iter().for_each(Gate::shut);
                // A client of MariaDB notices when it asks. Its next beat would be in minutes.
                drop(client.nodes.as_ref().map(|nodes| nodes.sync("/")));
            }
        }
    }

    pub(crate) fn mend(&self, client: &client::Client) {
        match self {
            Self::Memory(ensemble) => drop(ensemble.reconnect(client.id)),
            Self::Real(_) | Self::Served(_) => client.gate.iter().for_each(Gate::open),
        }
    }

    /// All nodes from a directory on, parents first, names sorted.
    pub(crate) async fn tree(&self, directory: &str) -> Vec<Leaf> {
        match self {
            Self::Memory(ensemble) => {
                let below = format!("{directory}/");
                let leaves = ensemble.tree().lines().map(parse).collect::<Vec<_>>();
                let own = |leaf: &Leaf| leaf.path == directory || leaf.path.starts_with(&below);
                leaves.into_iter().filter(own).collect()
            }
            Self::Real(RealServer { operator, .. }) => {
                real_tree(operator, directory.to_owned()).await
            }
            Self::Served(served) => served.tree(directory).await,
        }
    }
}

/// Parses one line of [`MemoryEnsemble::tree`]. A server does not report which nodes are
/// containers.
fn parse(line: &str) -> Leaf {
    let (name, rest) = line.split_once(" czxid=").unwrap();
    let (numbers, data) = rest.split_once(" data=").unwrap();
    let (path, kind) = name.split_once(' ').unwrap();
    let kind: Vec<&str> = kind.split(' ').collect();
    let hex = |text: &str| i64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let numbers: Vec<&str> = numbers.split([' ', '=']).collect();
    Leaf {
        path: path.to_owned(),
        owner: kind.get(1).map_or(0, |owner| hex(owner)),
        data: data.to_owned(),
        czxid: hex(numbers[0]),
        mzxid: hex(numbers[2]),
        pzxid: hex(numbers[4]),
        version: numbers[6].parse().unwrap(),
        cversion: numbers[8].parse().unwrap(),
    }
}

fn real_tree(operator: &Client, path: String) -> BoxFuture<'_, Vec<Leaf>> {
    Box::pin(async move {
        let (read, listed) = (operator.get_data(&path), operator.list_children(&path));
        let (data, stat) = match read.await {
            // A container without children may have been reaped.
            Err(Error::NoNode) => return Vec::new(),
            read => read.unwrap(),
        };
        let mut names = listed.await.unwrap();
        names.sort_unstable();
        let mut leaves = vec![Leaf {
            path: path.clone(),
            owner: stat.ephemeral_owner,
            data: format!("{:?}", String::from_utf8_lossy(&data)),
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.pzxid,
            version: stat.version,
            cversion: stat.cversion,
        }];
        let children = names
            .iter()
            .map(|name| real_tree(operator, format!("{path}/{name}")));
        leaves.extend(join_all(children).await.into_iter().flatten());
        leaves
    })
}
