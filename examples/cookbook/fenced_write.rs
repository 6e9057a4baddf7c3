//! A table that refuses a late holder that does not know that it has lost its lock.
//!
//! No lock can stop a process that was paused for longer than its session. But each grant has a
//! higher token than the one before, so the store remembers the highest and refuses lower ones. It
//! must also see the token with the first *read*. Otherwise a late write could come between the
//! next holder's read and write, and be overwritten unseen.
//!
//! **Why one statement.** `UPDATE .. SET .., token = ? WHERE id = ? AND token <= ?` compares and
//! stores in one step. A second UPDATE of the row waits until the first has committed, and then
//! compares with the token that it left: by row locks in PostgreSQL and MySQL, at `READ COMMITTED`
//! too, and in SQLite because there is one writer at a time. A stricter isolation level may fail it
//! instead (a serialization error), which changes nothing. A SELECT that compares, followed by an
//! UPDATE that does not, is not safe: the next holder may read and write in between.
//!
//! **No row affected means refused**: stop, because a later holder was here. It also means that the
//! row does not exist, so rows are created with token 0 before the first lock. MySQL counts only
//! rows whose values change, unless the client sets `CLIENT_FOUND_ROWS`.
//!
//! **`<=`, not `<`**: one holder writes several times under one token.
//!
//! **Two columns** are for locks with `LockOptions::local_handoffs`: grants that follow each other
//! within one process share the number, and `handoff` counts them. Compare both as a pair, never as
//! text: `"10"` sorts ahead of `"9"`. Without that option `handoff` is always 0, and the column
//! `token` alone is enough.

use lock_recipes::FencingToken;
use rusqlite::{Connection, OptionalExtension, Result, params};

/// Creates the table, which stores the highest token seen in each row.
pub(crate) fn create(db: &Connection) -> Result<()> {
    db.execute_batch(
        "CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER,
             token INTEGER NOT NULL DEFAULT 0, handoff INTEGER NOT NULL DEFAULT 0) STRICT;
         INSERT INTO accounts (name, balance) VALUES ('alice', 100);",
    )
}

/// Reads under a token, and refuses lower ones from now on; `None` if this one is stale.
pub(crate) fn read(db: &Connection, name: &str, token: FencingToken) -> Result<Option<i64>> {
    let read = "UPDATE accounts SET token = ?2, handoff = ?3
        WHERE name = ?1 AND (token, handoff) <= (?2, ?3) RETURNING balance";
    let params = params![name, token.as_i64(), token.handoff()];
    db.query_row(read, params, |row| row.get(0)).optional()
}

/// Writes a value that was decided after a read; `false` if the token is stale by now.
pub(crate) fn write(
    db: &Connection,
    name: &str,
    balance: i64,
    token: FencingToken,
) -> Result<bool> {
    let write = "UPDATE accounts SET balance = ?2
        WHERE name = ?1 AND (token, handoff) = (?3, ?4)";
    let params = params![name, balance, token.as_i64(), token.handoff()];
    Ok(db.execute(write, params)? == 1)
}

/// Writes a value that rests on no read; `false` if the token is stale.
pub(crate) fn overwrite(
    db: &Connection,
    name: &str,
    balance: i64,
    token: FencingToken,
) -> Result<bool> {
    let write = "UPDATE accounts SET balance = ?2, token = ?3, handoff = ?4
        WHERE name = ?1 AND (token, handoff) <= (?3, ?4)";
    let params = params![name, balance, token.as_i64(), token.handoff()];
    Ok(db.execute(write, params)? == 1)
}
