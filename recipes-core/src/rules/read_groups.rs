//! Which readers of a session share one node in the queue of a lock.
//!
//! They come in groups, one node for each. This module only decides;
//! [`SharedReads`](crate::lock::shared_reads::SharedReads) carries the decisions out.
//!
//! | a reader comes while | it |
//! |---|---|
//! | a group is open | joins it |
//! | none is | begins the next one, which is open |
//!
//! | a group is closed, and its node given up once nobody reads | why |
//! |---|---|
//! | when a writer of the session comes | its node may be ahead of the writer's, which must not wait for readers that come later |
//! | at its grant, if a writer of the session waits | it waits for this group: writers ahead of a reader are over at the reader's grant |
//! | some time after its grant | writers of other sessions wait behind its node |
//! | when its node can no longer be granted | it is lost, or wanted by another process |

use std::time::Duration;

use tokio::time::Instant;

/// The groups of one lock in one session. `G` is a group that readers can join.
#[derive(Debug)]
pub(crate) struct ReadGroups<G> {
    /// How long a group is open after its grant.
    open_for: Duration,
    /// How many writers wait.
    writers: usize,
    /// How many groups there were.
    count: u64,
    open: Option<OpenGroup<G>>,
}

#[derive(Debug)]
struct OpenGroup<G> {
    number: u64,
    /// `None` until it is granted.
    until: Option<Instant>,
    group: G,
}

impl<G> ReadGroups<G> {
    pub(crate) fn new(open_for: Duration) -> Self {
        Self {
            open_for,
            writers: 0,
            count: 0,
            open: None,
        }
    }

    /// The group that a reader may join now, with its number.
    pub(crate) fn open(&mut self, now: Instant) -> Option<(u64, &G)> {
        let is_over = |it: &OpenGroup<G>| it.until.is_some_and(|until| now >= until);
        if self.open.as_ref().is_some_and(is_over) {
            self.open = None;
        }
        self.open.as_ref().map(|it| (it.number, &it.group))
    }

    /// The number of the next group.
    pub(crate) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// A group with this number waits for its grant from now on.
    pub(crate) fn begin(&mut self, number: u64, group: G) {
        let until = None;
        self.open = Some(OpenGroup {
            number,
            until,
            group,
        });
    }

    /// A group is granted. If it is still open, readers join what `hold` makes of it, until the time that it
    /// gets.
    pub(crate) fn granted(&mut self, number: u64, now: Instant, hold: impl FnOnce(Instant) -> G) {
        if self.writers > 0 {
            return self.close(number);
        }
        if let Some(open) = self.open.as_mut().filter(|it| it.number == number) {
            let until = now + self.open_for;
            open.until = Some(until);
            open.group = hold(until);
        }
    }

    /// Whether a group is still open.
    pub(crate) fn is_open(&mut self, number: u64, now: Instant) -> bool {
        self.open(now).is_some_and(|(open, _)| open == number)
    }

    /// Nobody else joins this group.
    pub(crate) fn close(&mut self, number: u64) {
        self.open.take_if(|it| it.number == number);
    }

    /// A writer waits from now on.
    pub(crate) fn writer_came(&mut self) {
        self.writers += 1;
        self.open = None;
    }

    /// A writer waits no longer.
    pub(crate) fn writer_left(&mut self) {
        self.writers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_FOR: Duration = Duration::from_millis(100);

    #[test]
    fn groups_have_numbers_of_their_own() {
        let mut groups = ReadGroups::<()>::new(OPEN_FOR);
        assert_ne!(groups.number(), groups.number());
    }

    /// A group that was begun, and the time.
    fn begun() -> (ReadGroups<&'static str>, Instant) {
        let mut groups = ReadGroups::new(OPEN_FOR);
        groups.begin(1, "waits");
        (groups, Instant::now())
    }

    fn open(groups: &mut ReadGroups<&'static str>, now: Instant) -> Option<&'static str> {
        groups.open(now).map(|(_, group)| *group)
    }

    #[test]
    fn readers_join_the_group_that_waits_however_long_it_takes() {
        let (mut groups, now) = begun();
        assert_eq!(open(&mut groups, now + 9 * OPEN_FOR), Some("waits"));
    }

    #[test]
    fn granted_group_is_open_for_its_time_and_no_longer() {
        let (mut groups, now) = begun();
        groups.granted(1, now, |until| {
            assert_eq!(until, now + OPEN_FOR);
            "held"
        });
        let last = now + OPEN_FOR - Duration::from_nanos(1);
        assert_eq!(open(&mut groups, last), Some("held"));
        assert!(groups.is_open(1, last) && !groups.is_open(2, last));
        assert_eq!(open(&mut groups, now + OPEN_FOR), None);
        assert!(!groups.is_open(1, last), "it is open again");
    }

    /// Its node may be ahead of the writer's.
    #[test]
    fn writer_closes_the_group_that_it_finds() {
        for is_granted in [false, true] {
            let (mut groups, now) = begun();
            if is_granted {
                groups.granted(1, now, |_| "held");
            }
            groups.writer_came();
            assert_eq!(open(&mut groups, now), None);
            groups.writer_left();
            groups.granted(1, now, |_| "held");
            assert_eq!(
                open(&mut groups, now),
                None,
                "the grant has opened it again"
            );
        }
    }

    #[test]
    fn readers_that_come_after_a_writer_join_each_other_until_their_grant_if_it_still_waits() {
        for waits in [false, true] {
            let mut groups = ReadGroups::new(OPEN_FOR);
            let now = Instant::now();
            groups.writer_came();
            groups.begin(1, "behind it, or ahead");
            assert!(open(&mut groups, now).is_some());
            if !waits {
                groups.writer_left();
            }
            groups.granted(1, now, |_| "held");
            assert_eq!(open(&mut groups, now).is_some(), !waits);
        }
    }

    #[test]
    fn grant_and_end_of_an_earlier_group_leave_the_next_one_alone() {
        let (mut groups, now) = begun();
        groups.begin(2, "second");
        groups.granted(1, now, |_| "held");
        groups.close(1);
        assert_eq!(groups.open(now), Some((2, &"second")));
        groups.close(2);
        assert_eq!(groups.open(now), None);
    }
}
