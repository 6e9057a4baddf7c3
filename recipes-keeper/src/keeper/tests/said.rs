//! What is asked and said in tests.

use std::sync::Arc;

use recipes_core::{Created, NewNode, NodeMode, NodeOp, NodeOpDone};

use super::scene::Reply;
use crate::asked::Asked;
use crate::wire::{Resumed, Said};

/// The session goes on, and has missed nothing.
pub(super) fn goes_on(reply: Reply<Option<Resumed>>) {
    goes_on_with(reply, Resumed::default());
}

pub(super) fn goes_on_with(reply: Reply<Option<Resumed>>, resumed: Resumed) {
    drop(reply.send(Ok(Some(resumed))));
}

pub(super) fn lives(reply: Reply<bool>) {
    drop(reply.send(Ok(true)));
}

pub(super) fn names(names: &[&str]) -> Said {
    let names = names.iter().map(|it| (*it).to_owned());
    Said::Names(names.collect(), Vec::new())
}

pub(super) fn list(path: &str) -> Asked {
    Asked::List(path.to_owned())
}

pub(super) fn stat(path: &str) -> Asked {
    Asked::Stat(path.to_owned())
}

pub(super) fn ephemeral(path: &str) -> NewNode {
    NewNode {
        path: path.to_owned(),
        data: Arc::default(),
        mode: NodeMode::EphemeralSequential,
    }
}

pub(super) fn made(path: &str) -> Said {
    let made = Created {
        path: path.to_owned(),
        czxid: Some(1),
    };
    Said::Multi(vec![NodeOpDone::Created(made)])
}

pub(super) fn delete(path: &str) -> Asked {
    let (path, version) = (path.to_owned(), None);
    Asked::Multi([NodeOp::Delete { path, version }].into())
}

pub(super) fn deleted() -> Said {
    Said::Multi(vec![NodeOpDone::Deleted])
}
