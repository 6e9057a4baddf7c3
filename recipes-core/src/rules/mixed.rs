//! Whether a directory has nodes of another recipe.
//!
//! Recipes order nodes by their own names, and do not wait for those of others. So two recipes on one
//! path would be held at the same time. Of two contenders, the one that made its node later finds that
//! of the other in its first listing, and is refused. The other one may find the later node too. It
//! waits until that is gone, because a client that does not look may hold the lock by it.
//!
//! A semaphore has its nodes in directories of its own, which tell nothing of its path. There is no
//! listing of the path that could be had for nothing. So whoever makes these directories makes that of
//! the leases first, then lists the path, and makes that of the mutex last:
//!
//! | who comes | finds | by |
//! |---|---|---|
//! | another recipe after a semaphore | [`LEASES`] | its own listing |
//! | a semaphore after another recipe | its nodes | [`node_beside_a_semaphore`], after `LEASES` was made |
//!
//! Where a directory is no node of its own, nobody makes it: whoever wants a permit lists the path with its create.
//!
//! No permit is granted without both directories, and none of the others beside `LEASES`. So one of two
//! that come at the same time finds the other.

use crate::names::node_name::{self, LockKind};
use crate::names::order;

/// The directory of a semaphore's mutex, below its path, as in Curator.
pub(crate) const MUTEX: &str = "locks";
/// That of its leases.
pub(crate) const LEASES: &str = "leases";

/// What a listing shows of other recipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixed<'a> {
    /// This child was there before.
    Earlier(&'a str, LockKind),
    /// This node was made after our own.
    Later(&'a str),
}

/// Looks for other recipes than that of `kind`, whose node is `own` if it has one.
pub(crate) fn other_recipe<'a>(
    kind: LockKind,
    children: &'a [String],
    own: Option<&str>,
) -> Option<Mixed<'a>> {
    let own = own.and_then(node_name::sequence);
    let mut later = None;
    for child in children {
        // Nearly all names end here: this is one look at their last characters.
        if order::sequence_of_ours(kind, child).is_some() {
            continue;
        }
        let Some(found) = recipe_of(child).filter(|it| it.queue() != kind.queue()) else {
            continue;
        };
        match (own, node_name::sequence(child)) {
            (Some(own), Some(its)) if its > own => later = Some(Mixed::Later(child)),
            _ => return Some(Mixed::Earlier(child, found)),
        }
    }
    later
}

/// The first child of a semaphore's path that is a contender's node.
pub(crate) fn node_beside_a_semaphore(children: &[String]) -> Option<(&str, LockKind)> {
    let mut found = children
        .iter()
        .filter_map(|it| Some((it.as_str(), node_name::kind(it)?)));
    found.next()
}

fn recipe_of(child: &str) -> Option<LockKind> {
    match child {
        LEASES => Some(LockKind::Permit),
        child => node_name::kind(child),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::node_name::KINDS;

    /// One node of each kind, in the order of their numbers.
    const NODES: [(&str, LockKind); 6] = [
        (
            "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000001",
            LockKind::Mutex,
        ),
        (
            "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000002",
            LockKind::Read,
        ),
        ("__WRIT__0000000003", LockKind::Write),
        (
            "_c_01234567-89ab-cdef-0123-456789abcdef-lease-0000000004",
            LockKind::Permit,
        ),
        (
            "_c_01234567-89ab-cdef-0123-456789abcdef-latch-0000000005",
            LockKind::Latch,
        ),
        // kazoo's lock is a mutex.
        (
            "0123456789abcdef0123456789abcdef__lock__0000000006",
            LockKind::Mutex,
        ),
    ];

    fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(String::from).to_vec()
    }

    #[test]
    fn each_recipe_finds_the_nodes_of_all_others() {
        for (own, kind) in NODES {
            for (other, found) in NODES {
                let children = names([own, other]);
                let is_other = found.queue() != kind.queue();
                let is_later = node_name::sequence(other) > node_name::sequence(own);
                let wanted = match (is_other, is_later) {
                    (false, _) => None,
                    (true, true) => Some(Mixed::Later(other)),
                    (true, false) => Some(Mixed::Earlier(other, found)),
                };
                assert_eq!(
                    other_recipe(kind, &children, Some(own)),
                    wanted,
                    "{children:?}"
                );
                // Who has no node yet comes after everybody.
                let wanted = is_other.then_some(Mixed::Earlier(other, found));
                assert_eq!(other_recipe(kind, &children, None), wanted, "{children:?}");
            }
        }
    }

    #[test]
    fn an_earlier_node_refuses_whatever_stands_before_it_in_the_listing() {
        let own = "_c_a-lock-0000000002";
        let mut children = names(["_c_b-latch-0000000003", own, "_c_c-latch-0000000001"]);
        for _ in 0..3 {
            let wanted = Some(Mixed::Earlier("_c_c-latch-0000000001", LockKind::Latch));
            assert_eq!(other_recipe(LockKind::Mutex, &children, Some(own)), wanted);
            children.rotate_left(1);
        }
    }

    #[test]
    fn the_directory_of_leases_tells_of_a_semaphore_and_only_that() {
        for kind in KINDS {
            let refused =
                (kind != LockKind::Permit).then_some(Mixed::Earlier(LEASES, LockKind::Permit));
            let children = names([MUTEX, LEASES]);
            assert_eq!(other_recipe(kind, &children, None), refused, "{kind:?}");
            // A directory of locks may have any name, and this one is common.
            assert_eq!(other_recipe(kind, &names([MUTEX]), None), None, "{kind:?}");
        }
    }

    #[test]
    fn a_semaphore_finds_every_contender_beside_its_directories() {
        for (node, kind) in NODES {
            let children = names([MUTEX, "-stranger", node, LEASES]);
            assert_eq!(node_beside_a_semaphore(&children), Some((node, kind)));
        }
        let others = names([MUTEX, LEASES, "orders", "block-0000000001"]);
        assert_eq!(node_beside_a_semaphore(&others), None);
    }

    #[test]
    fn directories_of_keys_and_files_of_others_are_no_nodes() {
        let children = names([
            "4711",
            "block-0000000001",
            "leases-of-flats",
            "release-0000000001",
            "0d1f__lock__0000000001",
            "lock%2D0000000000",
        ]);
        for kind in KINDS {
            assert_eq!(other_recipe(kind, &children, None), None, "{kind:?}");
        }
        assert_eq!(other_recipe(LockKind::Read, &[], None), None);
    }
}
