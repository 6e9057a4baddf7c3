//! One session in one world, and all that it receives.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, join};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use recipes_core::{Connection, EndReason, NewNode, NodeMode, NodeWatch, Nodes};
use recipes_zookeeper::Acl;
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio::time::timeout;

use crate::gate::Gate;
use crate::script::{Change, Made, Place, Request};
use crate::seen::{Answer, Heard};

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(300);
/// An event that comes later is missing.
const EVENTS_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    Reply(usize),
    Watch(usize),
}

/// Which futures were woken, in order. Futures are polled one after the other, so the order in
/// which they are found complete means nothing.
#[derive(Debug, Default)]
struct Notes {
    notes: Mutex<Vec<Note>>,
    woken: Notify,
}

struct Noting {
    note: Note,
    notes: Arc<Notes>,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        self.notes.take_down(self.note);
    }
}

impl Notes {
    fn take_down(&self, note: Note) {
        self.notes.lock().unwrap().push(note);
        self.woken.notify_one();
    }

    fn waker(self: &Arc<Self>, note: Note) -> Waker {
        let notes = Arc::clone(self);
        Waker::from(Arc::new(Noting { note, notes }))
    }
}

/// Lists for the nodes that a session is about to create, in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists(Arc<Mutex<VecDeque<Vec<Acl>>>>);

impl Lists {
    /// The list of the next node.
    pub(crate) fn next(&self) -> Option<Vec<Acl>> {
        self.0.lock().unwrap().pop_front()
    }

    fn give<'a>(&self, nodes: impl Iterator<Item = &'a Made>) {
        let lists = nodes.map(|made| made.rights.list());
        self.0.lock().unwrap().extend(lists);
    }
}

type Pending = BoxFuture<'static, (Answer, Option<NodeWatch>)>;

/// A request whose reply is awaited.
struct Asked {
    number: usize,
    place: Place,
    reply: Pending,
    answer: Option<Answer>,
}

/// One session. It has no handle once the last one is dropped.
pub(crate) struct Client {
    pub(crate) id: i64,
    pub(crate) nodes: Option<Arc<dyn Nodes>>,
    lists: Lists,
    pub(crate) gate: Option<Gate>,
    pub(crate) cut: bool,
    pub(crate) ended: Option<EndReason>,
    state: Connection,
    connection: BoxStream<'static, Connection>,
    asked: Vec<Asked>,
    requests_made: usize,
    watches: BTreeMap<usize, (Place, NodeWatch)>,
    notes: Arc<Notes>,
    /// Heard, and not yet asked for.
    early: Vec<Heard>,
}

impl Client {
    pub(crate) fn new(nodes: Arc<dyn Nodes>, lists: Lists, gate: Option<Gate>) -> Self {
        Self {
            id: nodes.session(),
            connection: nodes.connection().fuse().boxed(),
            nodes: Some(nodes),
            lists,
            gate,
            cut: false,
            ended: None,
            state: Connection::Connected,
            asked: Vec::new(),
            requests_made: 0,
            watches: BTreeMap::new(),
            notes: Arc::default(),
            early: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, requests: &[Request], directory: &str) {
        let Some(nodes) = &self.nodes else { return };
        for request in requests {
            let place = match request {
                Request::Watch(place) => place.clone(),
                _ => Place(String::new()),
            };
            self.requests_made += 1;
            let mut asked = Asked {
                number: self.requests_made,
                place,
                // These futures are polled by hand: one that is told to wait because the task has
                // done enough would be taken for one without an answer.
                reply: unconstrained(ask(
                    Arc::clone(nodes),
                    self.lists.clone(),
                    request.clone(),
                    directory.to_owned(),
                ))
                .boxed(),
                answer: None,
            };
            // The first poll calls the method, which sends.
            asked.poll(&self.notes, &mut self.watches);
            self.asked.push(asked);
        }
    }

    /// Forgets the reply to the last request, but not the request.
    pub(crate) fn forget_last(&mut self) {
        if let Some(asked) = self.asked.pop() {
            // It may have been answered already.
            drop(self.watches.remove(&asked.number));
        }
    }

    /// Drops the last handle, and forgets the replies to requests that wait for the connection.
    pub(crate) fn hang_up(&mut self) {
        self.asked.clear();
        self.nodes = None;
    }

    pub(crate) fn is_live(&self) -> bool {
        self.nodes.is_some() && self.ended.is_none()
    }

    pub(crate) fn requests_made(&self) -> usize {
        self.requests_made
    }

    /// Drops the oldest watch that has not fired.
    pub(crate) fn unwatch(&mut self) {
        drop(self.watches.pop_first());
    }

    pub(crate) fn is_watching(&self) -> bool {
        !self.watches.is_empty()
    }

    /// Waits for all replies, and returns them in the order of the requests.
    pub(crate) async fn answers(&mut self) -> Vec<Answer> {
        let answered = async {
            loop {
                let mut all = true;
                for asked in &mut self.asked {
                    all &= asked.poll(&self.notes, &mut self.watches);
                }
                if all {
                    return;
                }
                self.notes.woken.notified().await;
            }
        };
        // A missing reply shows up as an answer of its own.
        timeout(PATIENCE, answered).await.unwrap_or_default();
        let asked = mem::take(&mut self.asked);
        let answers = asked.into_iter().map(|it| it.answer);
        answers.map(|it| it.unwrap_or(Answer::Missing)).collect()
    }

    /// Everything that was received since the last call.
    pub(crate) fn heard(&mut self) -> Vec<Heard> {
        let mut heard = mem::take(&mut self.early);
        let notes = mem::take(&mut *self.notes.notes.lock().unwrap());
        for note in notes {
            match note {
                // A future may be woken more than once, and after it was found complete.
                Note::Reply(number) => {
                    if number == self.requests_made && !heard.contains(&Heard::Reply) {
                        heard.push(Heard::Reply);
                    }
                }
                Note::Watch(watch) => heard.extend(self.fired(watch)),
            }
        }
        heard
    }

    fn fired(&mut self, watch: usize) -> Option<Heard> {
        let waker = self.notes.waker(Note::Watch(watch));
        let (_, waiting) = self.watches.get_mut(&watch)?;
        let Poll::Ready(event) = waiting.as_mut().poll(&mut Context::from_waker(&waker)) else {
            return None;
        };
        let (place, _) = self.watches.remove(&watch)?;
        let event = event.into();
        Some(Heard::Event {
            place,
            event,
            watch,
        })
    }

    /// Waits for everything that the server had sent to this session.
    pub(crate) async fn hear_out(&self, directory: &str) {
        if let Some(nodes) = self.nodes.as_ref().filter(|_| self.is_live() && !self.cut) {
            // Notifications and replies come on one connection, in order. A missing one shows up. A
            // session on a database looks for news before it answers a sync.
            let asked = join(nodes.read(directory), nodes.sync(directory));
            timeout(PATIENCE, asked).await.ok();
        }
    }

    /// Waits until so many events were heard: on etcd no reply says that all have come.
    pub(crate) async fn until_heard(&mut self, events: usize) {
        let heard = async {
            loop {
                self.early = self.heard();
                let heard = self.early.iter().filter(|it| **it != Heard::Reply);
                if heard.count() >= events {
                    return;
                }
                self.notes.woken.notified().await;
            }
        };
        // Missing ones show up.
        timeout(EVENTS_MAX, heard).await.unwrap_or_default();
    }

    /// Waits for everything that may still be on its way: an event of this session's own comes after it.
    pub(crate) async fn hear_all(&mut self, directory: &str) {
        let Some(nodes) = self.nodes.clone().filter(|_| self.is_live() && !self.cut) else {
            return;
        };
        let last = async {
            let path = format!("{directory}/last-{:x}", self.id);
            let node = NewNode {
                path: path.clone(),
                data: Arc::from([]),
                mode: NodeMode::Persistent,
            };
            nodes.create(&node).await.ok()?;
            let (_, _, event) = nodes.watch(&path).await.ok()??;
            nodes.delete(&path).await.ok()?;
            Some(event.await)
        };
        timeout(PATIENCE, last).await.unwrap_or_default();
    }

    /// Waits until the client knows that its connection is in such a state, or that its session has
    /// ended.
    pub(crate) async fn until(&mut self, wanted: impl Fn(Connection) -> bool) {
        let reached = async {
            while !wanted(self.state) && !matches!(self.state, Connection::Ended(_)) {
                match self.connection.next().await {
                    Some(state) => self.state = state,
                    None => return,
                }
            }
        };
        timeout(PATIENCE, reached).await.unwrap_or_default();
        self.note_state();
    }

    pub(crate) async fn until_ended(&mut self) {
        self.until(|_| false).await;
    }

    /// Notes changes of the connection that were not awaited.
    pub(crate) fn note_state(&mut self) {
        while let Some(Some(state)) = unconstrained(self.connection.next()).now_or_never() {
            self.state = state;
        }
        if let Connection::Ended(reason) = self.state {
            self.ended.get_or_insert(reason);
        }
    }
}

impl Asked {
    /// Whether it was answered. If it has set a watch, the watch is polled from now on.
    fn poll(
        &mut self,
        notes: &Arc<Notes>,
        watches: &mut BTreeMap<usize, (Place, NodeWatch)>,
    ) -> bool {
        if self.answer.is_some() {
            return true;
        }
        let note = Note::Reply(self.number);
        let waker = notes.waker(note);
        let Poll::Ready((answer, watch)) = self.reply.poll_unpin(&mut Context::from_waker(&waker))
        else {
            return false;
        };
        self.answer = Some(answer);
        notes.take_down(note);
        if let Some(watch) = watch {
            let watch = unconstrained(watch).boxed();
            watches.insert(self.number, (self.place.clone(), watch));
            // It is polled with the others. Whether it has fired by now means nothing.
            notes.take_down(Note::Watch(self.number));
        }
        true
    }
}

fn ask(nodes: Arc<dyn Nodes>, lists: Lists, request: Request, directory: String) -> Pending {
    Box::pin(async move {
        let path = |place: &Place| place.full(&directory);
        let text = |data: Vec<u8>| String::from_utf8_lossy(&data).into_owned();
        let answer = match request {
            Request::Create(made) => {
                lists.give([&made].into_iter());
                let created = nodes.create(&made.node(&directory)).await;
                created.map(|created| Answer::Created {
                    path: created.path,
                    czxid: created.czxid,
                })
            }
            Request::Delete(place) => nodes.delete(&path(&place)).await.map(|()| Answer::Deleted),
            Request::List(place) => nodes.list(&path(&place)).await.map(|mut names| {
                names.sort_unstable();
                Answer::Names(names)
            }),
            Request::Read(place) => nodes
                .read(&path(&place))
                .await
                .map(|node| Answer::Node(node.map(|(data, stat)| (text(data), stat)))),
            Request::Watch(place) => match nodes.watch(&path(&place)).await {
                Ok(Some((data, stat, watch))) => {
                    return (Answer::Watched(Some((text(data), stat))), Some(watch));
                }
                Ok(None) => Ok(Answer::Watched(None)),
                Err(error) => Err(error),
            },
            Request::Sync(place) => nodes.sync(&path(&place)).await.map(|()| Answer::Synced),
            Request::Multi(changes) => {
                lists.give(changes.iter().filter_map(|change| match change {
                    Change::Create(made) => Some(made),
                    Change::Delete(..) | Change::Set(..) | Change::Check(..) => None,
                }));
                let operations = changes.iter().map(|it| it.operation(&directory)).collect();
                match nodes.multi(operations).await {
                    Ok(done) => Ok(Answer::Done(done)),
                    Err(error) => return (Answer::refused_multi(&error), None),
                }
            }
        };
        (answer.unwrap_or_else(|error| Answer::refused(&error)), None)
    })
}
