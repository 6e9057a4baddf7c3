//! The side of the crate `rslock`: a measurement a line on stdin, as in `../../README.md`.

use std::io::{self, Write as _};
use std::time::Duration;

use rslock::{Lock, LockManager};

#[path = "../../../../benches/server_side_by_side/contest.rs"]
mod contest;
#[path = "../../../../benches/support/loops.rs"]
mod loops;

use contest::contest;
use loops::{Contender, cycles, each, together};

/// As long as the lease of the others. Nothing renews it.
const LEASE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() {
    let mut side = Side::default();
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let answer = match words[..] {
            ["version"] => version().to_owned(),
            _ => {
                let figures = side.measure(&words).await;
                let figures: Vec<_> = figures.iter().map(u64::to_string).collect();
                figures.join(" ")
            }
        };
        println!("ok {answer}");
        io::stdout().flush().unwrap();
    }
}

/// The version of rslock that was locked.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split_once("name = \"rslock\"\nversion = \"");
    let version = entry.and_then(|(_, rest)| rest.split_once('"'));
    version.unwrap().0
}

/// A session each.
#[derive(Default)]
struct Side {
    managers: Vec<LockManager>,
    held: Option<(OneLock, Lock)>,
}

impl Side {
    async fn measure(&mut self, words: &[&str]) -> Vec<u64> {
        let &[work, url, name, millis, _kind, ref rest @ ..] = words else {
            panic!("too few words: {words:?}");
        };
        let rest: Vec<u64> = rest.iter().map(|word| word.parse().unwrap()).collect();
        let length = Duration::from_millis(millis.parse().unwrap());
        let mut lock = |session| OneLock {
            manager: self.manager(url, session),
            name: name.to_owned(),
        };
        match (work, &rest[..]) {
            ("uncontended", []) => cycles(lock(0), length).await,
            ("hold", []) => {
                let mut lock = lock(1);
                let held = lock.take().await;
                self.held = Some((lock, held));
                Vec::new()
            }
            ("try", []) => {
                let OneLock { mut manager, name } = lock(0);
                manager.set_retry(1, Duration::from_millis(1));
                let attempt = move || {
                    let (manager, name) = (manager.clone(), name.clone());
                    async move {
                        let granted = manager.lock(name.as_str(), LEASE).await;
                        assert!(granted.is_err(), "granted what another session holds");
                    }
                };
                each(attempt, length).await
            }
            ("free", []) => {
                let (mut lock, held) = self.held.take().unwrap();
                lock.give_back(held).await;
                Vec::new()
            }
            ("saturated" | "paced", &[sessions, ref pace @ ..]) => {
                let locks = (0..sessions).map(lock).collect();
                let pace = match *pace {
                    [hold, pause] => [hold, pause].map(Duration::from_millis),
                    _ => [Duration::ZERO; 2],
                };
                contest(locks, pace, length).await.to_figures()
            }
            ("parallel", &[locks]) => {
                let manager = lock(0).manager;
                let locks = (0..locks).map(|index| OneLock {
                    manager: manager.clone(),
                    name: format!("{name}:{index}"),
                });
                together(locks.collect(), length).await
            }
            _ => panic!("unknown work: {words:?}"),
        }
    }

    fn manager(&mut self, url: &str, session: u64) -> LockManager {
        let session = usize::try_from(session).unwrap();
        while self.managers.len() <= session {
            self.managers.push(LockManager::new(vec![url]));
        }
        self.managers[session].clone()
    }
}

struct OneLock {
    manager: LockManager,
    name: String,
}

impl Contender for OneLock {
    type Held = Lock;

    async fn take(&mut self) -> Lock {
        let granted = self
            .manager
            .acquire_no_guard(self.name.as_str(), LEASE)
            .await;
        granted.unwrap()
    }

    async fn give_back(&mut self, held: Lock) {
        self.manager.unlock(&held).await;
    }
}
