//! What the errors of the client mean.

use std::sync::Arc;

use etcd_client::Error;
use recipes_core::{MultiError, NodesError};
use recipes_keeper::CallError;

use crate::checks::EtcdRefusal;
use crate::keys::Keys;

/// The codes of gRPC that are looked at.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// A refusal of a whole request.
pub(crate) fn refused(source: NodesError) -> MultiError {
    MultiError {
        index: None,
        source,
    }
}

/// What an error of a call means.
pub(crate) enum Failed {
    /// Nothing was done, of none of the requests.
    Refused(NodesError),
    /// Nothing was done, as something did not hold that was compared, and the session goes on.
    Unmet,
    /// The lease of the session is gone.
    NoLease,
    /// Nobody knows what was done.
    Lost(CallError),
}

impl Failed {
    /// Of a transaction that no rights and no sizes can be the matter with: `None` if the session is over.
    pub(crate) fn or_over<T>(self) -> Result<Option<T>, CallError> {
        match self {
            Self::NoLease => Ok(None),
            Self::Unmet => Err(CallError::unexpected("a refusal of nothing")),
            Self::Refused(error) => Err(CallError::Lost(Arc::new(error))),
            Self::Lost(error) => Err(error),
        }
    }
}

/// What an error of the client means. Every one that is not a refusal by the server is an unknown outcome.
pub(crate) fn failed(error: Error) -> Failed {
    let Error::GRpcStatus(status) = &error else {
        return Failed::Lost(CallError::Lost(Arc::new(error)));
    };
    let said = status.message();
    let is = |text: &str| said.contains(text);
    let refused = match status.code() as i32 {
        code::PERMISSION_DENIED => NodesError::NoAuth,
        code::NOT_FOUND if is("lease not found") => return Failed::NoLease,
        code::RESOURCE_EXHAUSTED if is("database space exceeded") => {
            NodesError::Refused(Arc::new(EtcdRefusal::NoSpace))
        }
        code::RESOURCE_EXHAUSTED if is("too many requests") => NodesError::Throttled,
        code::INVALID_ARGUMENT | code::RESOURCE_EXHAUSTED
            if is("too large") || is("larger than max") || is("too many operations") =>
        {
            let said = said.to_owned();
            NodesError::NotSent(Arc::new(EtcdRefusal::TooLarge { said }))
        }
        code::INVALID_ARGUMENT if is("duplicate key") => {
            NodesError::NotSent(Arc::new(EtcdRefusal::Twice))
        }
        code::INVALID_ARGUMENT | code::FAILED_PRECONDITION if said.starts_with("etcdserver:") => {
            NodesError::Refused(Arc::new(error))
        }
        _ => return Failed::Lost(CallError::Lost(Arc::new(error))),
    };
    Failed::Refused(refused)
}

/// As [`failed`], where a refusal is of no use.
pub(crate) fn call_error(error: Error) -> CallError {
    match failed(error) {
        Failed::Lost(error) => error,
        Failed::Unmet => CallError::unexpected("a refusal of nothing"),
        Failed::NoLease => CallError::unexpected("the lease is gone"),
        Failed::Refused(NodesError::Refused(source) | NodesError::NotSent(source)) => {
            CallError::Refused(source)
        }
        Failed::Refused(error) => CallError::Lost(Arc::new(error)),
    }
}

/// The refusal, if it is for a right that the user lacks.
pub(crate) fn without_right(error: &Error, keys: &Keys) -> Option<EtcdRefusal> {
    let Error::GRpcStatus(status) = error else {
        return None;
    };
    let prefix = keys.below("/");
    (status.code() as i32 == code::PERMISSION_DENIED).then_some(EtcdRefusal::Rights { prefix })
}

/// Why no session is opened.
pub(crate) fn refusal_of_session(error: Error) -> NodesError {
    if let Error::GRpcStatus(status) = &error {
        let said = status.message().to_owned();
        let of_user = matches!(
            status.code() as i32,
            code::INVALID_ARGUMENT | code::FAILED_PRECONDITION | code::UNAUTHENTICATED
        );
        if of_user
            && ["authenti", "user", "password"]
                .iter()
                .any(|it| said.contains(it))
        {
            return NodesError::Refused(Arc::new(EtcdRefusal::User { said }));
        }
    }
    if matches!(
        error,
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::EndpointError(_)
    ) {
        return NodesError::Refused(Arc::new(error));
    }
    NodesError::Unknown(Arc::new(error))
}
