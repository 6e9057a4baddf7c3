//! The other lock of the textbooks: one node, which its holder creates and all others watch.
//!
//! Each deletion wakes all waiters. Each of them tries to create the node, and all but one watch it
//! again.

use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::client::directory;
use super::crowd::{Crowd, SESSION_TIMEOUT};
use super::loops::Contender;
use super::work::{Place, Work};

#[derive(Default)]
pub(crate) struct Herd {
    clients: Vec<Client>,
    crowd: Option<Crowd>,
}

impl Herd {
    pub(crate) async fn perform(&mut self, work: Work, place: &Place) -> Vec<u64> {
        match work {
            Work::Crowd { waiters } => {
                self.gather(place, waiters + 1).await;
                Vec::new()
            }
            Work::Release => self.crowd.as_ref().unwrap().release_one().await,
            Work::Disperse => {
                self.crowd.take().unwrap().disperse();
                // The holder's node goes with its session.
                self.clients.clear();
                Vec::new()
            }
            _ => unreachable!("not compared: {work:?}"),
        }
    }

    async fn gather(&mut self, place: &Place, contenders: usize) {
        let connector = || Client::connector().with_session_timeout(SESSION_TIMEOUT);
        for _ in 0..contenders {
            let client = connector().connect(&place.at).await.unwrap();
            self.clients.push(client);
        }
        let (first, options) = (&self.clients[0], directory());
        first.mkdir(&place.path, &options).await.unwrap();
        let node = format!("{}/lock", place.path);
        let contenders = self.clients.iter().map(|client| OneNode {
            client: client.clone(),
            node: node.clone(),
        });
        self.crowd = Some(Crowd::gather(contenders.collect()).await);
    }
}

struct OneNode {
    client: Client,
    node: String,
}

impl Contender for OneNode {
    type Held = ();

    async fn take(&mut self) {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        loop {
            match self.client.create(&self.node, b"", &options).await {
                Ok(_) => return,
                Err(Error::NodeExists) => {}
                Err(error) => panic!("{}: {error}", self.node),
            }
            let (stat, watch) = self.client.check_and_watch_stat(&self.node).await.unwrap();
            // If it is gone already, the watch would wait for the next holder to create it.
            if stat.is_some() {
                watch.changed().await;
            }
        }
    }

    async fn give_back(&mut self, (): ()) {
        self.client.delete(&self.node, None).await.unwrap();
    }
}
