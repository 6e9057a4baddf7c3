//! All locks at one time, and the news that a viewer of the live page has not got yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use recipes_core::{Scan, WaitForGraph};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::exit::Failure;
use crate::output::json::{DeadlocksView, LockView};

/// Characters of a node's data that are shown. Locks have short data, but a node may hold a
/// megabyte.
const DATA_MAX: usize = 1000;

/// All locks at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    root: String,
    /// `None` until a scan succeeds.
    seen_ms: Option<u64>,
    /// Why it is not newer.
    trouble: Option<String>,
    /// [`LockView`]s by path. Unchanged ones are shared with the previous snapshot.
    locks: BTreeMap<String, Arc<RawValue>>,
    /// A [`DeadlocksView`].
    deadlocks: Option<Arc<RawValue>>,
}

/// An event for a viewer: what has changed since its previous one.
#[derive(Debug, Serialize)]
pub(crate) struct News<'a> {
    root: &'a str,
    /// The viewer had no event before, so what it has from another connection is void.
    full: bool,
    /// When the locks were seen; `null` if they never were.
    seen_ms: Option<u64>,
    /// Why they were not seen since.
    trouble: Option<&'a str>,
    /// In the shape of `inspect --json`.
    changed: Vec<&'a RawValue>,
    /// Paths of locks without any contender now.
    gone: Vec<&'a str>,
    /// In the shape of `deadlocks --json`; `null` if unchanged.
    deadlocks: Option<&'a RawValue>,
}

impl Snapshot {
    pub(crate) fn of(
        scan: &Scan,
        root: String,
        seen_ms: u64,
        previous: Option<&Self>,
    ) -> serde_json::Result<Self> {
        let mut locks = BTreeMap::new();
        for lock in &scan.locks {
            let mut view = LockView::from(lock);
            for data in view.contenders.iter_mut().filter_map(|it| it.data.as_mut()) {
                shorten(data);
            }
            let before = previous.and_then(|it| it.locks.get(&lock.path));
            locks.insert(lock.path.clone(), shared(&view, before)?);
        }
        let graph = WaitForGraph::of(&scan.locks);
        let view = DeadlocksView::new(&graph, &graph.cycles(), scan);
        let before = previous.and_then(|it| it.deadlocks.as_ref());
        Ok(Self {
            root,
            seen_ms: Some(seen_ms),
            trouble: None,
            locks,
            deadlocks: Some(shared(&view, before)?),
        })
    }

    /// The previous snapshot, and why it may be out of date.
    pub(crate) fn in_trouble(previous: Option<&Self>, root: &str, failure: &Failure) -> Self {
        Self {
            root: root.to_owned(),
            seen_ms: previous.and_then(|it| it.seen_ms),
            trouble: Some(failure.to_string()),
            locks: previous.map_or_else(BTreeMap::new, |it| it.locks.clone()),
            deadlocks: previous.and_then(|it| it.deadlocks.clone()),
        }
    }

    pub(crate) fn is_in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// The news for a viewer that has all of `last`.
    pub(crate) fn news_since<'a>(&'a self, last: Option<&'a Self>) -> News<'a> {
        let known = |path: &String| last.and_then(|it| it.locks.get(path));
        let locks = self.locks.iter();
        let changed = locks.filter(|(path, lock)| !is_same(Some(*lock), known(path)));
        let before = last.into_iter().flat_map(|it| it.locks.keys());
        let gone = before.filter(|path| !self.locks.contains_key(*path));
        let same_deadlocks = is_same(
            self.deadlocks.as_ref(),
            last.and_then(|it| it.deadlocks.as_ref()),
        );
        News {
            root: &self.root,
            full: last.is_none(),
            seen_ms: self.seen_ms,
            trouble: self.trouble.as_deref(),
            changed: changed.map(|(_, lock)| &**lock).collect(),
            gone: gone.map(String::as_str).collect(),
            deadlocks: self.deadlocks.as_deref().filter(|_| !same_deadlocks),
        }
    }
}

fn is_same(one: Option<&Arc<RawValue>>, other: Option<&Arc<RawValue>>) -> bool {
    one.map(|it| it.get()) == other.map(|it| it.get())
}

/// The JSON of a view, shared with the previous snapshot if it is the same.
fn shared(
    view: &impl Serialize,
    before: Option<&Arc<RawValue>>,
) -> serde_json::Result<Arc<RawValue>> {
    let json: Arc<RawValue> = to_raw_value(view)?.into();
    Ok(match before {
        Some(before) if before.get() == json.get() => Arc::clone(before),
        _ => json,
    })
}

fn shorten(data: &mut String) {
    if let Some((end, _)) = data.char_indices().nth(DATA_MAX) {
        data.truncate(end);
        data.push('…');
    }
}
