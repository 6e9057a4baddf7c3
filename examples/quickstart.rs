//! A short story of two owners and one lock.
//!
//! ```text
//! cargo run --example quickstart                               # in memory, nothing else needed
//! cargo run --example quickstart -- --connect localhost:2181   # a real ensemble
//! ```
//!
//! `LOCKS_URL` may name the ensemble instead.

#![allow(clippy::print_stdout, reason = "the story is told on stdout")]

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{AcquireError, Error, InterProcessMutex, LockFactory, Owner, Session};
use recipes_testing::MemoryEnsemble;

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let session = open_session().await?;
    let locks = LockFactory::new(&session, "/recipes-quickstart")?;
    let orders = locks.mutex("orders")?;
    println!(
        "The lock is {}, made when it is first needed.\n",
        orders.path()
    );

    let (alice, bob) = (Owner::new(), Owner::new());
    let held = orders.acquire().owner(&alice).await?;
    println!(
        "Alice acquires it with fencing token {}.",
        held.fencing_token()
    );
    show_queue(&orders).await?;

    let again = orders.acquire().owner(&alice).await?;
    println!(
        "Alice acquires it again, as its owner: she holds it {} times.",
        again.hold_count()
    );

    match orders
        .acquire()
        .owner(&bob)
        .timeout(Duration::from_millis(200))
        .await
    {
        Err(Error::Acquire(AcquireError::TimedOut { waited, .. })) => {
            println!("Bob waits for {waited:?} and gives up; nothing of his stays in the queue.");
        }
        other => return Err(format!("Bob should have timed out: {other:?}").into()),
    }

    println!("Bob asks again, and waits as long as it takes.");
    let bobs = tokio::spawn(orders.acquire().owner(&bob));
    while orders.participants().await?.len() < 2 {
        tokio::task::yield_now().await;
    }
    show_queue(&orders).await?;

    drop(again);
    println!(
        "Alice drops one guard, and still holds the lock: {}.",
        held.is_valid()
    );
    let alices_token = held.fencing_token();
    held.release().await?;
    println!("Alice releases the other.");

    let held = bobs.await??;
    println!(
        "Bob has it, with a higher token: {} > {alices_token}.",
        held.fencing_token()
    );
    let stored = held
        .run(async { format!("written under token {}", held.fencing_token()) })
        .await?;
    println!("He does what must not be done twice: {stored:?}.");
    drop(held);
    println!("Bob drops his guard: it is released in the background.");

    let last = orders.acquire().await?;
    println!(
        "Somebody else gets it, with token {}.",
        last.fencing_token()
    );
    last.release().await?;
    show_queue(&orders).await?;

    session.close().await;
    println!("\nThe session is closed. Next: README.md, and examples/order_service.");
    Ok(())
}

/// Opens a session with the named ensemble, otherwise with one in memory.
async fn open_session() -> Result<Session, Box<dyn StdError>> {
    let mut arguments = std::env::args().skip(1);
    let named = match arguments.next().as_deref() {
        Some("--connect") => Some(arguments.next().ok_or("--connect needs host:port,...")?),
        Some(other) => return Err(format!("unknown argument {other:?}; try --connect").into()),
        None => std::env::var("LOCKS_URL").ok(),
    };
    if let Some(connect_string) = named {
        println!("Connecting to {connect_string}.");
        return Ok(lock_recipes::connect(&connect_string).await?);
    }
    println!("No ensemble named, so this one is in memory: for trying out and for tests.");
    println!("(Start with --connect host:2181 or LOCKS_URL for a real one.)");
    Ok(MemoryEnsemble::new().session())
}

async fn show_queue(lock: &InterProcessMutex) -> Result<(), Box<dyn StdError>> {
    let queue = lock.participants().await?;
    if queue.is_empty() {
        println!("    queue: empty");
    }
    for (place, participant) in queue.iter().enumerate() {
        let role = if place == 0 { "holds" } else { "waits" };
        let who = match participant.identity() {
            Some(identity) => format!(
                "{} on {}, process {}",
                identity.application, identity.host, identity.pid
            ),
            None => "somebody".to_owned(),
        };
        println!(
            "    queue: {role}, number {:?}, {who}",
            participant.sequence.unwrap_or_default()
        );
    }
    Ok(())
}
