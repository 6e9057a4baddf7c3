//! Connections of two clients as they were recorded, in any chunks, damaged ones, and frames that neither sends.

mod connections;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::proxy::protocol::Protocol;
use crate::proxy::recorded::{Sent, damaged, messages, names, pieces, stream};
use crate::proxy::splitter::Piece;
use connections::{GO, OURS, REFUSED};

const TO: Direction = Direction::ToServer;
const FROM: Direction = Direction::FromServer;

/// What is sent of calls, without what keeps the connection.
fn calls(sent: &[Sent]) -> Vec<String> {
    let mut names = names(Protocol::Etcd, sent);
    let others = ["PING", "WINDOW_UPDATE", "SETTINGS", "RST_STREAM"];
    names.retain(|it| {
        let (_way, name) = it.split_once(' ').unwrap();
        !others.iter().any(|other| name.starts_with(other))
    });
    names
}

/// A unary call of our client, whose requests have an end of their own.
fn unary(name: &str) -> Vec<String> {
    let answer = ["HEADERS", "", "TRAILERS"].map(|part| format!("< {name} {part}"));
    let request = [format!("> {name}"), format!("> {name} END")];
    let all = request.into_iter().chain(answer);
    all.map(|it| it.trim_end().to_owned()).collect()
}

#[test]
fn frames_of_our_session_are_named_after_what_is_asked() {
    let one = |name: &str| vec![name.to_owned()];
    let expected = [
        one("> PRI"),
        unary("Range"),
        unary("LeaseGrant"),
        unary("Put"),
        one("> watch"),
        one("< watch HEADERS"),
        one("< watch"),
        one("> LeaseKeepAlive"),
        one("< LeaseKeepAlive HEADERS"),
        one("< LeaseKeepAlive"),
        one("> LeaseKeepAlive"),
        one("< LeaseKeepAlive"),
        unary("prove"),
        unary("multi create"),
        one("> watch"),
        one("< watch"),
        one("< watch"),
        // The holder ahead has released.
        one("< news"),
        one("> unwatch"),
        one("< unwatch"),
        one("> LeaseKeepAlive"),
        one("< LeaseKeepAlive"),
        unary("prove"),
        unary("multi delete"),
        one("< news"),
        one("> unwatch"),
        one("> LeaseRevoke"),
        one("> LeaseRevoke END"),
        one("< unwatch"),
        one("< LeaseRevoke HEADERS"),
        one("< LeaseRevoke"),
        one("< LeaseRevoke TRAILERS"),
        one("< news"),
        one("> unwatch RST_STREAM"),
        one("> LeaseKeepAlive RST_STREAM"),
        one("> GOAWAY"),
    ];
    assert_eq!(calls(&OURS), expected.concat());
}

#[test]
fn frames_of_another_client_are_named_after_their_methods() {
    let expected = [
        "> PRI",
        "> LeaseGrant",
        "< LeaseGrant HEADERS",
        "< LeaseGrant",
        "< LeaseGrant TRAILERS",
        "> LeaseKeepAlive",
        "> multi create",
        "< LeaseKeepAlive HEADERS",
        "< LeaseKeepAlive",
        "< multi create HEADERS",
        "< multi create",
        "< multi create TRAILERS",
        "> DeleteRange",
        "< DeleteRange HEADERS",
        "< DeleteRange",
        "< DeleteRange TRAILERS",
    ];
    assert_eq!(calls(&GO), expected);
}

#[test]
fn transaction_has_all_its_requests_and_their_keys() {
    let messages = messages(Protocol::Etcd, &OURS);
    let of = |direction, name: &str| {
        let mut of_way = messages.iter().filter(|it| it.0 == direction);
        let found = of_way.find(|(_, it)| it.names.iter().any(|it| it == name));
        found.map(|(_, message)| message.clone()).unwrap()
    };
    let request = of(TO, "multi create");
    assert_eq!(request.names, ["multi create", "look", "Txn"]);
    let own = "/orders/_c_09518b87-1664-48ea-83f6-9ff08af1c7d1-lock-";
    assert_eq!(request.paths, [own, "/orders/"]);
    assert_eq!((request.opcode, request.error), (Opcode::Etcd, None));
    let answer = of(FROM, "look");
    assert_eq!((answer.xid, answer.paths), (request.xid, request.paths));
    let end = of(FROM, "look TRAILERS");
    assert_eq!((end.xid, end.error), (request.xid, Some(0)));

    let news = of(FROM, "news");
    assert_eq!(news.opcode, Opcode::Notification);
    let ahead = "/orders/_c_cee209fe-4113-45a2-b38a-3b910a0714e8-lock-";
    assert_eq!(news.paths, [ahead]);
}

#[test]
fn refusal_has_the_code_of_grpc() {
    let messages = messages(Protocol::Etcd, &REFUSED);
    let (_, last) = messages.iter().rfind(|(way, _)| *way == FROM).unwrap();
    // `NOT_FOUND`: there is no such lease.
    assert_eq!(last.names, ["LeaseRevoke TRAILERS"]);
    assert_eq!(last.error, Some(5));
}

proptest! {
    #[test]
    fn frames_are_found_however_they_arrive(sizes in vec(0_usize..60, 0..200)) {
        for sent in [&OURS[..], &GO, &REFUSED] {
            for direction in [TO, FROM] {
                let stream = stream(sent, direction);
                let whole = pieces(Protocol::Etcd, direction, &stream, &[]);
                prop_assert!(whole.iter().all(|it| matches!(it, Piece::Frame(_))));
                prop_assert_eq!(pieces(Protocol::Etcd, direction, &stream, &sizes), whole);
            }
        }
    }

    #[test]
    fn damaged_connections_are_forwarded_whole(at in 0_usize..4000, byte: u8) {
        damaged(Protocol::Etcd, &OURS, at, byte);
        damaged(Protocol::Etcd, &GO, at, byte);
    }
}

/// A frame of HTTP/2.
fn part(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let header = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, body].concat()
}

/// Headers that ask for a transaction: a literal without compression, with the fourth name of the table.
fn path() -> Vec<u8> {
    [&b"\x04\x14"[..], b"/etcdserverpb.KV/Txn"].concat()
}

/// A transaction without anything in it, as gRPC sends it.
const PROVE: &[u8] = b"\0\0\0\0\x02\x0a\0";

/// The names of what a client sends after its preface, and how much each frame has.
fn sent(frames: &[Vec<u8>]) -> Vec<(Vec<String>, usize)> {
    let stream = [http2::PREFACE, &frames.concat()].concat();
    let mut conversation = Conversation::default();
    let frames = pieces(Protocol::Etcd, TO, &stream, &[]);
    let named = frames.iter().map(|piece| {
        let Piece::Frame(frame) = piece else {
            panic!("not a frame: {piece:?}")
        };
        (conversation.message(TO, frame).names, frame.len())
    });
    named.skip(1).collect()
}

fn named(names: &[&str], parts: &[&Vec<u8>]) -> (Vec<String>, usize) {
    let names = names.iter().map(|it| (*it).to_owned()).collect();
    (names, parts.iter().map(|it| it.len()).sum())
}

#[test]
fn headers_in_several_frames_are_one_with_the_message() {
    let path = path();
    let (first, rest) = path.split_at(7);
    let padded = [&[3][..], &[0; 5], first, &[0; 3]].concat();
    // With priority and padding, and without an end.
    let headers = part(kind::HEADERS, 0x28, 1, &padded);
    let more = part(kind::CONTINUATION, 4, 1, rest);
    let data = part(kind::DATA, 1, 1, PROVE);
    let expected = named(&["prove", "Txn"], &[&headers, &more, &data]);
    assert_eq!(sent(&[headers, more, data]), [expected]);
}

#[test]
fn headers_that_another_stream_follows_are_a_frame_of_their_own() {
    let headers = |stream| part(kind::HEADERS, 4, stream, &path());
    let data = |stream| part(kind::DATA, 1, stream, PROVE);
    let expected = [
        named(&["Txn HEADERS"], &[&headers(1)]),
        named(&["prove", "Txn"], &[&headers(3), &data(3)]),
        named(&["prove", "Txn"], &[&data(1)]),
    ];
    let all = [headers(1), headers(3), data(3), data(1)];
    assert_eq!(sent(&all), expected);
}

#[test]
fn message_in_several_frames_is_named_when_it_is_whole() {
    let (first, rest) = PROVE.split_at(6);
    let headers = part(kind::HEADERS, 4, 1, &path());
    let (first, rest) = (part(kind::DATA, 0, 1, first), part(kind::DATA, 0, 1, rest));
    let end = part(kind::DATA, 1, 1, b"");
    let expected = [
        named(&["Txn DATA"], &[&headers, &first]),
        named(&["prove", "Txn"], &[&rest]),
        named(&["prove END", "Txn END"], &[&end]),
    ];
    assert_eq!(sent(&[headers, first, rest, end]), expected);
}

#[test]
fn headers_without_their_end_are_not_forwarded_in_halves() {
    let headers = part(kind::HEADERS, 0, 1, &path());
    let ping = part(6, 0, 0, &[0; 8]);
    let stream = [http2::PREFACE, &headers, &ping].concat();
    let found = pieces(Protocol::Etcd, TO, &stream, &[]);
    let rest = [headers, ping].concat();
    assert_eq!(found[1..], [Piece::Raw(rest)], "another frame comes first");
}

#[test]
fn text_and_tls_are_not_frames() {
    for (direction, start) in [
        (TO, &b"GET /health HTTP/1.1\r\n"[..]),
        (TO, b"PRI * HTTP/1.1\r\n"),
        (TO, b"\x16\x03\x01\x02\x00"),
        (FROM, b"HTTP/1.1 200 OK\r\n"),
        (FROM, b"\x15\x03\x01\0\x02"),
    ] {
        let expected = [Piece::Raw(start.to_vec())];
        assert_eq!(pieces(Protocol::Etcd, direction, start, &[]), expected);
    }
}
