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

mod jute;
mod lives;

use std::io;
use std::path::Path;

use thiserror::Error;

use jute::Reader;

pub(crate) use lives::directory;
pub use lives::{Life, LockNodes, Removal};

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
        let mut file = Reader::new(bytes);
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
fn entry<'a>(file: &mut Reader<'a>) -> Option<Option<&'a [u8]>> {
    let whole = |file: &mut Reader<'a>| {
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
    let mut entry = Reader::new(entry);
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

fn change(kind: i32, body: &mut Reader<'_>) -> Option<Change> {
    Some(match kind {
        // create, create2, createContainer, createTTL
        1 | 15 | 19 | 21 => {
            let path = body.string()?;
            body.buffer();
            for _ in 0..body.int()? {
                body.int()?;
                body.string().and(body.string())?;
            }
            let ephemeral = matches!(kind, 1 | 15) && body.take(1)? != [0];
            Change::Create { path, ephemeral }
        }
        // delete, deleteContainer
        2 | 20 => Change::Delete {
            path: body.string()?,
        },
        5 => {
            let path = body.string()?;
            let data = body.buffer().unwrap_or_default().to_vec();
            Change::Set { path, data }
        }
        13 => Change::Check {
            path: body.string()?,
        },
        -10 => Change::OpenSession,
        -11 => Change::CloseSession,
        14 => {
            let parts = (0..body.int()?).map(|_| {
                let kind = body.int()?;
                change(kind, &mut Reader::new(body.buffer()?))
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
mod tests {
    use super::*;

    /// A file with these entries, followed by zeros.
    fn file(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = [MAGIC, &VERSION.to_be_bytes(), &0_i64.to_be_bytes()].concat();
        for entry in entries {
            bytes.extend(i64::from(adler32(entry)).to_be_bytes());
            bytes.extend(string(entry));
            bytes.push(END_OF_RECORD);
        }
        bytes.extend([0; 64]);
        bytes
    }

    fn string(text: &[u8]) -> Vec<u8> {
        [&i32::try_from(text.len()).unwrap().to_be_bytes(), text].concat()
    }

    fn transaction(zxid: i64, kind: i32, body: &[u8]) -> Vec<u8> {
        let mut entry = [7_i64.to_be_bytes().as_slice(), &1_i32.to_be_bytes()].concat();
        entry.extend(zxid.to_be_bytes());
        entry.extend(99_i64.to_be_bytes());
        entry.extend(kind.to_be_bytes());
        entry.extend(body);
        entry
    }

    #[test]
    fn records_are_read_until_the_zeros() {
        let refused = [&14_i32.to_be_bytes()[..], &string(b"/a")].concat();
        let parts = [
            &2_i32.to_be_bytes()[..],
            &13_i32.to_be_bytes(),
            &string(&string(b"/a")),
            &5_i32.to_be_bytes(),
            &string(&[string(b"/b"), string(b"17")].concat()),
        ];
        let entries = [
            transaction(1, -10, &400_i32.to_be_bytes()),
            transaction(2, 2, &string(b"/a")),
            transaction(3, 14, &parts.concat()),
            transaction(4, -1, &refused),
        ];
        let log = TransactionLog::parse(&file(&entries)).unwrap();
        let changes: Vec<_> = log.records().iter().map(|it| it.change.clone()).collect();
        let want = [
            Change::OpenSession,
            Change::Delete {
                path: "/a".to_owned(),
            },
            Change::Multi(vec![
                Change::Check {
                    path: "/a".to_owned(),
                },
                Change::Set {
                    path: "/b".to_owned(),
                    data: b"17".to_vec(),
                },
            ]),
            Change::Refused,
        ];
        assert_eq!(changes, want);
        let first = &log.records()[0];
        assert_eq!((first.zxid, first.session, first.at_ms), (1, 7, 99));
    }

    #[test]
    fn torn_record_at_the_end_is_none_and_a_changed_one_is_damage() {
        let entries = [transaction(1, -10, &[0; 4]), transaction(2, -11, &[])];
        let whole = file(&entries);
        for end in 0..whole.len() {
            // Cut off, or not written yet. Only a file with an incomplete header is not a log.
            let records = TransactionLog::parse(&whole[..end]).map(|it| it.records().len());
            match end {
                0 | 16.. => assert!(records.unwrap() <= 2),
                _ => assert!(matches!(records, Err(LogError::Format))),
            }
            let mut zeroed = whole[..end].to_vec();
            zeroed.resize(whole.len(), 0);
            let records = TransactionLog::parse(&zeroed).map(|it| it.records().len());
            assert!(records.is_ok_and(|it| it <= 2) || end < 16, "{end}");
        }
        let mut changed = whole;
        changed[40] ^= 1;
        let damaged = TransactionLog::parse(&changed).unwrap_err();
        assert!(
            matches!(damaged, LogError::Damaged { offset: 16 }),
            "{damaged}"
        );
    }

    #[test]
    fn log_of_an_ensemble_is_what_most_servers_have() {
        let log = |zxids: &[i64]| {
            let entries: Vec<_> = zxids.iter().map(|it| transaction(*it, -11, &[])).collect();
            TransactionLog::parse(&file(&entries)).unwrap()
        };
        // The first has missed 2 and 3, and is the only one with 5.
        let all = TransactionLog::of_most(vec![log(&[1, 4, 5]), log(&[1, 2, 3, 4]), log(&[2, 3])]);
        let zxids: Vec<_> = all.records().iter().map(|it| it.zxid).collect();
        assert_eq!(zxids, [1, 2, 3, 4]);
    }

    #[test]
    fn files_that_end_before_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: Vec<u8>| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        };
        write("log.1", b"not read".to_vec());
        let entries = [16, 17].map(|it| transaction(it, -11, &[]));
        write("log.10", file(&entries));
        write("log.20", file(&[transaction(32, -11, &[])]));
        let zxids = |after| {
            let log = TransactionLog::read_after(folder.path(), after)?;
            Ok::<_, LogError>(log.records().iter().map(|it| it.zxid).collect::<Vec<_>>())
        };
        assert_eq!(zxids(16).unwrap(), [17, 32]);
        assert_eq!(zxids(32).unwrap(), [0; 0]);
        assert!(matches!(zxids(15), Err(LogError::Format)));
    }

    #[test]
    fn checksum_is_adler_32() {
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
    }
}
