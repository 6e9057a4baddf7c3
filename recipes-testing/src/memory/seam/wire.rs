//! A store as that on Redis, as its keeper sees it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use recipes_core::{Guarantee, NodesError};
use recipes_keeper::{
    Answers, Asked, CallError, Called, Caller, Facts, Loss, Open, Opened, ReadNode, Reads, Resume,
    Resumed, Said, Server, Silence, Source, Wire,
};
use tokio::sync::watch;
use tokio::time::sleep;

use super::reply::Arrival;
use crate::memory::error::MemoryError;
use crate::memory::state::calls::{Ask, Told};
use crate::memory::state::link::Over;
use crate::memory::state::links::Connected;
use crate::memory::state::shared::Shared;

/// The server. Whoever connects while it cannot be reached waits.
pub(crate) struct MemoryServer(pub(crate) Arc<Shared>);

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServer").finish_non_exhaustive()
    }
}

impl Server for MemoryServer {
    fn may_pass(&self, _: &Source) -> bool {
        // It refuses nobody.
        false
    }

    fn open<'a>(
        &'a self,
        shared: &'a Arc<recipes_keeper::Shared>,
        number: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>> {
        let opened = async move {
            let connected = self
                .0
                .admitted(|state| state.connect(shared, number))
                .await?;
            let takes = connected.takes;
            let wire = MemoryWire::new(Arc::clone(&self.0), connected, number);
            if !takes.is_zero() {
                sleep(takes).await;
            }
            Ok(Box::new(wire) as Box<dyn Wire>)
        };
        opened.boxed()
    }

    fn read(&self) -> BoxFuture<'_, Result<Arc<dyn Reads>, NodesError>> {
        let read = async move {
            // As that of a client that opens no session.
            let client = Arc::default();
            let connected = self.0.admitted(|state| state.connect(&client, 1)).await?;
            let wire = MemoryWire::new(Arc::clone(&self.0), connected, 1);
            Ok(Arc::new(MemoryReads {
                wire,
                _client: client,
            }) as Arc<dyn Reads>)
        };
        read.boxed()
    }
}

/// A connection of somebody who only reads.
#[derive(Debug)]
struct MemoryReads {
    wire: MemoryWire,
    /// The server knows its connection by this.
    _client: Arc<recipes_keeper::Shared>,
}

impl MemoryReads {
    /// What is said to a request, unless the node is not there.
    fn said<T: Send + 'static>(
        &self,
        asked: Asked,
        pick: impl FnOnce(Said) -> Option<T> + Send + 'static,
    ) -> Called<Option<T>> {
        let call = self
            .wire
            .call(Ask::Reads([asked].into()), |told| match told {
                Told::Answers(Some(answers)) => answers.outcomes.into_iter().next(),
                _ => None,
            });
        let said = async move {
            match call.await? {
                Ok(said) => {
                    let picked = pick(said);
                    let other = || CallError::unexpected("the answer to another request");
                    picked.map(Some).ok_or_else(other)
                }
                Err(refused) if matches!(refused.source, NodesError::NoNode) => Ok(None),
                Err(refused) => Err(CallError::Refused(Arc::new(refused.source))),
            }
        };
        said.boxed()
    }
}

impl Reads for MemoryReads {
    fn facts(&self) -> &Facts {
        &self.wire.facts
    }

    fn names<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Vec<String>>, CallError>> {
        self.said(Asked::List(path.to_owned()), |said| match said {
            Said::Names(names, _) => Some(names),
            _ => None,
        })
    }

    fn node<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadNode>, CallError>> {
        self.said(Asked::Read(path.to_owned()), |said| match said {
            Said::Node(data, stat) => Some((data, stat)),
            _ => None,
        })
    }

    fn silent<'a>(&'a self, sessions: &'a [i64]) -> BoxFuture<'a, Result<Vec<Silence>, CallError>> {
        self.wire
            .call(Ask::Silent(sessions.into()), |told| match told {
                Told::Silent(silent) => Some(silent),
                _ => None,
            })
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), CallError>> {
        let answered = self.said(Asked::Beat, |_| Some(()));
        answered.map(|answered| answered.map(drop)).boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        self.wire.lost()
    }
}

/// One connection.
struct MemoryWire {
    shared: Arc<Shared>,
    over: Over,
    loss: watch::Receiver<Option<Loss>>,
    in_flight_max: usize,
    facts: Facts,
}

impl MemoryWire {
    fn new(shared: Arc<Shared>, connected: Connected, number: u64) -> Self {
        let facts = Facts {
            run: connected.run,
            guarantee: Guarantee::BestEffort,
        };
        Self {
            shared,
            over: (connected.session, number),
            loss: connected.loss,
            in_flight_max: connected.in_flight_max,
            facts,
        }
    }

    fn call<T: Send + 'static>(
        &self,
        ask: Ask,
        pick: impl FnOnce(Told) -> Option<T> + Send + 'static,
    ) -> Called<T> {
        let call = PendingCall {
            shared: Arc::clone(&self.shared),
            over: self.over,
            ask: Some(ask),
            number: None,
            arrival: Arrival::default(),
        };
        let picked = async move {
            let told = call.await?;
            pick(told).ok_or_else(|| CallError::unexpected("the answer to another call"))
        };
        picked.boxed()
    }
}

impl fmt::Debug for MemoryWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWire")
            .field("number", &self.over.1)
            .finish_non_exhaustive()
    }
}

impl Wire for MemoryWire {
    fn number(&self) -> u64 {
        self.over.1
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    fn leaves_anywhere(&self) -> bool {
        self.in_flight_max > 1
    }

    fn open(&self, open: Open) -> Called<Opened> {
        self.call(Ask::Open(open), |told| match told {
            Told::Opened(opened) => Some(opened),
            _ => None,
        })
    }

    fn resume(&self, resume: Resume) -> Called<Option<Resumed>> {
        self.call(Ask::Resume(resume), |told| match told {
            Told::Resumed(resumed) => Some(resumed),
            _ => None,
        })
    }

    fn requests(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let ask = Ask::Requests(Arc::clone(caller), Arc::clone(asked));
        self.call(ask, |told| match told {
            Told::Answers(answers) => Some(answers),
            _ => None,
        })
    }

    fn close(&self, caller: &Arc<Caller>) -> Called<bool> {
        self.call(Ask::Close(Arc::clone(caller)), |told| {
            matches!(told, Told::Closed).then_some(false)
        })
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        let mut loss = self.loss.clone();
        let lost = async move {
            let lost = loss.wait_for(Option::is_some).await;
            lost.ok().and_then(|loss| *loss).unwrap_or(Loss::Connection)
        };
        lost.boxed()
    }

    fn started(&self, _session: &Arc<Caller>) {
        self.shared.with(|state| state.goes_on(self.over));
    }
}

impl Drop for MemoryWire {
    fn drop(&mut self) {
        self.shared.with(|state| state.drop_connection(self.over));
    }
}

/// Completes with the answer to a call, which is sent at the first poll. Dropping it forgets the answer.
struct PendingCall {
    shared: Arc<Shared>,
    over: Over,
    ask: Option<Ask>,
    number: Option<u64>,
    arrival: Arrival,
}

impl Future for PendingCall {
    type Output = Result<Told, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(ask) = this.ask.take() {
            this.number = this.shared.with(|state| state.call(this.over, ask));
            // No network answers at once.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(number) = this.number else {
            return Poll::Ready(Err(CallError::Lost(Arc::new(MemoryError::ReplyLost))));
        };
        let due = this
            .shared
            .with(|state| state.poll_call(this.over, number, context.waker()));
        ready!(this.arrival.poll(ready!(due), context));
        this.number = None;
        Poll::Ready(
            this.shared
                .with(|state| state.collect_call(this.over, number)),
        )
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared
                .with(|state| state.abandon_call(self.over, number));
        }
    }
}
