//! Hands out order codes that are unique over all processes of the service.
//!
//! Three processes on one ensemble, each in a terminal of its own:
//!
//! ```text
//! export LOCKS_URL=127.0.0.1:2181
//! cargo run -p examples --example order_service -- --listen 127.0.0.1:8001
//! cargo run -p examples --example order_service -- --listen 127.0.0.1:8002
//! cargo run -p examples --example order_service -- --listen 127.0.0.1:8003
//!
//! curl -X POST http://127.0.0.1:8001/orders           # {"code":"A-000001","token":5}
//! curl -X POST http://127.0.0.1:8002/orders/batch/3   # three codes in a row
//! curl http://127.0.0.1:8003/health                   # session, who holds, who waits
//! ```
//!
//! Without a connect string the process runs alone, on an ensemble in its own memory.
//!
//! `order_codes` has the lock; `http` turns its errors into answers.

mod http;
mod options;
mod order_codes;

use std::error::Error;
use std::io::IsTerminal;
use std::sync::Arc;

use lock_recipes::{Session, SessionOptions};
use test_rig::MemoryEnsemble;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use options::Options;
use order_codes::OrderCodes;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let options = Options::parse(std::env::args().skip(1))?;
    let session = open_session(&options).await?;
    let served = serve(&options, &session).await;
    // Also after a failure, or contenders wait for our nodes until the session times out.
    session.close().await;
    served
}

async fn open_session(options: &Options) -> Result<Session, lock_recipes::Error> {
    let mut common = SessionOptions::new().application("order-service");
    if let Some(timeout) = options.session_timeout {
        common = common.session_timeout(timeout);
    }
    let Some(address) = &options.connect else {
        warn!("no --connect and no LOCKS_URL: codes are unique in this process only");
        return Ok(MemoryEnsemble::new().session_with(common));
    };
    // ZooKeeper, or Redis if it was built in.
    lock_recipes::connect_with(address, common).await
}

async fn serve(options: &Options, session: &Session) -> Result<(), Box<dyn Error>> {
    let codes = OrderCodes::new(session, &options.root, options.patience)?;
    let listener = TcpListener::bind(&options.listen).await?;
    // Before the address is printed, so that no signal ends the process without a close.
    let interrupt = signal(SignalKind::interrupt())?;
    let terminate = signal(SignalKind::terminate())?;
    announce(&listener)?;
    axum::serve(listener, http::router(Arc::new(codes)))
        .with_graceful_shutdown(asked_to_end(interrupt, terminate))
        .await?;
    Ok(())
}

#[expect(
    clippy::print_stdout,
    reason = "whoever started the process reads the address here"
)]
fn announce(listener: &TcpListener) -> std::io::Result<()> {
    println!("listening on http://{}", listener.local_addr()?);
    Ok(())
}

async fn asked_to_end(mut interrupt: Signal, mut terminate: Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    info!("answering the requests in flight, then closing the session");
}
