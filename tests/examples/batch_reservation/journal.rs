//! The journal in the database, judged without the locks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) batch: i64,
    pub(crate) client: String,
    pub(crate) action: String,
    pub(crate) seat: String,
    pub(crate) token: i64,
}

/// A batch, as a process reported it: client, action, seats.
pub(crate) type Batch = (String, String, BTreeSet<String>);

pub(crate) struct Journal {
    pub(crate) entries: Vec<Entry>,
    /// The holder of each seat, from the table next to the journal.
    holders: BTreeMap<String, String>,
}

impl Journal {
    pub(crate) fn read(db: &Path) -> Self {
        let db = Connection::open_with_flags(db, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let select = "SELECT batch, client, action, seat, token FROM journal ORDER BY entry";
        let entries = db
            .prepare(select)
            .unwrap()
            .query_map([], |row| {
                Ok(Entry {
                    batch: row.get(0)?,
                    client: row.get(1)?,
                    action: row.get(2)?,
                    seat: row.get(3)?,
                    token: row.get(4)?,
                })
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let holders = db
            .prepare("SELECT seat, client FROM seats WHERE client IS NOT NULL")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        Self { entries, holders }
    }

    /// Checks that no client booked or cancelled another's seat, and that no token fell.
    pub(crate) fn check(&self) {
        let mut holders = BTreeMap::new();
        let mut tokens = BTreeMap::new();
        for entry in &self.entries {
            let (seat, client) = (entry.seat.clone(), entry.client.clone());
            let before = match entry.action.as_str() {
                "book" => holders.insert(seat, client),
                _ => {
                    let before = holders.remove(&seat);
                    assert_eq!(before, Some(client), "not theirs to cancel: {entry:?}");
                    None
                }
            };
            assert_eq!(before, None, "double booking: {entry:?}");
            // Each batch in this test is a hold of its own.
            let before = tokens.insert(&entry.seat, entry.token);
            assert!(before < Some(entry.token), "{before:?}, then {entry:?}");
        }
        assert_eq!(holders, self.holders);
    }

    /// The batches by number, each with all of its seats.
    pub(crate) fn batches(&self) -> BTreeMap<i64, Batch> {
        let mut batches = BTreeMap::new();
        for Entry {
            batch,
            client,
            action,
            seat,
            ..
        } in self.entries.clone()
        {
            let new = || (client.clone(), action.clone(), BTreeSet::new());
            let known: &mut Batch = batches.entry(batch).or_insert_with(new);
            assert_eq!((&known.0, &known.1), (&client, &action), "batch {batch}");
            assert!(known.2.insert(seat), "twice in batch {batch}");
        }
        batches
    }
}

/// The batch in a line `client: action seat,seat: done, batch number`; `None` if it was refused.
pub(crate) fn done(line: &str) -> Option<(i64, Batch)> {
    let mut parts = line.splitn(3, ": ");
    let (client, asked) = (parts.next().unwrap(), parts.next().unwrap());
    let answer = parts.next().unwrap();
    let Some(number) = answer.strip_prefix("done, batch ") else {
        assert!(answer.starts_with("refused, seat "), "{line}");
        return None;
    };
    let (action, seats) = asked.split_once(' ').unwrap();
    let seats = seats.split(',').map(str::to_owned).collect();
    let batch = (client.to_owned(), action.to_owned(), seats);
    Some((number.parse().unwrap(), batch))
}
