//! Who may be ahead in the queues of mutexes in which the session stands.
//!
//! To find who is ahead of a contender, a member goes through all keys of the directory. In a long queue that takes it longer
//! than the rest of a hand-off. But nobody gets ahead of a contender. So whoever is ahead was there when
//! the contender was first listed, and most of them have been missed since by a contender of the session that came earlier. If those that are
//! left are few, the member is asked for each by its key.
//!
//! A key leaves a queue only when a listing of the session has missed it. So what is kept here is never less than what is there.

use std::collections::{BTreeSet, HashMap};

/// More keys are not asked for one by one.
const ASKED_MAX: usize = 16;
/// A contender with so few keys in its first listing knows all that are ahead of it, and does not look again.
const SHORT: usize = 3;

/// A key, behind the revision that made it.
pub(crate) type Made = (i64, String);

#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// By what all keys of a directory begin with.
    by_directory: HashMap<String, Queue>,
}

#[derive(Debug)]
struct Queue {
    /// All that may be there of what the last whole listing showed.
    keys: BTreeSet<Made>,
    /// Those of the session.
    own: BTreeSet<Made>,
}

impl Queues {
    /// These are all keys of a directory, and those of the session among them.
    pub(crate) fn listed(&mut self, below: &str, keys: BTreeSet<Made>, own: BTreeSet<Made>) {
        if keys.len() <= SHORT || own.is_empty() {
            self.by_directory.remove(below);
            return;
        }
        let queue = Queue { keys, own };
        self.by_directory.insert(below.to_owned(), queue);
    }

    /// The keys by which it can be found who is ahead of the contender that this revision made, its own included.
    pub(crate) fn ahead(&self, below: &str, made_at: i64) -> Option<Vec<String>> {
        let queue = self.by_directory.get(below)?;
        // It is in the listing, so all that are ahead of it are.
        queue.own.iter().find(|(made, _)| *made == made_at)?;
        let ahead = queue.keys.iter().take_while(|(made, _)| *made <= made_at);
        let ahead: Vec<_> = ahead.take(ASKED_MAX + 1).collect();
        let are_few = ahead.len() <= ASKED_MAX;
        are_few.then(|| ahead.into_iter().map(|(_, key)| key.clone()).collect())
    }

    /// Of the keys that were made up to this revision, these are there.
    pub(crate) fn looked(&mut self, below: &str, made_at: i64, there: BTreeSet<Made>) {
        let Some(queue) = self.by_directory.get_mut(below) else {
            return;
        };
        queue.own.retain(|it| it.0 > made_at || there.contains(it));
        queue.keys = queue.keys.split_off(&(made_at + 1, String::new()));
        queue.keys.extend(there);
        self.keep_ours(below);
    }

    /// The session has deleted these keys, or wanted to. A queue in which it does not stand is forgotten.
    pub(crate) fn left(&mut self, keys: &[String]) {
        for key in keys {
            let below = key.rfind('/').and_then(|it| key.get(..=it));
            let below = below.unwrap_or_default();
            if let Some(queue) = self.by_directory.get_mut(below) {
                queue.own.retain(|(_, it)| it != key);
                self.keep_ours(below);
            }
        }
    }

    fn keep_ours(&mut self, below: &str) {
        let queue = self.by_directory.get(below);
        if queue.is_some_and(|it| it.own.is_empty()) {
            self.by_directory.remove(below);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(all: &[i64]) -> BTreeSet<Made> {
        all.iter().map(|it| (*it, format!("/a/{it}"))).collect()
    }

    /// A queue in which these keys were listed, and the last ones are the session's.
    fn listed(all: &[i64], own: &[i64]) -> Queues {
        let mut queues = Queues::default();
        queues.listed("/a/", made(all), made(own));
        queues
    }

    fn ahead(queues: &Queues, made_at: i64) -> Option<Vec<i64>> {
        let ahead = queues.ahead("/a/", made_at)?;
        Some(
            ahead
                .iter()
                .map(|it| it.rsplit_once('/').unwrap().1.parse().unwrap())
                .collect(),
        )
    }

    #[test]
    fn whoever_was_listed_and_not_missed_since_is_asked_for() {
        let mut queues = listed(&[3, 5, 7, 8, 11], &[7, 11]);
        assert_eq!(ahead(&queues, 11), Some(vec![3, 5, 7, 8, 11]));
        // Who is behind was not looked for.
        queues.looked("/a/", 7, made(&[5, 7]));
        assert_eq!(ahead(&queues, 11), Some(vec![5, 7, 8, 11]));
        // The session's own may still be there: an answer of its deletion is no listing.
        queues.left(&["/a/7".to_owned()]);
        assert_eq!(ahead(&queues, 11), Some(vec![5, 7, 8, 11]));
        queues.looked("/a/", 11, made(&[8, 11]));
        assert_eq!(ahead(&queues, 11), Some(vec![8, 11]));
    }

    #[test]
    fn contender_that_was_not_listed_may_have_others_ahead() {
        let queues = listed(&[3, 5, 7, 8], &[7]);
        assert_eq!(ahead(&queues, 9), None);
        // Nor is another's enough: it may have been listed before its revision was the last.
        assert_eq!(ahead(&queues, 8), None);
        assert_eq!(queues.ahead("/b/", 7), None);
    }

    #[test]
    fn many_are_listed_by_the_member() {
        let all: Vec<_> = (1..=20).collect();
        let mut queues = listed(&all, &[16, 17]);
        assert_eq!(ahead(&queues, 16).map(|it| it.len()), Some(ASKED_MAX));
        assert_eq!(ahead(&queues, 17), None);
        queues.looked("/a/", 16, made(&[16]));
        assert_eq!(ahead(&queues, 17), Some(vec![16, 17]));
    }

    #[test]
    fn nothing_is_kept_of_a_queue_in_which_the_session_does_not_stand() {
        let mut queues = listed(&[3, 5, 7, 8], &[7, 8]);
        queues.left(&["/a/7".to_owned(), "/b/7".to_owned(), "x".to_owned()]);
        assert!(ahead(&queues, 8).is_some());
        queues.left(&["/a/8".to_owned()]);
        assert!(queues.by_directory.is_empty());
        // Deleted by somebody else.
        let mut queues = listed(&[3, 5, 7, 8], &[8]);
        queues.looked("/a/", 8, made(&[7]));
        assert!(queues.by_directory.is_empty());
        for queues in [listed(&[1, 2, 3, 4], &[]), listed(&[1, 2, 3], &[3])] {
            assert!(queues.by_directory.is_empty());
        }
    }

    #[test]
    fn later_listing_takes_the_place_of_the_one_before() {
        let mut queues = listed(&[3, 5, 7, 8], &[8]);
        queues.listed("/a/", made(&[5, 6, 8, 9]), made(&[9]));
        assert_eq!(ahead(&queues, 9), Some(vec![5, 6, 8, 9]));
        queues.listed("/a/", made(&[8, 9]), made(&[9]));
        assert!(queues.by_directory.is_empty());
    }
}
