//! What the stores call the frames of a run.

use std::time::Duration;

use crate::store::Servers;

/// The shortest timeout that the test servers of ZooKeeper grant.
const SHORT: Duration = Duration::from_millis(400);

/// What a store calls the frames of a run.
pub(crate) struct Words {
    /// The timeout of a session that may end in the middle of a run.
    pub(crate) short: Duration,
    /// Connections that a session has at a time.
    pub(crate) connections: u64,
    /// Further ones after a reconnect, over which it asks what the server grants now.
    pub(crate) questions: u64,
    /// Requests of every run, which are answered, and those of a run with a set.
    pub(crate) asked: &'static [&'static str],
    pub(crate) asked_for_set: &'static [&'static str],
    /// What the server sends of its own accord when the lock is free, if anything.
    pub(crate) news: Option<&'static str>,
    /// The answers by which the subject learns that it is in the queue, and that it has left.
    pub(crate) entered: (&'static str, usize),
    pub(crate) left: (&'static str, usize),
    /// The answer by which it learns that its watches are set, on its first connection and on the next.
    pub(crate) watching: (&'static str, usize),
    pub(crate) watching_again: (&'static str, usize),
}

const ZOOKEEPER: Words = Words {
    short: SHORT,
    connections: 1,
    questions: 1,
    asked: &["Create", "GetChildren", "Delete", "GetData", "Sync"],
    asked_for_set: &["Multi", "MultiRead", "GetData", "Sync"],
    news: Some("Notification"),
    entered: ("Create", 1),
    left: ("Delete", 1),
    watching: ("GetData", 2),
    watching_again: ("Connect", 2),
};

const ETCD: Words = Words {
    // With a lease of two seconds. A heartbeat is two round trips there, which a quarter of it must do for.
    short: Duration::from_millis(1_600),
    connections: 1,
    questions: 0,
    asked: &[
        "LeaseGrant",
        "multi create",
        "look",
        "multi delete",
        "LeaseRevoke",
    ],
    asked_for_set: &[
        "LeaseGrant",
        "multi create",
        "look",
        "multi delete",
        "LeaseRevoke",
    ],
    news: Some("news"),
    entered: ("multi create", 1),
    left: ("multi delete", 1),
    // The first is that of the session's own key.
    watching: ("watch", 3),
    watching_again: ("watch", 6),
};

const REDIS: Words = Words {
    short: SHORT,
    connections: 1,
    questions: 0,
    asked: &["open", "multi create", "look", "multi delete", "close"],
    asked_for_set: &["open", "multi create", "look", "multi delete", "close"],
    news: Some("message"),
    entered: ("multi create", 1),
    left: ("multi delete", 1),
    // The watches come with the first listing.
    watching: ("look", 1),
    watching_again: ("resume", 1),
};

const POSTGRES: Words = Words {
    short: SHORT,
    connections: 2,
    questions: 0,
    asked: &["open", "enter", "leave", "poll", "close"],
    asked_for_set: &["open", "requests", "poll", "close"],
    news: Some("NotificationResponse"),
    entered: ("enter DataRow", 1),
    left: ("leave DataRow", 1),
    // The watches come with the first listing.
    watching: ("enter DataRow", 1),
    watching_again: ("resume DataRow", 1),
};

const MARIADB: Words = Words {
    short: SHORT,
    connections: 2,
    questions: 0,
    asked: &["open", "enter", "leave", "close"],
    asked_for_set: &["open", "requests", "close"],
    news: None,
    entered: ("enter Row", 1),
    left: ("leave OK", 1),
    watching: ("enter Row", 1),
    watching_again: ("resume Row", 1),
};

impl Words {
    pub(crate) fn of(servers: &Servers) -> &'static Self {
        match servers {
            Servers::One(_) | Servers::Three(_) => &ZOOKEEPER,
            Servers::Etcd(_) => &ETCD,
            Servers::Redis(_) => &REDIS,
            Servers::Postgres(_) => &POSTGRES,
            Servers::MariaDb(_) => &MARIADB,
        }
    }
}
