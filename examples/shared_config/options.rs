//! Options from the command line and the environment.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Serve,
    Write,
    Demo,
}

/// The command and its options.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) command: Command,
    /// Servers of the ensemble.
    pub(crate) connect: Option<String>,
    /// The node below which the configuration is.
    pub(crate) root: String,
    /// How long `serve` waits between two reads.
    pub(crate) every: Duration,
    /// After how many reads `serve` ends.
    pub(crate) reads: Option<u64>,
    /// How many times `write` rewrites.
    pub(crate) times: u64,
    /// How long `write` pauses midway, to show that readers wait.
    pub(crate) pause: Duration,
}

impl Options {
    /// Reads a command and `--name value` pairs; `LOCKS_URL` may have the connect string.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments.peekable();
        let mut options = Self {
            command: Command::Demo,
            connect: std::env::var("LOCKS_URL").ok(),
            root: "/demo/config".to_owned(),
            every: Duration::from_secs(1),
            reads: None,
            times: 1,
            pause: Duration::ZERO,
        };
        if let Some(command) = arguments.next_if(|it| !it.starts_with("--")) {
            options.command = match command.as_str() {
                "serve" => Command::Serve,
                "write" => Command::Write,
                "demo" => Command::Demo,
                _ => return Err(format!("no command {command:?}: serve, write or demo")),
            };
        }
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            match (options.command, name.as_str()) {
                (_, "--connect") => options.connect = Some(value),
                (Command::Serve | Command::Write, "--root") => options.root = value,
                (Command::Serve, "--every-ms") => options.every = milliseconds(&value)?,
                (Command::Serve, "--reads") => options.reads = Some(number(&value)?),
                (Command::Write, "--times") => options.times = number(&value)?,
                (Command::Write, "--pause-ms") => options.pause = milliseconds(&value)?,
                (command, _) => {
                    return Err(format!("no option {name} of {command:?}").to_lowercase());
                }
            }
        }
        Ok(options)
    }
}

fn milliseconds(value: &str) -> Result<Duration, String> {
    number(value).map(Duration::from_millis)
}

fn number(value: &str) -> Result<u64, String> {
    let number = value.parse();
    number.map_err(|error| format!("{value:?} is no number: {error}"))
}
