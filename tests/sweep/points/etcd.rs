//! The frames of a session on etcd.
//!
//! | a frame | is |
//! |---|---|
//! | a request with its headers; headers and trailers of an answer; messages of a stream | a point, each |
//! | the end of a request; a message between headers and trailers | the same, with `SWEEP_LONG` |
//! | a keep-alive and what proves it, `PING`, `WINDOW_UPDATE`, a stream that is over | a point, the first on each connection |
//! | what comes before the session is open | a point of the greeting |

use super::*;

/// What a client and the server send on every new connection. A session's key is watched before it is open.
const GREETINGS: [&str; 6] = [
    "PRI",
    "SETTINGS",
    "SETTINGS ACK",
    "Range",
    "LeaseGrant",
    "Put",
];

const UPKEEP: [&str; 6] = [
    "LeaseKeepAlive",
    "prove",
    "PING",
    "PING ACK",
    "WINDOW_UPDATE",
    "RST_STREAM",
];

/// What comes before a message and after it.
const PARTS: [&str; 4] = [" HEADERS", " TRAILERS", " END", " RST_STREAM"];
/// Of these, an answer is a message without trailers.
const STREAMS: [&str; 4] = ["watch", "unwatch", "news", "LeaseKeepAlive"];

/// The message that a frame comes before or after.
pub(super) fn message_of(name: &str) -> Option<&str> {
    PARTS.iter().find_map(|part| name.strip_suffix(part))
}

/// Whether it is between two others that are cut: nothing is known before them, or all of it.
fn is_inside(direction: Direction, name: &str) -> bool {
    match direction {
        Direction::ToServer => name.ends_with(" END"),
        Direction::FromServer => message_of(name).is_none() && !STREAMS.contains(&name),
    }
}

fn kind(frame: &Frame, name: &str, n: usize) -> Kind {
    match message_of(name).unwrap_or(name) {
        it if GREETINGS.contains(&it) => Kind::Greeting,
        "watch" if frame.connection == 1 && n == 1 => Kind::Greeting,
        "LeaseRevoke" => Kind::Session,
        it if UPKEEP.contains(&it) => Kind::Upkeep,
        _ => Kind::Request,
    }
}

pub(super) fn points(log: &[Frame], first_connection: u64) -> Vec<Point> {
    let mut counts = BTreeMap::<(Option<u64>, bool, &str), usize>::new();
    let mut points = Vec::new();
    for frame in log {
        let is_request = frame.direction == Direction::ToServer;
        for name in &frame.names {
            for connection in [None, Some(frame.connection)] {
                *counts.entry((connection, is_request, name)).or_default() += 1;
            }
        }
        let count = |connection, name| {
            let count = counts.get(&(connection, is_request, name));
            count.copied().unwrap_or_default()
        };
        // A transaction may have several requests in it, of which one that changes something says most.
        let is_change = |it: &&String| it.starts_with("multi");
        let name = frame.names.iter().find(is_change);
        let name = name.or(frame.names.first()).map_or("", |it| it);
        let on_connection = count(Some(frame.connection), name);
        let kind = kind(frame, name, on_connection);
        // A lock's own are the same over whatever connection they come.
        let is_of_connection = matches!(kind, Kind::Greeting | Kind::Upkeep);
        let connection = is_of_connection.then_some(frame.connection);
        let is_inside = kind != Kind::Upkeep && is_inside(frame.direction, name);
        if frame.connection >= first_connection
            && (kind != Kind::Upkeep || on_connection == 1)
            && (is_long() || !is_inside)
        {
            points.push(Point {
                direction: frame.direction,
                name: name.to_owned(),
                n: count(connection, name),
                connection,
                kind,
                is_apart: true,
            });
        }
    }
    points
}
