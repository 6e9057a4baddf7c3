//! The data of a lock node: who made it, for people and tools.
//!
//! A record is one line, `recipes/1 kind=mutex host=web-3 pid=4711 app=orders since=1763700000000
//! owner=8c1f60e2a95b7d34-17 purpose=nightly%20export`: format and version, then fields in any
//! order, with values escaped by `key::escape`. Readers skip unknown fields; `owner` and `purpose`
//! may be missing. `since` is the wall clock of the process that made the node, in milliseconds since
//! the Unix epoch. Data of other programs is not in this format and stays as it is: Curator writes
//! an address, nothing, or gzip, and a revocation request writes `__REVOKE__`.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::ConfigError;
use crate::names::key::{escape, unescape};
use crate::names::node_name::{KINDS, LockKind};
use crate::names::owner::OwnerChain;

const FORMAT: &str = "recipes/1";

/// What Curator writes into a node to request that its holder gives the lock up. Equal data would
/// be taken for a request.
pub(crate) const REVOKE: &[u8] = b"__REVOKE__";

/// The most that fits into a request together with path and ACL. Servers refuse packets of 1 MiB
/// (`jute.maxbuffer`) by closing the connection, which a client cannot tell from a lost one.
const IDENTITY_BYTES_MAX: usize = 1_000_000;

/// A purpose appears in lists and in every contender's listing of a long queue. A longer text
/// belongs elsewhere.
const PURPOSE_BYTES_MAX: usize = 256;

/// A contender, as recorded in the data of its lock node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Name of the application.
    pub application: String,
    /// Kind of the lock that the node stands for; `None` if the record has no kind known here.
    pub kind: Option<LockKind>,
    /// When the node was made, by the clock of its maker.
    pub since: SystemTime,
    /// The logical thread that re-enters: the [`Owner::id`](crate::Owner::id) that the lock was
    /// requested with. If none was named, an id of the requesting task, `{process}-task{number}`.
    ///
    /// A session that is nested in an owner of another process (`lockctl run` in `lockctl run`) has
    /// the chain of all owners here, outermost first, with slashes.
    ///
    /// `None` in nodes that several owners use in turn
    /// ([`local_handoffs`](crate::LockOptions::local_handoffs)) and in nodes of older versions.
    pub owner: Option<String>,
    /// What the lock is held for, as set by [`LockOptions::purpose`](crate::LockOptions::purpose).
    pub purpose: Option<String>,
}

/// What this process writes into its lock nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeData {
    /// A record of host, process and application.
    Record { host: String, application: String },
    /// Bytes that the user chose.
    Custom(Vec<u8>),
}

impl NodeData {
    /// The record of this process, with the name of its executable as the application.
    pub(crate) fn of_this_process() -> Self {
        let executable = std::env::current_exe().ok();
        let name = executable
            .as_deref()
            .and_then(|path| path.file_stem()?.to_str());
        Self::of(name.unwrap_or("unknown"))
    }

    /// The record of an application on this host.
    pub(crate) fn of(application: &str) -> Self {
        Self::Record {
            // Read once, because it is a file, and every acquire makes a node.
            host: host_name(),
            application: application.to_owned(),
        }
    }

    /// Bytes to write as they are.
    pub(crate) fn custom(bytes: Vec<u8>) -> Result<Self, ConfigError> {
        check_custom(&bytes)?;
        Ok(Self::Custom(bytes))
    }

    /// The bytes for a node made now, for this owner and purpose.
    #[expect(
        clippy::disallowed_methods,
        reason = "the record says when, to people; nothing is decided by it"
    )]
    pub(crate) fn bytes(
        &self,
        kind: LockKind,
        owner: Option<OwnerChain<'_>>,
        purpose: Option<&str>,
    ) -> Vec<u8> {
        match self {
            Self::Custom(bytes) => bytes.clone(),
            Self::Record { host, application } => Identity {
                host: host.clone(),
                pid: std::process::id(),
                application: application.clone(),
                kind: Some(kind),
                since: SystemTime::now(),
                owner: owner.map(|owner| owner.to_string()),
                purpose: purpose.map(str::to_owned),
            }
            .to_string()
            .into_bytes(),
        }
    }
}

/// Checks whether a node may contain these bytes instead of a record.
pub(crate) fn check_custom(bytes: &[u8]) -> Result<(), ConfigError> {
    if bytes.len() > IDENTITY_BYTES_MAX {
        let (bytes, bytes_max) = (bytes.len(), IDENTITY_BYTES_MAX);
        return Err(ConfigError::IdentityTooLarge { bytes, bytes_max });
    }
    if bytes == REVOKE {
        return Err(ConfigError::IdentityReserved);
    }
    Ok(())
}

/// Checks the length of a purpose.
pub(crate) fn purpose(text: String) -> Result<String, ConfigError> {
    let (bytes, bytes_max) = (text.len(), PURPOSE_BYTES_MAX);
    match bytes > bytes_max {
        true => Err(ConfigError::PurposeTooLarge { bytes, bytes_max }),
        false => Ok(text),
    }
}

impl Identity {
    /// Reads the data of a lock node, `None` if it is not such a record.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(data).ok()?.split(' ');
        if words.next() != Some(FORMAT) {
            return None;
        }
        let (mut host, mut pid, mut application, mut kind, mut since) = Default::default();
        let (mut owner, mut purpose) = Default::default();
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            match name {
                "host" => host = unescape(value),
                "pid" => pid = value.parse().ok(),
                "app" => application = unescape(value),
                "kind" => kind = parse_kind(value),
                "since" => since = value.parse().ok().map(Duration::from_millis),
                "owner" => owner = unescape(value),
                "purpose" => purpose = unescape(value),
                _ => {}
            }
        }
        let since = UNIX_EPOCH.checked_add(since?)?;
        Some(Self {
            host: host?,
            pid: pid?,
            application: application?,
            kind,
            since,
            owner,
            purpose,
        })
    }
}

/// The form in which the node stores it.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORMAT}")?;
        if let Some(kind) = self.kind {
            write!(f, " kind={}", kind.as_str())?;
        }
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (host, application) = (escape(&self.host), escape(&self.application));
        let (pid, since_ms) = (self.pid, since.as_millis());
        write!(
            f,
            " host={host} pid={pid} app={application} since={since_ms}"
        )?;
        for (name, value) in [("owner", &self.owner), ("purpose", &self.purpose)] {
            if let Some(value) = value {
                write!(f, " {name}={}", escape(value))?;
            }
        }
        Ok(())
    }
}

fn parse_kind(word: &str) -> Option<LockKind> {
    KINDS.into_iter().find(|it| it.as_str() == word)
}

/// The name of this host, as records have it.
#[must_use]
pub fn host_name() -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = from_kernel
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::owner::{Owner, OwnerLabel};

    fn identity() -> Identity {
        Identity {
            host: "web 3".to_owned(),
            pid: 4711,
            application: "orders=ä".to_owned(),
            kind: Some(LockKind::Write),
            since: UNIX_EPOCH + Duration::from_millis(1_763_700_000_123),
            owner: Some("8c1f60e2a95b7d34-17".to_owned()),
            purpose: Some("nightly export = all/of it %".to_owned()),
        }
    }

    #[test]
    fn a_record_is_read_back_as_written() {
        let text = identity().to_string();
        assert_eq!(text.split(' ').count(), 8, "{text}");
        assert_eq!(Identity::parse(text.as_bytes()), Some(identity()));
    }

    #[test]
    fn a_record_of_an_older_version_has_no_owner_and_no_purpose() {
        let text = "recipes/1 kind=mutex host=a pid=1 app=b since=0";
        let parsed = Identity::parse(text.as_bytes()).unwrap();
        assert_eq!((&parsed.owner, &parsed.purpose), (&None, &None));
        assert_eq!(parsed.to_string(), text);
    }

    #[test]
    fn a_purpose_may_be_empty_and_is_bounded() {
        let empty = Identity {
            purpose: Some(String::new()),
            ..identity()
        };
        assert_eq!(Identity::parse(empty.to_string().as_bytes()), Some(empty));
        assert!(purpose("x".repeat(PURPOSE_BYTES_MAX)).is_ok());
        let refused = purpose("x".repeat(PURPOSE_BYTES_MAX + 1)).unwrap_err();
        assert!(refused.to_string().contains("257"), "{refused}");
    }

    #[test]
    fn unknown_fields_and_kinds_are_skipped() {
        let text = "recipes/1 zone=eu kind=semaphore host=a pid=1 app=b since=0 novalue";
        let parsed = Identity::parse(text.as_bytes()).unwrap();
        assert_eq!((parsed.host.as_str(), parsed.kind), ("a", None));
    }

    #[test]
    fn data_of_others_is_no_record() {
        let cases: [&[u8]; 8] = [
            b"",
            b"127.0.0.1",
            REVOKE,
            b"\x1f\x8b\x08\x00",
            b"recipes/2 host=a pid=1 app=b since=0",
            b"recipes/1 host=a pid=x app=b since=0",
            b"recipes/1 host=a pid=1 app=b since=99999999999999999999",
            b"recipes/1",
        ];
        for data in cases {
            assert_eq!(Identity::parse(data), None, "{data:?}");
        }
    }

    #[test]
    fn this_process_writes_its_pid_and_kind() {
        let owner = Owner::new();
        let contending = Some(OwnerLabel::from(&owner).into());
        let bytes = NodeData::of_this_process().bytes(LockKind::Mutex, contending, Some("test"));
        let identity = Identity::parse(&bytes).unwrap();
        assert_eq!(
            (identity.pid, identity.kind),
            (std::process::id(), Some(LockKind::Mutex))
        );
        assert_eq!(identity.owner, Some(owner.id()));
        assert_eq!(identity.purpose.as_deref(), Some("test"));
    }

    #[test]
    fn custom_bytes_are_written_as_they_are_within_the_limit() {
        let data = NodeData::custom(vec![7; IDENTITY_BYTES_MAX]).unwrap();
        let bytes = data.bytes(LockKind::Mutex, None, Some("not written"));
        assert_eq!(bytes.len(), IDENTITY_BYTES_MAX);
        assert!(NodeData::custom(vec![7; IDENTITY_BYTES_MAX + 1]).is_err());
        assert!(NodeData::custom(REVOKE.to_vec()).is_err());
    }
}
