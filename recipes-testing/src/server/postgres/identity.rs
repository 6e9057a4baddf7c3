//! The `system_identifier` of a PostgreSQL server, by which clients and replicas know it.
//!
//! It stands in two places: `global/pg_control`, with a checksum, and the head of the log.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use uuid::Uuid;

/// Where it is in `pg_control`, and in the head of the log.
const IN_CONTROL: Range<usize> = 0..8;
const IN_LOG: Range<usize> = 24..32;

/// Gives a copy of a server's data an identifier of its own, as `initdb` would have.
pub(super) fn renew(data: &Path) -> io::Result<()> {
    let (high, _) = Uuid::new_v4().as_u64_pair();
    let new = high.to_ne_bytes();
    let control = data.join("global/pg_control");
    let mut bytes = fs::read(&control)?;
    let old = bytes.get(IN_CONTROL).map(<[u8]>::to_vec);
    let (old, at) = old.zip(checksum_at(&bytes)).ok_or_else(not_understood)?;
    put(&mut bytes, IN_CONTROL, &new);
    let checksum = checksum(bytes.get(..at).unwrap_or_default());
    put(&mut bytes, at..at + 4, &checksum.to_ne_bytes());
    // In place, so that they stay who they belong to.
    fs::write(&control, bytes)?;

    for part in fs::read_dir(data.join("pg_wal"))? {
        let part = part?;
        if !part.file_type()?.is_file() {
            continue;
        }
        let mut log = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(part.path())?;
        let mut head = [0; IN_LOG.end];
        io::Read::read_exact(&mut log, &mut head)?;
        if head.get(IN_LOG) != Some(old.as_slice()) {
            return Err(not_understood());
        }
        put(&mut head, IN_LOG, &new);
        io::Seek::rewind(&mut log)?;
        io::Write::write_all(&mut log, &head)?;
    }
    Ok(())
}

fn put(bytes: &mut [u8], at: Range<usize>, new: &[u8]) {
    if let Some(place) = bytes.get_mut(at) {
        place.copy_from_slice(new);
    }
}

fn not_understood() -> io::Error {
    io::Error::other("this version of PostgreSQL has its system identifier elsewhere")
}

/// Where the checksum of all that is before it stands, which depends on the version.
fn checksum_at(bytes: &[u8]) -> Option<usize> {
    let ends = (IN_CONTROL.end..bytes.len()).step_by(4);
    let mut ends = ends.map_while(|end| bytes.split_at_checked(end));
    ends.find_map(|(before, rest)| {
        let is_it = rest.first_chunk() == Some(&checksum(before).to_ne_bytes());
        is_it.then_some(before.len())
    })
}

/// CRC-32C.
fn checksum(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let of_byte = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (POLYNOMIAL * (sum & 1))
        })
    };
    !bytes.iter().fold(!0, of_byte)
}

#[cfg(test)]
mod tests {
    use super::{checksum, checksum_at};

    #[test]
    fn checksum_is_castagnolis_and_is_found() {
        // The check value of the catalogue of these codes.
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
        let control = b"identifier and more.";
        let sum = checksum(control).to_ne_bytes();
        let file = [&control[..], &sum, &[0; 40]].concat();
        assert_eq!(checksum_at(&file), Some(20));
        assert_eq!(checksum_at(&control[..]), None);
    }
}
