//! A candidate, as others see it.

use std::time::SystemTime;

use recipes_core::FencingToken;
use recipes_core::internal::Queued;

/// A candidate of an election, at the time when its node was read. Any client may have made it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The id that it campaigns with: its data as text, where bytes that are not UTF-8 are replaced.
    /// Curator's candidates without an id have an address or nothing here. A
    /// [request to resign](recipes_core::LockGuard::revocation_requested) takes the place of the id.
    pub id: String,
    /// The data of its node.
    pub data: Vec<u8>,
    /// The number of its term, which is known before the term begins:
    /// [`Leadership::fencing_token`](crate::Leadership::fencing_token).
    pub term: FencingToken,
    /// Whether no other candidate is ahead. It leads as soon as it knows.
    pub is_leader: bool,
    /// Full path of its node.
    pub node_path: String,
    /// The session of the store that owns the node.
    pub session_id: i64,
    /// When it became a candidate, by the store's clock.
    pub since: SystemTime,
}

impl Candidate {
    pub(crate) fn new(queued: Queued) -> Self {
        let participant = queued.participant;
        Self {
            id: String::from_utf8_lossy(&participant.data).into_owned(),
            data: participant.data,
            term: queued.token,
            is_leader: queued.is_first,
            node_path: participant.path,
            session_id: participant.session_id,
            since: participant.created_at,
        }
    }
}
