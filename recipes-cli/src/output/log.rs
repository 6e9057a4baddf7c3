//! The log on standard error, for finding faults.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::messages::Log;

/// Prints log lines to standard error from now on.
pub(crate) fn start(targets: Targets) {
    let lines = fmt::layer().with_writer(|| Log);
    let lines = lines.log_internal_errors(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .init();
}
