//! When to poll, and what a poll tells.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use recipes_core::NodeEvent;
use recipes_keeper::Rewatch;
use tokio::time::Instant;

use super::answers::Watched;
use super::request::split;

/// Between a new watch and the first poll: the node may have gone before anybody could notice.
const FIRST: Duration = Duration::from_millis(1);
/// Between two polls of who is next in line; as often for each one ahead.
const STEP: Duration = Duration::from_millis(2);
/// Between two polls at most.
const MOST: Duration = Duration::from_millis(100);
/// More of them ahead make no difference.
pub(super) const AHEAD_MAX: i64 = 49;
/// Timers are late by up to a millisecond, half of it on average.
const LATE: Duration = Duration::from_micros(500);
/// Polls that take longer than this, as they look at very many nodes, take a fourth of the time at most.
const LONG: Duration = Duration::from_millis(5);
const REST: u32 = 3;
/// Polls after which a watch is not set any more that was never confirmed.
const UNCONFIRMED_MAX: u8 = 64;

/// What a poll has found of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) created: i64,
    pub(super) changed: i64,
    pub(super) owner: i64,
    /// Place among its siblings, from 1.
    pub(super) place: i64,
}

/// What the nodes are like that are there, by their paths.
pub(super) type Nodes = HashMap<String, Found>;

/// News for whoever has watched a node up to a number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) path: String,
    pub(super) up_to: u64,
    pub(super) event: NodeEvent,
}

/// Plans the polls of one session.
#[derive(Debug, Default)]
pub(super) struct Poller {
    /// The last pause.
    pause: Duration,
    next: Option<Instant>,
    /// Nodes of the session that are watched, with the polls that may pass without it.
    own: HashMap<String, u8>,
    /// Nodes of others that are the first in their directory, as long as they are there.
    first: HashSet<String>,
}

impl Poller {
    /// When to poll next, if there is anything to poll.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Nodes are watched from now on.
    pub(super) fn watch(&mut self, watched: Vec<Watched>, now: Instant) {
        for Watched { path, is_own } in watched {
            if let (true, Ok(path)) = (is_own, String::from_utf8(path)) {
                self.own.insert(path, UNCONFIRMED_MAX);
            }
        }
        self.pause = FIRST;
        let soon = now + FIRST - LATE;
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// What has happened, in the order in which it is to be told: that of own nodes first. Whoever
    /// hears that a node ahead has gone is not granted a lock if its own went before.
    pub(super) fn news(&mut self, watches: &[Rewatch], nodes: &Nodes, me: i64) -> Vec<News> {
        for (path, found) in nodes {
            if found.owner == me {
                self.own.insert(path.clone(), UNCONFIRMED_MAX);
            }
        }
        let mut news: Vec<_> = watches
            .iter()
            .filter_map(|it| happened(it, nodes))
            .collect();
        news.sort_by_key(|it| !self.own.contains_key(&it.path));
        let watched: HashSet<_> = watches.iter().map(|it| it.path.as_str()).collect();
        self.own.retain(|path, polls| {
            // It may be on its way to those who wait.
            *polls = polls.saturating_sub(1);
            watched.contains(path.as_str()) || *polls > 0
        });
        self.first.retain(|path| nodes.contains_key(path));
        news
    }

    /// The nodes that are to be counted ahead of, to know how far behind the session is. None if it is
    /// next in line somewhere.
    pub(super) fn to_count<'a>(&self, nodes: &'a Nodes, me: i64) -> Option<Vec<(&'a str, i64)>> {
        let mut nearest: HashMap<&[u8], (&str, i64)> = HashMap::new();
        for (path, found) in nodes.iter().filter(|(_, it)| it.owner != me) {
            if self.first.contains(path) {
                return None;
            }
            let (dir, _) = split(path.as_bytes());
            let node = (path.as_str(), found.place);
            let least = nearest.entry(dir).or_insert(node);
            if node.1 < least.1 {
                *least = node;
            }
        }
        Some(nearest.into_values().collect())
    }

    /// So many nodes are ahead of this one.
    pub(super) fn counted(&mut self, path: &str, ahead: i64) {
        if ahead == 0 {
            self.first.insert(path.to_owned());
        }
    }

    /// A poll is over. `ahead` is how many nodes at least are ahead of those that the session waits for,
    /// `None` if it waits for nobody; then only its own nodes are of interest.
    pub(super) fn polled(&mut self, is_watching: bool, ahead: Option<i64>, began: Instant) {
        let now = Instant::now();
        let ahead = u32::try_from(ahead.unwrap_or(AHEAD_MAX)).unwrap_or_default();
        let longest = if is_watching {
            (STEP * (1 + ahead)).min(MOST)
        } else {
            MOST
        };
        let is_idle = !is_watching && self.pause >= MOST;
        self.pause = (self.pause * 2).clamp(FIRST, longest);
        let took = now - began;
        let rest = if took > LONG { took * REST } else { LATE };
        let next = (began + self.pause - LATE).max(now + rest);
        self.next = (!is_idle).then_some(next);
    }
}

/// What has happened to a watched node, as one snapshot shows it.
fn happened(watch: &Rewatch, nodes: &Nodes) -> Option<News> {
    let event = match nodes.get(&watch.path) {
        Some(found) if found.created == watch.seen.czxid => {
            if found.changed == watch.seen.mzxid {
                return None;
            }
            NodeEvent::Changed
        }
        _ => NodeEvent::Deleted,
    };
    Some(News {
        path: watch.path.clone(),
        up_to: watch.number,
        event,
    })
}

/// Numbers of nodes that one statement looks at. The server keeps a statement for each.
pub(super) const SIZES: [usize; 11] = [1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512];

/// The smallest of them that is large enough; the largest if none is.
pub(super) fn size(count: usize) -> usize {
    let [.., largest] = SIZES;
    let enough = SIZES.into_iter().find(|it| *it >= count);
    enough.unwrap_or(largest)
}

#[cfg(test)]
mod tests {
    use recipes_keeper::Seen;

    use super::*;

    fn watch(path: &str, number: u64, czxid: i64, mzxid: i64) -> Rewatch {
        Rewatch {
            number,
            path: path.to_owned(),
            seen: Seen { czxid, mzxid },
        }
    }

    fn nodes(all: &[(&str, i64, i64, i64, i64)]) -> Nodes {
        let found = |(created, changed, owner, place)| Found {
            created,
            changed,
            owner,
            place,
        };
        let all = all
            .iter()
            .map(|(path, c, m, o, seq)| ((*path).to_owned(), (*c, *m, *o, *seq)));
        all.map(|(path, parts)| (path, found(parts))).collect()
    }

    fn own(path: &str) -> Vec<Watched> {
        vec![Watched {
            path: path.as_bytes().to_vec(),
            is_own: true,
        }]
    }

    #[tokio::test(start_paused = true)]
    async fn news_of_own_nodes_come_first() {
        let mut poller = Poller::default();
        poller.watch(own("/a/3"), Instant::now());
        let watches = [
            watch("/a/1", 1, 10, 10),
            watch("/a/2", 2, 20, 20),
            watch("/a/3", 3, 30, 30),
            watch("/a/4", 4, 40, 40),
            watch("/a/5", 5, 50, 50),
        ];
        // 2 was made anew, 4 has other data, 5 stands.
        let there = nodes(&[
            ("/a/2", 21, 21, 6, 1),
            ("/a/4", 40, 41, 6, 2),
            ("/a/5", 50, 50, 7, 3),
        ]);
        let news = poller.news(&watches, &there, 7);
        let told: Vec<_> = news
            .iter()
            .map(|it| (it.path.as_str(), it.up_to, it.event))
            .collect();
        let (gone, other) = (NodeEvent::Deleted, NodeEvent::Changed);
        let all = [
            ("/a/3", 3, gone),
            ("/a/1", 1, gone),
            ("/a/2", 2, gone),
            ("/a/4", 4, other),
        ];
        assert_eq!(told, all);
        // It was seen to be an own one.
        let news = poller.news(&watches[3..], &nodes(&[]), 7);
        assert_eq!(news[0].path, "/a/5");
    }

    #[tokio::test(start_paused = true)]
    async fn own_nodes_that_nobody_watches_are_forgotten() {
        let mut poller = Poller::default();
        poller.watch(own("/a/1"), Instant::now());
        for _ in 0..=UNCONFIRMED_MAX {
            poller.news(&[], &nodes(&[]), 7);
        }
        assert!(poller.own.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_next_in_line_looks_most_often() {
        let mut poller = Poller::default();
        assert_eq!(poller.next(), None);
        let pauses = async |poller: &mut Poller, ahead| {
            poller.watch(Vec::new(), Instant::now());
            let mut pauses = Vec::new();
            for _ in 0..9 {
                let next = poller.next().unwrap();
                pauses.push((next + LATE - Instant::now()).as_millis());
                tokio::time::advance(next + LATE - Instant::now()).await;
                poller.polled(true, ahead, Instant::now());
            }
            pauses
        };
        assert_eq!(
            pauses(&mut poller, Some(0)).await,
            [1, 2, 2, 2, 2, 2, 2, 2, 2]
        );
        let mut poller = Poller::default();
        assert_eq!(
            pauses(&mut poller, Some(9)).await,
            [1, 2, 4, 8, 16, 20, 20, 20, 20]
        );
        let mut poller = Poller::default();
        assert_eq!(
            pauses(&mut poller, None).await,
            [1, 2, 4, 8, 16, 32, 64, 100, 100]
        );
        // A new watch is looked at soon, whatever the pause was.
        poller.watch(Vec::new(), Instant::now());
        assert_eq!(poller.next().unwrap() - Instant::now(), FIRST - LATE);
    }

    #[tokio::test(start_paused = true)]
    async fn polls_end_when_nothing_is_watched() {
        let mut poller = Poller::default();
        poller.watch(Vec::new(), Instant::now());
        let mut polls = 0;
        while let Some(next) = poller.next() {
            tokio::time::sleep_until(next).await;
            poller.polled(false, None, Instant::now());
            polls += 1;
        }
        assert_eq!(polls, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn poll_that_takes_long_comes_less_often() {
        let mut poller = Poller::default();
        let began = Instant::now();
        tokio::time::sleep(Duration::from_millis(50)).await;
        poller.polled(true, Some(0), began);
        assert_eq!(
            poller.next().unwrap() - Instant::now(),
            Duration::from_millis(150)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nearest_of_each_directory_are_counted_until_one_is_the_first() {
        let mut poller = Poller::default();
        let there = nodes(&[
            ("/a/1", 1, 1, 6, 8),
            ("/a/2", 2, 2, 6, 9),
            ("/b/1", 3, 3, 6, 4),
            ("/c/1", 4, 4, 7, 1),
        ]);
        let mut counted = poller.to_count(&there, 7).unwrap();
        counted.sort_unstable();
        assert_eq!(counted, [("/a/1", 8), ("/b/1", 4)]);
        poller.counted("/b/1", 3);
        assert!(poller.to_count(&there, 7).is_some());
        poller.counted("/a/1", 0);
        assert_eq!(poller.to_count(&there, 7), None);
        // It goes.
        poller.news(&[], &nodes(&[("/b/1", 3, 3, 6, 4)]), 7);
        assert!(poller.first.is_empty());
    }

    #[test]
    fn statements_have_few_sizes() {
        assert_eq!([1, 2, 5, 512, 900].map(size), [1, 2, 8, 512, 512]);
    }
}
