//! The frames of a run that are worth a fault.

mod etcd;

use std::collections::BTreeMap;
use std::fmt;

use test_rig::{Cut, Direction, Fault, FaultProxy, Frame, FramePattern, Opcode};

use crate::case::{Harm, Lifetime, harms};
use crate::recipe::Recipe;
use crate::runner::is_long;

/// The n-th frame of this direction and name, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) direction: Direction,
    pub(crate) name: String,
    pub(crate) n: usize,
    /// The connection on which it is counted. A session in a database has two, and what is sent by
    /// the clock over one of them would change the numbers of the other. On etcd, what keeps a connection
    /// would change those of the next.
    pub(crate) connection: Option<u64>,
    pub(crate) kind: Kind,
    /// Whether it can be lost or late while what was sent before it was not. What is sent together is
    /// one segment of TCP, or the connection ends in the middle of it.
    pub(crate) is_apart: bool,
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It comes before the session is open.
    Greeting,
    /// It opens or closes the session.
    Session,
    Beat,
    /// It keeps a connection to etcd, and the session on it. The first one is sent at once, and only that one counts.
    Upkeep,
    /// It asks a database for news.
    Poll,
    Request,
}

/// A request that does not arrive, and an answer that does.
pub(crate) const FEW: [Harm; 2] = [
    Harm::Fault(Fault::CutBefore(Cut::Fin)),
    Harm::Fault(Fault::CutAfter(Cut::Reset)),
];

/// What a client of Redis sends on every new connection.
const GREETINGS: [&str; 9] = [
    "HELLO",
    "CLIENT SETINFO",
    "INFO",
    "CONFIG GET",
    "EXISTS",
    "FUNCTION LIST",
    "FUNCTION LOAD",
    "SUBSCRIBE",
    "open",
];

impl Point {
    pub(crate) fn on<'a>(&self, proxy: &'a FaultProxy) -> FramePattern<'a> {
        let pattern = proxy.on(self.direction).named(&self.name).nth(self.n);
        match self.connection {
            Some(connection) => pattern.connection(connection),
            None => pattern,
        }
    }

    /// Whether the frame occurs in every run.
    pub(crate) fn is_certain(&self, recipe: Recipe) -> bool {
        let certain = [
            "Connect",
            "Create",
            "Multi",
            "MultiRead",
            "GetChildren",
            "GetData",
            "Delete",
            "CloseSession",
            "multi create",
            "look",
            "multi delete",
            "close",
            "LeaseRevoke",
        ];
        let is_certain = match self.kind {
            // Only the first session of a server hands the library over.
            Kind::Greeting => self.name != "FUNCTION LOAD",
            Kind::Session => true,
            Kind::Beat | Kind::Upkeep | Kind::Poll => false,
            Kind::Request => {
                // A lock alone has a call of its own in a database. It asks in another way only if the
                // news come late.
                let is_one_of_many = matches!(recipe, Recipe::Set | Recipe::Permit);
                let calls: &[_] = match is_one_of_many {
                    true => &["requests"],
                    false => &["enter", "leave"],
                };
                let message = etcd::message_of(&self.name);
                let message = message.unwrap_or(&self.name);
                certain.contains(&message) || calls.contains(&self.statement())
            }
        };
        self.n == 1 && is_certain && !self.is_by_the_clock(recipe)
    }

    /// Of a message of a database: the function that it calls.
    fn statement(&self) -> &str {
        self.name.split_once(' ').map_or("", |(first, _)| first)
    }

    /// Whether it is a heartbeat. Every third heartbeat to ZooKeeper is a transaction. Only sets have
    /// other ones, and semaphores.
    pub(crate) fn is_by_the_clock(&self, recipe: Recipe) -> bool {
        match self.name.as_str() {
            "Sync" => true,
            "Multi" => !matches!(recipe, Recipe::Set | Recipe::Permit),
            _ => self.kind == Kind::Beat,
        }
    }

    /// Whether it comes while a run lasts.
    pub(crate) fn comes_in(&self, lifetime: Lifetime, recipe: Recipe) -> bool {
        // The first ping is sent at once.
        let is_first_ping = self.name == "Ping" && self.n == 1;
        lifetime != Lifetime::Long || is_first_ping || !self.is_by_the_clock(recipe)
    }

    /// What can happen to it in such a session.
    pub(crate) fn harms(&self, lifetime: Lifetime) -> Vec<Harm> {
        let mut harms = harms(lifetime);
        harms.retain(|it| {
            let is_silence = matches!(
                it,
                Harm::Partition | Harm::Fault(Fault::BlackHole | Fault::Delay(_))
            );
            self.is_apart || !is_silence
        });
        // There are many of them, and nothing of the lock is lost with one.
        if self.is_greeting()
            && self.connection.is_some()
            && lifetime == Lifetime::Long
            && !is_long()
        {
            harms.retain(|it| FEW.contains(it));
        }
        harms
    }

    /// Whether it is sent before the session is open.
    pub(crate) fn is_greeting(&self) -> bool {
        self.kind == Kind::Greeting
    }

    /// Whether it opens, keeps or closes the session.
    pub(crate) fn is_of_the_session(&self) -> bool {
        matches!(
            self.kind,
            Kind::Greeting | Kind::Session | Kind::Beat | Kind::Upkeep
        )
    }

    /// Whether it is a request that may remove the lock's nodes.
    pub(crate) fn deletes(&self) -> bool {
        let deletes = [
            "Delete",
            "Multi",
            "multi delete",
            "requests Bind",
            "requests StatementExecute",
            "leave Bind",
            "leave StatementExecute",
        ];
        self.direction == Direction::ToServer
            && self.kind == Kind::Request
            && deletes.contains(&self.name.as_str())
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.direction, self.name, self.n)?;
        match self.connection {
            Some(connection) => write!(f, " on {connection}"),
            None => Ok(()),
        }
    }
}

/// The frames of a run, numbered within each name, from this connection on.
pub(crate) fn points(log: &[Frame], first_connection: u64) -> Vec<Point> {
    let has = |opcode| log.iter().any(|it| it.opcode == opcode);
    match () {
        () if has(Opcode::Sql) => of_a_database(log, first_connection),
        () if has(Opcode::Etcd) => etcd::points(log, first_connection),
        () => of_other_stores(log, first_connection),
    }
}

/// What a frame is most of all. A message to Redis may have several requests in it, and a heartbeat
/// may travel with any of them.
fn main_name(frame: &Frame) -> &str {
    let rank = |it: &&String| match it.as_str() {
        "beat" => 2,
        it if it.starts_with("multi") => 0,
        _ => 1,
    };
    frame.names.iter().min_by_key(rank).map_or("", |it| it)
}

fn of_other_stores(log: &[Frame], first_connection: u64) -> Vec<Point> {
    let mut counts = BTreeMap::<(bool, &str), usize>::new();
    let mut points = Vec::new();
    for frame in log {
        let is_request = frame.direction == Direction::ToServer;
        for name in &frame.names {
            *counts.entry((is_request, name)).or_default() += 1;
        }
        let name = main_name(frame);
        let point = Point {
            direction: frame.direction,
            name: name.to_owned(),
            n: counts.get(&(is_request, name)).copied().unwrap_or_default(),
            connection: None,
            is_apart: true,
            kind: match name {
                it if GREETINGS.contains(&it) => Kind::Greeting,
                "Connect" | "CloseSession" | "close" => Kind::Session,
                "Ping" | "beat" => Kind::Beat,
                _ => Kind::Request,
            },
        };
        // Heartbeats and pings go on for as long as a run takes, so only some of them count.
        let enough = match name {
            "Ping" => 1,
            "beat" => 2,
            "Sync" | "Multi" => 6,
            _ => usize::MAX,
        };
        if point.n <= enough && frame.connection >= first_connection {
            points.push(point);
        }
    }
    points
}

/// What a run has sent over one connection to a database.
#[derive(Default)]
struct Seen<'a> {
    /// By direction and name.
    counts: BTreeMap<(bool, &'a str), usize>,
    /// The same since the session is open.
    while_open: BTreeMap<(bool, &'a str), usize>,
    has_opened: bool,
}

/// A session has two connections: it is opened over that of the requests, and its beats and polls
/// go over the other.
///
/// A request is several messages that are sent together, and so is its answer. With `SWEEP_LONG`, all of
/// them count; otherwise the first and the last. Beats and polls go on for as long as a run takes, so only
/// the first counts.
fn of_a_database(log: &[Frame], first_connection: u64) -> Vec<Point> {
    let mut seen = BTreeMap::<u64, Seen<'_>>::new();
    let mut points = Vec::new();
    for (at, frame) in log.iter().enumerate() {
        let name = frame.names.first().map_or("", |it| it);
        let statement = name.split_once(' ').map_or("", |(first, _)| first);
        let way = (frame.direction == Direction::ToServer, name);
        // The two connections of a session follow each other.
        let partner = if frame.connection % 2 == 1 {
            frame.connection + 1
        } else {
            frame.connection - 1
        };
        let is_aside = seen.get(&partner).is_some_and(|it| it.has_opened);
        let own = seen.entry(frame.connection).or_default();
        let kind = match statement {
            "open" | "resume" | "LISTEN" => Kind::Greeting,
            _ if !own.has_opened && !is_aside => Kind::Greeting,
            "close" => Kind::Session,
            "beat" => Kind::Beat,
            _ if ["Ping", "OK", "Terminate", "Quit"].contains(&name) => Kind::Beat,
            _ if is_aside && frame.opcode != Opcode::Notification => Kind::Poll,
            _ => Kind::Request,
        };
        let count = |counts: &mut BTreeMap<_, usize>| {
            let count: &mut usize = counts.entry(way).or_default();
            *count += 1;
            *count
        };
        let n = count(&mut own.counts);
        let sample = match kind {
            Kind::Beat | Kind::Poll => count(&mut own.while_open),
            _ => 1,
        };
        let is_answer = frame.direction == Direction::FromServer;
        own.has_opened |= is_answer && ["open", "resume"].contains(&statement);
        let is_over = ["Terminate", "Quit"].contains(&name);
        let [before, after] = neighbours(log, at);
        let is_together = |it: Option<&Frame>| {
            it.is_some_and(|it| it.direction == frame.direction && it.opcode == frame.opcode)
        };
        let is_inside = is_together(before) && is_together(after);
        if sample == 1
            && !is_over
            && frame.connection >= first_connection
            && (is_long() || !is_inside)
        {
            points.push(Point {
                direction: frame.direction,
                name: name.to_owned(),
                n,
                connection: Some(frame.connection),
                kind,
                is_apart: is_answer || !is_together(before),
            });
        }
    }
    points
}

/// The frames before and after it on its connection.
fn neighbours(log: &[Frame], at: usize) -> [Option<&Frame>; 2] {
    let Some((before, [frame, after @ ..])) = log.split_at_checked(at) else {
        return [None, None];
    };
    let is_near = |it: &&Frame| it.connection == frame.connection;
    [
        before.iter().rev().find(is_near),
        after.iter().find(is_near),
    ]
}
