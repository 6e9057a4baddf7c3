//! Keeps a session alive, over as many connections as it takes.
//!
//! docs/design/connection.md says what hangs on the connection, and why it is done so.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, Fuse, FusedFuture, FutureExt, join_all};
use recipes_core::internal::log::STORE;
use recipes_core::{EndReason, NodeEvent, NodesError, commit};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::debug;
use zookeeper_client::{Error, SessionInfo, SessionState};

use crate::answers::{node_stat, refusal};
use crate::client::ClientNodes;
use crate::connect_string::Server;
use crate::kept::{Again, Kept, Seen};
use crate::link::Link;
use crate::no_delay::NoDelay;
use crate::pace::{ANSWER_MAX, ANSWER_MIN, Patience, jittered, look_pause, pause_max, rest};
use crate::servers::{Address, Servers};
use crate::wire::{Up, Watcher, Wire};

/// The longest pause after a round of servers of which none has opened a session.
const OPENING_PAUSE: Duration = Duration::from_millis(200);

/// What keeps one session. It ends with the session.
pub(crate) struct Keeper {
    kept: Arc<Kept>,
    link: Arc<Link>,
    no_delay: NoDelay,
    servers: Servers,
    info: SessionInfo,
    /// What the first server granted, and what others are asked for.
    asked: Duration,
    /// Fails when nobody uses the session any more.
    closed: Fuse<oneshot::Receiver<()>>,
}

impl Keeper {
    /// Opens a session. Returns it with what must live as long as somebody uses it.
    ///
    /// It is tried for about the session timeout.
    pub(crate) async fn open(
        link: Arc<Link>,
        no_delay: NoDelay,
    ) -> Result<(Arc<Kept>, oneshot::Sender<()>), Error> {
        let mut servers = Servers::new(link.servers(), fastrand::usize(..));
        let (wire, up) = first_wire(&link, &mut servers).await?;
        no_delay.apply();
        let (info, asked) = (up.client.session().clone(), up.client.session_timeout());
        let kept = Arc::new(Kept::new(up));
        let (used, closed) = oneshot::channel();
        let keeper = Self {
            kept: Arc::clone(&kept),
            link,
            no_delay,
            servers,
            info,
            asked,
            closed: closed.fuse(),
        };
        tokio::spawn(keeper.run(wire));
        Ok((kept, used))
    }

    async fn run(mut self, mut wire: Wire) {
        // Also if the runtime drops this task.
        let _ends = Ends(Arc::clone(&self.kept));
        loop {
            let state = self.serve(&mut wire).await;
            if let Some(reason) = end(state) {
                return self.kept.end(reason);
            }
            let up = self.kept.down();
            drop(wire);
            drop(up);
            // After so long without an answer the servers have ended the session, if they run.
            let until = Instant::now() + self.kept.timeout() * 7 / 5;
            let connected = timeout_at(until, self.connect_again()).await;
            wire = match connected.unwrap_or(Err(EndReason::Expired)) {
                Ok(wire) => wire,
                Err(reason) => return self.kept.end(reason),
            };
        }
    }

    /// Serves requests over one connection, until that is lost or the session is over.
    async fn serve(&mut self, wire: &mut Wire) -> SessionState {
        if !self.closed.is_terminated() {
            tokio::select! {
                biased;
                state = wire.serve() => return state,
                _ = &mut self.closed => {}
            }
        }
        // Without its client, the wire closes the session after what was sent.
        drop(self.kept.take());
        let closed = timeout(self.kept.timeout(), wire.serve()).await;
        closed.unwrap_or(SessionState::Closed)
    }

    /// Connects until the session goes on, or is over.
    async fn connect_again(&mut self) -> Result<Wire, EndReason> {
        let (mut patience, mut expired) = (Patience::default(), Vec::new());
        loop {
            self.servers.begin_round(Instant::now());
            let is_held = self.kept.is_held();
            while let Some(address) = self.next_server(is_held).await {
                // One that has just let in another is there.
                let allowed = if is_held { Patience::MOST } else { patience };
                let (attached, now) = (self.attach(&address, allowed).await?, Instant::now());
                match attached {
                    Attached::Up(wire) => return Ok(wire),
                    Attached::Refused => {}
                    Attached::Silent => {
                        let until = now + self.kept.timeout();
                        self.servers.leave_out(&address, until);
                    }
                    // One of several may be a stranger: a server that has lost its data, or another store's.
                    Attached::Expired => {
                        let until = now + self.kept.timeout() / 8;
                        self.servers.leave_out(&address, until);
                        if !expired.contains(&address) {
                            expired.push(address);
                            if expired.len() * 2 > self.servers.count() {
                                return Err(EndReason::Expired);
                            }
                            continue;
                        }
                    }
                }
                if is_held {
                    break;
                }
            }
            patience = patience.more();
            sleep(jittered(pause_max(self.kept.timeout()))).await;
        }
    }

    /// The server to go on with; `None` at the end of a round. While a lock is held, it is one that has just
    /// let in a session of its own. What that is granted counts from now on: our session may move there
    /// without our learning of it.
    async fn next_server(&mut self, is_held: bool) -> Option<Address> {
        if !is_held {
            return self.servers.next();
        }
        let (address, granted) = self.first_that_answers().await;
        self.kept.counts(granted);
        self.servers.turn_to(&address);
        Some(address)
    }

    /// Looks for a server that lets in a session of its own: at one server first, then at all at once,
    /// because the times of those that are silent must not add up. Returns what it grants, too.
    async fn first_that_answers(&mut self) -> (Address, Duration) {
        let (sender, mut answers) = mpsc::channel(1);
        let timeout_now = self.kept.timeout();
        let terms = (self.asked, timeout_now, self.servers.count());
        let look = |(address, from)| {
            let (link, sender) = (Arc::clone(&self.link), sender.clone());
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = sender.closed() => {}
                    () = sleep_until(from) => look_at(link, address, terms, &sender).await,
                }
            });
        };
        let (first, now) = (self.servers.next(), Instant::now());
        first.clone().into_iter().for_each(|it| look((it, now)));
        let pause = pause_max(timeout_now) / 2;
        if let Ok(Some(answer)) = timeout(pause, answers.recv()).await {
            return answer;
        }
        let all = self.servers.all(Instant::now()).into_iter();
        let others = all.filter(|it| Some(&it.0) != first.as_ref());
        others.for_each(look);
        match answers.recv().await {
            Some(answer) => answer,
            // There is a sender here.
            None => future::pending().await,
        }
    }

    /// Takes the session to a server.
    async fn attach(&self, address: &Address, patience: Patience) -> Result<Attached, EndReason> {
        let timeout_now = self.kept.timeout();
        let connector = self.link.connector();
        let connector = connector.with_session(self.info.clone());
        let connector = connector
            .with_session_timeout(self.asked)
            .with_connection_timeout(timeout_now / 4);
        let opened = self.link.open_on(address, connector);
        let (mut wire, up) = match timeout(patience.of(timeout_now), opened).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(Error::SessionExpired)) => return Ok(Attached::Expired),
            Ok(Err(Error::AuthFailed)) => return Err(EndReason::AuthFailed),
            Ok(Err(error)) => {
                debug!(target: STORE, server = %address.0, %error, "cannot connect");
                return Ok(Attached::Refused);
            }
            Err(_) => return Ok(Attached::Silent),
        };
        self.no_delay.apply();
        self.kept.counts(up.client.session_timeout());
        let again = tokio::select! {
            biased;
            state = wire.serve() => match end(state) {
                Some(EndReason::Expired) => return Ok(Attached::Expired),
                Some(reason) => return Err(reason),
                None => return Ok(Attached::Refused),
            },
            again = timeout(timeout_now / 4, catch_up(&self.kept, &up)) => again,
        };
        match again {
            Ok(Ok(again)) => {
                self.kept.up(up, again);
                Ok(Attached::Up(wire))
            }
            Ok(Err(error)) => {
                debug!(target: STORE, server = %address.0, %error, "the session does not go on there");
                Ok(Attached::Refused)
            }
            Err(_) => Ok(Attached::Silent),
        }
    }
}

/// Opens a session on one of the servers.
async fn first_wire(link: &Link, servers: &mut Servers) -> Result<(Wire, Up), Error> {
    let until = Instant::now() + link.session_timeout;
    let mut wanted = link.session_timeout;
    // Of the servers' refusals, the last.
    let mut last = Error::Timeout;
    loop {
        servers.begin_round(Instant::now());
        while let Some(address) = servers.next() {
            let connector = link.connector().with_session_timeout(wanted);
            let opened = link.open_on(&address, connector.with_connection_timeout(wanted / 4));
            match timeout((wanted * 2 / 5).min(ANSWER_MAX), opened).await {
                Ok(Ok(opened)) if opened.1.client.session_timeout() >= wanted => return Ok(opened),
                // When it would notice a silent server was counted by the time that was wanted.
                Ok(Ok((wire, up))) => {
                    wanted = up.client.session_timeout();
                    servers.turn_back();
                    drop(up);
                    tokio::spawn(closed(wire, ANSWER_MAX));
                }
                Ok(Err(error @ (Error::AuthFailed | Error::BadArguments(_)))) => return Err(error),
                Ok(Err(error)) => {
                    debug!(target: STORE, server = %address.0, %error, "no session on a server");
                    last = error;
                }
                Err(_) => servers.leave_out(&address, Instant::now() + wanted),
            }
            if Instant::now() >= until {
                return Err(last);
            }
        }
        sleep(jittered(OPENING_PAUSE)).await;
    }
}

/// Closes the session of a client that has been dropped.
async fn closed(mut wire: Wire, patience: Duration) {
    drop(timeout(patience, wire.serve()).await);
}

/// What has become of a session at a server.
enum Attached {
    Up(Wire),
    /// It did not get there, or was sent away.
    Refused,
    /// Nobody knows.
    Silent,
    /// The server knows no such session.
    Expired,
}

/// Tries to open a session of its own on a server, until it has done so or nobody wants to know. Reports
/// what it is granted, and closes it.
///
/// A server that does not answer is given more and more time, because each session is a transaction. Before
/// it is asked again, a connection shows that it can be reached: that costs it nothing, and may be tried often.
async fn look_at(
    link: Arc<Link>,
    address: Address,
    (wanted, timeout_now, servers): (Duration, Duration, usize),
    answers: &mpsc::Sender<(Address, Duration)>,
) {
    let mut patience = Patience::default();
    let reached_within = look_pause(timeout_now, servers).max(ANSWER_MIN);
    while !answers.is_closed() {
        let began = Instant::now();
        if !patience.is_tried() || is_reached(&address.0, reached_within).await {
            let connector = link.connector().with_session_timeout(wanted);
            match timeout(patience.of(wanted), link.open_on(&address, connector)).await {
                Ok(Ok((wire, up))) => {
                    // Another one may have answered before.
                    drop(answers.try_send((address, up.client.session_timeout())));
                    drop(up);
                    return closed(wire, patience.of(wanted)).await;
                }
                Ok(Err(error)) => debug!(target: STORE, server = %address.0, %error, "no session"),
                Err(_) => patience = patience.more(),
            }
        }
        sleep(rest(timeout_now, servers, began.elapsed())).await;
    }
}

/// Whether a server accepts a connection in time.
async fn is_reached(server: &Server, within: Duration) -> bool {
    let reached = TcpStream::connect((server.host.as_str(), server.port));
    matches!(timeout(within, reached).await, Ok(Ok(_)))
}

/// What has become of the watches, asked after a committed request: a server that lags is let in too.
async fn catch_up(kept: &Kept, up: &Up) -> Result<Vec<(u64, Again)>, NodesError> {
    let nodes = ClientNodes::of_one(up.client.clone());
    commit(&nodes, "/").await?;
    let again = kept.watched().into_iter().map(|(number, path, seen)| {
        let read = up.client.get_and_watch_data(&path);
        read.map(move |read| {
            let again = match read {
                Ok((_, stat, watcher)) => match Seen::from(&node_stat(&stat)) {
                    now if now == seen => Again::Set(Watcher::new(&up.open, watcher)),
                    now if now.czxid == seen.czxid => Again::Happened(NodeEvent::Changed),
                    _ => Again::Happened(NodeEvent::Deleted),
                },
                Err(Error::NoNode) => Again::Happened(NodeEvent::Deleted),
                Err(error) => match refusal(error) {
                    error @ (NodesError::Unknown(_)
                    | NodesError::SessionEnded
                    | NodesError::Throttled) => return Err(error),
                    // Whoever watches reads the node, and is refused.
                    _ => Again::Happened(NodeEvent::Changed),
                },
            };
            Ok((number, again))
        })
    });
    // All leave together, and are answered in this order.
    let again: Vec<_> = again.collect();
    join_all(again).await.into_iter().collect()
}

/// Why a session is over, if it is.
fn end(state: SessionState) -> Option<EndReason> {
    match state {
        SessionState::Expired => Some(EndReason::Expired),
        SessionState::AuthFailed => Some(EndReason::AuthFailed),
        SessionState::Closed => Some(EndReason::Closed),
        SessionState::Disconnected
        | SessionState::SyncConnected
        | SessionState::ConnectedReadOnly => None,
    }
}

/// Ends the session when its keeper is gone.
struct Ends(Arc<Kept>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end(EndReason::Closed);
    }
}
