//! What a server must be like, and what it then promises.

use std::collections::HashMap;

use recipes_core::Guarantee;
use recipes_keeper::Facts;
use thiserror::Error;

/// Why a session is not opened on a server that answers.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisRefusal {
    /// It follows another server, and takes no writes. Name the primary, or let Sentinel name it.
    #[error("the server is a replica of {primary}: connect to that, or through Sentinel")]
    Replica {
        /// Host and port.
        primary: String,
    },
    /// It does not speak RESP3, over which it would tell of changes. Redis does since 6.0.
    #[error("the server does not speak RESP3 (HELLO 3): at least Redis 7.0 is needed")]
    Resp3,
    /// It is too old for what the locks need.
    #[error("the server is Redis {found}; at least 7.0 is needed")]
    Version {
        /// Its version.
        found: String,
    },
    /// It deletes keys when its memory is full, locks too.
    #[error(
        "the server evicts keys when its memory is full (maxmemory-policy {policy}), locks too: \
         set maxmemory-policy to noeviction, or to one of the volatile ones"
    )]
    Eviction {
        /// The policy.
        policy: String,
    },
    /// It has no such database.
    #[error("the database of the URL cannot be used: {said}")]
    Database {
        /// What the server said.
        said: String,
    },
    /// No Sentinel names the primary.
    #[error(
        "a Sentinel, or the server that it names, refuses: {said} (the user and the password of a Sentinel are \
         sentinel-username and sentinel-password)"
    )]
    Sentinel {
        /// What it said.
        said: String,
    },
    /// It has closed the connection. The session tries again.
    #[error("the server has closed the connection: {said}")]
    Closed {
        /// What it said before.
        said: String,
    },
    /// It did not say what it is.
    #[error("the server does not report its {missing} (INFO)")]
    Silent {
        /// The field.
        missing: &'static str,
    },
    /// It is part of a cluster, and the keys of the prefix belong to another server.
    #[error(
        "the keys of prefix {prefix:?} are on another server of the cluster: {redirection} \
         (redis+cluster:// finds it)"
    )]
    Elsewhere {
        /// The prefix.
        prefix: String,
        /// Slot, host and port, as the server has said.
        redirection: String,
    },
    /// The keys of the prefix are being moved to another server of the cluster. The session tries again.
    #[error(
        "the keys of prefix {prefix:?} are being moved to another server of the cluster: {redirection}"
    )]
    Moving {
        /// The prefix.
        prefix: String,
        /// Slot, host and port, as the server has said.
        redirection: String,
    },
}

/// Reads the fields of an `INFO`.
fn fields(info: &str) -> HashMap<&str, &str> {
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.collect()
}

/// Whether the server is part of a cluster, by its `INFO`.
pub(crate) fn is_clustered(info: &str) -> bool {
    fields(info).get("cluster_enabled") == Some(&"1")
}

/// Judges a server by its `INFO` and its `appendfsync`, if it tells that.
pub(crate) fn judge(info: &str, appendfsync: Option<&str>) -> Result<Facts, RedisRefusal> {
    let fields = fields(info);
    let field = |missing| {
        let field = fields.get(missing).copied();
        field.ok_or(RedisRefusal::Silent { missing })
    };
    let version = field("redis_version")?;
    let major = version.split('.').next().unwrap_or(version);
    if major.parse().is_ok_and(|major: u32| major < 7) {
        return Err(RedisRefusal::Version {
            found: version.to_owned(),
        });
    }
    if field("role")? != "master" {
        let part = |name| fields.get(name).copied().unwrap_or("?");
        return Err(RedisRefusal::Replica {
            primary: format!("{}:{}", part("master_host"), part("master_port")),
        });
    }
    let policy = field("maxmemory_policy")?;
    // The volatile ones evict keys that have a time to live, and none of ours has. The functions look again.
    if policy != "noeviction" && !policy.starts_with("volatile-") {
        return Err(RedisRefusal::Eviction {
            policy: policy.to_owned(),
        });
    }
    let is = |name: &str, value| fields.get(name) == Some(&value);
    let is_alone = is("connected_slaves", "0") && !is("cluster_enabled", "1");
    let keeps = is("aof_enabled", "1") && appendfsync == Some("always");
    // Whom it followed, and until where. A server that is promoted for the second time has the same
    // run id, and what it knows of locks may be as old as its first time.
    let history = ["master_replid2", "second_repl_offset"];
    let [followed, until] = history.map(|name| fields.get(name).copied().unwrap_or_default());
    Ok(Facts {
        run: format!("{} {followed} {until}", field("run_id")?),
        guarantee: match is_alone && keeps {
            true => Guarantee::OneCopy,
            false => Guarantee::BestEffort,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n\
                        role:master\r\nconnected_slaves:0\r\naof_enabled:1\r\n\
                        maxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";

    fn judged(info: &str, appendfsync: &str) -> Result<Guarantee, RedisRefusal> {
        judge(info, Some(appendfsync)).map(|facts| facts.guarantee)
    }

    #[test]
    fn server_that_keeps_what_it_has_acknowledged_is_one_copy() {
        assert_eq!(judged(INFO, "always"), Ok(Guarantee::OneCopy));
        assert_eq!(judged(INFO, "everysec"), Ok(Guarantee::BestEffort));
        let in_memory = INFO.replace("aof_enabled:1", "aof_enabled:0");
        assert_eq!(judged(&in_memory, "always"), Ok(Guarantee::BestEffort));
        let followed = INFO.replace("connected_slaves:0", "connected_slaves:1");
        assert_eq!(judged(&followed, "always"), Ok(Guarantee::BestEffort));
        let untold = judge(INFO, None).unwrap().guarantee;
        assert_eq!(untold, Guarantee::BestEffort);
    }

    #[test]
    fn server_that_cannot_keep_locks_is_refused() {
        let old = INFO.replace("7.0.15", "6.2.1");
        assert!(matches!(
            judged(&old, "no"),
            Err(RedisRefusal::Version { .. })
        ));
        let replica = INFO.replace(
            "role:master",
            "role:slave\r\nmaster_host:a\r\nmaster_port:1",
        );
        let refused = judged(&replica, "no").unwrap_err();
        assert_eq!(
            refused,
            RedisRefusal::Replica {
                primary: "a:1".into()
            }
        );
        let evicts = INFO.replace("noeviction", "allkeys-lru");
        assert!(matches!(
            judged(&evicts, "no"),
            Err(RedisRefusal::Eviction { .. })
        ));
        // No key of ours has a time to live.
        let volatile = INFO.replace("noeviction", "volatile-lru");
        assert_eq!(judged(&volatile, "always"), Ok(Guarantee::OneCopy));
    }

    #[test]
    fn promotion_begins_a_run_though_the_process_goes_on() {
        let facts = |history: &str| {
            let info = format!("{INFO}{history}");
            judge(&info, None).unwrap()
        };
        let first = facts("master_replid2:000\r\nsecond_repl_offset:-1\r\n");
        let second = facts("master_replid2:0ab\r\nsecond_repl_offset:12\r\n");
        assert_ne!(first.run, second.run);
    }

    #[test]
    fn versions_with_two_digits_are_newer() {
        assert!(judged(&INFO.replace("7.0.15", "10.0.0"), "no").is_ok());
    }
}
