//! Options from the command line and the environment.

use std::time::Duration;

/// The options of the service.
#[derive(Debug)]
pub(crate) struct Options {
    /// Servers of the ensemble; `None` for one in memory.
    pub(crate) connect: Option<String>,
    pub(crate) listen: String,
    /// The node below which the lock and the counter are.
    pub(crate) root: String,
    /// How long a request waits for the lock.
    pub(crate) patience: Duration,
    pub(crate) session_timeout: Option<Duration>,
}

impl Options {
    /// Reads `--name value` pairs. `LOCKS_URL` may have the connect string instead.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            connect: std::env::var("LOCKS_URL").ok(),
            listen: "127.0.0.1:0".to_owned(),
            root: "/demo".to_owned(),
            patience: Duration::from_secs(5),
            session_timeout: None,
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            match name.as_str() {
                "--connect" => options.connect = Some(value),
                "--listen" => options.listen = value,
                "--root" => options.root = value,
                "--patience-ms" => options.patience = milliseconds(&value)?,
                "--session-timeout-ms" => options.session_timeout = Some(milliseconds(&value)?),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

fn milliseconds(value: &str) -> Result<Duration, String> {
    let milliseconds = value.parse().map(Duration::from_millis);
    milliseconds.map_err(|error| format!("{value:?} is no number of milliseconds: {error}"))
}
