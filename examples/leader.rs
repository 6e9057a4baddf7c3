//! Two workers and one leader, which hands over.
//!
//! ```text
//! cargo run --example leader    # in memory, nothing else needed
//! ```
//!
//! `LOCKS_URL` may name a store instead.

#![allow(clippy::print_stdout, reason = "the story is told on stdout")]

use std::error::Error as StdError;

use lock_recipes::{Candidate, Error, LeaderLatch, Session};
use recipes_testing::MemoryEnsemble;

const ELECTION: &str = "/recipes-leader/billing";

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let store = MemoryEnsemble::new();
    // As two processes have them.
    let (first, second) = (open_session(&store).await?, open_session(&store).await?);

    let anna = LeaderLatch::start(&first, ELECTION, "anna")?;
    anna.wait_until_leader().await?;
    let bert = LeaderLatch::start(&second, ELECTION, "bert")?;

    // Whoever follows the leaders need not be a candidate.
    let mut leaders = bert.election().observe();
    report(leaders.next().await)?;
    work(&anna);
    work(&bert);

    println!("anna is stopped, as before an update.");
    anna.stop().await?;
    bert.wait_until_leader().await?;
    report(leaders.next().await)?;
    work(&bert);

    bert.stop().await?;
    report(leaders.next().await)?;
    first.close().await;
    second.close().await;
    Ok(())
}

/// One piece of the work that only the leader does.
fn work(worker: &LeaderLatch) {
    match worker.term() {
        Some(term) => println!("{} works, under term {term}.", worker.id()),
        None => println!("{} leaves the work to the leader.", worker.id()),
    }
}

fn report(news: Option<Result<Option<Candidate>, Error>>) -> Result<(), Box<dyn StdError>> {
    match news.ok_or("no more news")?? {
        Some(leader) => println!("The leader is {}, in term {}.", leader.id, leader.term),
        None => println!("Nobody leads."),
    }
    Ok(())
}

async fn open_session(store: &MemoryEnsemble) -> Result<Session, Box<dyn StdError>> {
    match std::env::var("LOCKS_URL") {
        Ok(address) => Ok(lock_recipes::connect(&address).await?),
        Err(_) => Ok(store.session()),
    }
}
