//! `serve`: a page that shows the locks as they are. No route of it changes anything.

mod connections;
mod routes;
mod snapshot;
mod watcher;

use std::net::IpAddr;

use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{ServeArguments, StoreArguments};
use crate::exit::{Failure, warn};
use crate::output::print::print;
use routes::Names;
use watcher::Watcher;

/// The address of the page.
#[derive(Debug, Serialize)]
struct ServingView {
    url: String,
}

/// Serves until a signal ends it.
pub(crate) async fn serve(
    store: &StoreArguments,
    arguments: &ServeArguments,
    as_json: bool,
) -> Result<(), Failure> {
    if arguments.root != "/" {
        recipes_core::internal::validate_path(&arguments.root)?;
    }
    let heed = |kind| signal(kind).map_err(|error| Failure::system("heed signals", &error));
    let mut interrupt = heed(SignalKind::interrupt())?;
    let mut terminate = heed(SignalKind::terminate())?;
    let refused = |error| Failure::system(&format!("listen on {}", arguments.listen), &error);
    let listener = TcpListener::bind(arguments.listen).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let watcher = Watcher::new(store, arguments);
    let names = Names::new(address.ip(), &arguments.host);
    let router = routes::router(watcher.viewers(), names);

    let url = format!("http://{address}/");
    print(as_json, &ServingView { url: url.clone() }, || {
        format!("{url}\n")
    })?;
    warn_of(address.ip());
    let outcome = tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        failure = watcher.run() => Err(failure),
        () = connections::serve(listener, router) => Ok(()),
    };
    watcher.close().await;
    outcome
}

fn warn_of(address: IpAddr) {
    if !address.is_loopback() {
        warn(&format!(
            "{address} is not a loopback address: anybody who reaches it can read all locks, \
             without a password and in the clear"
        ));
    }
}
