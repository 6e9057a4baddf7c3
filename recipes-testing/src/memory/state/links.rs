//! The connections of a store as that on Redis: to the clients that the keeper is, one for each session.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use recipes_core::NodeEvent;
use recipes_keeper::{CallError, Loss, Shared};
use tokio::sync::watch;
use tokio::time::Instant;

use super::State;
use super::calls::{Ask, Told};
use super::link::{Call, Contact, Link, Over};
use crate::memory::error::MemoryError;
use crate::memory::faults::Lost;

/// The clients, by the sessions that they have or are about to open.
#[derive(Debug, Default)]
pub(crate) struct Links {
    by_session: BTreeMap<i64, Link>,
    /// In the order of their arrival.
    news: BTreeMap<(Instant, u64), News>,
    last_news: u64,
}

/// News on their way to a client.
#[derive(Debug)]
struct News {
    over: Over,
    path: String,
    up_to: u64,
    event: NodeEvent,
}

/// A connection that was made.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) session: i64,
    pub(crate) loss: watch::Receiver<Option<Loss>>,
    pub(crate) run: String,
    /// How long it takes to make it.
    pub(crate) takes: Duration,
    /// How many calls may be on their way.
    pub(crate) in_flight_max: usize,
}

impl Links {
    fn up(&mut self, (session, connection): Over) -> Option<&mut Link> {
        let link = self.by_session.get_mut(&session)?;
        link.is_up(connection).then_some(link)
    }

    /// Whether a client is about to connect, or to go on with its session.
    pub(crate) fn is_connecting(&self, session: i64) -> bool {
        let link = self.by_session.get(&session);
        link.is_some_and(|it| it.contact != Contact::GoesOn && it.shared.strong_count() > 0)
    }

    fn goes_on(&self, session: i64) -> Option<&Link> {
        let link = self.by_session.get(&session)?;
        (link.contact == Contact::GoesOn).then_some(link)
    }

    /// When all messages sent to a client so far will have arrived, if its session goes on.
    pub(crate) fn told_by(&self, session: i64) -> Option<Instant> {
        let now = Instant::now();
        let link = self.goes_on(session)?;
        Some(link.last_due.map_or(now, |due| due.max(now)))
    }

    pub(crate) fn since(&self, session: i64) -> Option<Instant> {
        Some(self.goes_on(session)?.since)
    }

    /// Hands out the news that are due. Before an answer that is due later, whoever waits for it: so this
    /// happens under the mutex. It takes another one, below which nothing is locked, and wakes tasks.
    pub(crate) fn deliver(&mut self, now: Instant) {
        while let Some(first) = self.news.first_entry() {
            if first.key().0 > now {
                return;
            }
            let it = first.remove();
            let Some(link) = self.up(it.over) else {
                continue;
            };
            if let Some(shared) = link.shared.upgrade() {
                let watches = &shared.watches;
                watches.fire(it.over.1, &it.path, it.up_to, it.event);
            }
        }
    }
}

impl State {
    fn links(&mut self) -> Option<&mut Links> {
        self.on_redis.as_mut().map(|redis| &mut redis.links)
    }

    fn link(&mut self, session: i64) -> Option<&mut Link> {
        self.links()?.by_session.get_mut(&session)
    }

    /// The link over which something gets through.
    fn up(&mut self, over: Over) -> Option<&mut Link> {
        self.links()?.up(over)
    }

    /// The link that its client has, as far as it knows.
    fn its(&mut self, (session, connection): Over) -> Option<&mut Link> {
        let link = self.link(session)?;
        link.is_its(connection).then_some(link)
    }

    /// A client connects, if it can now. It has no other connection then.
    pub(crate) fn connect(&mut self, shared: &Arc<Shared>, number: u64) -> Option<Connected> {
        let id = self.link_of(shared);
        if self.stopped || self.paused || self.link(id)?.cut {
            return None;
        }
        let takes = self.faults.request_delay(&mut self.random) + self.next_delay();
        let redis = self.on_redis.as_mut()?;
        let (run, in_flight_max) = (redis.run(), redis.in_flight_max);
        let link = redis.links.by_session.get_mut(&id)?;
        let wakers = link.go_down();
        link.loss.send_replace(Some(Loss::Connection));
        let (loss, receiver) = watch::channel(None);
        link.loss = loss;
        link.contact = Contact::Up;
        link.connection = number;
        (link.last_due, link.last_arrival) = (None, None);
        self.wakers.extend(wakers);
        Some(Connected {
            session: id,
            loss: receiver,
            run,
            takes,
            in_flight_max,
        })
    }

    /// The session of a client, which may not be opened yet.
    fn link_of(&mut self, shared: &Arc<Shared>) -> i64 {
        let next = self.last_session + 1;
        let Some(links) = self.links() else {
            return next;
        };
        let links = &mut links.by_session;
        links.retain(|_, link| link.shared.strong_count() > 0);
        let is_its = |link: &Link| Weak::as_ptr(&link.shared) == Arc::as_ptr(shared);
        if let Some((id, _)) = links.iter().find(|(_, link)| is_its(link)) {
            return *id;
        }
        links.insert(next, Link::new(Arc::downgrade(shared)));
        self.last_session = next;
        next
    }

    /// A session goes on over a connection.
    pub(crate) fn goes_on(&mut self, over: Over) {
        if let Some(link) = self.up(over) {
            link.contact = Contact::GoesOn;
            link.since = Instant::now();
        }
    }

    /// A client drops a connection. What it has sent is on its way.
    pub(crate) fn drop_connection(&mut self, over: Over) {
        let link = self.its(over);
        let wakers = link.map(Link::go_down).unwrap_or_default();
        self.retired.extend(wakers);
    }

    /// A client calls. Returns the number of the call, or none without a connection.
    pub(crate) fn call(&mut self, over: Over, ask: Ask) -> Option<u64> {
        let session = over.0;
        let link = self.its(over)?;
        link.last_call += 1;
        let number = link.last_call;
        link.calls.insert(number, Call::default());
        if link.contact == Contact::Mute {
            return Some(number);
        }
        let requests = ask.requests(session);
        self.requests.extend(requests);
        match self.next_call_arrival(session) {
            None => self.perform_call(over, number, &ask),
            Some(due) => self.send_call(due, over, (number, ask)),
        }
        Some(number)
    }

    fn next_call_arrival(&mut self, session: i64) -> Option<Instant> {
        let delay = self.faults.request_delay(&mut self.random);
        let (now, is_paused) = (Instant::now(), self.paused);
        let link = self.link(session)?;
        let ahead = link.last_arrival.filter(|due| *due > now);
        if delay.is_zero() && ahead.is_none() && !is_paused {
            return None;
        }
        let due = ahead.max(now.checked_add(delay)).unwrap_or(now);
        link.last_arrival = Some(due);
        Some(due)
    }

    /// Carries out a call that has arrived, with the faults that are due.
    pub(crate) fn perform_call(&mut self, over: Over, number: u64, ask: &Ask) {
        let session = over.0;
        let link = self.up(over);
        let Some(contact) = link.map(|link| link.contact) else {
            // The connection that it came over is gone, and nobody waits for an answer.
            drop(self.answer_to(session, ask));
            return;
        };
        // Its client learns of it at once, which it does not while it connects.
        if contact == Contact::GoesOn && self.random.per_mille(self.faults.expiry_per_mille) {
            return self.expire_known(session);
        }
        let lost = self.next_loss(session, &ask.operations());
        let answer = match lost {
            Some(Lost::BeforeCommit) => Err(CallError::Lost(Arc::new(MemoryError::ReplyLost))),
            Some(Lost::AfterCommit) | None => self.faulty_answer_to(session, ask),
        };
        let delay = self.next_delay();
        if let Some(link) = self.up(over) {
            let due = link.next_due(delay);
            if let Some(call) = link.calls.get_mut(&number) {
                call.answer = Some((answer, due));
                let waker = call.waker.take();
                self.wakers.extend(waker);
            }
        }
        if lost.is_some() {
            self.break_connection(session);
        }
    }

    /// The answer to a call, which the server may undo, and of which the end may be missing.
    fn faulty_answer_to(&mut self, session: i64, ask: &Ask) -> Result<Told, CallError> {
        let is_asked = matches!(ask, Ask::Requests(..));
        if is_asked && self.random.per_mille(self.faults.undone_per_mille) {
            return Err(CallError::NotNow(Arc::new(MemoryError::Undone)));
        }
        let mut told = self.answer_to(session, ask)?;
        if let Told::Answers(Some(answers)) = &mut told {
            if self.random.per_mille(self.faults.cut_answer_per_mille) {
                answers.outcomes.pop();
            }
        }
        Ok(told)
    }

    fn next_delay(&mut self) -> Duration {
        let delay = self.faults.delay(&mut self.random);
        self.latency.saturating_add(delay)
    }

    /// When the answer to a call is due. At once without a connection.
    pub(crate) fn poll_call(
        &mut self,
        over: Over,
        number: u64,
        waker: &Waker,
    ) -> Poll<Option<Instant>> {
        let link = self.its(over);
        let Some(call) = link.and_then(|link| link.calls.get_mut(&number)) else {
            return Poll::Ready(None);
        };
        if let Some((_, due)) = &call.answer {
            return Poll::Ready(*due);
        }
        let old = call.waker.replace(waker.clone());
        self.retired.extend(old);
        Poll::Pending
    }

    /// Picks up an answer.
    pub(crate) fn collect_call(&mut self, over: Over, number: u64) -> Result<Told, CallError> {
        let link = self.its(over);
        let call = link.and_then(|link| link.calls.remove(&number));
        match call.and_then(|call| call.answer) {
            Some((answer, _)) => answer,
            None => Err(CallError::Lost(Arc::new(MemoryError::ReplyLost))),
        }
    }

    /// Nobody waits for an answer any more.
    pub(crate) fn abandon_call(&mut self, over: Over, number: u64) {
        let link = self.its(over);
        let call = link.and_then(|link| link.calls.remove(&number));
        self.retired.extend(call.and_then(|call| call.waker));
    }

    /// Sends news to a client.
    pub(crate) fn send_news(&mut self, session: i64, path: &str, up_to: u64, event: NodeEvent) {
        let delay = self.next_delay();
        let Some(links) = self.links() else {
            return;
        };
        let link = links.by_session.get_mut(&session);
        let Some(link) = link.filter(|link| link.is_up(link.connection)) else {
            return;
        };
        let due = link.next_due(delay).unwrap_or_else(Instant::now);
        let news = News {
            over: (session, link.connection),
            path: path.to_owned(),
            up_to,
            event,
        };
        links.last_news += 1;
        links.news.insert((due, links.last_news), news);
        if due > Instant::now() {
            self.look_again(due);
        }
    }

    /// A connection breaks. Of the calls in flight, the first few still arrive, and nobody hears of them.
    /// The others never arrive.
    pub(crate) fn break_connection(&mut self, session: i64) {
        self.let_some_arrive(session);
        self.lose(session, Loss::Connection);
    }

    /// As [`break_connection`](Self::break_connection), and the client is not told.
    fn mute_connection(&mut self, session: i64) {
        self.let_some_arrive(session);
        let link = self.link(session);
        if let Some(link) = link {
            link.go_mute();
        }
    }

    fn let_some_arrive(&mut self, session: i64) {
        let calls = self.take_calls(session);
        // All of them, some or none. If there is none, nothing is drawn.
        let arriving = match calls.len() {
            0 => 0,
            count => usize::try_from(self.random.below(count as u64 + 1)).unwrap_or(0),
        };
        for ask in calls.iter().take(arriving) {
            drop(self.answer_to(session, ask));
        }
    }

    /// A client learns that its connection, or its session, is over.
    fn lose(&mut self, session: i64, loss: Loss) {
        let Some(link) = self.link(session) else {
            return;
        };
        if link.is_up(link.connection) {
            let mut wakers = Vec::new();
            match loss {
                Loss::Connection => wakers = link.go_down(),
                // No call says anything else than the loss itself.
                Loss::Session => link.go_mute(),
            }
            link.loss.send_replace(Some(loss));
            self.wakers.extend(wakers);
        }
    }

    /// An operator ends a session. Its client learns of it at once, if it is connected.
    pub(crate) fn expire_known(&mut self, session: i64) {
        drop(self.take_calls(session));
        self.lose(session, Loss::Session);
        self.end_session(session);
    }

    /// Whether a client can connect.
    pub(crate) fn cut_link(&mut self, session: i64, cut: bool) {
        let is_mute = cut && self.random.per_mille(self.faults.mute_per_mille);
        let link = self.link(session);
        if let Some(link) = link {
            link.cut = cut;
        }
        match cut {
            true if is_mute => self.mute_connection(session),
            true => self.break_connection(session),
            false => {}
        }
    }

    pub(crate) fn break_all(&mut self) {
        let sessions = self
            .links()
            .map(|it| it.by_session.keys().copied().collect());
        let mut sessions: Vec<i64> = sessions.unwrap_or_default();
        self.random.shuffle(&mut sessions);
        for session in sessions {
            self.break_connection(session);
        }
    }
}
