use std::sync::atomic::Ordering;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use recipes_core::{Created, Guarantee, NewNode, NodeMode, NodeOpDone, Nodes};
use tokio::sync::mpsc;
use tokio::task::yield_now;

use super::*;
use crate::sessions::Sessions;
use crate::wire::{Answers, CallError, Called, Facts, Opened, Resume, Resumed, Said, Server};

mod leaving;
mod reconnects;

const TIMEOUT: Duration = Duration::from_secs(12);

/// What a connection was asked.
#[derive(Debug)]
enum Heard {
    Open(Open, Reply<Opened>),
    Resume(Resume, Reply<Option<Resumed>>),
    Requests(Requests),
    Beat(Arc<Caller>, Reply<bool>),
    Close(Reply<bool>),
    Started(u64, Arc<Caller>),
}

type Reply<T> = oneshot::Sender<Result<T, CallError>>;

#[derive(Debug)]
struct Requests {
    asked: Arc<[Asked]>,
    reply: Reply<Option<Answers>>,
}

impl Requests {
    fn answer(self, all: impl IntoIterator<Item = Said>) {
        let outcomes = all.into_iter().map(Ok).collect();
        let step = None;
        drop(self.reply.send(Ok(Some(Answers { outcomes, step }))));
    }
}

/// A server whose test answers for it.
#[derive(Debug)]
struct Scripted {
    heard: mpsc::UnboundedSender<Heard>,
    shared: watch::Sender<Option<Arc<Shared>>>,
    loss: watch::Sender<Option<(u64, Loss)>>,
    kind: Kind,
    /// Connections that the client panics for.
    panics: AtomicUsize,
}

/// What the connections of a server are like.
#[derive(Clone, Copy, Debug)]
struct Kind {
    beats_apart: bool,
    leaves_anywhere: bool,
    in_flight_max: usize,
    /// Requests cannot be sent.
    is_broken: bool,
    /// The client panics when it is to send them.
    panics: bool,
}

const APART: Kind = Kind {
    beats_apart: true,
    leaves_anywhere: false,
    in_flight_max: 1,
    is_broken: false,
    panics: false,
};
const TOGETHER: Kind = Kind {
    beats_apart: false,
    ..APART
};
const ANYWHERE: Kind = Kind {
    leaves_anywhere: true,
    in_flight_max: 8,
    ..TOGETHER
};

#[derive(Debug)]
struct ScriptedWire {
    heard: mpsc::UnboundedSender<Heard>,
    loss: watch::Receiver<Option<(u64, Loss)>>,
    facts: Facts,
    number: u64,
    kind: Kind,
}

impl Server for Scripted {
    fn open<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        number: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>> {
        self.shared.send_replace(Some(Arc::clone(shared)));
        let facts = Facts {
            run: "run".to_owned(),
            uptime_s: 0,
            was_replica: false,
            guarantee: Guarantee::OneCopy,
        };
        let wire = ScriptedWire {
            heard: self.heard.clone(),
            loss: self.loss.subscribe(),
            facts,
            number,
            kind: self.kind,
        };
        let left = self.panics.load(Ordering::Relaxed);
        async move {
            if left > 0 {
                self.panics.store(left - 1, Ordering::Relaxed);
                panic!("no such plugin");
            }
            Ok(Box::new(wire) as Box<dyn Wire>)
        }
        .boxed()
    }
}

impl Wire for ScriptedWire {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn in_flight_max(&self) -> usize {
        self.kind.in_flight_max
    }

    fn beats_apart(&self) -> bool {
        self.kind.beats_apart
    }

    fn leaves_anywhere(&self) -> bool {
        self.kind.leaves_anywhere
    }

    fn open(&self, open: Open) -> Called<Opened> {
        self.says(move |reply| Heard::Open(open, reply))
    }

    fn resume(&self, resume: Resume) -> Called<Option<Resumed>> {
        self.says(move |reply| Heard::Resume(resume, reply))
    }

    fn requests(&self, _: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let Kind {
            is_broken, panics, ..
        } = self.kind;
        let asked = Arc::clone(asked);
        let said = self.says(move |reply| Heard::Requests(Requests { asked, reply }));
        async move {
            assert!(!panics, "no such plugin");
            if is_broken {
                let why = std::io::Error::other("broken");
                return Err(CallError::Lost(Arc::new(why)));
            }
            said.await
        }
        .boxed()
    }

    fn beat(&self, caller: &Arc<Caller>) -> Called<bool> {
        let caller = Arc::clone(caller);
        self.says(move |reply| Heard::Beat(caller, reply))
    }

    fn close(&self, _: &Arc<Caller>) -> Called<bool> {
        self.says(Heard::Close)
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        let mut loss = self.loss.clone();
        async move {
            let is_this = |it: &Option<(u64, Loss)>| it.is_some_and(|(at, _)| at == self.number);
            let lost = loss.wait_for(is_this).await;
            let lost = lost.ok().and_then(|lost| *lost);
            lost.map_or(Loss::Connection, |(_, loss)| loss)
        }
        .boxed()
    }

    fn started(&self, session: &Arc<Caller>) {
        let started = Heard::Started(self.number, Arc::clone(session));
        drop(self.heard.send(started));
    }
}

impl ScriptedWire {
    /// Tells the test at the first poll, and waits for its answer.
    fn says<T: Send + 'static>(
        &self,
        what: impl FnOnce(Reply<T>) -> Heard + Send + 'static,
    ) -> Called<T> {
        let heard = self.heard.clone();
        async move {
            let (reply, answered) = oneshot::channel();
            heard.send(what(reply)).expect("the test listens");
            let lost = |error| CallError::Lost(Arc::new(error));
            answered.await.map_err(lost)?
        }
        .boxed()
    }
}

/// A session on a scripted server.
struct Scene {
    nodes: Arc<dyn Nodes>,
    heard: mpsc::UnboundedReceiver<Heard>,
    server: Arc<Scripted>,
}

impl Scene {
    async fn open(kind: Kind) -> Self {
        let (says, mut heard) = mpsc::unbounded_channel();
        let server = Arc::new(Scripted {
            heard: says,
            shared: watch::Sender::new(None),
            loss: watch::Sender::new(None),
            kind,
            panics: AtomicUsize::default(),
        });
        let sessions = Sessions::new(Terms {
            server: Arc::clone(&server) as Arc<dyn Server>,
            connect_timeout: TIMEOUT,
            session_timeout: TIMEOUT,
            is_new: true,
            container_rest: TIMEOUT,
        });
        let opened = async {
            let Some(Heard::Open(open, reply)) = heard.recv().await else {
                panic!("nothing is called")
            };
            let expected = Open {
                secret: "secret".to_owned(),
                timeout: TIMEOUT,
                run: "run".to_owned(),
                is_known: true,
            };
            assert_eq!(open, expected);
            let opened = Opened {
                id: 5,
                quarantine: Duration::ZERO,
                doubt: Duration::ZERO,
            };
            drop(reply.send(Ok(opened)));
            let Some(Heard::Started(1, session)) = heard.recv().await else {
                panic!("the wire is not told")
            };
            assert_eq!(session.name(), "5:12000000:secret:1");
            if kind.beats_apart {
                let beat = tokio::time::timeout(TIMEOUT, heard.recv()).await;
                let Ok(Some(Heard::Beat(_, reply))) = beat else {
                    panic!("nobody looks after the others")
                };
                drop(reply.send(Ok(true)));
            }
        };
        let (nodes, ()) = tokio::join!(sessions.open("secret"), opened);
        Self {
            nodes: nodes.expect("it was answered"),
            heard,
            server,
        }
    }

    /// What the connection hears next, within a timeout of the session.
    async fn heard(&mut self) -> Option<Heard> {
        let heard = tokio::time::timeout(TIMEOUT, self.heard.recv()).await;
        heard.ok().flatten()
    }

    async fn requests(&mut self) -> Requests {
        match self.heard().await {
            Some(Heard::Requests(requests)) => requests,
            other => panic!("{other:?}"),
        }
    }

    /// Somebody asks for a beat.
    async fn beat(&mut self) -> (Arc<Caller>, Reply<bool>) {
        match self.heard().await {
            Some(Heard::Beat(caller, reply)) => (caller, reply),
            other => panic!("{other:?}"),
        }
    }

    async fn resume(&mut self) -> (Resume, Reply<Option<Resumed>>) {
        match self.heard().await {
            Some(Heard::Resume(resume, reply)) => (resume, reply),
            other => panic!("{other:?}"),
        }
    }

    async fn is_closed(&mut self) {
        match self.heard().await {
            Some(Heard::Close(reply)) => drop(reply.send(Ok(false))),
            other => panic!("{other:?}"),
        }
    }

    async fn started(&mut self) -> (u64, String) {
        match self.heard().await {
            Some(Heard::Started(number, session)) => (number, session.name()),
            other => panic!("{other:?}"),
        }
    }

    /// Nothing is asked although everybody has had a turn.
    async fn is_quiet(&mut self) -> bool {
        for _ in 0..32 {
            yield_now().await;
        }
        self.heard.try_recv().is_err()
    }

    fn seen(&self) -> i64 {
        let shared = self.server.shared.borrow();
        shared.as_ref().expect("it is open").seen()
    }
}

/// The session goes on, and has missed nothing.
fn goes_on(reply: Reply<Option<Resumed>>) {
    drop(reply.send(Ok(Some(Resumed::default()))));
}

fn lives(reply: Reply<bool>) {
    drop(reply.send(Ok(true)));
}

fn names(names: &[&str]) -> Said {
    let names = names.iter().map(|it| (*it).to_owned());
    Said::Names(names.collect(), Vec::new())
}

fn list(path: &str) -> Asked {
    Asked::List(path.to_owned())
}

fn stat(path: &str) -> Asked {
    Asked::Stat(path.to_owned())
}

#[tokio::test(start_paused = true)]
async fn beat_that_is_apart_waits_for_no_request() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let mut listed = nodes.list("/a");
    let requests = scene.requests().await;
    assert_eq!(*requests.asked, [list("/a")]);
    let synced = nodes.sync("/a");
    let (caller, beat) = scene.beat().await;
    let expected = Caller {
        id: 5,
        secret: "secret".to_owned(),
        connection: 1,
        timeout: TIMEOUT,
        container_rest: TIMEOUT,
    };
    assert_eq!(*caller, expected);
    // Another request waits, as one is on its way.
    let read = nodes.stat("/b");
    assert!(scene.is_quiet().await);
    lives(beat);
    synced.await.unwrap();
    assert!(futures::poll!(&mut listed).is_pending());
    requests.answer([names(&["x"])]);
    assert_eq!(listed.await.unwrap(), ["x"]);
    assert_eq!(*scene.requests().await.asked, [stat("/b")]);
    drop(read);
}

#[tokio::test(start_paused = true)]
async fn beats_that_are_asked_for_behind_one_share_the_next() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let first = nodes.sync("/a");
    let (_, beat) = scene.beat().await;
    let (second, third) = (nodes.sync("/a"), nodes.sync("/b"));
    assert!(scene.is_quiet().await);
    lives(beat);
    first.await.unwrap();
    lives(scene.beat().await.1);
    second.await.unwrap();
    third.await.unwrap();
    assert!(scene.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn keeper_sends_beats_where_the_wire_does_not() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    let synced = nodes.sync("/a");
    let requests = scene.requests().await;
    assert_eq!(*requests.asked, [Asked::Beat]);
    requests.answer([Said::Nothing]);
    synced.await.unwrap();
    // A sixth of the timeout later.
    assert_eq!(*scene.requests().await.asked, [Asked::Beat]);
    let mut scene = Scene::open(APART).await;
    assert!(scene.heard().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn unanswered_beat_that_is_apart_costs_the_connection() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let synced = nodes.sync("/a");
    let beat = scene.beat().await;
    let _resume = scene.resume().await;
    let error = synced.await.unwrap_err();
    assert!(matches!(error, NodesError::Unknown(_)), "{error:?}");
    drop(beat);
}

/// Whoever takes a create for ignored sends it again, and waits behind its own node for ever.
#[tokio::test(start_paused = true)]
async fn what_too_few_replicas_confirm_may_have_been_done() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    let node = NewNode {
        path: "/a/n".to_owned(),
        data: Arc::default(),
        mode: NodeMode::EphemeralSequential,
    };
    let why = || Arc::new(std::io::Error::other("busy"));
    let unconfirmed = CallError::Unconfirmed { heard: 0, asked: 1 };
    for (error, is_known) in [(unconfirmed, false), (CallError::NotNow(why()), true)] {
        let created = nodes.create(&node);
        let requests = scene.requests().await;
        assert!(requests.reply.send(Err(error)).is_ok());
        let error = created.await.unwrap_err();
        assert_eq!(
            is_known,
            matches!(error, NodesError::Throttled),
            "{error:?}"
        );
        assert_ne!(
            is_known,
            matches!(error, NodesError::Unknown(_)),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn session_that_its_wire_reports_as_ended_is_over() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let waiting = nodes.list("/a");
    let requests = scene.requests().await;
    scene.server.loss.send_replace(Some((1, Loss::Session)));
    let last = scene.nodes.connection().next().await;
    assert_eq!(last, Some(Connection::Ended(EndReason::Expired)));
    waiting.await.unwrap_err();
    let ended = scene.nodes.sync("/a").await;
    assert!(matches!(ended, Err(NodesError::SessionEnded)), "{ended:?}");
    drop(requests);
}

#[tokio::test(start_paused = true)]
async fn highest_number_in_an_answer_is_known_to_the_wire() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let node = NewNode {
        path: "/a/x-".to_owned(),
        data: Default::default(),
        mode: NodeMode::EphemeralSequential,
    };
    let created = nodes.create(&node);
    let requests = scene.requests().await;
    assert_eq!(scene.seen(), 0);
    let made = Created {
        path: "/a/x-1".to_owned(),
        czxid: Some(70),
    };
    requests.answer([Said::Multi(vec![NodeOpDone::Created(made)])]);
    created.await.unwrap();
    assert_eq!(scene.seen(), 70);
    for (numbers, seen) in [([60, 61, 90], 90), ([80, 80, 80], 90), ([1, 95, 2], 95)] {
        let stat = nodes.stat("/a");
        let [c, m, p] = numbers;
        let told = crate::parts::stat([c, m, 0, 0, 0, 0, p]).unwrap();
        scene.requests().await.answer([Said::Stat(told)]);
        stat.await.unwrap();
        assert_eq!(scene.seen(), seen);
    }
}
