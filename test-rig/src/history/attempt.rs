//! The events of each attempt, put together.

use std::collections::BTreeMap;

use recipes_core::LockKind;
use thiserror::Error;

use super::event::{AttemptId, Event, EventError, Happening, Step};

/// Events of all processes that used the same locks at the same time.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(super) attempts: Vec<Attempt>,
    /// When the ensemble went down, and when it came back.
    pub(super) outages: Vec<(u64, u64)>,
    /// When each process was halted, and when it ran again.
    pub(super) pauses: BTreeMap<u32, Vec<(u64, u64)>>,
    pub(super) evictions: Vec<(i64, u64)>,
    pub(super) left: Vec<String>,
    pub(super) end: u64,
}

/// One contender's attempt to acquire one lock.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Which attempt this is.
    pub id: AttemptId,
    /// The kind of lock that it wanted.
    pub kind: LockKind,
    /// How many permits the semaphore has, as far as this contender knows; 1 for other locks.
    pub permits: u32,
    /// The party: the owner that re-enters.
    pub party: u64,
    /// Path of the lock directory.
    pub path: String,
    /// When it was started.
    pub invoked: u64,
    /// Its grant, if it got one.
    pub granted: Option<Granted>,
    /// When the attempt failed, or the guard was released, dropped or killed with its process.
    pub ended: Option<u64>,
}

/// A guard.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The first time at which it certainly held the lock.
    pub at: u64,
    /// The last time at which it certainly held the lock.
    pub valid_until: u64,
    /// When it was notified that the lock is lost, or released it.
    pub told: Option<u64>,
    /// Whether it was notified of a loss before it released. `false` if the session was ended from
    /// outside.
    pub is_lost: bool,
    /// Its fencing token.
    pub token: i64,
    /// Its place in the queue: the transaction that made the node, or, for a reader next to a
    /// writer, the writer's. It is the token until [`History::learn`] provides the place.
    pub place: i64,
    /// Full path of its node.
    pub node: String,
}

/// Why a history is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A line is not an event.
    #[error(transparent)]
    Event(#[from] EventError),
    /// An event is out of order.
    #[error("event {event:?} of a history: {why}")]
    Order {
        /// The event, as it was written.
        event: String,
        /// Why it cannot come here.
        why: &'static str,
    },
}

impl History {
    /// Parses the lines of all journals, in any order.
    ///
    /// # Errors
    /// [`Malformed`] if a line is not an event, or if the events contradict each other.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let lines = text.lines().map(str::trim_start);
        let events: Result<Vec<_>, EventError> = lines.map(str::parse).collect();
        Self::new(events?)
    }

    /// Builds a history from events, in any order.
    ///
    /// # Errors
    /// [`Malformed`] if the events contradict each other.
    pub fn new(events: impl IntoIterator<Item = Event>) -> Result<Self, Malformed> {
        let mut events: Vec<_> = events.into_iter().collect();
        // A stable sort: events of one attempt with the same stamp keep their order.
        events.sort_by_key(|event| event.at);
        let mut history = Self {
            end: events.last().map_or(0, |event| event.at),
            ..Self::default()
        };
        let mut places = BTreeMap::new();
        for event in events {
            history.take(&event, &mut places).map_err(|why| {
                let event = event.to_string();
                Malformed::Order { event, why }
            })?;
        }
        Ok(history)
    }

    fn take(
        &mut self,
        event: &Event,
        places: &mut BTreeMap<AttemptId, usize>,
    ) -> Result<(), &'static str> {
        let at = event.at;
        match &event.what {
            Happening::Of(
                id,
                Step::Invoked {
                    kind,
                    permits,
                    party,
                    path,
                },
            ) => {
                if places.insert(*id, self.attempts.len()).is_some() {
                    return Err("invoked before");
                }
                self.attempts.push(Attempt {
                    id: *id,
                    kind: *kind,
                    permits: *permits,
                    party: *party,
                    path: path.clone(),
                    invoked: at,
                    granted: None,
                    ended: None,
                });
            }
            Happening::Of(id, step) => {
                let place = places
                    .get(id)
                    .and_then(|place| self.attempts.get_mut(*place));
                place.ok_or("not invoked")?.take(at, step)?;
            }
            Happening::Paused(worker) => {
                self.pauses.entry(*worker).or_default().push((at, u64::MAX));
            }
            Happening::Resumed(worker) => {
                close(self.pauses.entry(*worker).or_default(), at, "not paused")?;
            }
            Happening::Killed(worker) => {
                let its = |it: &&mut Attempt| it.id.worker == *worker && it.ended.is_none();
                let its = self.attempts.iter_mut().filter(its);
                its.for_each(|attempt| attempt.ended = Some(at));
            }
            Happening::Down => self.outages.push((at, u64::MAX)),
            Happening::Up => close(&mut self.outages, at, "not down")?,
            Happening::Evicted(session) => self.evictions.push((*session, at)),
            Happening::Over => {}
            Happening::Left(node) => self.left.push(node.clone()),
        }
        Ok(())
    }

    /// All attempts, in the order in which they started.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Attempts that got a guard.
    pub fn grants(&self) -> impl Iterator<Item = (&Attempt, &Granted)> {
        let granted = |attempt| Some((attempt, Attempt::granted(attempt)?));
        self.attempts.iter().filter_map(granted)
    }

    /// Takes the place of each granted node, and its session, from `of_node`.
    ///
    /// If a session was ended from outside, its grants count until then.
    pub fn learn(&mut self, of_node: impl Fn(&str) -> Option<(i64, i64)>) {
        for attempt in &mut self.attempts {
            let Some(granted) = &mut attempt.granted else {
                continue;
            };
            let Some((place, session)) = of_node(&granted.node) else {
                continue;
            };
            granted.place = place;
            let mut evictions = self.evictions.iter().filter(|it| it.0 == session);
            if let Some((_, at)) = evictions.next() {
                granted.told = granted.told.map(|told| told.min(*at));
                granted.is_lost = false;
                granted.valid_until = granted.valid_until.min(*at);
                if granted.at > *at {
                    attempt.granted = None;
                }
            }
        }
    }

    /// Whether the process was halted at some time between `from` and `until`.
    pub(super) fn was_paused(&self, worker: u32, from: u64, until: u64) -> bool {
        let mut pauses = self.pauses.get(&worker).into_iter().flatten();
        pauses.any(|(start, end)| *start <= until && *end >= from)
    }
}

/// Ends the last interval that is open.
fn close(intervals: &mut [(u64, u64)], at: u64, why: &'static str) -> Result<(), &'static str> {
    let open = intervals.last_mut().filter(|it| it.1 == u64::MAX);
    open.ok_or(why)?.1 = at;
    Ok(())
}

impl Attempt {
    fn granted(&self) -> Option<&Granted> {
        self.granted.as_ref()
    }

    /// Whether the attempt still waits at the end of the history.
    pub(super) fn is_pending(&self) -> bool {
        self.granted.is_none() && self.ended.is_none()
    }

    /// Whether others of its kind may be granted at the same time.
    pub(super) fn is_shared(&self) -> bool {
        self.kind == LockKind::Read
    }

    fn take(&mut self, at: u64, step: &Step) -> Result<(), &'static str> {
        if self.ended.is_some() {
            return Err("ended before");
        }
        match (step, &mut self.granted) {
            (Step::Invoked { .. }, _) => return Err("invoked before"),
            (Step::Granted { .. }, Some(_)) => return Err("granted before"),
            (Step::Granted { token, node }, None) => {
                self.granted = Some(Granted {
                    at,
                    valid_until: at,
                    told: None,
                    is_lost: false,
                    token: *token,
                    place: *token,
                    node: node.clone(),
                });
            }
            (Step::Ended, None) => self.ended = Some(at),
            // An acquire may return a guard that is already invalid when it is checked.
            (Step::Lost, None) => {}
            (Step::LetGo, None) => self.ended = Some(at),
            (Step::Released, None) => return Err("not granted"),
            (Step::Ended, Some(_)) => return Err("granted before"),
            (Step::Valid | Step::Releasing, None) => return Err("not granted"),
            (Step::Valid, Some(granted)) => granted.valid_until = at,
            (Step::Releasing, Some(granted)) => {
                granted.valid_until = at;
                granted.told = Some(at);
            }
            (Step::Lost, Some(granted)) => {
                granted.is_lost |= granted.told.is_none();
                granted.told.get_or_insert(at);
            }
            (Step::Released | Step::LetGo, Some(_)) => self.ended = Some(at),
        }
        Ok(())
    }
}
