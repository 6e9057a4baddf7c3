//! Leaders that are killed, halted or cut off, one after the other.
//!
//! Three processes campaign all the time. Each notes, on the clock of the machine, when it was
//! granted a term and when its guard was valid for the last time. A leader that was valid after the
//! next one's grant would be a second leader.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_recipes::{LeaderElection, SessionOptions, connect_with};
use rustix::process::Signal;
use test_rig::history::monotonic_now;
use test_rig::{Direction, FaultProxy, TestEnsemble};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

use crate::PATH;
use crate::again::{self, Again};

/// Long enough for a busy machine, and so short that a round takes some seconds.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);
const CANDIDATES: usize = 3;
/// How often a leader asks whether it leads.
const ASK_EVERY: Duration = Duration::from_micros(500);
/// The prefix of a message. The rest of the output is the test harness's.
const SAYS: &str = "> ";

fn rounds() -> usize {
    std::env::var("LEADERS").map_or(10, |it| it.parse().unwrap())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Killed,
    Halted,
    CutOff,
}

const FAULTS: [Fault; 3] = [Fault::Killed, Fault::Halted, Fault::CutOff];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_are_over_before_the_next_one_leads_on_a_real_server() {
    run("ZooKeeper", test_rig::own::on_a_real_server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_are_over_before_the_next_one_leads_on_redis() {
    run("Redis", test_rig::own::on_redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_are_over_before_the_next_one_leads_on_postgres() {
    run("PostgreSQL", test_rig::own::on_postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_are_over_before_the_next_one_leads_on_mariadb() {
    run("MariaDB", test_rig::own::on_mariadb().await).await;
}

/// A candidate that campaigns until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process that another test starts"]
async fn candidate_process() {
    let Some(orders) = again::orders() else {
        return;
    };
    let (id, address) = orders.split_once(' ').unwrap();
    let options = SessionOptions::new().session_timeout(SESSION_TIMEOUT);
    let options = options.connect_timeout(PATIENCE);
    let session = connect_with(address, options).await.unwrap();
    let election = LeaderElection::new(&session, PATH, id).unwrap();
    loop {
        let leadership = election.campaign().await.unwrap();
        let granted = monotonic_now();
        let term = leadership.fencing_token().as_i64();
        println!("{SAYS}leads {term} {granted}");
        // A thread that no task of the runtime delays.
        let asking = move || {
            let mut valid = granted;
            loop {
                // Before the question: if the answer is yes, the term was not over then.
                let asked = monotonic_now();
                if !leadership.is_valid() {
                    return valid;
                }
                valid = asked;
                #[expect(clippy::disallowed_methods, reason = "the thread of no runtime")]
                std::thread::sleep(ASK_EVERY);
            }
        };
        let valid = tokio::task::spawn_blocking(asking).await.unwrap();
        println!("{SAYS}over {term} {valid}");
    }
}

/// A process with its own way to the server.
struct Seat {
    process: Again,
    proxy: FaultProxy,
}

/// What is known of a term.
#[derive(Clone, Copy, Debug)]
struct Term {
    seat: usize,
    granted: u64,
    /// When its leader was valid for the last time, as it said.
    valid: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Said {
    Leads(i64, u64),
    Over(i64, u64),
}

struct Race {
    ensemble: TestEnsemble,
    seats: Vec<Seat>,
    said: mpsc::UnboundedReceiver<(usize, Said)>,
    saying: mpsc::UnboundedSender<(usize, Said)>,
    terms: BTreeMap<i64, Term>,
}

impl Race {
    async fn start(ensemble: TestEnsemble) -> Self {
        let (saying, said) = mpsc::unbounded_channel();
        let mut race = Self {
            ensemble,
            seats: Vec::new(),
            said,
            saying,
            terms: BTreeMap::new(),
        };
        for number in 0..CANDIDATES {
            let seat = race.seat(number).await;
            race.seats.push(seat);
        }
        race
    }

    /// Starts a candidate.
    async fn seat(&self, number: usize) -> Seat {
        let (proxy, address) = match &self.ensemble {
            TestEnsemble::Memory(_) => panic!("no server"),
            TestEnsemble::Etcd(_) => panic!("no proxy for it"),
            TestEnsemble::Real(server) => {
                let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
                let address = proxy.connect_string();
                (proxy, address)
            }
            TestEnsemble::Redis(server) => {
                let upstream = format!("127.0.0.1:{}", server.port());
                let proxy = FaultProxy::start_for_redis(&upstream).await.unwrap();
                let address = format!("redis://{}", proxy.connect_string());
                (proxy, address)
            }
            TestEnsemble::Postgres(server) => {
                let upstream = format!("127.0.0.1:{}", server.port());
                let proxy = FaultProxy::start_for_postgres(&upstream).await.unwrap();
                let address = server.url_at(&proxy.connect_string());
                (proxy, address)
            }
            TestEnsemble::MariaDb(server) => {
                let upstream = format!("127.0.0.1:{}", server.port());
                let proxy = FaultProxy::start_for_mysql(&upstream).await.unwrap();
                let address = server.url_at(&proxy.connect_string());
                (proxy, address)
            }
        };
        let orders = format!("candidate-{number} {address}");
        let mut process = Again::start("handovers::candidate_process", &orders);
        let output = process.child.stdout.take().unwrap();
        let saying = self.saying.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // The harness does not end its own line.
                let Some((_, words)) = line.split_once(SAYS) else {
                    continue;
                };
                let words: Vec<_> = words.split(' ').collect();
                let (term, at) = (words[1].parse().unwrap(), words[2].parse().unwrap());
                let said = match words[0] {
                    "leads" => Said::Leads(term, at),
                    _ => Said::Over(term, at),
                };
                if saying.send((number, said)).is_err() {
                    return;
                }
            }
        });
        Seat { process, proxy }
    }

    /// Notes the next message of any candidate.
    async fn hear(&mut self) {
        let said = tokio::time::timeout(PATIENCE, self.said.recv()).await;
        let (seat, said) = said.expect("nobody leads").unwrap();
        match said {
            Said::Leads(term, granted) => {
                let valid = None;
                let term_of = Term {
                    seat,
                    granted,
                    valid,
                };
                assert!(
                    self.terms.insert(term, term_of).is_none(),
                    "term {term} twice"
                );
            }
            Said::Over(term, valid) => {
                self.terms.get_mut(&term).unwrap().valid = Some(valid);
            }
        }
    }

    fn last(&self) -> Option<(i64, Term)> {
        self.terms
            .last_key_value()
            .map(|(number, term)| (*number, *term))
    }

    /// Waits for a leader of a later term, and returns it.
    async fn leader_after(&mut self, term: i64) -> (i64, Term) {
        loop {
            match self.last() {
                Some(last) if last.0 > term && last.1.valid.is_none() => return last,
                _ => self.hear().await,
            }
        }
    }

    /// Ends a leader's term; returns until when it led, as far as is known, and the term after it.
    async fn harm(&mut self, fault: Fault, term: i64, seat: usize) -> (u64, Term) {
        let struck = monotonic_now();
        match fault {
            Fault::Killed => {
                self.seats[seat].process.kill().await;
                let next = self.leader_after(term).await;
                self.seats[seat] = self.seat(seat).await;
                (struck, next.1)
            }
            Fault::Halted => {
                self.seats[seat].process.signal(Signal::STOP);
                let next = self.leader_after(term).await;
                self.seats[seat].process.signal(Signal::CONT);
                (self.over(term).await, next.1)
            }
            Fault::CutOff => {
                let proxy = &self.seats[seat].proxy;
                proxy.black_hole(Direction::ToServer);
                proxy.black_hole(Direction::FromServer);
                let next = self.leader_after(term).await;
                let led = self.over(term).await;
                self.seats[seat].proxy.restore();
                (led, next.1)
            }
        }
    }

    /// Waits until the leader of a term has said when it was valid for the last time.
    async fn over(&mut self, term: i64) -> u64 {
        loop {
            match self.terms[&term].valid {
                Some(valid) => return valid,
                None => self.hear().await,
            }
        }
    }
}

async fn run(store: &str, ensemble: TestEnsemble) {
    let mut race = Race::start(ensemble).await;
    let mut leaderless: BTreeMap<Fault, Vec<Duration>> = BTreeMap::new();
    let mut number = 0;
    for round in 0..rounds() {
        let fault = FAULTS[round % FAULTS.len()];
        // All are candidates again, so that the next one waits when the leader is harmed.
        race.ensemble.await_children(PATH, CANDIDATES).await;
        let (term, leader) = race.leader_after(number).await;
        let (led, next) = race.harm(fault, term, leader.seat).await;
        let pause = Duration::from_nanos(next.granted.saturating_sub(led));
        leaderless.entry(fault).or_default().push(pause);
        number = term;
    }
    let terms: Vec<_> = race.terms.values().collect();
    for pair in terms.windows(2) {
        // Of a leader that was killed nothing is known, and nothing has to be.
        let valid = pair[0].valid.unwrap_or_default();
        assert!(valid < pair[1].granted, "two lead: {pair:?}");
        assert!(pair[0].granted < pair[1].granted, "out of order: {pair:?}");
    }
    for (fault, mut pauses) in leaderless {
        pauses.sort_unstable();
        println!(
            "{store}: {} leaders {fault:?}, nobody led for {:?} (median), {:?} (worst); session \
             timeout {SESSION_TIMEOUT:?}",
            pauses.len(),
            pauses[pauses.len() / 2],
            pauses[pauses.len() - 1],
        );
    }
}
