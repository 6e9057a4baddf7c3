//! A create that has no answer yet.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use uuid::Uuid;

use crate::names::node_name::LockKind;
use crate::names::owner::OwnerLabel;
use crate::store::nodes::{Created, Listing, MultiError};

/// What a node is for. A create is as good as another one that is for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    pub(crate) directory: Arc<str>,
    pub(crate) kind: LockKind,
    /// What its node contains instead of a record of its lock and owner.
    pub(crate) data: Option<Arc<[u8]>>,
    /// Whether it goes next to another node, and so is of use to one contender only.
    pub(crate) is_beside: bool,
}

/// A node that is being created.
#[derive(Clone, Debug)]
pub(crate) struct NodeInFlight {
    pub(crate) purpose: Purpose,
    pub(crate) uuid: Uuid,
    pub(crate) owner: Option<OwnerLabel>,
    pub(crate) data: Arc<[u8]>,
    /// The highest transaction number that was seen before.
    pub(crate) floor: i64,
}

/// The answer to a create, and to the listings that left with it.
pub(crate) struct Answer {
    pub(crate) created: Result<Vec<Created>, MultiError>,
    /// For each node; `None` if its directory was not listed.
    pub(crate) listings: Vec<Option<Listing>>,
}

/// A create of nodes, all or none, in flight with the listings of their directories. Whoever awaits
/// it may pass it on.
pub(crate) struct CreateInFlight {
    pub(crate) nodes: Vec<NodeInFlight>,
    /// The connection over which it is sent.
    pub(crate) connection: u64,
    /// Whether no earlier create with these uuids is of unknown outcome.
    pub(crate) is_first: bool,
    is_sent: bool,
    /// `None` while it is polled, and once it is over: if it panics, nobody polls it again.
    answer: Option<BoxFuture<'static, Answer>>,
}

impl CreateInFlight {
    /// A create that is sent when `answer` is polled for the first time.
    pub(crate) fn new(
        nodes: Vec<NodeInFlight>,
        connection: u64,
        is_first: bool,
        answer: BoxFuture<'static, Answer>,
    ) -> Self {
        Self {
            nodes,
            connection,
            is_first,
            is_sent: false,
            answer: Some(answer),
        }
    }

    /// Whether its answer tells all that there is to clean up.
    pub(crate) fn tells_all(&self) -> bool {
        self.is_sent && self.is_first && self.answer.is_some()
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        self.is_sent = true;
        let Some(mut answer) = self.answer.take() else {
            return Poll::Pending;
        };
        let polled = answer.poll_unpin(cx);
        if polled.is_pending() {
            self.answer = Some(answer);
        }
        polled
    }
}
