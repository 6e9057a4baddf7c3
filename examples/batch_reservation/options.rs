//! Command and options from the command line and the environment.

use std::time::Duration;

/// The commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Tells a story, alone.
    Demo,
    Reserve,
    Cancel,
    /// Books and cancels batches at random.
    Load,
    /// Prints the seats and the journal.
    Show,
}

/// The options of a command.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) command: Command,
    /// Servers of the ensemble.
    pub(crate) connect: Option<String>,
    /// File of the database, or the URL of PostgreSQL.
    pub(crate) db: Option<String>,
    /// The client that seats are booked for.
    pub(crate) client: String,
    pub(crate) seats: Vec<String>,
    /// The node below which the locks are.
    pub(crate) root: String,
    /// How long to wait for the ensemble, and for the locks of a batch.
    pub(crate) patience: Duration,
    pub(crate) session_timeout: Option<Duration>,
    /// Whether to print `holding`, and wait for a line, before seats are written.
    pub(crate) pause_at_payment: bool,
    /// The number of clients of `load`, side by side.
    pub(crate) clients: u64,
    /// The number of batches of each client of `load`.
    pub(crate) batches: u64,
    /// The seed of the random numbers of `load`.
    pub(crate) seed: u64,
}

impl Options {
    /// Reads a command and `--name value` pairs; `LOCKS_URL` may have the connect string.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            command: command(arguments.next().as_deref())?,
            connect: std::env::var("LOCKS_URL").ok(),
            db: None,
            client: "somebody".to_owned(),
            seats: Vec::new(),
            root: "/demo".to_owned(),
            patience: Duration::from_secs(5),
            session_timeout: None,
            pause_at_payment: false,
            clients: 4,
            batches: 50,
            seed: 1,
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            match name.as_str() {
                "--connect" => options.connect = Some(value),
                "--db" => options.db = Some(value),
                "--client" => options.client = value,
                "--seats" => options.seats = value.split(',').map(str::to_owned).collect(),
                "--root" => options.root = value,
                "--patience-ms" => options.patience = milliseconds(&value)?,
                "--session-timeout-ms" => options.session_timeout = Some(milliseconds(&value)?),
                "--pause-at" if value == "payment" => options.pause_at_payment = true,
                "--pause-at" => return Err(format!("no pause at {value:?}, only at payment")),
                "--clients" => options.clients = number(&value)?,
                "--batches" => options.batches = number(&value)?,
                "--seed" => options.seed = number(&value)?,
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

fn command(name: Option<&str>) -> Result<Command, String> {
    Ok(match name {
        None | Some("demo") => Command::Demo,
        Some("reserve") => Command::Reserve,
        Some("cancel") => Command::Cancel,
        Some("load") => Command::Load,
        Some("show") => Command::Show,
        Some(name) => {
            return Err(format!(
                "unknown command {name:?}: reserve, cancel, load, show, or none for a demo"
            ));
        }
    })
}

fn milliseconds(value: &str) -> Result<Duration, String> {
    number(value).map(Duration::from_millis)
}

fn number(value: &str) -> Result<u64, String> {
    let number = value.parse();
    number.map_err(|error| format!("{value:?} is no number: {error}"))
}
