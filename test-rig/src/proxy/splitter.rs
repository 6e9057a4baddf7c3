//! Cuts a stream of bytes into frames, however the bytes arrive.

use super::frame::Direction;
use super::protocol::Protocol;
use super::{http2, mysql, postgres, resp};

/// Far above any `jute.maxbuffer` in use, and far below what text or TLS give when they are read as
/// a length.
const FRAME_BYTES_MAX: usize = 64 << 20;
const PREFIX_BYTES: usize = size_of::<i32>();

/// A part of a stream. All parts together are the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// One frame, all of it.
    Frame(Vec<u8>),
    /// Some bytes of a stream that is not made of frames.
    Raw(Vec<u8>),
}

/// One direction of a connection.
///
/// | state | is left when |
/// |---|---|
/// | framed | ZooKeeper: a length is negative or above [`FRAME_BYTES_MAX`]: four-letter words, TLS, noise |
/// | | Redis: a value is of no known kind or has no length: TLS, noise |
/// | | etcd: the first frame is not that of HTTP/2, or headers have no end: text, TLS, noise |
/// | | databases: a message is of no known kind or not in its place: TLS, noise |
/// | raw | never |
#[derive(Debug)]
pub(super) struct Splitter {
    direction: Direction,
    scan: Scan,
    /// It grows with the bytes that have arrived, never with the length that they announce.
    buffer: Vec<u8>,
    is_raw: bool,
}

/// What was seen of the stream so far.
#[derive(Debug)]
enum Scan {
    ZooKeeper,
    Redis(resp::Scan),
    Postgres(postgres::Scan),
    MySql(mysql::Scan),
    Etcd(http2::Scan),
}

impl Splitter {
    pub(super) fn new(protocol: Protocol, direction: Direction) -> Self {
        Self {
            direction,
            scan: match protocol {
                Protocol::ZooKeeper => Scan::ZooKeeper,
                Protocol::Redis => Scan::Redis(resp::Scan::default()),
                Protocol::Postgres => Scan::Postgres(postgres::Scan::default()),
                Protocol::MySql => Scan::MySql(mysql::Scan::default()),
                Protocol::Etcd => Scan::Etcd(http2::Scan::default()),
            },
            buffer: Vec::new(),
            is_raw: false,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete piece.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        if !self.is_raw {
            let (buffer, direction) = (&self.buffer, self.direction);
            let end = match &mut self.scan {
                Scan::ZooKeeper => jute_end(buffer),
                Scan::Redis(scan) => scan.end(buffer, direction).ok(),
                Scan::Postgres(scan) => scan.end(buffer, direction).ok(),
                Scan::MySql(scan) => scan.end(buffer, direction).ok(),
                Scan::Etcd(scan) => scan.end(buffer, direction).ok(),
            };
            match end {
                Some(end) => return Some(Piece::Frame(self.buffer.drain(..end?).collect())),
                None => self.is_raw = true,
            }
        }
        self.rest()
    }

    /// Returns the bytes at the end of a stream that are not a whole frame.
    pub(super) fn rest(&mut self) -> Option<Piece> {
        let rest = std::mem::take(&mut self.buffer);
        (!rest.is_empty()).then_some(Piece::Raw(rest))
    }
}

/// Where the first frame ends, if all of it is there. `None` if it is no frame.
fn jute_end(buffer: &[u8]) -> Option<Option<usize>> {
    let Some(prefix) = buffer.first_chunk::<PREFIX_BYTES>() else {
        return Some(None);
    };
    let length = usize::try_from(i32::from_be_bytes(*prefix)).ok()?;
    if length > FRAME_BYTES_MAX {
        return None;
    }
    let end = PREFIX_BYTES + length;
    Some((buffer.len() >= end).then_some(end))
}

/// The content of a frame of ZooKeeper, after its length.
pub(super) fn body(frame: &[u8]) -> &[u8] {
    frame.get(PREFIX_BYTES..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(piece: &Piece) -> &[u8] {
        match piece {
            Piece::Frame(bytes) | Piece::Raw(bytes) => bytes,
        }
    }

    /// Feeds a stream in chunks of the given sizes, then the rest at once.
    fn pieces(stream: &[u8], sizes: &[usize]) -> Vec<Piece> {
        let (mut splitter, mut pieces, mut stream) = (
            Splitter::new(Protocol::ZooKeeper, Direction::ToServer),
            Vec::new(),
            stream,
        );
        for size in sizes.iter().copied().chain([stream.len()]) {
            let (chunk, rest) = stream.split_at(size.min(stream.len()));
            stream = rest;
            splitter.push(chunk);
            pieces.extend(std::iter::from_fn(|| splitter.next_piece()));
        }
        pieces.extend(splitter.rest());
        pieces
    }

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        let frame = |body: &Vec<u8>| {
            let length = i32::try_from(body.len()).unwrap().to_be_bytes();
            [length.to_vec(), body.clone()].concat()
        };
        bodies.iter().flat_map(frame).collect()
    }

    proptest! {
        #[test]
        fn frames_are_found_however_they_arrive(
            bodies in vec(vec(any::<u8>(), 0..40), 0..12),
            sizes in vec(0_usize..30, 0..40),
        ) {
            let found = pieces(&framed(&bodies), &sizes);
            let found: Vec<_> = found
                .iter()
                .map(|piece| match piece {
                    Piece::Frame(frame) => body(frame).to_vec(),
                    Piece::Raw(bytes) => panic!("not a frame: {bytes:?}"),
                })
                .collect();
            prop_assert_eq!(found, bodies);
        }

        #[test]
        fn every_byte_of_any_stream_comes_out_once_and_in_order(
            bodies in vec(vec(any::<u8>(), 0..20), 0..4),
            noise in vec(any::<u8>(), 0..60),
            sizes in vec(0_usize..30, 0..40),
        ) {
            let stream = [framed(&bodies), noise].concat();
            let out: Vec<u8> = pieces(&stream, &sizes).iter().flat_map(bytes_of).copied().collect();
            prop_assert_eq!(out, stream);
        }

        #[test]
        fn length_that_promises_much_reserves_nothing(length: i32, some in vec(any::<u8>(), 0..64)) {
            let mut splitter = Splitter::new(Protocol::ZooKeeper, Direction::ToServer);
            splitter.push(&length.to_be_bytes());
            splitter.push(&some);
            while splitter.next_piece().is_some() {}
            prop_assert!(splitter.buffer.capacity() <= 4 * (4 + some.len()));
        }
    }

    #[test]
    fn text_and_tls_are_not_frames() {
        for start in [
            &b"ruok"[..],
            b"isro",
            b"Zookeeper version",
            b"\x16\x03\x01\x02\x00",
        ] {
            assert_eq!(pieces(start, &[]), [Piece::Raw(start.to_vec())]);
        }
        // A whole reply to `isro`, after which the server closes.
        assert_eq!(pieces(b"rw", &[]), [Piece::Raw(b"rw".to_vec())]);
    }
}
