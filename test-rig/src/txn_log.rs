//! The transaction log of a real server: what it did, and in which order.
//!
//! It is the independent witness of a run. Which nodes lived from which transaction to which does
//! not depend on what clients saw, or on their clocks. [`TransactionLog::parse`] reads the files
//! that the server writes (`version-2/log.*`). Their format follows `FileTxnLog`, `TxnHeader` and
//! `SerializeUtils` of ZooKeeper 3.8.
//!
//! ```text
//! file    "ZKLG"  version i32 = 2  database i64  record*  zeros (preallocated)
//! record  checksum i64 (Adler-32 of the entry)  length i32  entry  'B'
//! entry   session i64  request i32  zxid i64  time i64 (ms)  type i32  body  digest (ignored)
//! ```

mod lives;
#[cfg(test)]
mod toolkit_tests;

use std::io;
use std::path::Path;

use thiserror::Error;

use recipes_testing::{ZooKeeperEnsemble, ZooKeeperServer};

use crate::jute::Jute;

pub use lives::{Life, LockNodes, Removal};
pub(crate) use lives::{directory, sequence};

const MAGIC: &[u8] = b"ZKLG";
const VERSION: i32 = 2;
/// The last byte of every record.
const END_OF_RECORD: u8 = b'B';

/// Transactions of one server, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionLog {
    records: Vec<LogRecord>,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its number. Numbers rise.
    pub zxid: i64,
    /// The session that requested it.
    pub session: i64,
    /// When the server (in an ensemble, the leader) took it up, before it was committed:
    /// milliseconds of its wall clock.
    pub at_ms: i64,
    /// What it changed.
    pub change: Change,
}

/// What a transaction changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A node was created.
    Create {
        /// Its path, with the sequence.
        path: String,
        /// Whether it is deleted with its session.
        ephemeral: bool,
    },
    /// A node was deleted, or reaped.
    Delete {
        /// Its path.
        path: String,
    },
    /// Data was replaced.
    Set {
        /// The node.
        path: String,
        /// Its new data.
        data: Vec<u8>,
    },
    /// A version was checked, in a transaction of several changes.
    Check {
        /// The node.
        path: String,
    },
    /// A session began.
    OpenSession,
    /// A session was closed or expired, and its ephemeral nodes were deleted.
    CloseSession,
    /// All of these, at once.
    Multi(Vec<Change>),
    /// Nothing: the request was refused.
    Refused,
    /// ACLs or members of the ensemble, which do not matter to locks.
    Other {
        /// `ZooDefs.OpCode`.
        kind: i32,
    },
}

/// Why a log cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file system refused.
    #[error("transaction log not read")]
    Io(#[from] io::Error),
    /// Not a log, or one of an unknown version.
    #[error("no ZooKeeper transaction log of version {VERSION}")]
    Format,
    /// A record has changed since it was written.
    #[error("record of a transaction log at byte {offset} is damaged")]
    Damaged {
        /// Where the record begins.
        offset: usize,
    },
}

/// A server, or several, that write a transaction log.
pub trait WritesLog {
    /// Reads what follows a transaction from the server's own log of all that it has done. The server
    /// may be running or not.
    ///
    /// For a server that is alone, the log is the truth. Members of an ensemble also log what is
    /// proposed to them. The last proposals of a leader that dies or is cut off stay in the logs of
    /// the servers that received them, whether or not the next leader knows of them. Of an ensemble
    /// this is what its servers agreed on.
    ///
    /// # Errors
    /// [`LogError`], for example for a log of an unknown version.
    fn transaction_log_after(&self, zxid: i64) -> Result<TransactionLog, LogError>;

    /// Reads all of it.
    ///
    /// # Errors
    /// As [`transaction_log_after`](Self::transaction_log_after).
    fn transaction_log(&self) -> Result<TransactionLog, LogError> {
        self.transaction_log_after(i64::MIN)
    }
}

impl WritesLog for ZooKeeperServer {
    fn transaction_log_after(&self, zxid: i64) -> Result<TransactionLog, LogError> {
        TransactionLog::read_after(&self.log_folder(), zxid)
    }
}

impl WritesLog for ZooKeeperEnsemble {
    fn transaction_log_after(&self, zxid: i64) -> Result<TransactionLog, LogError> {
        let logs = self.servers().iter();
        let logs = logs.map(|server| server.transaction_log_after(zxid));
        Ok(TransactionLog::of_most(logs.collect::<Result<_, _>>()?))
    }
}

impl TransactionLog {
    /// Reads all log files of a folder, such as `version-2`.
    ///
    /// The server may be running. What it has not written yet is missing.
    ///
    /// # Errors
    /// [`LogError`], if there is a file that is no such log.
    pub fn read(folder: &Path) -> Result<Self, LogError> {
        Self::read_after(folder, i64::MIN)
    }

    /// Reads what follows this transaction, without the files that end before it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_after(folder: &Path, zxid: i64) -> Result<Self, LogError> {
        let mut files = Vec::new();
        for entry in folder.read_dir()? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if let Some(first) = name.strip_prefix("log.") {
                let first = i64::from_str_radix(first, 16).map_err(|_| LogError::Format)?;
                files.push((first, folder.join(name)));
            }
        }
        files.sort();
        let next = files.iter().skip(1).map(|(first, _)| *first);
        let nexts: Vec<_> = next.chain([i64::MAX]).collect();
        let mut records = Vec::new();
        for ((_, path), next) in files.iter().zip(nexts) {
            if next > zxid {
                let file = Self::parse(&std::fs::read(path)?)?;
                records.extend(file.records.into_iter().filter(|it| it.zxid > zxid));
            }
        }
        Ok(records.into_iter().collect())
    }

    /// The transactions that most servers of an ensemble have logged, given the logs of all of
    /// them.
    ///
    /// Nothing is committed before most have logged it, and no election loses what most have
    /// logged. A transaction in fewer logs may come from a leader that was not followed any more.
    /// Or the other servers took a snapshot instead.
    #[must_use]
    pub fn of_most(logs: Vec<Self>) -> Self {
        let servers = logs.len();
        let all: Self = logs.into_iter().flat_map(|log| log.records).collect();
        let same = all.records.chunk_by(|one, other| one.zxid == other.zxid);
        let agreed = same.filter(|copies| 2 * copies.len() > servers);
        agreed
            .filter_map(|copies| copies.first())
            .cloned()
            .collect()
    }

    /// Reads one file. A last record that is not whole was never carried out.
    ///
    /// # Errors
    /// [`LogError::Format`], [`LogError::Damaged`].
    pub fn parse(bytes: &[u8]) -> Result<Self, LogError> {
        let mut file = Jute::new(bytes);
        // A server that was killed when it began a file leaves it without a header.
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Self::default());
        }
        if file.take(MAGIC.len()) != Some(MAGIC) || file.int() != Some(VERSION) {
            return Err(LogError::Format);
        }
        file.long().ok_or(LogError::Format)?;
        let mut records = Vec::new();
        loop {
            let offset = bytes.len() - file.left();
            let Some(entry) = entry(&mut file).ok_or(LogError::Damaged { offset })? else {
                return Ok(Self { records });
            };
            records.push(record(entry).ok_or(LogError::Damaged { offset })?);
        }
    }

    /// All transactions, in their order.
    #[must_use]
    pub fn records(&self) -> &[LogRecord] {
        &self.records
    }
}

impl FromIterator<LogRecord> for TransactionLog {
    fn from_iter<T: IntoIterator<Item = LogRecord>>(records: T) -> Self {
        let mut records: Vec<_> = records.into_iter().collect();
        records.sort_by_key(|record| record.zxid);
        Self { records }
    }
}

/// The next entry; `None` at the end of what was written.
#[expect(
    clippy::option_option,
    reason = "nothing more, or nothing that makes sense"
)]
fn entry<'a>(file: &mut Jute<'a>) -> Option<Option<&'a [u8]>> {
    let whole = |file: &mut Jute<'a>| {
        let checksum = file.long()?;
        let entry = file.buffer().filter(|entry| !entry.is_empty())?;
        (file.take(1)? == [END_OF_RECORD]).then_some((checksum, entry))
    };
    let Some((checksum, entry)) = whole(file) else {
        return Some(None);
    };
    (checksum == i64::from(adler32(entry))).then_some(Some(entry))
}

fn record(entry: &[u8]) -> Option<LogRecord> {
    let mut entry = Jute::new(entry);
    let session = entry.long()?;
    entry.int()?;
    let (zxid, at_ms, kind) = (entry.long()?, entry.long()?, entry.int()?);
    let change = change(kind, &mut entry)?;
    Some(LogRecord {
        zxid,
        session,
        at_ms,
        change,
    })
}

fn change(kind: i32, body: &mut Jute<'_>) -> Option<Change> {
    Some(match kind {
        // create, create2, createContainer, createTTL
        1 | 15 | 19 | 21 => {
            let path = body.string_strict()?;
            body.buffer();
            for _ in 0..body.int()? {
                body.int()?;
                body.string_strict().and(body.string_strict())?;
            }
            let ephemeral = matches!(kind, 1 | 15) && body.take(1)? != [0];
            Change::Create { path, ephemeral }
        }
        // delete, deleteContainer
        2 | 20 => Change::Delete {
            path: body.string_strict()?,
        },
        5 => {
            let path = body.string_strict()?;
            let data = body.buffer().unwrap_or_default().to_vec();
            Change::Set { path, data }
        }
        13 => Change::Check {
            path: body.string_strict()?,
        },
        -10 => Change::OpenSession,
        -11 => Change::CloseSession,
        14 => {
            let parts = (0..body.int()?).map(|_| {
                let kind = body.int()?;
                change(kind, &mut Jute::new(body.buffer()?))
            });
            let parts: Vec<_> = parts.collect::<Option<_>>()?;
            // If one part is refused, all are.
            match parts.contains(&Change::Refused) {
                true => Change::Refused,
                false => Change::Multi(parts),
            }
        }
        -1 => Change::Refused,
        kind => Change::Other { kind },
    })
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    (high << 16) | low
}

#[cfg(test)]
mod tests;
