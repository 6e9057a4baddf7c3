//! What the stores call the frames of a run.

use crate::store::Servers;

/// What a store calls the frames of a run.
pub(crate) struct Words {
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

const REDIS: Words = Words {
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
            Servers::Redis(_) => &REDIS,
            Servers::Postgres(_) => &POSTGRES,
            Servers::MariaDb(_) => &MARIADB,
        }
    }
}
