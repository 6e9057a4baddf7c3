//! Counts what the scripts have covered, because a comparison of nothing finds no difference.

use std::collections::BTreeMap;
use std::fmt;

use crate::script::{Request, Step};
use crate::seen::{Answer, Heard, Seen};

/// Fewer may be chance.
const SEEN_MIN: usize = 10;

/// Every request with every possible outcome, and every other event.
const MUST_BE_SEEN: [&str; 52] = [
    "create Container",
    "create Container: BadAcl",
    "create Container: BadPath",
    "create Container: EphemeralParent",
    "create Container: NoAuth",
    "create Container: NoNode",
    "create Container: NodeExists",
    "create Ephemeral",
    "create Ephemeral: BadAcl",
    "create Ephemeral: BadPath",
    "create Ephemeral: EphemeralParent",
    "create Ephemeral: NoAuth",
    "create Ephemeral: NoNode",
    "create Ephemeral: NodeExists",
    "create EphemeralSequential",
    "create EphemeralSequential: BadPath",
    "create EphemeralSequential: EphemeralParent",
    "create EphemeralSequential: NoAuth",
    "create EphemeralSequential: NoNode",
    "watch: SessionEnded",
    "create Persistent",
    "create Persistent: NodeExists",
    "cut",
    "delete",
    "delete: BadPath",
    "delete: NoAuth",
    "delete: NoNode",
    "delete: NotEmpty",
    "event Changed",
    "event Deleted",
    "event SessionEnded",
    "expire",
    "flights",
    "forgotten",
    "list",
    "list: NoAuth",
    "list: NoNode",
    "mend",
    "multi",
    "multi: BadPath",
    "multi: BadVersion",
    "multi: EphemeralParent",
    "multi: NoAuth",
    "multi: NoNode",
    "multi: NodeExists",
    "multi: NotEmpty",
    "read",
    "read: NoAuth",
    "read: none",
    "sync",
    "watch",
    "watch: none",
];

/// How many times each thing was done or seen.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, usize>);

impl Tally {
    pub(crate) fn count(&mut self, step: &Step, seen: &BTreeMap<usize, Seen>) {
        self.add("steps".to_owned());
        match step {
            Step::Ask { requests, .. } => {
                if requests.len() > 1 {
                    self.add("flights".to_owned());
                }
                let answers = seen.get(&step.session()).map(|it| it.answers.as_slice());
                for (request, answer) in requests.iter().zip(answers.unwrap_or_default()) {
                    self.answer(request, answer);
                }
            }
            Step::Forget { .. } => self.add("forgotten".to_owned()),
            Step::Unwatch { .. } => self.add("unwatch".to_owned()),
            Step::Open { .. } => self.add("open".to_owned()),
            Step::Close { .. } => self.add("close".to_owned()),
            Step::Expire { .. } => self.add("expire".to_owned()),
            Step::Cut { .. } => self.add("cut".to_owned()),
            Step::Mend { .. } => self.add("mend".to_owned()),
        }
        for heard in seen.values().flat_map(|it| &it.heard) {
            if let Heard::Event { event, .. } = heard {
                self.add(format!("event {event:?}"));
            }
        }
    }

    fn answer(&mut self, request: &Request, answer: &Answer) {
        let kind = match request {
            Request::Create(made) => format!("create {:?}", made.mode),
            Request::Delete(_) => "delete".to_owned(),
            Request::List(_) => "list".to_owned(),
            Request::Read(_) => "read".to_owned(),
            Request::Watch(_) => "watch".to_owned(),
            Request::Sync(_) => "sync".to_owned(),
            Request::Multi(_) => "multi".to_owned(),
        };
        match answer {
            Answer::Refused { why, .. } => self.add(format!("{kind}: {why:?}")),
            Answer::Node(None) | Answer::Watched(None) => self.add(format!("{kind}: none")),
            _ => self.add(kind),
        }
    }

    fn add(&mut self, what: String) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// What was seen too seldom, except what is never seen.
    pub(crate) fn missing(&self, never: fn(&str) -> bool) -> Vec<&'static str> {
        let seldom = |what: &&str| self.0.get(*what).is_none_or(|times| *times < SEEN_MIN);
        let due = MUST_BE_SEEN.into_iter().filter(|what| !never(what));
        due.filter(seldom).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self
            .0
            .iter()
            .map(|(what, it)| format!("{what}: {it}"))
            .collect();
        f.write_str(&all.join("\n"))
    }
}
