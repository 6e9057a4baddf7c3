//! Connections that were recorded, for the tests of the databases' protocols.

use super::frame::Direction;
use super::message::Message;
use super::protocol::Protocol;
use super::splitter::{Piece, Splitter};

/// What one end sent at a time.
pub(super) type Sent = (Direction, &'static [u8]);

/// The messages of a connection, in the order in which they were sent.
pub(super) fn messages(protocol: Protocol, sent: &[Sent]) -> Vec<(Direction, Message)> {
    let mut conversation = protocol.conversation();
    let splitter = |direction| Splitter::new(protocol, direction);
    let (mut to, mut from) = (
        splitter(Direction::ToServer),
        splitter(Direction::FromServer),
    );
    let mut messages = Vec::new();
    for (direction, bytes) in sent {
        let splitter = match direction {
            Direction::ToServer => &mut to,
            Direction::FromServer => &mut from,
        };
        splitter.push(bytes);
        while let Some(piece) = splitter.next_piece() {
            let Piece::Frame(frame) = piece else {
                panic!("not a message: {piece:?}")
            };
            messages.push((*direction, conversation.message(*direction, &frame)));
        }
    }
    assert!(to.rest().is_none() && from.rest().is_none());
    messages
}

/// Their first names, with the way that each takes.
pub(super) fn names(protocol: Protocol, sent: &[Sent]) -> Vec<String> {
    let name = |(direction, message): &(Direction, Message)| {
        let way = match direction {
            Direction::ToServer => '>',
            Direction::FromServer => '<',
        };
        format!("{way} {}", message.names[0])
    };
    messages(protocol, sent).iter().map(name).collect()
}

/// All that one end has sent.
pub(super) fn stream(sent: &[Sent], direction: Direction) -> Vec<u8> {
    let of_way = sent.iter().filter(|it| it.0 == direction);
    of_way.flat_map(|it| it.1).copied().collect()
}

/// Feeds a stream in chunks of the given sizes, then the rest at once.
pub(super) fn pieces(
    protocol: Protocol,
    direction: Direction,
    stream: &[u8],
    sizes: &[usize],
) -> Vec<Piece> {
    let mut splitter = Splitter::new(protocol, direction);
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

/// Feeds both ends' streams with one byte changed, and names whatever comes out. Nothing may panic,
/// and every byte must come out once and in order.
pub(super) fn damaged(protocol: Protocol, sent: &[Sent], at: usize, byte: u8) {
    let mut conversation = protocol.conversation();
    for direction in [Direction::FromServer, Direction::ToServer] {
        let mut stream = stream(sent, direction);
        let at = at % stream.len();
        stream[at] = byte;
        let mut out = Vec::new();
        for piece in pieces(protocol, direction, &stream, &[]) {
            if let Piece::Frame(frame) = &piece {
                let message = conversation.message(direction, frame);
                assert!(message.names.iter().all(|it| !it.is_empty()));
            }
            let (Piece::Frame(bytes) | Piece::Raw(bytes)) = piece;
            out.extend(bytes);
        }
        assert_eq!(out, stream);
    }
}
