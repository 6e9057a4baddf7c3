//! Servers of which one serves at a time: one that keeps what it has acknowledged, or one that may
//! forget the last of it, alone or because a replica takes its place.
//!
//! All rules are checked on both. On the second, no rule is weaker either: tokens follow the clock,
//! and after each restart or promotion that may have forgotten something, nobody is granted a lock
//! before all holders must have noticed.

mod road;
mod schedule;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_recipes::Guarantee;
use recipes_core::{SessionOptions, Store};
use test_rig::TransactionLog;
use tokio::time::sleep;

use crate::operator::Operator;
use crate::orders::Scenes;
use crate::run::{Outcome, Run};
use crate::servers::{Done, Servers};
use crate::stage::WORKERS;
use crate::trouble::Trouble;
use crate::worker::session_timeout;

use road::Road;

/// What servers can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// One server, which keeps what it has acknowledged.
    All,
    /// A server, perhaps with a replica, which may forget what was written last.
    Most,
}

/// One server.
pub(crate) trait Machine: Sized {
    /// What can happen besides to such servers: each entry is as likely as the others. `last` is what a
    /// server forgets.
    fn troubles(keeps: Keeps, last: Duration) -> Vec<Trouble>;

    /// What its sessions are promised.
    fn guarantee(keeps: Keeps) -> Guarantee;

    async fn start(keeps: Keeps, random: &mut Rng) -> Done<Self>;

    fn port(&self) -> u16;

    /// Where clients connect over another port.
    fn url_at(&self, port: u16) -> String;

    /// A store that knows that nobody held a lock before.
    fn store(url: &str, options: SessionOptions) -> Arc<dyn Store>;

    async fn stop(&self) -> Done;

    async fn start_again(&self) -> Done;

    async fn kill(&self) -> Done;

    fn pause(&self) -> Done;

    fn resume(&self) -> Done;

    /// Cuts connections of sessions.
    async fn cut_connections(&self) -> Done;

    /// Sets the clock that the store sees.
    async fn set_clock(&self, by_us: i64) -> Done;

    /// It ends, and starts again without what it has written in this last time.
    async fn forget_last(&self, last: Duration) -> Done;

    /// Begins to write down the session of each node, if it can.
    async fn observe(&self) -> Done {
        Ok(())
    }

    /// What it has written down.
    async fn sessions(&self) -> BTreeMap<String, i64> {
        BTreeMap::new()
    }

    /// The session of a random node.
    async fn somebody(&self) -> Option<i64> {
        None
    }

    /// Ends a session.
    async fn expire(&self, _session: i64) -> Done {
        Ok(())
    }

    /// A new replica, which has all, if there are replicas.
    async fn replica(&self, keeps: Keeps) -> Done<Option<Self>>;

    /// Has a replica take no more from its primary.
    async fn cut_off(&self) -> Done;

    /// Makes a replica, which is cut off, the primary.
    async fn promote(&self) -> Done;

    /// Waits until a replica has all that was written before.
    async fn has_caught_up_with(&self, primary: &Self) -> Done;
}

/// The methods that all servers of `test_rig` have.
macro_rules! process {
    () => {
        fn port(&self) -> u16 {
            self.port()
        }

        async fn stop(&self) -> Done {
            Ok(self.stop().await?)
        }

        async fn start_again(&self) -> Done {
            Ok(self.start_again().await?)
        }

        async fn kill(&self) -> Done {
            Ok(self.kill().await?)
        }

        fn pause(&self) -> Done {
            Ok(self.pause()?)
        }

        fn resume(&self) -> Done {
            Ok(self.resume()?)
        }
    };
}
pub(crate) use process;

/// The rows of a table with paths of nodes and their sessions.
pub(crate) fn observed(rows: Vec<Vec<String>>) -> BTreeMap<String, i64> {
    let row = |row: Vec<String>| (row[0].clone(), row[1].parse().unwrap());
    rows.into_iter().map(row).collect()
}

/// Runs to the end, and judges.
pub(crate) async fn judged<M: Machine>(seed: u64, scenes: Scenes, keeps: Keeps) -> Outcome {
    let mut random = Rng::with_seed(seed);
    let schedule = schedule::of::<M>(&mut random, WORKERS, scenes.length(), keeps);
    let servers = Primary::<M>::start(keeps, &mut random).await.unwrap();
    Run::on(servers, seed, scenes, schedule).await
}

/// One or two servers. Clients reach one of them, by a road whose start stays the same.
struct Primary<M> {
    primary: RefCell<Rc<M>>,
    replica: RefCell<Option<Rc<M>>>,
    road: Road,
    keeps: Keeps,
}

impl<M: Machine> Primary<M> {
    async fn start(keeps: Keeps, random: &mut Rng) -> Done<Self> {
        let primary = M::start(keeps, random).await?;
        let road = Road::to(primary.port()).await?;
        let servers = Self {
            primary: RefCell::new(Rc::new(primary)),
            replica: RefCell::default(),
            road,
            keeps,
        };
        servers.add_replica().await?;
        Ok(servers)
    }

    async fn add_replica(&self) -> Done {
        let replica = self.primary().replica(self.keeps).await?;
        self.replica.replace(replica.map(Rc::new));
        Ok(())
    }

    fn primary(&self) -> Rc<M> {
        Rc::clone(&self.primary.borrow())
    }

    fn url(&self) -> String {
        self.primary().url_at(self.road.port())
    }

    fn operator(&self) -> Operator {
        let url = self.url();
        let options = SessionOptions::new().session_timeout(session_timeout(&url));
        Operator(M::store(&url, options))
    }

    /// The replica takes the place of its primary.
    async fn replace(&self, is_killed: bool) -> Done {
        let (old, new) = (self.primary(), self.replica.take().expect("a replica"));
        // Whoever promotes a replica would close the connections, too.
        self.road.close();
        if is_killed {
            old.kill().await?;
        }
        new.promote().await?;
        let port = new.port();
        self.primary.replace(new);
        self.road.open(port);
        Ok(())
    }
}

impl<M: Machine> Servers for Primary<M> {
    fn address(&self, _worker: u32) -> String {
        self.url()
    }

    async fn create(&self, paths: &[String]) {
        let guarantee = self.operator().create(paths).await;
        assert_eq!(guarantee, M::guarantee(self.keeps));
        self.primary().observe().await.unwrap();
    }

    async fn prepare(&self, trouble: Trouble) -> Done {
        if self.replica.borrow().is_none() {
            self.add_replica().await?;
        }
        if let Trouble::Promote(last) | Trouble::Swap(last) = trouble {
            let replica = self.replica.borrow().as_ref().map(Rc::clone);
            let replica = replica.expect("a replica");
            replica.has_caught_up_with(&self.primary()).await?;
            replica.cut_off().await?;
            // What is written now will be forgotten.
            sleep(last).await;
        }
        Ok(())
    }

    async fn bring(&self, trouble: Trouble, _random: &mut Rng) -> Done {
        let server = self.primary();
        match trouble {
            Trouble::RestartServer => {
                server.stop().await?;
                server.start_again().await
            }
            Trouble::KillServer(_, pause) => {
                server.kill().await?;
                sleep(pause).await;
                server.start_again().await
            }
            Trouble::PauseServer(_, pause) => {
                server.pause()?;
                sleep(pause).await;
                server.resume()
            }
            Trouble::CutConnections => server.cut_connections().await,
            Trouble::SetClock(by_us) => server.set_clock(by_us).await,
            Trouble::ForgetLast(last) => server.forget_last(last).await,
            Trouble::Promote(_) => self.replace(true).await,
            Trouble::Swap(_) => self.replace(false).await,
            _ => unreachable!("{trouble:?} is for other servers"),
        }
    }

    async fn somebody(&self, _locks: &[String], _random: &mut Rng) -> Option<i64> {
        self.primary().somebody().await
    }

    async fn expire(&self, session: i64) -> Done {
        self.primary().expire(session).await
    }

    async fn left(&self, locks: &[String]) -> Vec<String> {
        self.operator().left(locks).await
    }

    /// Those of Redis have a log, but not one that keeps what was forgotten.
    fn log(&self) -> Option<TransactionLog> {
        None
    }

    async fn sessions(&self) -> BTreeMap<String, i64> {
        self.primary().sessions().await
    }
}
