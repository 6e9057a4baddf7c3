//! The locks of PostgreSQL's other clients, as statements: `$1` is the lock, `$2` its owner.

use crate::sql::Way;

pub(super) const SCHEMA: &str = "\
CREATE TABLE naive (
    name text PRIMARY KEY, owner text NOT NULL, count int NOT NULL, expires timestamptz NOT NULL);
CREATE TABLE shedlock (
    name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL,
    locked_by varchar(255) NOT NULL);";

/// A crashed owner's row is taken over when it expires. Nothing renews it here.
pub(super) static NAIVE: Way = Way {
    first: None,
    attempt: "\
INSERT INTO naive AS held (name, owner, count, expires)
VALUES ($1, $2, 1, clock_timestamp() + interval '30 s')
ON CONFLICT (name) DO UPDATE
SET count = CASE WHEN held.expires <= clock_timestamp() THEN 1 ELSE held.count + 1 END,
    owner = excluded.owner, expires = excluded.expires
WHERE held.owner = excluded.owner OR held.expires <= clock_timestamp()",
    wait: None,
    release: &[
        "DELETE FROM naive WHERE name = $1 AND owner = $2 AND count = 1",
        "UPDATE naive SET count = count - 1 WHERE name = $1 AND owner = $2",
    ],
    readers: None,
    measures_round_trips: true,
};

/// The connection is the owner.
pub(super) static ADVISORY: Way = Way {
    first: None,
    attempt: "SELECT 1 WHERE pg_try_advisory_lock(hashtextextended($1, 0))",
    wait: Some("SELECT pg_advisory_lock(hashtextextended($1, 0))"),
    release: &["SELECT 1 WHERE pg_advisory_unlock(hashtextextended($1, 0))"],
    readers: Some(&ADVISORY_SHARED),
    measures_round_trips: false,
};

static ADVISORY_SHARED: Way = Way {
    first: None,
    attempt: "SELECT 1 WHERE pg_try_advisory_lock_shared(hashtextextended($1, 0))",
    wait: Some("SELECT pg_advisory_lock_shared(hashtextextended($1, 0))"),
    release: &["SELECT 1 WHERE pg_advisory_unlock_shared(hashtextextended($1, 0))"],
    readers: None,
    measures_round_trips: false,
};

/// As its `StorageBasedLockProvider` with `usingDbTime()`: rows stay, and are inserted once.
pub(super) static SHEDLOCK: Way = Way {
    first: Some(
        "\
INSERT INTO shedlock AS held (name, lock_until, locked_at, locked_by)
VALUES ($1, timezone('utc', CURRENT_TIMESTAMP) + interval '30 s',
        timezone('utc', CURRENT_TIMESTAMP), $2)
ON CONFLICT (name) DO UPDATE
SET lock_until = excluded.lock_until, locked_at = excluded.locked_at,
    locked_by = excluded.locked_by
WHERE held.lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
    ),
    attempt: "\
UPDATE shedlock
SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '30 s',
    locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $2
WHERE name = $1 AND lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
    wait: None,
    release: &["\
UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP)
WHERE name = $1 AND locked_by = $2"],
    readers: None,
    measures_round_trips: false,
};
