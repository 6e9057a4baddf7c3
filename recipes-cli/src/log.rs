//! What happens inside, for whoever looks for a fault.

use std::io;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// From now on it is printed to standard error.
pub(crate) fn start(targets: Targets) {
    // Where nobody can be told, nothing can be said about it either.
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = lines.log_internal_errors(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .init();
}
