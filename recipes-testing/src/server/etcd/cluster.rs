//! Several etcd servers with a quorum.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{sleep, timeout};

use super::{EtcdServer, EtcdServerBuilder, field, serves};
use crate::server::error::ServerError;
use crate::server::links::Links;

/// An election takes one to three seconds; a busy machine may take some more.
const ELECTION_MAX: Duration = Duration::from_secs(60);
/// Servers do not announce a leader to clients, so they are polled this often.
const ELECTION_POLL: Duration = Duration::from_millis(20);
/// Being refused so often means another problem.
const CHANGES_MAX: usize = 20;

/// Real etcd servers in a quorum, on loopback, each in a process of its own.
///
/// Servers are numbered from zero. Dropping the cluster kills all of them. See [`EtcdServer`] for what it
/// needs.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// use lock_recipes::testing::EtcdCluster;
///
/// let cluster = EtcdCluster::start(3).await?;
/// cluster.kill(cluster.leader().await?).await?;
/// let leader = cluster.leader().await?;
/// cluster.server(leader).command(&["put", "answer", "42"]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EtcdCluster {
    servers: Vec<EtcdServer>,
    links: Option<Links>,
}

impl EtcdCluster {
    /// Starts that many servers (3 or 5 make sense) with the defaults of [`EtcdServerBuilder`].
    ///
    /// # Errors
    ///
    /// As [`EtcdServerBuilder::start_cluster`].
    pub async fn start(size: usize) -> Result<Self, ServerError> {
        Self::builder().start_cluster(size).await
    }

    /// Sets options before starting; end with [`EtcdServerBuilder::start_cluster`].
    pub fn builder() -> EtcdServerBuilder {
        EtcdServerBuilder::default()
    }

    pub(super) async fn new(
        servers: Vec<EtcdServer>,
        links: Option<Links>,
    ) -> Result<Self, ServerError> {
        let cluster = Self { servers, links };
        for index in 0..cluster.servers.len() {
            cluster.introduce(index).await?;
        }
        Ok(cluster)
    }

    /// Where clients connect: `etcd://127.0.0.1:<port>,127.0.0.1:<port>,…`.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(EtcdServer::address).collect();
        format!("etcd://{}", addresses.join(","))
    }

    /// Returns all servers, running or not.
    #[must_use]
    pub fn servers(&self) -> &[EtcdServer] {
        &self.servers
    }

    /// Returns one server.
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "a wrong number is a mistake in the test"
    )]
    pub fn server(&self, index: usize) -> &EtcdServer {
        &self.servers[index]
    }

    /// Waits until there is a leader that a majority follows, and returns its number.
    ///
    /// Only members that are neither halted nor cut off from it count. So a deposed leader is none, even while it
    /// takes itself for one.
    ///
    /// # Errors
    ///
    /// [`ServerError::TimedOut`] if none is elected within 60 s, as without a majority.
    pub async fn leader(&self) -> Result<usize, ServerError> {
        let election = async {
            loop {
                let said = join_all(self.servers.iter().map(EtcdServer::status)).await;
                let follow = |leader: usize, id| {
                    let members = said.iter().enumerate();
                    let followers = members.filter(|(member, said)| {
                        said.is_some_and(|it| it.leader == id) && self.joins([leader, *member])
                    });
                    2 * followers.count() > said.len()
                };
                let leader = said.iter().enumerate().position(|(index, said)| {
                    said.is_some_and(|it| it.id == it.leader && follow(index, it.id))
                });
                match leader {
                    Some(leader) => return leader,
                    None => sleep(ELECTION_POLL).await,
                }
            }
        };
        let elected = timeout(ELECTION_MAX, election).await;
        elected.map_err(|_| self.server(0).daemon.timed_out("leader", ELECTION_MAX))
    }

    /// Has the leader hand its office to this member, and returns when a majority follows it.
    ///
    /// # Errors
    ///
    /// [`ServerError::Refused`] if the member does not take it, or as [`leader`](Self::leader).
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub async fn move_leader(&self, index: usize) -> Result<(), ServerError> {
        let id = format!("{:x}", self.id(index).await?);
        let mut refusals = 0;
        loop {
            let leader = self.leader().await?;
            if leader == index {
                return Ok(());
            }
            let moved = self.server(leader).command(&["move-leader", &id]).await;
            // It may not be the leader any more.
            if let Err(error) = moved {
                refusals += 1;
                if refusals == CHANGES_MAX {
                    return Err(error);
                }
                sleep(ELECTION_POLL).await;
            }
        }
    }

    /// Kills one server, as [`EtcdServer::kill`].
    ///
    /// # Errors
    ///
    /// As [`EtcdServer::kill`].
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub async fn kill(&self, index: usize) -> Result<(), ServerError> {
        self.server(index).kill().await
    }

    /// Starts one server again and returns when it serves clients. While it reaches too few servers for a majority, it
    /// returns at once.
    ///
    /// # Errors
    ///
    /// As [`EtcdServer::start_again`].
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub async fn start_again(&self, index: usize) -> Result<(), ServerError> {
        let server = self.server(index);
        server.daemon.spawn()?;
        let members = self.servers.iter().enumerate();
        let reached =
            members.filter(|(member, it)| it.daemon.is_active() && self.joins([index, *member]));
        if 2 * reached.count() > self.servers.len() {
            server.daemon.start(serves).await?;
        }
        Ok(())
    }

    /// Stops one server and starts it again.
    ///
    /// # Errors
    ///
    /// As [`EtcdServer::stop`] and [`start_again`](Self::start_again).
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub async fn restart(&self, index: usize) -> Result<(), ServerError> {
        self.server(index).stop().await?;
        self.start_again(index).await
    }

    /// Replaces a member, running or not, by a new one without data. It has the same number and ports.
    ///
    /// # Errors
    ///
    /// [`ServerError::Refused`] if the others refuse it, or as [`leader`](Self::leader) and
    /// [`EtcdServer::start_again`]. The cluster may then lack a member.
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub async fn replace(&self, index: usize) -> Result<(), ServerError> {
        let server = self.server(index);
        let old = self.id(index).await?;
        let words = ["member", "remove", &format!("{old:x}")];
        self.change(index, &words, |id| id != Some(old)).await?;
        server.kill().await?;
        std::fs::remove_dir_all(server.daemon.folder.data())
            .map_err(ServerError::io("remove a member's data"))?;
        let peers = format!("--peer-urls={}", server.peer_url);
        let words = ["member", "add", &index.to_string(), &peers];
        // A leader that was just elected may not have applied the removal yet. A member that took the old one's number would
        // lack what the leader believes it to have, and panic.
        self.change(index, &words, |id| id.is_some_and(|it| it != old))
            .await?;
        server.configure(false);
        server.start_again().await?;
        self.introduce(index).await
    }

    /// Has the leader change its list of members.
    async fn change(
        &self,
        index: usize,
        words: &[&str],
        is_done: impl Fn(Option<u64>) -> bool,
    ) -> Result<(), ServerError> {
        let mut attempts = 1;
        loop {
            let answer = self.server(self.leader().await?).command(words).await;
            // A change that follows another at once is sometimes refused for the reason of that.
            match answer {
                _ if is_done(self.find(index).await?) => return Ok(()),
                Err(error) if attempts == CHANGES_MAX => return Err(error),
                _ => sleep(ELECTION_POLL).await,
            }
            attempts += 1;
        }
    }

    /// Cuts one server off from the others; clients reach it as before. Idempotent.
    ///
    /// Connections stay, and what is sent arrives when the server [joins again](Self::join_again), as do new
    /// connections.
    ///
    /// # Panics
    ///
    /// Unless the cluster was started with [`EtcdServerBuilder::links`].
    pub fn cut_off(&self, index: usize) {
        self.links().cut_off(&[index]);
    }

    /// Cuts some servers off from the others, but not from each other. Otherwise it works as
    /// [`cut_off`](Self::cut_off).
    ///
    /// # Panics
    ///
    /// As [`cut_off`](Self::cut_off).
    pub fn cut_off_together(&self, indices: &[usize]) {
        self.links().cut_off(indices);
    }

    /// Undoes [`cut_off`](Self::cut_off) for this server. Idempotent.
    ///
    /// # Panics
    ///
    /// As [`cut_off`](Self::cut_off).
    pub fn join_again(&self, index: usize) {
        self.links().join_again(index);
    }

    #[expect(clippy::expect_used, reason = "a mistake in the test")]
    fn links(&self) -> &Links {
        let links = self.links.as_ref();
        links.expect("links between the servers, from EtcdServerBuilder::links")
    }

    fn joins(&self, ends: [usize; 2]) -> bool {
        self.links.as_ref().is_none_or(|links| links.joins(ends))
    }

    /// Has the links know by which number a member calls itself.
    async fn introduce(&self, index: usize) -> Result<(), ServerError> {
        let id = self.id(index).await?;
        if let Some(links) = &self.links {
            links.introduce(index, id);
        }
        Ok(())
    }

    /// The number by which a member is known to the others.
    async fn id(&self, index: usize) -> Result<u64, ServerError> {
        let id = self.find(index).await?;
        id.ok_or_else(|| {
            self.server(index)
                .daemon
                .timed_out("member", Duration::ZERO)
        })
    }

    /// The same, if there is one at this place.
    async fn find(&self, index: usize) -> Result<Option<u64>, ServerError> {
        let leader = self.server(self.leader().await?);
        let printed = leader
            .command(&["member", "list", "--write-out=fields"])
            .await?;
        let place = format!("\"PeerURL\" : \"{}\"", self.server(index).peer_url);
        let (above, _) = printed.split_once(&place).unwrap_or_default();
        // A member's number stands above its place.
        Ok(above.lines().rev().find_map(|line| field(line, "ID")))
    }
}
