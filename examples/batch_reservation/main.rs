//! Reserves several seats at once, from several processes: all of them or none.
//!
//! `cargo run -p examples --example batch_reservation` tells a story and needs nothing else. With an
//! ensemble, in as many terminals as you like:
//!
//! ```text
//! export LOCKS_URL=127.0.0.1:2181
//! alias seats='cargo run --quiet -p examples --example batch_reservation --'
//! seats reserve --db seats.db --client alice --seats 7-11,7-12
//! seats reserve --db seats.db --client bob --seats 7-13,7-12   # told who has 7-12
//! seats cancel  --db seats.db --client alice --seats 7-11,7-12
//! seats load    --db seats.db --client carol --seats 1,2,3,4 --batches 100
//! seats show    --db seats.db
//! ```
//!
//! With `--pause-at payment` it holds the locks until it gets a line of input. Stop it there with
//! Ctrl-Z for longer than its session lasts, reserve one of its seats elsewhere, and wake it up
//! with `fg`: its write has stale tokens, and the database refuses it.
//!
//! With PostgreSQL the seats can be where the locks are, and need no tokens: the write checks the locks
//! in its own transaction, by `guard.fence()`.
//!
//! ```text
//! export LOCKS_URL=postgres://app@localhost/shop
//! seats reserve --db $LOCKS_URL --client alice --seats 7-11
//! ```
//!
//! `reservations` has the locks, `sqlite` has the tokens, `postgres` the check in the transaction.
//!
//! Exit codes: 0 done, 2 seats not available, 3 refused as stale, 4 not locked in time,
//! 5 the ensemble does not answer, 1 all else.

#![allow(clippy::print_stdout, reason = "answers are given on stdout")]

mod demo;
mod load;
mod options;
mod postgres;
mod reservations;
mod sqlite;
mod store;

use std::error::Error;
use std::io::IsTerminal;
use std::process::ExitCode;

use lock_recipes::{Session, SessionOptions};

use options::{Command, Options};
use reservations::{Action, BatchError, Reservations};
use store::{Seat, Store};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    if options.command == Command::Demo {
        demo::tell().await?;
        return Ok(ExitCode::SUCCESS);
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let store = Store::open(
        options
            .db
            .as_deref()
            .ok_or("--db needs a file or postgres://...")?,
    )
    .await?;
    if options.command == Command::Show {
        show(&store).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = open_session(&options).await?;
    let done = serve(&options, &session, &store).await;
    // Also after a failure, or contenders wait for our nodes until the session times out.
    session.close().await;
    done
}

async fn open_session(options: &Options) -> Result<Session, Box<dyn Error>> {
    // Locks in our own memory exclude no other process, and their tokens restart with each one.
    let address = options.connect.as_deref();
    let address = address.ok_or("--connect or LOCKS_URL needs host:port or redis://host")?;
    let mut common = SessionOptions::new()
        .application("batch-reservation")
        .connect_timeout(options.patience);
    if let Some(timeout) = options.session_timeout {
        common = common.session_timeout(timeout);
    }
    Ok(lock_recipes::connect_with(address, common).await?)
}

async fn serve(
    options: &Options,
    session: &Session,
    store: &Store,
) -> Result<ExitCode, Box<dyn Error>> {
    let (root, patience, seats) = (&options.root, options.patience, &options.seats);
    let client = |name: &str| Reservations::new(session, root, store, name, patience);
    let (action, answer) = match options.command {
        Command::Load => {
            let name = |number| format!("{}-{number}", options.client);
            let clients = (1..=options.clients).map(|number| client(&name(number)));
            let clients = clients.collect::<Result<_, _>>()?;
            load::run(clients, seats, options.batches, options.seed).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Cancel => {
            let answer = client(&options.client)?.cancel(seats).await;
            (Action::Cancel, answer)
        }
        Command::Reserve | Command::Demo | Command::Show => {
            let payment = payment(options.pause_at_payment);
            let answer = client(&options.client)?.book(seats, payment).await;
            (Action::Book, answer)
        }
    };
    say(&options.client, action, seats, &answer);
    exit_code(answer)
}

/// The payment between check and write. In this example it lasts until you type a line.
async fn payment(pause: bool) {
    if pause {
        println!("holding");
        let line = || std::io::stdin().read_line(&mut String::new());
        // The end of the input, or a read error, also ends the payment.
        drop(tokio::task::spawn_blocking(line).await);
    }
}

fn say(client: &str, action: Action, seats: &[String], answer: &Result<i64, BatchError>) {
    let (action, seats) = (action.name(), seats.join(","));
    match answer {
        Ok(batch) => println!("{client}: {action} {seats}: done, batch {batch}"),
        Err(refused) => println!("{client}: {action} {seats}: refused, {refused}"),
    }
}

fn exit_code(answer: Result<i64, BatchError>) -> Result<ExitCode, Box<dyn Error>> {
    match answer {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(BatchError::Taken { .. } | BatchError::Free { .. }) => Ok(ExitCode::from(2)),
        Err(BatchError::Stale(_)) => Ok(ExitCode::from(3)),
        Err(BatchError::Busy(_)) => Ok(ExitCode::from(4)),
        Err(BatchError::Outage(_)) => Ok(ExitCode::from(5)),
        Err(error) => Err(error.into()),
    }
}

async fn show(store: &Store) -> Result<(), Box<dyn Error>> {
    for Seat { seat, client } in store.seats().await? {
        let client = client.as_deref().unwrap_or("nobody");
        println!("    {seat}: {client}");
    }
    for line in store.journal().await? {
        println!("    {line}");
    }
    Ok(())
}
