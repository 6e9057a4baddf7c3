//! Log files as a server writes them, cut off and damaged ones too.

use super::*;

/// A file with these entries, followed by zeros.
fn file(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [MAGIC, &VERSION.to_be_bytes(), &0_i64.to_be_bytes()].concat();
    for entry in entries {
        bytes.extend(i64::from(adler32(entry)).to_be_bytes());
        bytes.extend(string(entry));
        bytes.push(END_OF_RECORD);
    }
    bytes.extend([0; 64]);
    bytes
}

fn string(text: &[u8]) -> Vec<u8> {
    [&i32::try_from(text.len()).unwrap().to_be_bytes(), text].concat()
}

fn transaction(zxid: i64, kind: i32, body: &[u8]) -> Vec<u8> {
    let mut entry = [7_i64.to_be_bytes().as_slice(), &1_i32.to_be_bytes()].concat();
    entry.extend(zxid.to_be_bytes());
    entry.extend(99_i64.to_be_bytes());
    entry.extend(kind.to_be_bytes());
    entry.extend(body);
    entry
}

#[test]
fn records_are_read_until_the_zeros() {
    let refused = [&14_i32.to_be_bytes()[..], &string(b"/a")].concat();
    let parts = [
        &2_i32.to_be_bytes()[..],
        &13_i32.to_be_bytes(),
        &string(&string(b"/a")),
        &5_i32.to_be_bytes(),
        &string(&[string(b"/b"), string(b"17")].concat()),
    ];
    let entries = [
        transaction(1, -10, &400_i32.to_be_bytes()),
        transaction(2, 2, &string(b"/a")),
        transaction(3, 14, &parts.concat()),
        transaction(4, -1, &refused),
    ];
    let log = TransactionLog::parse(&file(&entries)).unwrap();
    let changes: Vec<_> = log.records().iter().map(|it| it.change.clone()).collect();
    let want = [
        Change::OpenSession,
        Change::Delete {
            path: "/a".to_owned(),
        },
        Change::Multi(vec![
            Change::Check {
                path: "/a".to_owned(),
            },
            Change::Set {
                path: "/b".to_owned(),
                data: b"17".to_vec(),
            },
        ]),
        Change::Refused,
    ];
    assert_eq!(changes, want);
    let first = &log.records()[0];
    assert_eq!((first.zxid, first.session, first.at_ms), (1, 7, 99));
}

#[test]
fn torn_record_at_the_end_is_none_and_a_changed_one_is_damage() {
    let entries = [transaction(1, -10, &[0; 4]), transaction(2, -11, &[])];
    let whole = file(&entries);
    for end in 0..whole.len() {
        // Cut off, or not written yet. Only a file with an incomplete header is not a log.
        let records = TransactionLog::parse(&whole[..end]).map(|it| it.records().len());
        match end {
            0 | 16.. => assert!(records.unwrap() <= 2),
            _ => assert!(matches!(records, Err(LogError::Format))),
        }
        let mut zeroed = whole[..end].to_vec();
        zeroed.resize(whole.len(), 0);
        let records = TransactionLog::parse(&zeroed).map(|it| it.records().len());
        assert!(records.is_ok_and(|it| it <= 2) || end < 16, "{end}");
    }
    let mut changed = whole;
    changed[40] ^= 1;
    let damaged = TransactionLog::parse(&changed).unwrap_err();
    assert!(
        matches!(damaged, LogError::Damaged { offset: 16 }),
        "{damaged}"
    );
}

#[test]
fn log_of_an_ensemble_is_what_most_servers_have() {
    let log = |zxids: &[i64]| {
        let entries: Vec<_> = zxids.iter().map(|it| transaction(*it, -11, &[])).collect();
        TransactionLog::parse(&file(&entries)).unwrap()
    };
    // The first has missed 2 and 3, and is the only one with 5.
    let all = TransactionLog::of_most(vec![log(&[1, 4, 5]), log(&[1, 2, 3, 4]), log(&[2, 3])]);
    let zxids: Vec<_> = all.records().iter().map(|it| it.zxid).collect();
    assert_eq!(zxids, [1, 2, 3, 4]);
}

#[test]
fn files_that_end_before_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    };
    write("log.1", b"not read".to_vec());
    let entries = [16, 17].map(|it| transaction(it, -11, &[]));
    write("log.10", file(&entries));
    write("log.20", file(&[transaction(32, -11, &[])]));
    let zxids = |after| {
        let log = TransactionLog::read_after(folder.path(), after)?;
        Ok::<_, LogError>(log.records().iter().map(|it| it.zxid).collect::<Vec<_>>())
    };
    assert_eq!(zxids(16).unwrap(), [17, 32]);
    assert_eq!(zxids(32).unwrap(), [0; 0]);
    assert!(matches!(zxids(15), Err(LogError::Format)));
}

#[test]
fn checksum_is_adler_32() {
    assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
}
