//! What a session knows about a lock directory that no other session has used lately.
//!
//! A directory counts the creates in it, of all clients, and the count is the number in a
//! sequential node's name. Suppose that our node `n` and everything created before it are gone.
//! Then nothing is ahead of a node `n + 1` of ours, because nothing was created in between. It
//! needs no listing to be granted.
//!
//! A directory that is deleted and re-created counts from 0. A watch on the directory that is older
//! than `n` reports this: a session is notified of what it watches before it is answered anything
//! that was done later.

/// This many of our nodes must have followed each other directly before the next one does without a
/// listing. A wrong guess, because another client came in between, costs one more round trip.
pub(crate) const RUN_MIN: u8 = 8;

/// A node of ours that is gone, as is everything created before it in its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sole {
    pub(crate) czxid: i64,
    pub(crate) sequence: i32,
}

/// Our last nodes in a directory, and what follows from them. Pure; `directory` is the `czxid` of
/// the watched directory, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Known {
    last: Option<Sole>,
    /// How many nodes in a row followed each other directly.
    run: u8,
}

impl Known {
    /// Whether the next node is expected to be alone.
    pub(crate) fn is_expected(&self, directory: Option<i64>) -> bool {
        self.run >= RUN_MIN && self.in_directory(directory).is_some()
    }

    /// Whether the directory is worth a watch.
    pub(crate) fn wants_watch(&self, directory: Option<i64>) -> bool {
        self.run >= RUN_MIN && directory.is_none()
    }

    /// Whether everything created before a node is gone, judged by its number. After a wrong guess
    /// the next one has to wait for a new run.
    pub(crate) fn claim_as_first(&mut self, directory: Option<i64>, sequence: i32) -> bool {
        let last = self.in_directory(directory);
        let is_alone = last.is_some_and(|it| it.is_followed_by(sequence));
        if !is_alone {
            self.run = 0;
        }
        is_alone
    }

    /// Starts a new run.
    pub(crate) fn forget_run(&mut self) {
        self.run = 0;
    }

    #[cfg(test)]
    pub(crate) fn last(&self) -> Option<Sole> {
        self.last
    }

    /// The last node, if it was in that directory. An older node was in an earlier one.
    fn in_directory(&self, directory: Option<i64>) -> Option<Sole> {
        self.last
            .filter(|it| directory.is_some_and(|directory| directory < it.czxid))
    }

    /// Notes a node of ours that is gone.
    pub(crate) fn left(&mut self, sole: Sole) {
        let goes_on = self.last.is_some_and(|it| it.is_followed_by(sole.sequence));
        self.run = if goes_on {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(sole);
    }
}

impl Sole {
    pub(crate) fn is_followed_by(self, sequence: i32) -> bool {
        // Servers since 3.6 stop counting at the last number, and return it again and again.
        sequence < i32::MAX && self.sequence.checked_add(1) == Some(sequence)
    }
}
