//! Which keep-alives of a lease count.
//!
//! A keep-alive is answered by whoever takes himself for the leader, and a leader that was deposed and does not
//! know it prolongs nothing. So it counts once a transaction that was sent after its answer is answered by the same
//! member in the same term: a quorum was still in that term, so nobody else led when the lease was prolonged.

use std::time::Duration;

use recipes_keeper::Moment;

/// A lease, as far as its keep-alives are proven.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// How long it lives without a keep-alive.
    ttl: Duration,
    /// When the last keep-alive was sent that counts, if there is one.
    proven: Option<Moment>,
    /// One that is answered, and not proven yet.
    answered: Option<KeptAlive>,
}

/// A keep-alive that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptAlive {
    pub(crate) sent: Moment,
    pub(crate) answered: Moment,
    pub(crate) by: Said,
}

/// Who has answered, and in which term of the leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) member: u64,
    pub(crate) term: u64,
}

impl Lease {
    /// A lease that was granted by what was sent then, or of which nothing is known.
    pub(crate) fn new(ttl: Duration, proven: Option<Moment>) -> Self {
        Self {
            ttl,
            proven,
            answered: None,
        }
    }

    /// A keep-alive was answered.
    pub(crate) fn kept_alive(&mut self, kept: KeptAlive) {
        self.answered = Some(kept);
    }

    /// A transaction that was sent then was answered. The quorum stands behind that.
    pub(crate) fn committed(&mut self, sent: Moment, by: Said) {
        let Some(kept) = self.answered else {
            return;
        };
        if kept.by != by {
            // Another leader may have the lease from before.
            self.answered = None;
        } else if kept.answered <= sent {
            self.answered = None;
            self.proven = self.proven.max(Some(kept.sent));
        }
    }

    /// Whether the lease certainly lives for so long after that moment.
    pub(crate) fn covers(&self, sent: Moment, timeout: Duration) -> bool {
        let since = self.proven.map(|it| it.elapsed());
        since.is_some_and(|since| since + timeout <= self.ttl + sent.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BY: Said = Said { member: 7, term: 3 };

    async fn later(seconds: u32) -> Moment {
        tokio::time::advance(SECOND * seconds).await;
        Moment::now()
    }

    #[tokio::test(start_paused = true)]
    async fn lease_covers_what_was_sent_until_a_timeout_before_its_end() {
        let lease = Lease::new(SECOND * 15, Some(Moment::now()));
        assert!(lease.covers(later(3).await, SECOND * 12));
        let late = later(1).await;
        assert!(!lease.covers(late, SECOND * 12));
        later(20).await;
        assert!(
            !lease.covers(late, SECOND * 12),
            "however late it is looked at"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alive_counts_once_a_later_transaction_is_answered_in_its_term() {
        let mut lease = Lease::new(SECOND * 15, Some(Moment::now()));
        let sent = later(5).await;
        let earlier = sent;
        let answered = later(1).await;
        lease.kept_alive(KeptAlive {
            sent,
            answered,
            by: BY,
        });
        assert!(
            !lease.covers(sent, SECOND * 12),
            "the answer alone proves nothing"
        );
        lease.committed(earlier, BY);
        assert!(
            !lease.covers(sent, SECOND * 12),
            "it was sent before the answer"
        );
        lease.committed(answered, BY);
        assert!(lease.covers(sent, SECOND * 15) && !lease.covers(answered, SECOND * 15));
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alive_of_another_term_or_member_counts_for_nothing() {
        for other in [Said { term: 4, ..BY }, Said { member: 8, ..BY }] {
            let mut lease = Lease::new(SECOND * 15, Some(Moment::now()));
            let sent = later(5).await;
            let answered = sent;
            lease.kept_alive(KeptAlive {
                sent,
                answered,
                by: BY,
            });
            lease.committed(later(1).await, other);
            lease.committed(later(1).await, BY);
            assert!(!lease.covers(sent, SECOND * 12), "{other:?}");
        }
    }
}
