//! A session on a server whose test answers for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{Guarantee, Nodes, NodesError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;

use super::TIMEOUT;
use crate::asked::Asked;
use crate::kept::Terms;
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::wire::{
    Answers, CallError, Called, Caller, Facts, Loss, Open, Opened, Resume, Resumed, Said, Server,
    Wire,
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
    pub(super) asked: Arc<[Asked]>,
    pub(super) reply: Reply<Option<Answers>>,
}

impl Requests {
    pub(super) fn answer(self, all: impl IntoIterator<Item = Said>) {
        let outcomes = all.into_iter().map(Ok).collect();
        let step = None;
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
    /// Connections that the client panics for.
    pub(super) panics: AtomicUsize,
}

/// What the connections of a server are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) beats_apart: bool,
    pub(super) leaves_anywhere: bool,
    pub(super) in_flight_max: usize,
    /// Requests cannot be sent.
    pub(super) is_broken: bool,
    /// The client panics when it is to send them.
    pub(super) panics: bool,
}

pub(super) const APART: Kind = Kind {
    beats_apart: true,
    leaves_anywhere: false,
    in_flight_max: 1,
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
pub(super) struct Scene {
    pub(super) nodes: Arc<dyn Nodes>,
    pub(super) heard: mpsc::UnboundedReceiver<Heard>,
    pub(super) server: Arc<Scripted>,
}

impl Scene {
    pub(super) async fn open(kind: Kind) -> Self {
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
    pub(super) async fn heard(&mut self) -> Option<Heard> {
        let heard = tokio::time::timeout(TIMEOUT, self.heard.recv()).await;
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
        let shared = self.server.shared.borrow();
        shared.as_ref().expect("it is open").seen()
    }
}

/// The session goes on, and has missed nothing.
pub(super) fn goes_on(reply: Reply<Option<Resumed>>) {
    drop(reply.send(Ok(Some(Resumed::default()))));
}

pub(super) fn lives(reply: Reply<bool>) {
    drop(reply.send(Ok(true)));
}

pub(super) fn names(names: &[&str]) -> Said {
    let names = names.iter().map(|it| (*it).to_owned());
    Said::Names(names.collect(), Vec::new())
}

pub(super) fn list(path: &str) -> Asked {
    Asked::List(path.to_owned())
}

pub(super) fn stat(path: &str) -> Asked {
    Asked::Stat(path.to_owned())
}
