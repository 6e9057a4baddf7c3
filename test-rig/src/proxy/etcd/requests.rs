//! What a message to etcd asks for, and what a watch tells.
//!
//! Transactions of the store are named after the requests in them, as Redis' calls are, whether they are transactions
//! inside or not:
//!
//! | in a transaction | name |
//! |---|---|
//! | creates, deletes, writes, or only compares | `multi create`, `multi delete`, `multi set`, `multi check` |
//! | the keys of a directory | `look` |
//! | how many keys are below one, a key | `count`, `read` |
//! | a key, as the member has it | `local read` |
//! | writes the key of a session, which goes on over this connection | `resume` |
//! | nothing, so it only proves that the session is there | `prove` |

use crate::proxy::frame::Opcode;
use crate::proxy::message::Message;
use crate::proxy::protobuf::{all, bytes, fields, is_set};

/// What the key of a session has in it. No path has two slashes.
const SESSIONS: &str = "//sessions/";
/// The fields of an operation in a transaction.
const RANGE: u64 = 1;
const PUT: u64 = 2;
const DELETE: u64 = 3;
const TXN: u64 = 4;

/// Names a request of this method.
pub(super) fn read(method: &str, body: &[u8], message: &mut Message) {
    match method {
        "Txn" => read_transaction(body, message),
        "Watch" => {
            for request in fields(body) {
                match request.number {
                    1 => message.add_name("watch"),
                    2 => message.add_name("unwatch"),
                    _ => {}
                }
            }
            if let Some(created) = bytes(body, 1) {
                add_key(created, message);
            }
        }
        "Range" | "Put" | "DeleteRange" => add_key(body, message),
        _ => {}
    }
}

/// Names what the stream of watches tells.
pub(super) fn read_news(body: &[u8], message: &mut Message) {
    for event in all(body, 11) {
        message.opcode = Opcode::Notification;
        message.add_name("news");
        if let Some(kv) = bytes(event, 2) {
            add_key(kv, message);
        }
    }
    if is_set(body, 3) {
        message.add_name("watch");
    }
    if is_set(body, 4) {
        message.add_name("unwatch");
    }
}

fn read_transaction(body: &[u8], message: &mut Message) {
    let mut is_empty = true;
    for operation in all(body, 2).flat_map(fields_with_bytes) {
        is_empty = false;
        match operation {
            (RANGE, range) => {
                message.add_name(name_of_range(range));
                add_key(range, message);
            }
            (PUT, put) if key(put).is_some_and(|it| it.contains(SESSIONS)) => {
                message.add_name("resume");
                add_key(put, message);
            }
            (TXN, inner) => read_request(inner, message),
            change => {
                if let Some(name) = name_of_change(change) {
                    message.add_name(name);
                }
                add_key(change.1, message);
            }
        }
    }
    if is_empty {
        message.add_name("prove");
    }
}

fn name_of_change(operation: (u64, &[u8])) -> Option<&'static str> {
    match operation {
        // Without a new lease.
        (PUT, put) if is_set(put, 6) => Some("multi set"),
        (PUT, _) => Some("multi create"),
        (DELETE, _) => Some("multi delete"),
        _ => None,
    }
}

/// A request of the store is a transaction in another.
fn read_request(body: &[u8], message: &mut Message) {
    let mut only_checks = true;
    let changes = all(body, 2).flat_map(fields_with_bytes);
    for name in changes.filter_map(name_of_change) {
        only_checks = false;
        message.add_name(name);
    }
    if only_checks {
        message.add_name("multi check");
    }
    // It asks for all of its nodes if it cannot be done.
    for (_, range) in all(body, 3).flat_map(fields_with_bytes) {
        add_key(range, message);
    }
}

fn name_of_range(range: &[u8]) -> &'static str {
    let is_prefix = bytes(range, 2).is_some();
    let [is_local, is_count] = [7, 9].map(|it| is_set(range, it));
    match is_prefix {
        true if is_count => "count",
        true => "look",
        false if is_local => "local read",
        false => "read",
    }
}

fn fields_with_bytes(message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    fields(message).filter_map(|it| match it.value {
        crate::proxy::protobuf::Value::Bytes(bytes) => Some((it.number, bytes)),
        crate::proxy::protobuf::Value::Number(_) => None,
    })
}

/// The key that every request has first, and every key with a value.
fn key(message: &[u8]) -> Option<String> {
    bytes(message, 1).map(|it| String::from_utf8_lossy(it).into_owned())
}

fn add_key(request: &[u8], message: &mut Message) {
    message.paths.extend(key(request));
}
