//! Generates scripts from seeds.

use recipes_core::NodeMode;
use recipes_zookeeper::Permission;

use crate::guess::Guess;
use crate::random::Random;
use crate::script::{Change, Made, Place, Request, Rights, Script, Step};

const STEPS_MIN: u64 = 5;
const STEPS_MAX: u64 = 200;
const SESSIONS_MAX: usize = 4;
const FLIGHT_MAX: u64 = 4;
const CHANGES_MAX: u64 = 5;

/// Few, so that requests meet.
const NAMES: [&str; 4] = ["a", "b", "c", "é"];
/// A sequence may follow an empty prefix, or one that looks like a part of the name.
const PREFIXES: [&str; 3] = ["n-", "", "a"];
/// Invalid paths, except `/...` and `/.a`, whose dots have no meaning.
const BAD_PLACES: [&str; 14] = [
    "",
    "a",
    "a/b",
    "/a/",
    "//a",
    "/a//b",
    "/a/../b",
    "/./a",
    "/...",
    "/.a",
    "/\u{1}",
    "/\u{7f}",
    "/\u{e000}",
    "/\u{fff0}",
];

/// Returns the script of a seed. The same seed gives the same script.
pub(crate) fn script(seed: u64) -> Script {
    let mut random = Random::new(seed);
    let length = {
        // Most are short.
        let (one, other) = (random.below(1000), random.below(1000));
        STEPS_MIN + one * other * (STEPS_MAX - STEPS_MIN + 1) / 1_000_000
    };
    let mut author = Author {
        sessions: 1 + random.index(SESSIONS_MAX),
        cuts: random.one_in(6),
        restricts: random.one_in(3),
        open: [None; SESSIONS_MAX],
        guess: Guess::default(),
        random,
    };
    let steps = (0..length).map(|_| author.step()).collect();
    Script { steps }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Up,
    Cut,
    /// It was closed while its connection was cut.
    Closed,
}

struct Author {
    sessions: usize,
    /// Whether connections are cut, which takes time.
    cuts: bool,
    /// Whether nodes have rights of their own, which leads to few successes.
    restricts: bool,
    open: [Option<Line>; SESSIONS_MAX],
    guess: Guess,
    random: Random,
}

impl Author {
    fn step(&mut self) -> Step {
        let session = self.random.index(self.sessions);
        let line = self.open[session];
        match (line, self.random.below(100)) {
            // A session that has expired can still send requests.
            (None, 0..70) => self.open(session),
            (Some(Line::Closed), _) | (Some(Line::Cut), 50..85) => self.mend(session),
            (Some(Line::Up), 97..) if self.cuts => {
                self.open[session] = Some(Line::Cut);
                Step::Cut { session }
            }
            (_, 96) => {
                self.end(session, None);
                Step::Expire { session }
            }
            (_, 94..=95) => {
                let closed = (line == Some(Line::Cut)).then_some(Line::Closed);
                self.end(session, closed);
                Step::Close { session }
            }
            (_, 91..=93) => Step::Unwatch { session },
            (_, 88..=90) => Step::Forget {
                session,
                request: self.request(session),
            },
            (_, dice) => {
                let count = match dice {
                    0..12 => 2 + self.random.below(FLIGHT_MAX - 1),
                    _ => 1,
                };
                let requests = (0..count).map(|_| self.request(session)).collect();
                Step::Ask { session, requests }
            }
        }
    }

    fn open(&mut self, session: usize) -> Step {
        self.open[session] = Some(Line::Up);
        Step::Open {
            session,
            credentials: self.random.one_in(3),
        }
    }

    fn mend(&mut self, session: usize) -> Step {
        if self.open[session] == Some(Line::Closed) {
            self.end(session, None);
        } else {
            self.open[session] = Some(Line::Up);
        }
        Step::Mend { session }
    }

    fn end(&mut self, session: usize, line: Option<Line>) {
        self.open[session] = line;
        if line.is_none() {
            self.guess.end(session);
        }
    }

    fn request(&mut self, session: usize) -> Request {
        match self.random.below(100) {
            0..28 => Request::Create(self.made(session).0),
            28..40 => {
                let place = self.place(true);
                self.guess.delete(&place);
                Request::Delete(place)
            }
            40..48 => Request::List(self.place(false)),
            48..58 => Request::Read(self.place(false)),
            58..80 => Request::Watch(self.place(false)),
            80..83 => Request::Sync(self.place(false)),
            _ => {
                let before = self.guess.clone();
                let count = self.random.below(CHANGES_MAX + 1);
                let changes: Vec<(Change, bool)> =
                    (0..count).map(|_| self.change(session)).collect();
                if changes.iter().any(|(_, succeeds)| !succeeds) {
                    self.guess = before;
                }
                Request::Multi(changes.into_iter().map(|(change, _)| change).collect())
            }
        }
    }

    /// Returns a change, and whether it should succeed.
    fn change(&mut self, session: usize) -> (Change, bool) {
        match self.random.below(100) {
            0..40 => {
                let (made, succeeds) = self.made(session);
                (Change::Create(made), succeeds)
            }
            40..60 => {
                let (place, version) = (self.place(true), self.version());
                let succeeds = version.is_none_or(|it| it <= 0) && self.guess.delete(&place);
                (Change::Delete(place, version), succeeds)
            }
            dice => {
                let (place, version) = (self.place(false), self.version());
                let succeeds = version.is_none_or(|it| it <= 0) && self.guess.has(&place);
                match dice {
                    60..85 => (Change::Set(place, self.data(), version), succeeds),
                    _ => (Change::Check(place, version), succeeds),
                }
            }
        }
    }

    /// Returns a node to create, and whether it should succeed.
    fn made(&mut self, session: usize) -> (Made, bool) {
        let mode = match self.random.below(10) {
            0..3 => NodeMode::Persistent,
            3 => NodeMode::Container,
            4..6 => NodeMode::Ephemeral,
            _ => NodeMode::EphemeralSequential,
        };
        let sequential = mode == NodeMode::EphemeralSequential;
        let place = if self.random.one_in(8) {
            self.place(!sequential)
        } else {
            let parent = self.guess.any(&mut self.random);
            let name = match sequential {
                true => self.random.pick(&PREFIXES),
                false => self.random.pick(&NAMES),
            };
            Place(format!("{parent}/{name}"))
        };
        let (data, rights) = (self.data(), self.rights());
        let succeeds = rights != Rights::Nobodys && self.guess.create(&place, mode, session);
        let made = Made {
            place,
            mode,
            data,
            rights,
        };
        (made, succeeds)
    }

    /// A path, most often of a node. The root only if that is refused, because all scripts share
    /// it.
    fn place(&mut self, root: bool) -> Place {
        match self.random.below(100) {
            0..2 => Place((*self.random.pick(&BAD_PLACES)).to_owned()),
            2 if root => Place("root".to_owned()),
            2..15 => {
                let parent = self.guess.any(&mut self.random);
                Place(format!("{parent}/{}", self.random.pick(&NAMES)))
            }
            _ => match self.guess.any(&mut self.random) {
                directory if directory.is_empty() => Place(".".to_owned()),
                path => Place(path),
            },
        }
    }

    fn version(&mut self) -> Option<i32> {
        match self.random.below(40) {
            0..8 => Some(0),
            8..10 => Some(1),
            10 => Some(2),
            // On the wire this means any version.
            11 => Some(-1),
            12 => Some(-2),
            _ => None,
        }
    }

    fn data(&mut self) -> String {
        (*self.random.pick(&["", "one", "two", "three"])).to_owned()
    }

    fn rights(&mut self) -> Rights {
        if !self.restricts {
            return Rights::Everything;
        }
        match self.random.below(20) {
            0 => Rights::Without(Permission::READ),
            1 => Rights::Without(Permission::WRITE),
            2 => Rights::Without(Permission::CREATE),
            3 => Rights::Without(Permission::DELETE),
            4 => Rights::Without(Permission::ADMIN),
            5..8 => Rights::OfCreator,
            8 => Rights::Nobodys,
            _ => Rights::Everything,
        }
    }
}
