//! Messages as Redis writes them, in any chunks, and damaged ones.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::proxy::protocol::Protocol;
use crate::proxy::splitter::{Piece, Splitter};

/// Every kind of value that Redis 7 sends, some of them in others.
const ANSWERS: [&[u8]; 24] = [
    b"+OK\r\n",
    b"+\r\n",
    b"-ERR no\r\n",
    b":-7\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",-1.5e3\r\n",
    b",inf\r\n",
    b"(3492890328409238509324850943850943825024385\r\n",
    b"$0\r\n\r\n",
    b"$5\r\na\r\nb\n\r\n",
    b"$-1\r\n",
    b"!9\r\nSYNTAX no\r\n",
    b"=7\r\ntxt:a\r\n\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*2\r\n$1\r\n*\r\n*1\r\n:1\r\n",
    b"~2\r\n+a\r\n#f\r\n",
    b"%0\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n_\r\n%1\r\n+c\r\n:2\r\n",
    b"|1\r\n+ttl\r\n:3600\r\n$1\r\na\r\n",
    b"*2\r\n|1\r\n+key\r\n%1\r\n+a\r\n,0.1\r\n:1\r\n:2\r\n",
    b"|1\r\n+a\r\n:1\r\n|1\r\n+b\r\n:2\r\n+OK\r\n",
    b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\nD 1 \r\n",
];

fn request(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend([word, LINE_END].concat());
    }
    bytes
}

/// Feeds a stream in chunks of the given sizes, then the rest at once.
fn pieces(direction: Direction, stream: &[u8], sizes: &[usize]) -> Vec<Piece> {
    let mut splitter = Splitter::new(Protocol::Redis, direction);
    let (mut pieces, mut stream) = (Vec::new(), stream);
    for size in sizes.iter().copied().chain([stream.len()]) {
        let (chunk, rest) = stream.split_at(size.min(stream.len()));
        stream = rest;
        splitter.push(chunk);
        pieces.extend(std::iter::from_fn(|| splitter.next_piece()));
    }
    pieces.extend(splitter.rest());
    pieces
}

fn frames(messages: &[Vec<u8>]) -> Vec<Piece> {
    messages.iter().cloned().map(Piece::Frame).collect()
}

#[test]
fn answers_are_found_when_they_arrive_in_two_parts_split_at_any_byte() {
    let answers = ANSWERS.map(<[u8]>::to_vec);
    let stream = answers.concat();
    for at in 0..=stream.len() {
        let found = pieces(Direction::FromServer, &stream, &[at]);
        assert_eq!(found, frames(&answers), "{at}");
    }
}

#[test]
fn answers_are_found_when_every_byte_arrives_alone() {
    let answers = ANSWERS.map(<[u8]>::to_vec);
    let stream = answers.concat();
    let found = pieces(Direction::FromServer, &stream, &vec![1; stream.len()]);
    assert_eq!(found, frames(&answers));
}

#[test]
fn no_part_of_a_message_is_a_message() {
    for answer in ANSWERS {
        for at in 0..answer.len() {
            let part = answer.get(..at).unwrap();
            let end = Scan::default().end(part, Direction::FromServer);
            assert_eq!(end, Ok(None), "{at} bytes of {answer:?}");
        }
    }
}

#[test]
fn attributes_belong_to_the_answer_that_they_describe() {
    let heads = [20, 22].map(|it| {
        let answer = ANSWERS.get(it).copied().unwrap_or_default();
        let first = answer_of(answer);
        (first.kind, first.content.to_vec())
    });
    assert_eq!(heads, [(b'$', b"a".to_vec()), (b'+', b"OK".to_vec())]);
}

fn answer_of(message: &[u8]) -> Token<'_> {
    answer(message).next().unwrap()
}

#[test]
fn commands_that_are_typed_are_lines() {
    let lines = [
        b"PING\r\n".to_vec(),
        b"get  a b\n".to_vec(),
        b"\r\n".to_vec(),
    ];
    let then = request(&[b"PING".to_vec()]);
    let stream = [lines.concat(), then.clone()].concat();
    for at in 0..=stream.len() {
        let found = pieces(Direction::ToServer, &stream, &[at]);
        let all = [&lines[..], std::slice::from_ref(&then)].concat();
        assert_eq!(found, frames(&all), "{at}");
    }
    assert_eq!(words(b"get  a b\n"), [b"get".as_slice(), b"a", b"b"]);
}

#[test]
fn what_is_malformed_or_of_another_protocol_is_handed_on_and_not_waited_for() {
    for noise in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"*x\r\n",
        b"*99999999999999999999\r\n",
        b"*-2\r\n",
        b"%-1\r\n",
        b"|-1\r\n",
        b"$+ \r\n",
        b"$?\r\n",
        b"*?\r\n",
        b"$600000000\r\n",
        b"$1\r\nabc",
        b"*1\r\n?",
    ] {
        for direction in [Direction::ToServer, Direction::FromServer] {
            let mut splitter = Splitter::new(Protocol::Redis, direction);
            splitter.push(noise);
            let raw = Some(Piece::Raw(noise.to_vec()));
            assert_eq!(splitter.next_piece(), raw, "{direction:?}");
        }
    }
    // More values than can be counted, or be there.
    let nested = b"*500000000\r\n".repeat(100_000);
    assert_eq!(
        Scan::default().end(&nested, Direction::FromServer),
        Err(NotResp)
    );
    let long = vec![b'a'; 2 * LINE_BYTES_MAX];
    for (direction, line) in [
        (Direction::ToServer, long.clone()),
        (Direction::FromServer, [b"+".to_vec(), long].concat()),
    ] {
        assert_eq!(Scan::default().end(&line, direction), Err(NotResp));
    }
}

#[test]
fn values_in_values_take_no_stack() {
    let mut deep = b"*1\r\n".repeat(1_000_000);
    deep.extend(b":1\r\n");
    let end = Scan::default().end(&deep, Direction::FromServer);
    assert_eq!(end, Ok(Some(deep.len())));
    let attributes = [b"|1\r\n".repeat(1_000_000), b":1\r\n".to_vec()].concat();
    assert_eq!(answer(&attributes).count(), 0);
}

proptest! {
    #[test]
    fn requests_are_found_however_they_arrive(
        requests in vec(vec(vec(any::<u8>(), 0..20), 1..6), 0..6),
        sizes in vec(0_usize..30, 0..40),
    ) {
        let messages: Vec<_> = requests.iter().map(|it| request(it)).collect();
        let found = pieces(Direction::ToServer, &messages.concat(), &sizes);
        prop_assert_eq!(&found, &frames(&messages));
        for (message, asked) in messages.iter().zip(&requests) {
            prop_assert_eq!(&words(message), asked);
        }
    }

    #[test]
    fn every_byte_of_any_stream_comes_out_once_and_in_order(
        good in vec(proptest::sample::select(&ANSWERS[..]), 0..4),
        noise in vec(any::<u8>(), 0..60),
        sizes in vec(0_usize..30, 0..40),
    ) {
        let stream = [good.concat(), noise].concat();
        for direction in [Direction::ToServer, Direction::FromServer] {
            let out: Vec<u8> = pieces(direction, &stream, &sizes)
                .into_iter()
                .flat_map(|piece| match piece {
                    Piece::Frame(bytes) | Piece::Raw(bytes) => bytes,
                })
                .collect();
            prop_assert_eq!(out, &stream[..]);
        }
    }
}
