//! A table that refuses a late holder that does not know that it has lost its lock.
//!
//! No lock can stop a process that was paused for longer than its session. But each grant has a
//! higher token than the one before, so the store remembers the highest and refuses lower ones. It
//! must also see the token with the first *read*. Otherwise a late write could come between the
//! next holder's read and write, and be overwritten unseen.

use lock_recipes::FencingToken;
use rusqlite::{Connection, OptionalExtension, Result, params};

/// Creates the table, which stores the highest token seen in each row.
pub(crate) fn create(db: &Connection) -> Result<()> {
    db.execute_batch(
        "CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER, token INTEGER) STRICT;
         INSERT INTO accounts VALUES ('alice', 100, 0);",
    )
}

/// Reads under a token, and refuses lower ones from now on; `None` if this one is stale.
pub(crate) fn read(db: &Connection, name: &str, token: FencingToken) -> Result<Option<i64>> {
    let read = "UPDATE accounts SET token = ?2 WHERE name = ?1 AND token <= ?2 RETURNING balance";
    let balance = db.query_row(read, params![name, token.as_i64()], |row| row.get(0));
    balance.optional()
}

/// Writes a value that was decided after a read; `false` if the token is stale by now.
pub(crate) fn write(
    db: &Connection,
    name: &str,
    balance: i64,
    token: FencingToken,
) -> Result<bool> {
    let write = "UPDATE accounts SET balance = ?2 WHERE name = ?1 AND token = ?3";
    Ok(db.execute(write, params![name, balance, token.as_i64()])? == 1)
}
