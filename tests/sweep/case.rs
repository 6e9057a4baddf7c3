//! One run of the sweep: a recipe, a frame, and a fault at it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use recipes_testing::{Cut, Direction, Fault, FaultProxy, Frame, FramePattern};

use crate::recipe::Recipe;

/// The n-th frame of this direction and name, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) direction: Direction,
    pub(crate) name: String,
    pub(crate) n: usize,
}

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
        proxy.on(self.direction).named(&self.name).nth(self.n)
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
        ];
        // Only the first session of a server hands the library over.
        let is_greeting = self.is_greeting() && self.name != "FUNCTION LOAD";
        let is_certain = certain.contains(&self.name.as_str()) || is_greeting;
        self.n == 1 && is_certain && !self.is_by_the_clock(recipe)
    }

    /// Whether it is a heartbeat. Every third heartbeat to ZooKeeper is a transaction. Only sets have
    /// other ones.
    fn is_by_the_clock(&self, recipe: Recipe) -> bool {
        match self.name.as_str() {
            "Ping" | "Sync" | "beat" => true,
            "Multi" => recipe != Recipe::Set,
            _ => false,
        }
    }

    /// Whether it comes while a run lasts.
    pub(crate) fn comes_in(&self, lifetime: Lifetime, recipe: Recipe) -> bool {
        // The first ping is sent at once.
        let is_first_ping = self.name == "Ping" && self.n == 1;
        lifetime == Lifetime::Short || is_first_ping || !self.is_by_the_clock(recipe)
    }

    /// Whether it is sent to Redis before the session is open.
    pub(crate) fn is_greeting(&self) -> bool {
        GREETINGS.contains(&self.name.as_str())
    }

    /// Whether it opens, keeps or closes the session.
    pub(crate) fn is_of_the_session(&self) -> bool {
        let others = ["Connect", "Ping", "CloseSession", "beat", "close"];
        others.contains(&self.name.as_str()) || self.is_greeting()
    }

    /// Whether it is a request that may remove the lock's nodes.
    pub(crate) fn deletes(&self) -> bool {
        let deletes = ["Delete", "Multi", "multi delete"];
        self.direction == Direction::ToServer && deletes.contains(&self.name.as_str())
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

/// The frames of a run, numbered within each name, from this connection on.
pub(crate) fn points(log: &[Frame], first_connection: u64) -> Vec<Point> {
    let mut counts = BTreeMap::<(bool, &str), usize>::new();
    let mut points = Vec::new();
    for frame in log {
        for name in &frame.names {
            let is_request = frame.direction == Direction::ToServer;
            *counts.entry((is_request, name)).or_default() += 1;
        }
        let name = main_name(frame);
        let is_request = frame.direction == Direction::ToServer;
        let point = Point {
            direction: frame.direction,
            name: name.to_owned(),
            n: counts.get(&(is_request, name)).copied().unwrap_or_default(),
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

/// How long the ensemble keeps the subject's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It may end in the middle of a run.
    Short,
    /// Longer than a run, so that the end of the session repairs nothing.
    Long,
}

impl Lifetime {
    pub(crate) fn session_timeout(self) -> Duration {
        match self {
            // The shortest timeout that the test servers grant.
            Self::Short => Duration::from_millis(400),
            Self::Long => Duration::from_secs(20),
        }
    }

    /// How long the subject holds the lock.
    pub(crate) fn hold(self) -> Duration {
        match self {
            // Long enough that a partition takes the lock away meanwhile.
            Self::Short => self.session_timeout() * 3 / 4,
            Self::Long => Duration::from_millis(50),
        }
    }
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    Fault(Fault),
    /// Nothing arrives in either direction, for twice the session timeout.
    Partition,
    /// The frame is lost with its connection, and the subject moves to another server.
    Move,
}

/// Everything that can happen to a frame. A long session notices silence too late for this test.
///
/// No frame is lost alone: the later ones on the same connection are lost too, or the connection
/// is. TCP does not lose a part and deliver the rest, and the ZooKeeper client relies on that.
pub(crate) fn harms(lifetime: Lifetime) -> Vec<Harm> {
    let cuts = [
        Fault::CutBefore(Cut::Fin),
        Fault::CutBefore(Cut::Reset),
        Fault::CutWithin(Cut::Fin),
        Fault::CutWithin(Cut::Reset),
        Fault::CutAfter(Cut::Fin),
        Fault::CutAfter(Cut::Reset),
    ];
    let mut harms = cuts.map(Harm::Fault).to_vec();
    if lifetime == Lifetime::Short {
        let split = Fault::Split {
            bytes: 3,
            pause: Duration::from_millis(1),
        };
        let late = Fault::Delay(lifetime.session_timeout() * 7 / 4);
        harms.extend([Fault::BlackHole, late, split].map(Harm::Fault));
        harms.push(Harm::Partition);
    }
    harms
}

/// Where a connection breaks, so that the next one can be harmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// When the subject waits and all its requests are answered.
    Waiting,
    At(Point, Fault),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) recipe: Recipe,
    pub(crate) lifetime: Lifetime,
    /// A cut that comes first.
    pub(crate) first: Option<First>,
    /// `None` for a run without a fault.
    pub(crate) harm: Option<(Point, Harm)>,
    pub(crate) dropped: Option<(Dropped, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    Acquire,
    Release,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.direction, self.name, self.n)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.recipe, self.lifetime)?;
        match &self.first {
            Some(First::Waiting) => write!(f, " cut while it waits,")?,
            Some(First::At(point, fault)) => write!(f, " after {point} {fault:?},")?,
            None => {}
        }
        if let Some((point, harm)) = &self.harm {
            write!(f, " {point} ")?;
            match harm {
                Harm::Fault(Fault::Delay(_)) => write!(f, "Delay")?,
                Harm::Fault(Fault::Split { .. }) => write!(f, "Split")?,
                Harm::Fault(fault) => write!(f, "{fault:?}")?,
                Harm::Partition | Harm::Move => write!(f, "{harm:?}")?,
            }
        }
        if let Some((dropped, polls)) = self.dropped {
            write!(f, " {dropped:?} dropped at {polls}")?;
        }
        Ok(())
    }
}
