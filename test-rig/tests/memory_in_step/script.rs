//! The steps of a run, as values that print as they read.

use std::fmt;
use std::sync::Arc;

use recipes_core::{NewNode, NodeMode, NodeOp};
use recipes_zookeeper::{Acl, AuthId, Permission};

/// A path below the script's own directory. `.` is that directory, and `root` the root of all.
/// Anything else that does not start with `/` is passed on unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) String);

impl Place {
    pub(crate) fn full(&self, directory: &str) -> String {
        match self.0.as_str() {
            "." => directory.to_owned(),
            "root" => "/".to_owned(),
            below if below.starts_with('/') => format!("{directory}{below}"),
            raw => raw.to_owned(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With quotes and escapes if necessary.
        match self.0.chars().all(|c| c.is_ascii_graphic()) && !self.0.is_empty() {
            true => f.write_str(&self.0),
            false => write!(f, "{:?}", self.0),
        }
    }
}

const PERMISSIONS: [Permission; 5] = [
    Permission::READ,
    Permission::WRITE,
    Permission::CREATE,
    Permission::DELETE,
    Permission::ADMIN,
];

/// What other sessions may do with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    Everything,
    /// Everything except this.
    Without(Permission),
    /// Nothing; the creator may do everything.
    OfCreator,
    /// An empty list, which every server refuses.
    Nobodys,
}

impl Rights {
    pub(crate) fn list(self) -> Vec<Acl> {
        let anyone = |permission| vec![Acl::new(permission, AuthId::anyone())];
        match self {
            Self::Everything => anyone(Permission::ALL),
            Self::Without(missing) => {
                let others = PERMISSIONS.into_iter().filter(|it| *it != missing);
                anyone(others.fold(Permission::NONE, |all, it| all | it))
            }
            Self::OfCreator => vec![Acl::new(Permission::ALL, AuthId::authed())],
            Self::Nobodys => Vec::new(),
        }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => Ok(()),
            Self::Without(permission) => write!(f, " (all but {permission})"),
            Self::OfCreator => f.write_str(" (for its creator)"),
            Self::Nobodys => f.write_str(" (for nobody)"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) place: Place,
    pub(crate) mode: NodeMode,
    pub(crate) data: String,
    pub(crate) rights: Rights,
}

impl Made {
    pub(crate) fn node(&self, directory: &str) -> NewNode {
        NewNode {
            path: self.place.full(directory),
            data: Arc::from(self.data.as_bytes()),
            mode: self.mode,
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            mode,
            data,
            rights,
        } = self;
        write!(f, "create {mode:?} {place} {data:?}{rights}")
    }
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Create(Made),
    Delete(Place, Option<i32>),
    Set(Place, String, Option<i32>),
    Check(Place, Option<i32>),
}

impl Change {
    pub(crate) fn operation(&self, directory: &str) -> NodeOp {
        match self {
            Self::Create(made) => NodeOp::Create(made.node(directory)),
            Self::Delete(place, version) => NodeOp::Delete {
                path: place.full(directory),
                version: *version,
            },
            Self::Set(place, data, version) => NodeOp::Set {
                path: place.full(directory),
                data: data.clone().into_bytes(),
                version: *version,
            },
            Self::Check(place, version) => NodeOp::Check {
                path: place.full(directory),
                version: *version,
            },
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |version: &Option<i32>| match version {
            Some(version) => format!(" if version {version}"),
            None => String::new(),
        };
        match self {
            Self::Create(made) => write!(f, "{made}"),
            Self::Delete(place, expected) => write!(f, "delete {place}{}", version(expected)),
            Self::Set(place, data, expected) => {
                write!(f, "set {place} {data:?}{}", version(expected))
            }
            Self::Check(place, expected) => write!(f, "check {place}{}", version(expected)),
        }
    }
}

/// One request of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Create(Made),
    Delete(Place),
    List(Place),
    Read(Place),
    Watch(Place),
    Sync(Place),
    Multi(Vec<Change>),
}

impl Request {
    fn deletes(&self) -> bool {
        match self {
            Self::Delete(_) => true,
            Self::Multi(changes) => changes.iter().any(|it| matches!(it, Change::Delete(..))),
            _ => false,
        }
    }

    pub(crate) fn changes_nodes(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Delete(_) | Self::Multi(_))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(made) => write!(f, "{made}"),
            Self::Delete(place) => write!(f, "delete {place}"),
            Self::List(place) => write!(f, "list {place}"),
            Self::Read(place) => write!(f, "read {place}"),
            Self::Watch(place) => write!(f, "watch {place}"),
            Self::Sync(place) => write!(f, "sync {place}"),
            Self::Multi(changes) => {
                let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
                write!(f, "multi [{}]", changes.join(", "))
            }
        }
    }
}

/// One step of a run. A step of a session that does not exist is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Opens a session, with credentials or without, unless this number exists.
    Open { session: usize, credentials: bool },
    /// Sends requests together, then waits for all replies.
    Ask {
        session: usize,
        requests: Vec<Request>,
    },
    /// Sends a request without waiting for its reply.
    Forget { session: usize, request: Request },
    /// Drops the oldest watch that has not fired.
    Unwatch { session: usize },
    /// Drops the last handle.
    Close { session: usize },
    /// The server ends the session.
    Expire { session: usize },
    /// Breaks the connection.
    Cut { session: usize },
    /// Lets the client connect again, even one that was closed meanwhile.
    Mend { session: usize },
}

impl Step {
    pub(crate) fn session(&self) -> usize {
        match self {
            Self::Open { session, .. }
            | Self::Ask { session, .. }
            | Self::Forget { session, .. }
            | Self::Unwatch { session }
            | Self::Close { session }
            | Self::Expire { session }
            | Self::Cut { session }
            | Self::Mend { session } => *session,
        }
    }

    /// Whether requests of it delete nodes.
    pub(crate) fn deletes(&self) -> bool {
        match self {
            Self::Ask { requests, .. } => requests.iter().any(Request::deletes),
            Self::Forget { request, .. } => request.deletes(),
            _ => false,
        }
    }

    /// Whether watches may fire.
    pub(crate) fn changes_nodes(&self) -> bool {
        match self {
            Self::Ask { requests, .. } => requests.iter().any(Request::changes_nodes),
            Self::Open { .. } | Self::Unwatch { .. } | Self::Cut { .. } => false,
            // A forgotten request takes effect before the next step.
            Self::Forget { .. } | Self::Close { .. } | Self::Expire { .. } | Self::Mend { .. } => {
                true
            }
        }
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        matches!(self, Self::Forget { .. })
    }

    /// Whether it is a single request of this session.
    pub(crate) fn asks_once(&self, number: usize) -> bool {
        matches!(self, Self::Ask { session, requests } if *session == number && requests.len() == 1)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open {
                session,
                credentials,
            } => {
                let with = if *credentials {
                    " with credentials"
                } else {
                    ""
                };
                write!(f, "{session}: open{with}")
            }
            Self::Ask { session, requests } => {
                let requests: Vec<String> = requests.iter().map(ToString::to_string).collect();
                write!(f, "{session}: {}", requests.join("; "))
            }
            Self::Forget { session, request } => write!(f, "{session}: {request} (forgotten)"),
            Self::Unwatch { session } => write!(f, "{session}: unwatch"),
            Self::Close { session } => write!(f, "{session}: close"),
            Self::Expire { session } => write!(f, "{session}: expire"),
            Self::Cut { session } => write!(f, "{session}: cut"),
            Self::Mend { session } => write!(f, "{session}: mend"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
}

impl Script {
    /// Whether the connection of this session is ever cut.
    pub(crate) fn cuts(&self, session: usize) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Cut { session: cut } if *cut == session))
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{number:4}  {step}")?;
        }
        Ok(())
    }
}
