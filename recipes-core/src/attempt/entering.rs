//! How an attempt gets nodes: by a create of its own, or by one that another acquire of its session
//! has given up before the answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::FutureExt;
use futures::future::join_all;

use crate::attempt::ask::Ask;
use crate::attempt::creation::{Creation, share_directory};
use crate::attempt::requests::{Refused, at, look_beside};
use crate::error::Step;
use crate::lock::target::Target;
use crate::names::node_name;
use crate::rules::acquire::{Entry, Event, Node};
use crate::rules::admission::Place;
use crate::session::cleanup::Cleanup;
use crate::session::create_in_flight::{Answer, CreateInFlight, NodeInFlight, Purpose};
use crate::session::epoch::Epoch;
use crate::session::leftovers::Leftovers;
use crate::store::nodes::{Created, Listing, MultiError, NodeOp, Nodes, NodesError};
use crate::store::retry::Backoff;

/// The creates of an attempt for some of its members, all or none.
pub(crate) struct Entering<'a> {
    epoch: &'a Arc<Epoch>,
    nodes: &'a Arc<dyn Nodes>,
    leftovers: Arc<Leftovers>,
    asks: Vec<Ask<'a>>,
    creation: Arc<Creation>,
    /// The connection of the attempt.
    connection: u64,
    is_first: bool,
    /// The highest transaction number that was seen before the create, for each node.
    pub(crate) floors: Vec<i64>,
    /// Whether the listings that come with the nodes are of that connection.
    is_present: bool,
    /// What the nodes contain that another acquire made, if they should contain something else.
    rewritten: Vec<Option<Arc<[u8]>>>,
}

impl<'a> Entering<'a> {
    /// Adopts a create, or prepares one with these uuids. `is_first`: no earlier create with them is
    /// of unknown outcome, so none must be searched for.
    pub(crate) fn new(
        (epoch, connection): (&'a Arc<Epoch>, u64),
        nodes: &'a Arc<dyn Nodes>,
        (cleanup, leftovers): (&Cleanup, &Arc<Leftovers>),
        (asks, is_first): (Vec<Ask<'a>>, bool),
    ) -> Self {
        let mut entering = Self {
            epoch,
            nodes,
            leftovers: Arc::clone(leftovers),
            creation: Arc::new(Creation::new(&asks)),
            connection,
            is_first,
            floors: vec![epoch.highest_number(); asks.len()],
            is_present: true,
            rewritten: vec![None; asks.len()],
            asks,
        };
        let purposes = entering.asks.iter().map(|it| purpose(it.target));
        let adopted = match is_first {
            true => cleanup.adopt(&purposes.collect::<Vec<_>>(), epoch),
            false => None,
        };
        match adopted {
            Some(create) => entering.adopt(create),
            None => entering.begin(),
        }
        entering
    }

    fn adopt(&mut self, create: CreateInFlight) {
        self.floors = create.nodes.iter().map(|it| it.floor).collect();
        self.is_present = create.connection == self.connection;
        let nodes = create
            .nodes
            .iter()
            .zip(&self.asks)
            .zip(self.creation.data());
        let rewritten = nodes.map(|((it, ask), data)| {
            // A record says since when, too, which stays as it is.
            let differs = it.owner != ask.target.owner && it.data != *data;
            differs.then(|| Arc::clone(data))
        });
        self.rewritten = rewritten.collect();
        self.leftovers.begin(self.members(), create);
    }

    /// Begins a create of its own.
    fn begin(&self) {
        let nodes = self.asks.iter().zip(self.creation.data()).zip(&self.floors);
        let nodes = nodes.map(|((ask, data), floor)| NodeInFlight {
            purpose: purpose(ask.target),
            uuid: ask.uuid,
            owner: ask.target.owner,
            data: Arc::clone(data),
            floor: *floor,
        });
        let creation = Arc::clone(&self.creation);
        let answer = creation.send(Arc::clone(self.epoch), Arc::clone(self.nodes));
        let answer = answer.boxed();
        let create = CreateInFlight::new(nodes.collect(), self.connection, self.is_first, answer);
        self.leftovers.begin(self.members(), create);
    }

    fn members(&self) -> Vec<usize> {
        self.asks.iter().map(|it| it.member).collect()
    }

    /// Sends the create, if it is not in flight, and waits until the nodes exist.
    pub(crate) async fn entered(mut self) -> Result<Event, Refused> {
        let Some(first) = self.asks.first().copied() else {
            return Ok(Event::Entered(Vec::new()));
        };
        let mut backoff = Backoff::default();
        loop {
            let (Answer { created, listings }, beside) = self.answer().await;
            let MultiError { index, source } = match created {
                Ok(created) => {
                    if let Some(others) = beside? {
                        // They would refuse the others. What is not deleted here, the clean-up pursues.
                        let deletes = created.iter().map(|it| self.nodes.delete(&it.path));
                        join_all(deletes.collect::<Vec<_>>()).await;
                        return Ok(others);
                    }
                    self.rewrite(&created);
                    return Ok(Event::Entered(self.entries(created, listings)));
                }
                Err(error) => error,
            };
            let operation = index.and_then(|index| self.creation.operation(index));
            match (source, operation) {
                (NodesError::NoNode, Some((member, NodeOp::Check { .. }))) => {
                    return Ok(Event::WriterGone(*member));
                }
                (NodesError::NoNode, _) => return Ok(Event::NoParent),
                (NodesError::Unknown(_), _) => return Ok(Event::EnterUnknown),
                (NodesError::Throttled, _) => backoff.wait().await,
                (source, operation) => {
                    let member = operation.map(|(member, _)| *member);
                    let mut asks = self.asks.iter();
                    let ask = asks.find(|ask| member.is_none_or(|it| it == ask.member));
                    return Err(at(&ask.unwrap_or(&first).target.lock, Step::Create)(source));
                }
            }
            self.is_present = true;
            self.rewritten.fill(None);
            self.begin();
        }
    }

    /// Waits for the answer to the create, which is sent now unless it is in flight. In the same
    /// flush, watches the directories for which that may save listings, and looks for nodes of others where nobody
    /// else has.
    async fn answer(&self) -> (Answer, Result<Option<Event>, Refused>) {
        let together = self.nodes.together();
        let polled = poll_fn(|cx| Poll::Ready(self.leftovers.poll_create(cx))).await;
        let nodes = &**self.nodes;
        let watches: Vec<_> = self.asks.iter().filter_map(|it| it.watch(nodes)).collect();
        let beside = look_beside(nodes, &self.asks);
        drop(together);
        join_all(watches).await;
        let beside = match beside {
            Some(beside) => beside.await,
            None => Ok(None),
        };
        let answer = match polled {
            Poll::Ready(answer) => answer,
            Poll::Pending => poll_fn(|cx| self.leftovers.poll_create(cx)).await,
        };
        (answer, beside)
    }

    /// Writes into adopted nodes what their contender would have written. Not over what somebody
    /// else has written, for example a request to give the lock up. Only operators read it, so
    /// nothing waits for the answer.
    fn rewrite(&self, created: &[Created]) {
        for (Created { path, .. }, data) in created.iter().zip(&self.rewritten) {
            if let Some(data) = data {
                let (path, data, version) = (path.clone(), data.to_vec(), Some(0));
                let set = NodeOp::Set {
                    path,
                    data,
                    version,
                };
                drop(self.nodes.multi(vec![set]));
            }
        }
    }

    fn entries(&self, created: Vec<Created>, listings: Vec<Option<Listing>>) -> Vec<Entry> {
        let mut before: Option<&Target> = None;
        let made = self.asks.iter().zip(created).zip(listings);
        let entries = made.map(|((ask, Created { path, czxid }), listing)| {
            let name = node_name::last_part(&path).to_owned();
            let is_listed_before = before.is_some_and(|it| share_directory(it, ask.target));
            before = Some(ask.target);
            let children = match listing {
                // A create that was adopted may have been sent over an earlier connection.
                _ if !self.is_present => None,
                Some(listing) => listing.ok(),
                None if is_listed_before => None,
                None => ask.claim_as_first(&name).then(|| vec![name.clone()]),
            };
            Entry {
                node: Node { name, czxid },
                children,
            }
        });
        entries.collect()
    }
}

fn purpose(target: &Target) -> Purpose {
    Purpose {
        directory: Arc::clone(&target.lock.path),
        kind: target.kind,
        data: target.data.clone(),
        is_beside: target.place() != Place::Tail,
    }
}
