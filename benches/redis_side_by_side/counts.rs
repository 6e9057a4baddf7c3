//! The cost of an operation in scripts and messages, as the server counts them. It does not depend
//! on the machine.

use std::time::Duration;

use recipes_testing::RedisServer;

use super::plan::Case;
use super::record::operations;
use super::side::Kind;

/// Long enough for hundreds of operations.
pub(crate) const LENGTH: Duration = Duration::from_millis(300);

/// What each operation of one case costs a side, on average.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) case: &'static str,
    pub(crate) side: Kind,
    pub(crate) operations: u64,
    pub(crate) scripts: f64,
    /// Requests of clients that are no scripts.
    pub(crate) others: f64,
    /// Messages to subscribers, which scripts send.
    pub(crate) messages: f64,
    /// Microseconds in which the server carried out scripts.
    pub(crate) micros: f64,
}

/// Counts from when it is started.
pub(crate) struct Counter<'a>(&'a RedisServer);

impl<'a> Counter<'a> {
    pub(crate) async fn start(server: &'a RedisServer) -> Self {
        let reset = server.command::<String>(&["CONFIG", "RESETSTAT"]).await;
        reset.unwrap();
        Self(server)
    }

    pub(crate) async fn end(self, case: &Case, side: Kind, figures: &[u64]) -> Counts {
        let stats: String = self.0.command(&["INFO", "commandstats"]).await.unwrap();
        let operations = operations(case.work, figures);
        let sum = |commands: &[&str], field| {
            let values = commands.iter().map(|command| value(&stats, command, field));
            values.sum::<f64>() / operations as f64
        };
        let scripts = ["fcall", "evalsha", "eval"];
        // A command that scripts of a side call is not among its own.
        let others: &[&str] = match side {
            Kind::Rslock => &["set"],
            _ => &["wait", "subscribe", "unsubscribe"],
        };
        Counts {
            case: case.name,
            side,
            operations,
            scripts: sum(&scripts, "calls="),
            others: sum(others, "calls="),
            messages: sum(&["publish", "spublish"], "calls="),
            micros: sum(&scripts, "usec="),
        }
    }
}

/// A field of the line of a command, or 0 if it was not called:
/// `cmdstat_evalsha:calls=2,usec=73,...`.
fn value(stats: &str, command: &str, field: &str) -> f64 {
    let name = format!("cmdstat_{command}:");
    let mut lines = stats.lines();
    let fields = lines.find_map(|line| line.strip_prefix(&name));
    let mut fields = fields.unwrap_or_default().split(',');
    let value = fields.find_map(|it| it.strip_prefix(field));
    value.map_or(0.0, |value| value.parse().unwrap())
}
