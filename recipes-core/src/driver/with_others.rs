//! Makes the attempt of an acquire, with the contenders of this process that share its node.

use std::sync::Arc;

use futures::FutureExt;

use crate::attempt::wait_loop;
use crate::driver::late::JoinedState;
use crate::error::AcquireError;
use crate::lock::lease::Lease;
use crate::lock::local_queue::{AttemptFuture, LocalQueue};
use crate::lock::session::Session;
use crate::lock::shared_reads::SharedReads;
use crate::lock::target::Target;
use crate::rules::acquire::{Outcome, Patience};
use crate::rules::delay::Progress;
use crate::sync::Mutex;

/// The queue of this process, for a single lock that has one. A set has nodes of its own, because it
/// must not wait for a turn while it holds a member.
fn local_queue(targets: &[Target]) -> Option<(&Target, &Arc<LocalQueue>)> {
    match targets {
        [target] => Some((target, target.lock.local_queue(target.kind)?)),
        _ => None,
    }
}

/// The readers of this process that a single reader may share a node with. One next to its owner's writer
/// has a node of its own.
fn shared_reads(targets: &[Target]) -> Option<(&Target, &Arc<SharedReads>)> {
    match targets {
        [target] if target.beside.is_none() => {
            Some((target, target.lock.shared_reads(target.kind)?))
        }
        _ => None,
    }
}

/// How the attempt for these stands, as far as this acquire makes it.
pub(crate) fn standing(targets: &[Target]) -> JoinedState {
    local_queue(targets).map_or_else(JoinedState::alone, |(_, queue)| {
        JoinedState::in_queue(queue)
    })
}

/// Makes an attempt for these locks: alone, in turn with the contenders of this process, or as one of its
/// readers.
pub(crate) async fn attempt(
    session: &Session,
    targets: &[Target],
    patience: Patience,
    standing: &JoinedState,
) -> Result<Outcome<Vec<Lease>>, AcquireError> {
    // From before a writer's node is made, so that no reader of the session gets ahead of it later.
    let _waits: Vec<_> = targets
        .iter()
        .filter_map(|it| it.lock.waits(it.kind))
        .collect();
    if let Some((target, reads)) = shared_reads(targets) {
        let target = of_several(target);
        return match patience {
            Patience::Wait => {
                let begin = |target, progress| begin(target, patience, progress);
                reads
                    .acquire(target, begin, |progress| standing.follow(progress))
                    .await
            }
            Patience::Try => match reads.try_join(&target).await {
                Some(lease) => Ok(Outcome::Granted(vec![lease])),
                None => wait_loop::acquire(session, targets, patience, &standing.noted()).await,
            },
        };
    }
    let Some((target, queue)) = local_queue(targets) else {
        return wait_loop::acquire(session, targets, patience, &standing.noted()).await;
    };
    let begin = |target: Target, patience| begin(target, patience, standing.noted());
    queue
        .acquire(of_several(target), patience, &standing.has_turn, begin)
        .await
}

/// The target of all that use its node: the node's record names no owner.
fn of_several(target: &Target) -> Target {
    let owner = None;
    Target {
        owner,
        ..target.clone()
    }
}

/// Begins an attempt that others may go on with.
fn begin(target: Target, patience: Patience, progress: Arc<Mutex<Progress>>) -> AttemptFuture {
    let session = target.lock.session.clone();
    async move { wait_loop::acquire(&session, &[target], patience, &progress).await }.boxed()
}
