//! What the server's answers and errors are called elsewhere.

use std::sync::Arc;

use recipes_core::NodesError;
use recipes_keeper::{CallError, Value};
use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::checks::RedisRefusal;

/// An answer of a function. Its parts are moved.
pub(crate) fn value(value: redis::Value) -> Value {
    match value {
        redis::Value::Int(number) => Value::Number(number),
        redis::Value::BulkString(bytes) => Value::Bytes(bytes),
        redis::Value::Array(values) => Value::List(values.into_iter().map(self::value).collect()),
        other => Value::Other(format!("{other:?}")),
    }
}

/// What an error says about the call that it answers.
pub(crate) fn call_error(error: RedisError) -> CallError {
    let lacks = |detail: &str| detail.contains("unknown command") && detail.contains("HELLO");
    let lacks_hello = error.detail().is_some_and(lacks);
    match (error.kind(), error.code()) {
        (ErrorKind::Server(ServerErrorKind::BusyLoading), _)
        | (_, Some("BUSY" | "LOADING" | "NOREPLICAS")) => CallError::NotNow(Arc::new(error)),
        (ErrorKind::RESP3NotSupported, _) => CallError::Refused(Arc::new(RedisRefusal::Resp3)),
        _ if lacks_hello => CallError::Refused(Arc::new(RedisRefusal::Resp3)),
        // NOPERM may come in the middle of a call.
        (ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig, _)
        | (_, Some("NOPERM" | "NOAUTH" | "WRONGPASS" | "NOPROTO")) => {
            CallError::Refused(Arc::new(error))
        }
        // A function that is not there, MOVED, ASK, READONLY, MASTERDOWN, CLUSTERDOWN, a call that was
        // killed, and whatever else a server may say.
        _ => CallError::Lost(Arc::new(error)),
    }
}

/// Classifies an error of connecting. Errors that a retry cannot fix are refusals.
pub(crate) fn refusal(error: RedisError) -> NodesError {
    call_error(error).into()
}
