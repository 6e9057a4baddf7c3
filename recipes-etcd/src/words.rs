//! Requests as transactions.
//!
//! A call is carried out in as few transactions as its requests allow, mostly one: each request that changes
//! something is a transaction inside of it, so each is done or refused by itself. What they compare is looked at before any
//! of them changes something. So a request that names what an earlier one changes goes into a later transaction.
//!
//! Most calls change one thing, as to enter a queue or to leave it. That goes *flat*, without a transaction inside, which takes the
//! server less. If it is refused, it is sent again as the others are, which says why.

use std::collections::BTreeSet;

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use recipes_core::internal::BESIDE;
use recipes_core::{NewNode, NodeMode, NodeOp};
use recipes_keeper::Asked;

use crate::keys::{self, Keys, NodeKey};
use crate::queues::Queues;

/// What a transaction may have of each, `max-txn-ops`, is 128. A transaction inside has what is left.
const OPERATIONS_MAX: usize = 60;

/// A flat request has no more operations, each with two comparisons and two answers at most.
const FLAT_MAX: usize = 16;

/// The value of a session's key: the number of the connection over which it is used, in digits that are compared as
/// numbers are.
pub(crate) fn connection(number: u64) -> String {
    format!("{number:020}")
}

/// How many of the first of these requests, each with the keys by which it is answered, may be carried out in one
/// transaction; at least one.
pub(crate) fn together(keys: &Keys, asked: &[Asked], by_keys: &[ByKeys]) -> usize {
    let (mut changed, mut entered) = (BTreeSet::new(), BTreeSet::new());
    let mut operations = 0;
    for (index, asked) in asked.iter().enumerate() {
        let by_keys = by_keys.get(index).and_then(Option::as_ref);
        operations += by_keys.map_or(2, Vec::len);
        let mut is_apart = operations > OPERATIONS_MAX;
        if let Asked::Multi(all) = asked {
            is_apart |= all.len() > OPERATIONS_MAX;
            for operation in all.iter() {
                let NodeKey { key, .. } = key(keys, operation);
                // Two that are made by one revision have one number.
                let directory = entered_by(operation).map(ToOwned::to_owned);
                is_apart |= changed.contains(&key);
                is_apart |= directory.as_ref().is_some_and(|it| entered.contains(it));
            }
            for operation in all.iter() {
                if !matches!(operation, NodeOp::Check { .. }) {
                    changed.insert(key(keys, operation).key);
                }
                entered.extend(entered_by(operation).map(ToOwned::to_owned));
            }
        }
        if is_apart && index > 0 {
            return index;
        }
        if is_apart {
            return 1;
        }
    }
    asked.len()
}

/// The directory in which an operation creates a node with a number.
fn entered_by(operation: &NodeOp) -> Option<&str> {
    match operation {
        NodeOp::Create(node) if node.mode == NodeMode::EphemeralSequential => {
            node.path.rsplit_once('/').map(|(directory, _)| directory)
        }
        _ => None,
    }
}

/// The keys that requests delete.
pub(crate) fn deleted(keys: &Keys, asked: &[Asked]) -> Vec<String> {
    let mut deleted = Vec::new();
    for asked in asked {
        let Asked::Multi(operations) = asked else {
            continue;
        };
        let deletes = operations.iter();
        let deletes = deletes.filter(|it| matches!(it, NodeOp::Delete { .. }));
        deleted.extend(deletes.map(|it| key(keys, it).key));
    }
    deleted
}

/// Whether these requests may go flat. What only compares may not: without a transaction inside it would be a read, and
/// no entry of the log.
pub(crate) fn may_be_flat(asked: &[Asked]) -> bool {
    let multis = asked.iter().filter_map(|it| match it {
        Asked::Multi(operations) => Some(operations),
        _ => None,
    });
    let multis: Vec<_> = multis.collect();
    let changes = |it: &NodeOp| !matches!(it, NodeOp::Check { .. });
    matches!(*multis, [only] if only.len() <= FLAT_MAX && only.iter().any(changes))
}

/// A transaction of the session with this key, as long as it is used over the connection with this number, and what
/// is compared holds.
pub(crate) fn of_session(
    session_key: &str,
    number: u64,
    mut compared: Vec<Compare>,
    operations: Vec<TxnOp>,
) -> Txn {
    let is_ours = Compare::value(session_key, CompareOp::Equal, connection(number));
    compared.push(is_ours);
    Txn::new()
        .when(compared)
        .and_then(operations)
        .or_else([TxnOp::get(session_key, None)])
}

/// What requests compare beside the session's key, and their operations, if they go together.
pub(crate) fn requests(
    keys: &Keys,
    lease: i64,
    asked: &[Asked],
    by_keys: &[ByKeys],
    is_flat: bool,
) -> (Vec<Compare>, Vec<TxnOp>) {
    let (mut compared, mut sent) = (Vec::new(), Vec::new());
    for (asked, by_keys) in asked.iter().zip(by_keys) {
        match asked {
            Asked::Multi(operations) if is_flat => {
                let multi = Multi::new(keys, lease, operations);
                compared.extend(multi.when);
                sent.extend(multi.then);
            }
            _ => sent.extend(operations(keys, lease, asked, by_keys.as_deref())),
        }
    }
    (compared, sent)
}

/// The keys by which a listing for a contender is answered, if that is less than all of the directory.
pub(crate) type ByKeys = Option<Vec<String>>;

/// The keys by which a request is answered.
pub(crate) fn by_keys(keys: &Keys, queues: &Queues, asked: &Asked) -> ByKeys {
    match asked {
        Asked::Look { directory, own, .. } => {
            queues.ahead(&keys.below(directory), last_ahead(own.as_deref())?)
        }
        _ => None,
    }
}

/// The operations of a request, which is answered by these keys. [`answers`](crate::answers) takes as many answers.
pub(crate) fn operations(
    keys: &Keys,
    lease: i64,
    asked: &Asked,
    by_keys: Option<&[String]>,
) -> Vec<TxnOp> {
    if let Some(by_keys) = by_keys {
        // Not in a transaction inside, which would be an entry of the log.
        return by_keys.iter().map(|it| TxnOp::get(&**it, None)).collect();
    }
    match asked {
        Asked::Multi(operations) => vec![TxnOp::txn(Multi::new(keys, lease, operations).inside())],
        Asked::List(path) => {
            // With values: from 3.7 on an answer of keys alone has no leases, by which contenders are known.
            let options = GetOptions::new().with_prefix();
            vec![TxnOp::get(keys.below(path), Some(options))]
        }
        // With data: the contender will want those of the nodes ahead.
        Asked::Look { directory, own, .. } => {
            let mut options = GetOptions::new().with_prefix();
            if let Some(last) = last_ahead(own.as_deref()) {
                options = options.with_max_create_revision(last);
            }
            vec![TxnOp::get(keys.below(directory), Some(options))]
        }
        Asked::Read(path) | Asked::Stat(path) | Asked::Watch(path, _) => read(keys, path),
        Asked::Unwatch(_) | Asked::Beat => Vec::new(),
    }
}

/// The revision after which nobody comes ahead of a contender, if that is so: for one in the queue of a mutex. Next to
/// a writer a reader may come, and a semaphore has room by all of its leases.
pub(crate) fn last_ahead(own: Option<&str>) -> Option<i64> {
    keys::mutex_made_at(own?)
}

/// Reads a node, and counts what is below it.
pub(crate) fn read(keys: &Keys, path: &str) -> Vec<TxnOp> {
    let NodeKey { key, made_at } = keys.node(path);
    let mut operations = Vec::new();
    if path != "/" {
        operations.push(TxnOp::get(key, None));
    }
    // A contender has nothing below it.
    if made_at.is_none() && !path.ends_with(BESIDE) {
        let below = GetOptions::new().with_prefix().with_count_only();
        operations.push(TxnOp::get(keys.below(path), Some(below)));
    }
    operations
}

/// All of some operations, or what the nodes are like that they name.
struct Multi {
    when: Vec<Compare>,
    then: Vec<TxnOp>,
    otherwise: Vec<TxnOp>,
}

impl Multi {
    fn new(keys: &Keys, lease: i64, operations: &[NodeOp]) -> Self {
        let (mut when, mut then, mut otherwise) = (Vec::new(), Vec::new(), Vec::new());
        for operation in operations {
            let key = key(keys, operation);
            otherwise.push(TxnOp::get(key.key.as_str(), None));
            when.push(is_there(operation, &key));
            let version = match operation {
                NodeOp::Create(_) => None,
                NodeOp::Delete { version, .. }
                | NodeOp::Set { version, .. }
                | NodeOp::Check { version, .. } => *version,
            };
            if let Some(version) = version {
                // Ours count from 0.
                let version = i64::from(version) + 1;
                let key = key.key.as_str();
                when.push(Compare::version(key, CompareOp::Equal, version));
            }
            match operation {
                NodeOp::Create(node) => then.push(create(node, key.key, lease)),
                NodeOp::Delete { .. } => then.push(TxnOp::delete(key.key, None)),
                NodeOp::Set { data, .. } => {
                    let options = PutOptions::new().with_ignore_lease();
                    then.push(TxnOp::put(key.key.as_str(), data.clone(), Some(options)));
                    then.push(TxnOp::get(key.key, None));
                }
                NodeOp::Check { .. } => {}
            }
        }
        Self {
            when,
            then,
            otherwise,
        }
    }

    fn inside(self) -> Txn {
        let txn = Txn::new().when(self.when).and_then(self.then);
        txn.or_else(self.otherwise)
    }
}

/// The key that an operation is about.
pub(crate) fn key(keys: &Keys, operation: &NodeOp) -> NodeKey {
    match operation {
        NodeOp::Create(node) => NodeKey {
            key: keys.created(&node.path, node.mode == NodeMode::Ephemeral),
            made_at: None,
        },
        operation => keys.node(operation.path()),
    }
}

/// What must hold for an operation, apart from a version.
fn is_there(operation: &NodeOp, NodeKey { key, made_at }: &NodeKey) -> Compare {
    let key = key.as_str();
    match (operation, made_at) {
        (NodeOp::Create(_), _) => Compare::version(key, CompareOp::Equal, 0),
        (_, Some(revision)) => Compare::create_revision(key, CompareOp::Equal, *revision),
        (_, None) => Compare::version(key, CompareOp::Greater, 0),
    }
}

fn create(node: &NewNode, key: String, lease: i64) -> TxnOp {
    let options = match node.mode {
        NodeMode::Ephemeral | NodeMode::EphemeralSequential => {
            Some(PutOptions::new().with_lease(lease))
        }
        NodeMode::Persistent | NodeMode::Container => None,
    };
    TxnOp::put(key, &*node.data, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str) -> NodeOp {
        NodeOp::Create(NewNode {
            path: path.to_owned(),
            data: Default::default(),
            mode: NodeMode::EphemeralSequential,
        })
    }

    fn delete(path: &str) -> NodeOp {
        let path = path.to_owned();
        NodeOp::Delete {
            path,
            version: None,
        }
    }

    fn multi(operations: &[NodeOp]) -> Asked {
        Asked::Multi(operations.into())
    }

    #[test]
    fn requests_go_together_unless_one_names_what_an_earlier_one_changes() {
        let keys = Keys::new("");
        let count = |asked: &[Asked]| together(&keys, asked, &[]);
        let list = || Asked::List("/a".to_owned());
        let number = "0000000000000000057";
        let release = multi(&[delete(&format!("/a/_c_1-lock-{number}"))]);
        let enter = multi(&[create("/a/_c_2-lock-")]);
        assert_eq!(count(&[release.clone(), enter.clone(), list()]), 3);
        assert_eq!(
            count(&[enter.clone(), multi(&[create("/a/_c_3-lock-")])]),
            1
        );
        assert_eq!(
            count(&[enter.clone(), multi(&[create("/b/_c_3-lock-")])]),
            2
        );
        assert_eq!(
            count(&[list(), enter.clone(), list(), enter.clone(), list()]),
            3
        );
        // The same key.
        let early = multi(&[delete(&format!("/a/_c_2-lock-{number}"))]);
        assert_eq!(count(&[enter, early]), 1);
        assert_eq!(count(&[release.clone(), release]), 1);
    }

    #[test]
    fn one_change_goes_flat_and_its_comparisons_with_it() {
        let (keys, number) = (Keys::new(""), "0000000000000000057");
        let enter = multi(&[create("/a/_c_2-lock-")]);
        let leave = multi(&[delete(&format!("/a/_c_1-lock-{number}"))]);
        let look = Asked::List("/a".to_owned());
        let check = NodeOp::Check {
            path: "/a".to_owned(),
            version: None,
        };
        for (asked, is_flat) in [
            (vec![enter.clone(), look.clone()], true),
            (vec![leave.clone()], true),
            (vec![leave.clone(), enter.clone()], false),
            (vec![look], false),
            (vec![multi(&vec![create("/a/x"); FLAT_MAX + 1])], false),
            (vec![multi(std::slice::from_ref(&check))], false),
            (vec![multi(&[check, create("/a/x")])], true),
        ] {
            assert_eq!(may_be_flat(&asked), is_flat, "{asked:?}");
        }
        let leaves = std::slice::from_ref(&leave);
        let (compared, sent) = requests(&keys, 7, leaves, &[None], true);
        assert_eq!((compared.len(), sent.len()), (1, 1));
        assert!(
            format!("{sent:?}").contains("RequestDeleteRange"),
            "{sent:?}"
        );
        let (compared, sent) = requests(&keys, 7, leaves, &[None], false);
        assert_eq!((compared.len(), sent.len()), (0, 1));
        assert!(format!("{sent:?}").contains("RequestTxn"), "{sent:?}");
    }

    #[test]
    fn transaction_is_as_large_as_servers_take() {
        let keys = Keys::new("");
        let lists = vec![Asked::List("/a".to_owned()); 128];
        assert_eq!(together(&keys, &lists, &[]), OPERATIONS_MAX / 2);
        let by_keys = vec![Some(vec![String::new(); 16]); 128];
        assert_eq!(together(&keys, &lists, &by_keys), OPERATIONS_MAX / 16);
        let set: Vec<_> = (0..100)
            .map(|it| create(&format!("/{it}/_c_1-lock-")))
            .collect();
        assert_eq!(together(&keys, &[multi(&set), lists[0].clone()], &[]), 1);
        assert_eq!(together(&keys, &[lists[0].clone(), multi(&set)], &[]), 1);
    }

    #[test]
    fn whoever_wants_names_asks_for_more_than_keys() {
        let list = Asked::List("/a".to_owned());
        let look = Asked::Look {
            directory: "/a".to_owned(),
            own: None,
            first: 1,
        };
        for asked in [list, look] {
            let sent = operations(&Keys::new(""), 0, &asked, None);
            let sent = format!("{sent:?}");
            assert_eq!(sent.matches("keys_only: false").count(), 1, "{sent}");
        }
    }

    #[test]
    fn connections_are_compared_as_numbers() {
        assert!(connection(9) < connection(10) && connection(u64::MAX).len() == 20);
    }
}
