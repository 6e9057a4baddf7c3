//! Configuration in several nodes that change together, read by many processes.
//!
//! ```text
//! cargo run -p examples --example shared_config            # a story, in memory: nothing else needed
//!
//! export LOCKS_URL=127.0.0.1:2181
//! cargo run -p examples --example shared_config -- write   # rewrites all of it
//! cargo run -p examples --example shared_config -- serve   # a line of JSON for each read, until Ctrl-C
//! cargo run -p examples --example shared_config -- write --pause-ms 5000   # readers wait meanwhile
//! ```
//!
//! Below `/demo/config` there are five nodes with settings, and `manifest` with a version and the
//! checksum of all. `store` has the lock, `/demo/config/lock`.
//!
//! # What readers see
//! - A writer changes node by node, the manifest last, under the write lock. A reader reads node by
//!   node under the read lock. So readers see all of a version or nothing of it. They read side by
//!   side, and wait only while a writer writes.
//! - Each write is a transaction of the guard, so a writer that lost the lock changes nothing more.
//! - A lock does not undo. A writer that dies midway leaves a half, and its lock is freed with its
//!   session. Readers recognize the half by its checksum: they report it and keep the last complete
//!   version. A reader that has none yet ends with an error. The next writer repairs the half,
//!   because it writes all nodes, whatever they contain.
//!
//! # Alternatives
//! ZooKeeper can set several nodes in one transaction, up to the size of a request (1 MB). Then no
//! writer leaves a half. Readers still need the lock, because they read one node at a time, which
//! is no snapshot. For readers that wait for no writer, write each version into a directory of its
//! own, move a pointer to it in one step, and clean up old versions when no reader can use them.

mod config;
mod demo;
mod options;
mod serve;
mod store;

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use lock_recipes::{Session, ZooKeeper};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tracing::{info, warn};

use options::{Command, Options};
use store::Store;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let told = writeln!(std::io::stderr(), "error: {}", with_causes(&*error));
            // The message could not be written, so only the exit code reports the failure.
            told.map_or(ExitCode::FAILURE, |()| ExitCode::FAILURE)
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    if options.command == Command::Demo {
        return demo::tell(options.connect.as_deref()).await;
    }
    let connect_string = options
        .connect
        .as_deref()
        .ok_or("name an ensemble with --connect or LOCKS_URL; the command `demo` needs none")?;
    let session = open_session(connect_string).await?;
    let done = tokio::select! {
        biased;
        // The work in flight is dropped. The close waits until its guards are released.
        asked = asked_to_end() => asked.and(match options.command {
            Command::Write => Err("stopped by a signal; if it was midway, the next write repairs".into()),
            Command::Serve | Command::Demo => Ok(()),
        }),
        done = obey(&options, &session) => done,
    };
    // Also after a failure, or contenders wait for our nodes until the session times out.
    session.close().await;
    done
}

async fn open_session(connect_string: &str) -> Result<Session, lock_recipes::Error> {
    let builder = ZooKeeper::builder().application("shared-config");
    builder.connect(connect_string).await
}

async fn obey(options: &Options, session: &Session) -> Result<(), Box<dyn Error>> {
    let store = Store::new(session, &options.root)?;
    match options.command {
        Command::Write => write(options, &store).await,
        Command::Serve | Command::Demo => serve::serve(&store, options.every, options.reads).await,
    }
}

async fn write(options: &Options, store: &Store) -> Result<(), Box<dyn Error>> {
    for _ in 0..options.times {
        let written = store.write(sleep(options.pause)).await.inspect_err(|_| {
            warn!("readers keep the last complete version; what is half written the next write repairs");
        })?;
        say(&json!({
            "version": written.config.version,
            "checksum": written.config.checksum(),
            "held_us": written.held_us,
        }))?;
    }
    Ok(())
}

/// Prints a line of JSON.
fn say(line: &Value) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
}

async fn asked_to_end() -> Result<(), Box<dyn Error>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    info!("closing the session");
    Ok(())
}

fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}
