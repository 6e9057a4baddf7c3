//! Which server is tried next. Pure.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::connect_string::Server;

/// A server, and whether connections to it are encrypted.
pub(crate) type Address = (Server, bool);

/// The servers of a connect string, in the order in which they are tried.
///
/// They are tried in rounds: each once, in turn, from the one after the last. So none is tried twice in a
/// row while others are there. One that was silent is left out for a while,
/// unless all are.
#[derive(Debug)]
pub(crate) struct Servers {
    known: Vec<Known>,
    last: usize,
    round: VecDeque<usize>,
}

#[derive(Debug)]
struct Known {
    address: Address,
    left_out_until: Option<Instant>,
}

impl Servers {
    /// Begins with a server that `first` chooses: any number, so that sessions spread over servers.
    pub(crate) fn new(addresses: Vec<Address>, first: usize) -> Self {
        let known = addresses.into_iter().map(|address| Known {
            address,
            left_out_until: None,
        });
        let known: Vec<_> = known.collect();
        let last = first.checked_rem(known.len()).unwrap_or_default();
        Self {
            known,
            last,
            round: VecDeque::new(),
        }
    }

    /// The next server; `None` once after each round.
    pub(crate) fn next(&mut self) -> Option<Address> {
        self.last = self.round.pop_front()?;
        self.known.get(self.last).map(|it| it.address.clone())
    }

    /// Begins another round. What is left of the present one is left out.
    pub(crate) fn begin_round(&mut self, now: Instant) {
        let count = self.known.len();
        let turn = (1..=count).filter_map(|step| (self.last + step).checked_rem(count));
        let all: VecDeque<usize> = turn.collect();
        let is_left_out = |at: &usize| self.known.get(*at).is_some_and(|it| it.is_left_out(now));
        let others: VecDeque<usize> = all.iter().copied().filter(|at| !is_left_out(at)).collect();
        self.round = if others.is_empty() { all } else { others };
    }

    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// The one that was tried last is tried again.
    pub(crate) fn turn_back(&mut self) {
        self.round.push_front(self.last);
    }

    /// All, each with the time from which on it may be tried.
    pub(crate) fn all(&self, now: Instant) -> Vec<(Address, Instant)> {
        let is_any_here = self.known.iter().any(|it| !it.is_left_out(now));
        let all = self.known.iter().map(|it| {
            let from = it
                .left_out_until
                .filter(|until| is_any_here && *until > now);
            (it.address.clone(), from.unwrap_or(now))
        });
        all.collect()
    }

    /// This one has accepted a connection and said nothing, or it knows nothing.
    pub(crate) fn leave_out(&mut self, address: &Address, until: Instant) {
        for known in self.known.iter_mut().filter(|it| it.address == *address) {
            known.left_out_until = Some(until);
        }
    }

    /// This one is tried now.
    pub(crate) fn turn_to(&mut self, address: &Address) {
        let place = self.known.iter().position(|it| it.address == *address);
        self.last = place.unwrap_or(self.last);
    }
}

impl Known {
    fn is_left_out(&self, now: Instant) -> bool {
        self.left_out_until.is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WHILE: Duration = Duration::from_secs(12);

    fn servers(count: u16, first: usize) -> Servers {
        let address = |port| {
            let host = "zk".to_owned();
            let server = Server {
                host,
                port,
                tls: None,
            };
            (server, false)
        };
        Servers::new((0..count).map(address).collect(), first)
    }

    /// The ports of one round.
    fn round(servers: &mut Servers, now: Instant) -> Vec<u16> {
        servers.begin_round(now);
        let mut ports = Vec::new();
        while let Some((server, _)) = servers.next() {
            ports.push(server.port);
        }
        ports
    }

    #[test]
    fn each_is_tried_once_in_a_round_and_none_twice_in_a_row() {
        let (mut servers, now) = (servers(3, 7), Instant::now());
        assert_eq!(round(&mut servers, now), [2, 0, 1]);
        assert_eq!(round(&mut servers, now), [2, 0, 1]);
        servers.begin_round(now);
        servers.next();
        // Connected there, and lost again.
        assert_eq!(round(&mut servers, now), [0, 1, 2]);
    }

    #[test]
    fn one_that_has_opened_a_session_is_asked_again() {
        let (mut servers, now) = (servers(3, 0), Instant::now());
        servers.begin_round(now);
        let first = servers.next();
        servers.turn_back();
        assert_eq!(servers.next(), first);
        assert_ne!(servers.next(), first);
    }

    #[test]
    fn one_that_was_silent_is_left_out_for_a_while() {
        let (mut servers, now) = (servers(3, 0), Instant::now());
        servers.begin_round(now);
        let silent = servers.next().unwrap();
        servers.leave_out(&silent, now + WHILE);
        assert_eq!(round(&mut servers, now), [2, 0]);
        let latest = |servers: &Servers, now| servers.all(now).into_iter().map(|it| it.1).max();
        assert_eq!(latest(&servers, now), Some(now + WHILE));
        assert_eq!(round(&mut servers, now + WHILE), [1, 2, 0]);
        assert_eq!(latest(&servers, now + WHILE), Some(now + WHILE));
    }

    #[test]
    fn all_are_tried_if_all_were_silent() {
        let (mut servers, now) = (servers(2, 0), Instant::now());
        servers.begin_round(now);
        while let Some(silent) = servers.next() {
            servers.leave_out(&silent, now + WHILE);
        }
        assert_eq!(round(&mut servers, now), [1, 0]);
        assert!(servers.all(now).iter().all(|it| it.1 == now));
    }

    #[test]
    fn rounds_go_on_after_the_one_that_was_found_in_another_way() {
        let (mut servers, now) = (servers(3, 0), Instant::now());
        servers.begin_round(now);
        let found = servers.all(now).remove(2).0;
        servers.turn_to(&found);
        assert_eq!(round(&mut servers, now), [0, 1, 2]);
    }

    #[test]
    fn lone_server_is_tried_again_and_again() {
        let (mut servers, now) = (servers(1, 5), Instant::now());
        assert_eq!(round(&mut servers, now), [0]);
        let silent = servers.all(now).remove(0).0;
        servers.leave_out(&silent, now + WHILE);
        assert_eq!(round(&mut servers, now), [0]);
    }

    #[test]
    fn sessions_begin_with_all_of_the_servers() {
        let now = Instant::now();
        let first = |number| round(&mut servers(3, number), now).first().copied();
        let firsts: Vec<_> = (0..3).map(first).collect();
        assert_eq!(firsts, [Some(1), Some(2), Some(0)]);
    }
}
