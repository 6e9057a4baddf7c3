//! The cost of an operation in requests, which does not depend on the machine.

use std::time::Duration;

use test_rig::{Direction, Frame, Opcode};

use super::plan::Case;
use super::record::operations;
use super::side::Kind;
use super::stage::{Stage, Way};

/// Long enough for hundreds of operations.
pub(crate) const LENGTH: Duration = Duration::from_millis(300);

/// What each operation of one case costs a side, on average.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) case: String,
    pub(crate) side: Kind,
    pub(crate) operations: u64,
    pub(crate) requests: f64,
    pub(crate) transactions: f64,
    pub(crate) notifications: f64,
    pub(crate) bytes: f64,
}

/// Counts from when it is started.
pub(crate) struct Counter<'a> {
    stage: &'a Stage,
    zxid: i64,
}

impl<'a> Counter<'a> {
    pub(crate) async fn start(stage: &'a Stage) -> Self {
        stage.noted().await;
        stage.counting.clear_log();
        let zxid = stage.server.zxid().await.unwrap();
        Self { stage, zxid }
    }

    pub(crate) async fn end(self, case: &Case, side: Kind, figures: &[u64]) -> Counts {
        self.stage.noted().await;
        let transactions = self.stage.server.zxid().await.unwrap() - self.zxid;
        let frames = self.stage.counting.log();
        let frames: Vec<_> = frames.iter().filter(|frame| !is_alive(frame)).collect();
        let operations = operations(case.work, figures);
        let each = |total: usize| total as f64 / operations as f64;
        let count = |counts: &dyn Fn(&Frame) -> bool| {
            let counted = frames.iter().filter(|frame| counts(frame));
            each(counted.count())
        };
        Counts {
            case: case.name.clone(),
            side,
            operations,
            requests: count(&|frame| frame.direction == Direction::ToServer),
            transactions: transactions as f64 / operations as f64,
            notifications: count(&|frame| frame.opcode == Opcode::Notification),
            bytes: each(frames.iter().map(|frame| frame.bytes).sum()),
        }
    }
}

/// Whether a frame only opens, keeps or closes a session: a ping, a connect, a close, or the `sync`
/// of this library's heartbeats.
fn is_alive(frame: &Frame) -> bool {
    match frame.opcode {
        Opcode::Ping | Opcode::Connect | Opcode::CloseSession => true,
        Opcode::Sync => frame.paths.iter().all(|path| path == "/"),
        _ => false,
    }
}

pub(crate) const WAY: Way = Way::Counted;
