//! Until when the store cannot have ended a session, judged by its answers. Pure.
//!
//! docs/design/epochs.md has the proof. In short, with the session timeout T: the present leader
//! ends a session no earlier than 0.55 T after a request that it answered was sent. A later leader
//! ends it no earlier than T after a request that a quorum committed was sent. An answer alone does
//! not prove the second: a leader that was deposed and has not noticed still answers reads and
//! `sync`.

use std::time::Duration;

use crate::clock::Moment;

/// Heartbeats in one session timeout.
pub(crate) const BEATS: u32 = 6;

/// What an answer proves about the time at which its request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A server that takes itself for the leader had the session alive.
    Leader,
    /// A quorum had the session alive.
    Quorum,
}

/// What is known of one session.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// `None` if sessions never expire by time.
    timeout: Option<Duration>,
    /// For how many twelfths of the timeout an answer counts: half of it, or less if the client may be
    /// silent for long before a request.
    part: u32,
    /// When the last request was sent that a leader answered.
    by_leader: Moment,
    /// When the last request was sent that a quorum committed.
    by_quorum: Moment,
    /// How many times the deadline had passed before it was extended. A lease from before such a
    /// lapse stays lost, because another contender may have been granted the lock in between.
    lapses: u64,
}

impl Evidence {
    /// A session whose opening, which a quorum commits, was sent at `sent`. With `is_quiet`, its
    /// client may be silent for almost a third of the timeout.
    pub(crate) fn new(timeout: Option<Duration>, is_quiet: bool, sent: Moment) -> Self {
        let part = if is_quiet { 5 } else { 6 };
        Self {
            timeout,
            part,
            by_leader: sent,
            by_quorum: sent,
            lapses: 0,
        }
    }

    /// From now on the store may end the session after a shorter time of silence: a server that is about
    /// to be asked to go on with it grants no more. What was proved before counts on with the time that it
    /// was proved for, but not beyond what that server grants from now on. A longer time changes nothing.
    pub(crate) fn shortened(&mut self, timeout: Duration, now: Moment) {
        let Some(before) = self.timeout.filter(|before| timeout < *before) else {
            return;
        };
        // So that they add up to the same times with the new terms.
        let by_leader = self.by_leader + (self.lease_time(before) - self.lease_time(timeout));
        let by_quorum = self.by_quorum + (before - before / 12 - (timeout - timeout / 12));
        self.timeout = Some(timeout);
        self.by_leader = by_leader.min(now);
        self.by_quorum = by_quorum.min(now);
    }

    fn lease_time(&self, timeout: Duration) -> Duration {
        timeout * self.part / 12
    }

    /// When the session may be over if no further answer comes, `None` for never.
    pub(crate) fn until(&self) -> Option<Moment> {
        let timeout = self.timeout?;
        let by_leader = self.by_leader + self.lease_time(timeout);
        // T/12 for clocks that differ.
        Some(by_leader.min(self.by_quorum + (timeout - timeout / 12)))
    }

    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.until().is_some_and(|until| until <= now)
    }

    pub(crate) fn lapses(&self) -> u64 {
        self.lapses
    }

    /// Notes an answer; true if it came too late for the present leases. It counts from the sending
    /// of its request, because the store may have received that any time after.
    pub(crate) fn note(&mut self, proof: Proof, sent: Moment, now: Moment) -> bool {
        let has_lapsed = self.is_over(now);
        self.lapses += u64::from(has_lapsed);
        self.by_leader = self.by_leader.max(sent);
        if proof == Proof::Quorum {
            self.by_quorum = self.by_quorum.max(sent);
        }
        has_lapsed
    }

    /// When a heartbeat is due, and what it must prove. Every third is committed if nothing else
    /// is. So the last commit never decides the deadline while the store answers.
    pub(crate) fn next_beat(&self, now: Moment) -> Option<(Moment, Proof)> {
        let timeout = self.timeout?;
        let at = self.by_leader + timeout / BEATS;
        let proof = match at.max(now) >= self.by_quorum + timeout * 5 / 12 {
            true => Proof::Quorum,
            false => Proof::Leader,
        };
        Some((at, proof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);
    const SECOND: Duration = Duration::from_secs(1);

    fn start() -> (Evidence, Moment) {
        let start = Moment::default();
        (Evidence::new(Some(T), false, start), start)
    }

    #[test]
    fn session_that_never_expires_is_never_over() {
        let start = Moment::default();
        let evidence = Evidence::new(None, false, start);
        assert_eq!(evidence.until(), None);
        assert!(!evidence.is_over(start + 1_000 * T));
        assert_eq!(evidence.next_beat(start), None);
    }

    /// The next server keeps the session for so long at most, whatever was committed before.
    #[test]
    fn what_was_committed_counts_no_longer_than_a_shorter_timeout() {
        let (mut evidence, start) = start();
        let shortened = start + SECOND;
        evidence.shortened(SECOND, shortened);
        assert_eq!(evidence.until(), Some(shortened + SECOND / 2));
        for answered in 1..20 {
            let at = shortened + SECOND / 10 * answered;
            evidence.note(Proof::Leader, at, at);
        }
        let latest = shortened + (SECOND - SECOND / 12);
        assert_eq!(evidence.until(), Some(latest));
    }

    #[test]
    fn answer_counts_from_its_sending() {
        let (mut evidence, start) = start();
        assert!(!evidence.note(Proof::Quorum, start + SECOND, start + 5 * SECOND));
        assert_eq!(evidence.until(), Some(start + 7 * SECOND));
        // The answer to an earlier request takes nothing back.
        assert!(!evidence.note(Proof::Quorum, start, start + 6 * SECOND));
        assert_eq!(evidence.until(), Some(start + 7 * SECOND));
    }

    #[test]
    fn leader_alone_moves_the_deadline_on_until_eleven_twelfths_after_the_last_commit() {
        let (mut evidence, start) = start();
        for second in 1..=10 {
            let sent = start + second * SECOND;
            assert!(!evidence.note(Proof::Leader, sent, sent));
            let until = (sent + T / 2).min(start + 11 * SECOND);
            assert_eq!(evidence.until(), Some(until), "{second}");
        }
        assert!(!evidence.is_over(start + Duration::from_nanos(10_999_999_999)));
        assert!(evidence.is_over(start + 11 * SECOND));
    }

    #[test]
    fn late_answer_is_a_lapse_and_counts_all_the_same() {
        let (mut evidence, start) = start();
        assert!(evidence.note(Proof::Quorum, start + 5 * SECOND, start + 6 * SECOND));
        assert_eq!(evidence.lapses(), 1);
        assert_eq!(evidence.until(), Some(start + 11 * SECOND));
        assert!(!evidence.note(Proof::Quorum, start + 7 * SECOND, start + 8 * SECOND));
        assert_eq!(evidence.lapses(), 1);
    }

    #[test]
    fn commit_that_is_answered_behind_a_later_one_takes_nothing_back() {
        let (mut evidence, start) = start();
        evidence.note(Proof::Quorum, start + 4 * SECOND, start + 4 * SECOND);
        evidence.note(Proof::Quorum, start + SECOND, start + 5 * SECOND);
        for second in [8, 11] {
            let sent = start + second * SECOND;
            assert!(!evidence.note(Proof::Leader, sent, sent));
        }
        assert_eq!(evidence.until(), Some(start + 15 * SECOND));
    }

    #[test]
    fn client_that_may_be_silent_has_less_time() {
        let start = Moment::default();
        let evidence = Evidence::new(Some(T), true, start);
        assert_eq!(evidence.until(), Some(start + 5 * SECOND));
    }

    #[test]
    fn shorter_timeout_counts_from_the_reconnect_and_takes_nothing_back_before() {
        let (mut evidence, start) = start();
        // At 2 s a server is asked that grants 4 s: it may end the session at 6 s.
        evidence.shortened(T / 3, start + 2 * SECOND);
        assert_eq!(evidence.until(), Some(start + 4 * SECOND));
        // What it answers counts with its own terms.
        assert!(!evidence.note(Proof::Quorum, start + 3 * SECOND, start + 3 * SECOND));
        assert_eq!(evidence.until(), Some(start + 5 * SECOND));
        let (at, _) = evidence.next_beat(start).unwrap();
        assert_eq!(at, start + 3 * SECOND + T / 18);
    }

    #[test]
    fn shorter_timeout_is_no_proof_that_the_session_lives() {
        let (mut evidence, start) = start();
        evidence.shortened(T - SECOND, start + 5_900 * (SECOND / 1_000));
        assert_eq!(evidence.until(), Some(start + 6 * SECOND));
        assert!(evidence.note(Proof::Quorum, start + 6 * SECOND, start + 6 * SECOND));
    }

    #[test]
    fn commit_counts_with_the_timeout_that_it_was_made_under() {
        let (mut evidence, start) = start();
        evidence.note(Proof::Leader, start + 8 * SECOND, start + 8 * SECOND);
        assert_eq!(evidence.until(), Some(start + 11 * SECOND));
        evidence.shortened(T / 2, start + 8 * SECOND);
        // 8 s + 3 s and 8 s + 5.5 s, and the commit of the start still ends at 11 s.
        assert_eq!(evidence.until(), Some(start + 11 * SECOND));
        evidence.note(Proof::Leader, start + 10 * SECOND, start + 10 * SECOND);
        assert_eq!(evidence.until(), Some(start + 11 * SECOND));
    }

    #[test]
    fn longer_timeout_changes_nothing() {
        let (mut evidence, start) = start();
        for longer in [T, 2 * T] {
            evidence.shortened(longer, start + 5 * SECOND);
            assert_eq!(evidence.until(), Some(start + 6 * SECOND));
        }
    }

    #[test]
    fn every_third_beat_is_committed_and_none_where_all_is() {
        let (mut evidence, start) = start();
        let mut now = start;
        let mut proofs = Vec::new();
        for _ in 0..9 {
            let (at, proof) = evidence.next_beat(now).unwrap();
            assert_eq!(at, now + T / 6);
            // The last answer of a leader decides the deadline, whatever was committed.
            assert_eq!(evidence.until(), Some(now + T / 2));
            evidence.note(proof, at, at);
            (now, proofs) = (at, [proofs, vec![proof]].concat());
        }
        let third = [Proof::Leader, Proof::Leader, Proof::Quorum];
        assert_eq!(proofs, third.repeat(3));
        for _ in 0..100 {
            now = now + T / 7;
            assert!(evidence.next_beat(now).unwrap().0 > now);
            evidence.note(Proof::Quorum, now, now);
        }
    }

    #[test]
    fn beat_that_comes_late_is_committed() {
        let (evidence, start) = start();
        let proof = |second| evidence.next_beat(start + second * SECOND).unwrap().1;
        assert_eq!([proof(2), proof(4)], [Proof::Leader; 2]);
        assert_eq!([proof(5), proof(9)], [Proof::Quorum; 2]);
    }

    #[test]
    fn beat_that_must_be_committed_stays_due_until_one_is() {
        let (mut evidence, start) = start();
        evidence.note(Proof::Leader, start + 4 * SECOND, start + 4 * SECOND);
        for _ in 0..3 {
            let (at, proof) = evidence.next_beat(start).unwrap();
            assert_eq!(proof, Proof::Quorum);
            // Answered without a commit.
            evidence.note(Proof::Leader, at, at);
        }
    }
}
