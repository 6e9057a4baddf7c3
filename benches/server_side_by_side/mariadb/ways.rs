//! The locks of MariaDB's other clients, as statements.

use crate::sql::Way;

pub(super) const SCHEMA: &str = "\
CREATE TABLE naive (
    name varchar(255) PRIMARY KEY, owner varchar(64) NOT NULL, count int NOT NULL,
    expires datetime(6) NOT NULL);
CREATE TABLE shedlock (
    name varchar(64) PRIMARY KEY, lock_until timestamp(3) NOT NULL,
    locked_at timestamp(3) NOT NULL, locked_by varchar(255) NOT NULL);";

/// A crashed owner's row is taken over when it expires. Nothing renews it here.
pub(super) static NAIVE: Way = Way {
    first: None,
    // It assigns in this order, and sees what it has assigned. A row that stays is not counted as
    // changed.
    attempt: "\
INSERT INTO naive (name, owner, count, expires)
VALUES (:name, :owner, 1, UTC_TIMESTAMP(6) + INTERVAL 30 SECOND)
ON DUPLICATE KEY UPDATE
    count = IF(expires <= UTC_TIMESTAMP(6), 1, IF(owner = VALUES(owner), count + 1, count)),
    owner = IF(expires <= UTC_TIMESTAMP(6), VALUES(owner), owner),
    expires = IF(owner = VALUES(owner), VALUES(expires), expires)",
    wait: None,
    release: &[
        "DELETE FROM naive WHERE name = :name AND owner = :owner AND count = 1",
        "UPDATE naive SET count = count - 1 WHERE name = :name AND owner = :owner",
    ],
    readers: None,
    measures_round_trips: true,
};

/// The connection is the owner.
pub(super) static GET_LOCK: Way = Way {
    first: None,
    attempt: "SELECT GET_LOCK(:name, 0)",
    wait: Some("SELECT GET_LOCK(:name, 300)"),
    release: &["SELECT RELEASE_LOCK(:name)"],
    readers: None,
    measures_round_trips: false,
};

/// As its `StorageBasedLockProvider` with `usingDbTime()`: rows stay, and are inserted once.
pub(super) static SHEDLOCK: Way = Way {
    first: Some(
        "\
INSERT IGNORE INTO shedlock (name, lock_until, locked_at, locked_by)
VALUES (:name, UTC_TIMESTAMP(3) + INTERVAL 30 SECOND, UTC_TIMESTAMP(3), :owner)",
    ),
    attempt: "\
UPDATE shedlock
SET lock_until = UTC_TIMESTAMP(3) + INTERVAL 30 SECOND, locked_at = UTC_TIMESTAMP(3),
    locked_by = :owner
WHERE name = :name AND lock_until <= UTC_TIMESTAMP(3)",
    wait: None,
    release: &["\
UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = :name AND locked_by = :owner"],
    readers: None,
    measures_round_trips: false,
};
