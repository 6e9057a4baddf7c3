//! Nine short recipes for services, one in each file. Copy what you need.
//!
//! ```text
//! cargo run -p examples --example cookbook                               # all, in memory
//! cargo run -p examples --example cookbook -- leader                     # one of them
//! cargo run -p examples --example cookbook -- --connect localhost:2181   # on a real ensemble
//! ```
//!
//! | file | how to |
//! |---|---|
//! | `cron_job` | run a job once that a clock starts on several machines |
//! | `leader` | have one worker at work and others stand by |
//! | `rate_of_one` | make one call for each key in a period |
//! | `few_at_a_time` | make at most a few calls at a time for each key |
//! | `fenced_write` | make a late writer harmless in SQL |
//! | `graceful_shutdown` | stop without making other processes wait |
//! | `config_reload` | read several values that change together |
//! | `batch_reservation` | take several things at once or none |
//! | `testing_your_code` | test code under a lock without a server |
//!
//! `tests/examples/cookbook.rs` shows that each does what it claims, in memory and on a real server.

#![allow(clippy::print_stdout, reason = "what happens is told on stdout")]

mod batch_reservation;
mod config_reload;
mod cron_job;
mod fenced_write;
mod few_at_a_time;
mod graceful_shutdown;
mod leader;
mod rate_of_one;
mod testing_your_code;

use std::error::Error;
use std::time::Duration;

use lock_recipes::{InterProcessMutex, LeaderElection, LockFactory, Session, ZooKeeper};
use test_rig::MemoryEnsemble;
use testing_your_code::Export;
use tokio::sync::oneshot;

type Done = Result<(), Box<dyn Error>>;

const NAMES: [&str; 9] = [
    "cron_job",
    "leader",
    "rate_of_one",
    "few_at_a_time",
    "fenced_write",
    "graceful_shutdown",
    "config_reload",
    "batch_reservation",
    "testing_your_code",
];

/// The ensemble that has the locks.
enum Place {
    Memory(MemoryEnsemble),
    Servers(String),
}

impl Place {
    async fn session(&self) -> Result<Session, lock_recipes::Error> {
        match self {
            Self::Memory(ensemble) => Ok(ensemble.session()),
            Self::Servers(connect_string) => ZooKeeper::connect(connect_string).await,
        }
    }
}

#[tokio::main]
async fn main() -> Done {
    let (mut place, mut chosen) = (Place::Memory(MemoryEnsemble::new()), NAMES.to_vec());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--connect" {
            place = Place::Servers(arguments.next().ok_or("--connect needs host:port,...")?);
            continue;
        }
        let name = NAMES.into_iter().find(|name| *name == argument);
        chosen = vec![name.ok_or_else(|| format!("no recipe {argument:?}; there are {NAMES:?}"))?];
    }
    for name in chosen {
        let session = place.session().await?;
        let done = show(name, &session, &place).await;
        // Also after a failure, or contenders wait for our nodes until the session times out.
        session.close().await;
        done?;
    }
    Ok(())
}

async fn show(name: &str, session: &Session, place: &Place) -> Done {
    match name {
        "cron_job" => cron(session).await,
        "leader" => leads(session).await,
        "rate_of_one" => rate(session).await,
        "few_at_a_time" => limit(session).await,
        "fenced_write" => fence(session).await,
        "graceful_shutdown" => shut_down(place).await,
        "config_reload" => reload(session).await,
        "batch_reservation" => reserve(session).await,
        _ => export(session).await,
    }
}

async fn cron(session: &Session) -> Done {
    for (machine, slot) in [
        ("first", "2026-11-21"),
        ("second", "2026-11-21"),
        ("first", "2026-11-22"),
    ] {
        let ran = cron_job::run_once(session, "nightly", slot, async {}).await?;
        println!("cron_job: {machine} machine, {slot}: ran = {ran}");
    }
    Ok(())
}

async fn leads(session: &Session) -> Done {
    let election = LeaderElection::new(session, "/workers/leader", "host-7")?;
    let work = async |term| println!("leader: {} at work in term {term}", election.id());
    leader::lead(&election, work).await?;
    Ok(())
}

async fn rate(session: &Session) -> Done {
    let keys = LockFactory::new(session, "/reminders")?;
    for customer in ["alice", "alice", "bob"] {
        let hour = Duration::from_secs(3600);
        let called = rate_of_one::call_at_most_once(&keys, customer, hour, async {}).await?;
        println!("rate_of_one: {customer}: called = {}", called.is_some());
    }
    Ok(())
}

async fn limit(session: &Session) -> Done {
    let partners = LockFactory::new(session, "/partners")?;
    let call = |number: u32| {
        let call = async move { println!("few_at_a_time: call {number} to acme") };
        few_at_a_time::call(&partners, "acme", 2, call)
    };
    tokio::try_join!(call(1), call(2), call(3))?;
    Ok(())
}

async fn fence(session: &Session) -> Done {
    let db = rusqlite::Connection::open_in_memory()?;
    fenced_write::create(&db)?;
    let account = InterProcessMutex::new(session, "/accounts/alice")?;
    let late = account.acquire().await?.fencing_token();
    let guard = account.acquire().await?;
    let token = guard.fencing_token();
    let balance = fenced_write::read(&db, "alice", token)?.ok_or("stale")?;
    let written = fenced_write::write(&db, "alice", balance + 50, token)?;
    println!("fenced_write: token {token}: written = {written}");
    let written = fenced_write::overwrite(&db, "alice", 0, late)?;
    println!("fenced_write: late token {late}: written = {written}");
    guard.release().await?;
    Ok(())
}

async fn shut_down(place: &Place) -> Done {
    let session = place.session().await?;
    let lock = InterProcessMutex::new(&session, "/service/lock")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let mut stop = Some(stop);
    let job = || {
        println!("graceful_shutdown: at work, and asked to stop");
        // This replaces an operator's SIGTERM: dropping the sender completes the receiver.
        drop(stop.take());
        std::future::ready(())
    };
    let stop = async {
        tokio::select! {
            asked = stopped => drop(asked),
            asked = graceful_shutdown::asked_to_stop() => drop(asked),
        }
    };
    graceful_shutdown::serve(&session, &lock, stop, job).await?;
    println!("graceful_shutdown: closed, nothing of ours is left");
    Ok(())
}

async fn reload(session: &Session) -> Done {
    config_reload::publish(session, ["db1", "5432"]).await?;
    let values = config_reload::load(session)
        .await?
        .ok_or("no configuration")?;
    println!("config_reload: {:?}", values.map(String::from_utf8));
    Ok(())
}

async fn reserve(session: &Session) -> Done {
    for (client, seats) in [("alice", ["7-11", "7-12"]), ("bob", ["7-13", "7-12"])] {
        match batch_reservation::reserve(session, &seats, client).await? {
            Ok(()) => println!("batch_reservation: {client} has {seats:?}"),
            Err(taken) => println!("batch_reservation: {client} has none, {taken} is taken"),
        }
    }
    Ok(())
}

async fn export(session: &Session) -> Done {
    let lock = InterProcessMutex::new(session, "/locks/export")?;
    match testing_your_code::export(&lock, async {}).await? {
        Export::Lost(lost) => return Err(lost.into()),
        ended => println!("testing_your_code: {ended:?}; its test is in the file"),
    }
    Ok(())
}
