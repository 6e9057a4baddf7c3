//! What a run holds: locks, a permit or the leadership.

use std::collections::BTreeSet;

use recipes_core::internal::{host_name, validate_path};
use recipes_core::{Acquire, ConfigError, DistributedLock, Error, LockGuard, Session};
use recipes_leader::LeaderElection;
use recipes_multilock::{Member, MultiLock};
use recipes_semaphore::InterProcessSemaphore;

use crate::args::{Mode, RunArguments};
use crate::exit::{Failure, code};

use super::{Wanted, application};

pub(super) enum Lock {
    Set(MultiLock),
    Semaphore(InterProcessSemaphore),
    Election(LeaderElection),
}

impl Lock {
    pub(super) fn of(session: &Session, wanted: &Wanted<'_>) -> Result<Self, Error> {
        let (arguments, options) = (wanted.arguments, &wanted.options);
        let first = arguments.paths.first().map(String::as_str);
        let path = first.unwrap_or_default();
        let member = match arguments.mode {
            Mode::Mutex => Member::mutex,
            Mode::Read => Member::read,
            Mode::Write => Member::write,
            Mode::Semaphore(permits) => {
                return InterProcessSemaphore::with_options(session, path, permits, options)
                    .map(Self::Semaphore);
            }
            Mode::Leader(layout) => {
                return LeaderElection::with_layout(session, path, &id(arguments), layout)
                    .map(Self::Election);
            }
        };
        let members = arguments.paths.iter().map(member);
        let members = members.map(|it| it.options(options.clone()));
        MultiLock::new(session, members).map(Self::Set)
    }

    pub(super) fn acquire(&self) -> Acquire<LockGuard> {
        match self {
            Self::Set(set) => DistributedLock::acquire(set),
            Self::Semaphore(semaphore) => semaphore.acquire_any(),
            Self::Election(election) => election.campaign_any(),
        }
    }
}

/// Refuses what cannot be a lock before a session is opened.
pub(super) fn check(arguments: &RunArguments) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for path in &arguments.paths {
        validate_path(path)?;
        if !seen.insert(path) {
            let path = path.clone();
            return Err(ConfigError::DuplicateMember { path }.into());
        }
    }
    let refused = |message: &str| Err(Failure::new(code::USAGE, message.to_owned()));
    let has_one_path = arguments.paths.len() == 1;
    match arguments.mode {
        Mode::Semaphore(_) if !has_one_path => {
            refused("a permit is of one semaphore: give one path with --mode semaphore:N")
        }
        Mode::Leader(_) if !has_one_path => {
            refused("a leader is of one election: give one path with --mode leader")
        }
        Mode::Leader(_) => Ok(LeaderElection::check(&id(arguments))?),
        _ if arguments.id.is_some() => {
            refused("--id is of a candidate: give it with --mode leader or leader-latch")
        }
        Mode::Semaphore(permits) => Ok(InterProcessSemaphore::check(permits)?),
        Mode::Mutex | Mode::Read | Mode::Write => Ok(()),
    }
}

/// The id of a candidate. Unless one is given, it says what the record of another mode says.
fn id(arguments: &RunArguments) -> String {
    if let Some(id) = &arguments.id {
        return id.clone();
    }
    let (application, host) = (application(arguments), host_name());
    let process = format!("{application} {host} pid {}", std::process::id());
    match &arguments.purpose {
        Some(purpose) => format!("{process} {purpose:?}"),
        None => process,
    }
}
