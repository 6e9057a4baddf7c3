//! Creates that were given up before their answer.
//!
//! What is given up must not cost more than what is done: a store that stands still for a while
//! would otherwise find a create, a listing and a search of each acquire that was given up
//! meanwhile. So the next acquire for the same adopts such a create instead of sending another, and
//! a session has no more of them unanswered than it ever had acquires at a time.
//!
//! | state | who awaits the answer | leaves to |
//! |---|---|---|
//! | wanted | its attempt | abandoned, over |
//! | abandoned | the clean-up, which deletes what was made | adopted, over |
//! | adopted | the attempt of another acquire, which has the node then | abandoned, over |
//!
//! It has one owner in each state, and changes it under a mutex.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Notify;

use crate::session::create_in_flight::{Answer, CreateInFlight, Purpose};
use crate::sync::{Mutex, lock};

/// The abandoned creates of a session that others can adopt, by the directory of the first node.
#[derive(Clone, Default)]
pub(super) struct Abandoned(Arc<Mutex<BTreeMap<Arc<str>, OldestFirst>>>);

type OldestFirst = VecDeque<Arc<Parked>>;

/// A create that the clean-up awaits, unless it is adopted.
pub(super) struct Parked {
    /// The number of its epoch.
    made_in: u64,
    purposes: Vec<Purpose>,
    create: Mutex<Option<CreateInFlight>>,
    adopted: Notify,
}

impl Abandoned {
    pub(super) fn park(&self, made_in: u64, create: CreateInFlight) -> Arc<Parked> {
        let purposes: Vec<_> = create.nodes.iter().map(|it| it.purpose.clone()).collect();
        let parked = Arc::new(Parked {
            made_in,
            purposes,
            create: Mutex::new(Some(create)),
            adopted: Notify::new(),
        });
        if let Some(directory) = parked.directory() {
            let mut all = lock(&self.0);
            let alike = all.entry(Arc::clone(directory)).or_default();
            alike.push_back(Arc::clone(&parked));
        }
        parked
    }

    /// Takes the oldest create of an epoch whose nodes are for the same, in the same order.
    pub(super) fn adopt(&self, epoch: u64, purposes: &[Purpose]) -> Option<CreateInFlight> {
        let directory = &purposes.first()?.directory;
        let mut all = lock(&self.0);
        let alike = all.get_mut(directory)?;
        // Ends with a create that has no answer yet, or with none.
        loop {
            let is_good = |it: &Arc<Parked>| it.made_in == epoch && it.purposes == purposes;
            let parked = alike.remove(alike.iter().position(is_good)?)?;
            if let Some(create) = lock(&parked.create).take() {
                parked.adopted.notify_one();
                return Some(create);
            }
        }
    }

    /// Waits for the answer, with which the create is over; `None` if it is adopted before.
    pub(super) async fn answer(&self, parked: &Arc<Parked>) -> Option<Answer> {
        let answered = poll_fn(|cx| {
            let mut create = lock(&parked.create);
            let Some(awaited) = &mut *create else {
                return Poll::Ready(None);
            };
            awaited.poll(cx).map(|answer| {
                let over = create.take();
                drop(create);
                // Not under the mutex, because it may be the last to use the store's session.
                drop(over);
                Some(answer)
            })
        });
        let answer = tokio::select! {
            biased;
            answer = answered => answer,
            () = parked.adopted.notified() => None,
        };
        self.forget(parked);
        answer
    }

    /// Gives up waiting for the answer.
    pub(super) fn forget(&self, parked: &Arc<Parked>) {
        if let Some(directory) = parked.directory() {
            let mut all = lock(&self.0);
            if let Some(alike) = all.get_mut(directory) {
                alike.retain(|it| !Arc::ptr_eq(it, parked));
                if alike.is_empty() {
                    all.remove(directory);
                }
            }
        }
        let create = lock(&parked.create).take();
        drop(create);
    }
}

impl Parked {
    /// The directory of the first node, if others can adopt it.
    fn directory(&self) -> Option<&Arc<str>> {
        let is_for_one = self.purposes.iter().any(|it| it.is_beside);
        let first = self.purposes.first().filter(|_| !is_for_one);
        first.map(|it| &it.directory)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future;
    use uuid::Uuid;

    use super::*;
    use crate::names::node_name::LockKind;
    use crate::session::create_in_flight::NodeInFlight;

    fn purpose(is_beside: bool) -> Purpose {
        Purpose {
            directory: "/a".into(),
            kind: LockKind::Mutex,
            data: None,
            is_beside,
        }
    }

    /// A create of a node for this, which is answered or not.
    fn create(purpose: Purpose, is_answered: bool) -> CreateInFlight {
        let node = NodeInFlight {
            purpose,
            uuid: Uuid::from_u128(1),
            owner: None,
            data: Arc::default(),
            floor: 0,
        };
        let answer = async move {
            match is_answered {
                true => Answer {
                    created: Ok(Vec::new()),
                    listings: Vec::new(),
                },
                false => future::pending().await,
            }
        };
        CreateInFlight::new(vec![node], 1, true, answer.boxed())
    }

    /// What the server has made for the session before is not granted in the next.
    #[test]
    fn create_of_another_session_is_not_adopted() {
        let abandoned = Abandoned::default();
        abandoned.park(1, create(purpose(false), false));
        assert!(abandoned.adopt(2, &[purpose(false)]).is_none());
        assert!(abandoned.adopt(1, &[purpose(false)]).is_some());
        assert!(abandoned.adopt(1, &[purpose(false)]).is_none());
    }

    #[test]
    fn create_beside_another_node_is_of_no_use_to_others() {
        let abandoned = Abandoned::default();
        abandoned.park(1, create(purpose(true), false));
        assert!(abandoned.adopt(1, &[purpose(true)]).is_none());
    }

    #[test]
    fn nothing_is_kept_of_what_is_over() {
        let abandoned = Abandoned::default();
        let park = |is_answered| abandoned.park(1, create(purpose(false), is_answered));
        let kept = || {
            lock(&abandoned.0)
                .values()
                .map(VecDeque::len)
                .sum::<usize>()
        };
        let (over, given_up) = (park(true), park(false));
        assert_eq!(kept(), 2);
        let answered = abandoned.answer(&over).now_or_never();
        assert!(answered.flatten().is_some());
        assert_eq!(kept(), 1);
        abandoned.forget(&given_up);
        assert!(lock(&abandoned.0).is_empty());
        assert!(lock(&given_up.create).is_none());
    }
}
