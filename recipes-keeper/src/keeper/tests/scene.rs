//! A session on a server whose test answers for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use recipes_core::{Guarantee, Nodes, NodesError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;

use super::said::{ephemeral, made};
use super::{CONNECT, TIMEOUT};
use crate::asked::Asked;
use crate::kept::Terms;
use crate::reading::Reads;
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::wire::{
    Answers, CallError, Called, Caller, Facts, Loss, Open, Opened, Resume, Resumed, Said, Server,
    Source, Wire,
};

/// What a connection was asked.
#[derive(Debug)]
pub(super) enum Heard {
    Open(Open, Reply<Opened>),
    Resume(Resume, Reply<Option<Resumed>>),
    Requests(Requests),
    Beat(Arc<Caller>, Reply<bool>),
    Close(Reply<bool>),
    Started(u64, Arc<Caller>),
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, CallError>>;

#[derive(Debug)]
pub(super) struct Requests {
    pub(super) caller: Arc<Caller>,
    pub(super) asked: Arc<[Asked]>,
    pub(super) reply: Reply<Option<Answers>>,
}

impl Requests {
    pub(super) fn answer(self, all: impl IntoIterator<Item = Said>) {
        self.answer_at_step(all, None);
    }

    /// As [`answer`](Self::answer), by a store whose clock advances so much at once.
    pub(super) fn answer_at_step(
        self,
        all: impl IntoIterator<Item = Said>,
        step: Option<Duration>,
    ) {
        let outcomes = all.into_iter().map(Ok).collect();
        drop(self.reply.send(Ok(Some(Answers { outcomes, step }))));
    }
}

/// A server whose test answers for it.
#[derive(Debug)]
pub(super) struct Scripted {
    pub(super) heard: mpsc::UnboundedSender<Heard>,
    pub(super) shared: watch::Sender<Option<Arc<Shared>>>,
    pub(super) loss: watch::Sender<Option<(u64, Loss)>>,
    pub(super) kind: Kind,
    /// The server may be another in a moment.
    pub(super) moves: AtomicBool,
    /// Connections that the client panics for.
    pub(super) panics: AtomicUsize,
    /// Connections that the server does not answer.
    pub(super) mute: AtomicUsize,
    pub(super) facts: Mutex<Facts>,
    /// The number of each connection that subscribed, and the session that it did so for.
    pub(super) subscribed: Arc<Mutex<Vec<(u64, i64)>>>,
}

/// What the connections of a server are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) beats_apart: bool,
    pub(super) leaves_anywhere: bool,
    pub(super) in_flight_max: usize,
    pub(super) names_max: usize,
    /// Requests cannot be sent.
    pub(super) is_broken: bool,
    /// The client panics when it is to send them.
    pub(super) panics: bool,
}

pub(super) const APART: Kind = Kind {
    beats_apart: true,
    leaves_anywhere: false,
    in_flight_max: 1,
    names_max: usize::MAX,
    is_broken: false,
    panics: false,
};
pub(super) const TOGETHER: Kind = Kind {
    beats_apart: false,
    ..APART
};
pub(super) const ANYWHERE: Kind = Kind {
    leaves_anywhere: true,
    in_flight_max: 8,
    ..TOGETHER
};

#[derive(Debug)]
pub(super) struct ScriptedWire {
    heard: mpsc::UnboundedSender<Heard>,
    loss: watch::Receiver<Option<(u64, Loss)>>,
    facts: Facts,
    number: u64,
    kind: Kind,
    subscribed: Arc<Mutex<Vec<(u64, i64)>>>,
}

impl Scripted {
    pub(super) fn new(heard: mpsc::UnboundedSender<Heard>, kind: Kind) -> Self {
        Self {
            heard,
            shared: watch::Sender::new(None),
            loss: watch::Sender::new(None),
            kind,
            moves: AtomicBool::default(),
            panics: AtomicUsize::default(),
            mute: AtomicUsize::default(),
            facts: Mutex::new(Facts {
                run: "run".to_owned(),
                guarantee: Guarantee::OneCopy,
            }),
            subscribed: Arc::default(),
        }
    }

    pub(super) fn terms(self: &Arc<Self>) -> Terms {
        Terms {
            server: Arc::clone(self) as Arc<dyn Server>,
            connect_timeout: CONNECT,
            session_timeout: TIMEOUT,
            is_new: true,
            container_rest: TIMEOUT,
            only_reads: false,
        }
    }
}

impl Server for Scripted {
    fn may_pass(&self, refusal: &Source) -> bool {
        refusal.to_string() == "replica"
    }

    fn may_move(&self) -> bool {
        self.moves.load(Ordering::Relaxed)
    }

    fn read(&self) -> BoxFuture<'_, Result<Arc<dyn Reads>, NodesError>> {
        // Nobody here only reads.
        future::pending().boxed()
    }

    fn open<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        number: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>> {
        self.shared.send_replace(Some(Arc::clone(shared)));
        let facts = self.facts.lock().unwrap().clone();
        let wire = ScriptedWire {
            heard: self.heard.clone(),
            loss: self.loss.subscribe(),
            facts,
            number,
            kind: self.kind,
            subscribed: Arc::clone(&self.subscribed),
        };
        let left = self.panics.load(Ordering::Relaxed);
        async move {
            if left > 0 {
                self.panics.store(left - 1, Ordering::Relaxed);
                panic!("no such plugin");
            }
            let mute = self.mute.load(Ordering::Relaxed);
            if mute > 0 {
                self.mute.store(mute - 1, Ordering::Relaxed);
                return future::pending().await;
            }
            Ok(Box::new(wire) as Box<dyn Wire>)
        }
        .boxed()
    }

    fn silence(&self) -> &'static str {
        ", behind a proxy"
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

    fn names_max(&self) -> usize {
        self.kind.names_max
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

    fn requests(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let Kind {
            is_broken, panics, ..
        } = self.kind;
        let (caller, asked) = (Arc::clone(caller), Arc::clone(asked));
        let requests = |reply| Requests {
            caller,
            asked,
            reply,
        };
        let said = self.says(move |reply| Heard::Requests(requests(reply)));
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

    fn subscribe(&self, id: i64) -> BoxFuture<'_, Result<(), NodesError>> {
        async move {
            self.subscribed.lock().unwrap().push((self.number, id));
            Ok(())
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
pub(super) struct Scene {
    pub(super) nodes: Arc<dyn Nodes>,
    pub(super) heard: mpsc::UnboundedReceiver<Heard>,
    pub(super) server: Arc<Scripted>,
    /// Calls whose answers are still to come.
    pub(super) unanswered: Vec<Requests>,
}

impl Scene {
    pub(super) async fn open(kind: Kind) -> Self {
        let told = Opened {
            id: 5,
            quarantine: Duration::ZERO,
            doubt: Duration::ZERO,
        };
        Self::told(kind, told).await
    }

    /// A session of which the server has told this when it was opened.
    pub(super) async fn told(kind: Kind, told: Opened) -> Self {
        let (says, mut heard) = mpsc::unbounded_channel();
        let server = Arc::new(Scripted::new(says, kind));
        let sessions = Sessions::new(server.terms());
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
            drop(reply.send(Ok(told)));
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
            unanswered: Vec::new(),
        }
    }

    /// What a connection hears next, before a try to connect gives up at the latest.
    pub(super) async fn heard(&mut self) -> Option<Heard> {
        let heard = tokio::time::timeout(CONNECT * 5, self.heard.recv()).await;
        heard.ok().flatten()
    }

    pub(super) async fn requests(&mut self) -> Requests {
        match self.heard().await {
            Some(Heard::Requests(requests)) => requests,
            other => panic!("{other:?}"),
        }
    }

    /// Somebody asks for a beat.
    pub(super) async fn beat(&mut self) -> (Arc<Caller>, Reply<bool>) {
        match self.heard().await {
            Some(Heard::Beat(caller, reply)) => (caller, reply),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn resume(&mut self) -> (Resume, Reply<Option<Resumed>>) {
        match self.heard().await {
            Some(Heard::Resume(resume, reply)) => (resume, reply),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn is_closed(&mut self) {
        match self.heard().await {
            Some(Heard::Close(reply)) => drop(reply.send(Ok(false))),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn started(&mut self) -> (u64, String) {
        match self.heard().await {
            Some(Heard::Started(number, session)) => (number, session.name()),
            other => panic!("{other:?}"),
        }
    }

    /// Nothing is asked although everybody has had a turn.
    pub(super) async fn is_quiet(&mut self) -> bool {
        for _ in 0..32 {
            yield_now().await;
        }
        self.heard.try_recv().is_err()
    }

    pub(super) fn seen(&self) -> i64 {
        self.shared().seen()
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        let shared = self.server.shared.borrow();
        Arc::clone(shared.as_ref().expect("it is open"))
    }

    /// From now on, another run of the server answers.
    pub(super) fn runs(&self, run: &str) {
        self.server.facts.lock().unwrap().run = run.to_owned();
    }

    /// Creates a node, which the server names.
    pub(super) async fn makes(&mut self, path: &str, name: &str) {
        let (nodes, node) = (Arc::clone(&self.nodes), ephemeral(path));
        let created = nodes.create(&node);
        self.requests().await.answer([made(name)]);
        created.await.unwrap();
    }

    pub(super) fn lose(&self, number: u64) {
        let loss = (number, Loss::Connection);
        self.server.loss.send_replace(Some(loss));
    }
}
