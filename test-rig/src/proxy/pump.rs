//! One direction of one connection: reads continuously, forwards when the time has come.
//!
//! Reading never waits for what is done with the bytes. Otherwise a sender would notice by its full
//! buffers that its frames are held, late or swallowed. So pieces wait in a queue, each with the
//! time at which it is due. That keeps their order and lets many frames be late together.

use std::sync::Mutex;
use std::time::Duration;

use async_io::Timer;
use futures::{FutureExt as _, future};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::frame::{Direction, Fate, Frame};
use super::lock;
use super::protocol::Conversation;
use super::rule::{Act, Cut, Fault};
use super::shared::{Flow, Shared};
use super::splitter::{Piece, Splitter};

/// The most that is read at once.
const READ_BYTES: usize = 16 << 10;

/// An entry of the queue.
enum Item {
    Piece(Piece),
    /// The sender has closed the connection in this way.
    End(Cut),
}

struct Queued {
    arrived: Instant,
    latency: Duration,
    item: Item,
}

pub(super) struct Pump<'a> {
    shared: &'a Shared,
    connection: u64,
    direction: Direction,
    conversation: &'a Mutex<Conversation>,
    flow: watch::Receiver<Flow>,
    /// A rule swallows this direction of this connection.
    swallows: bool,
    /// A black hole of the whole proxy has swallowed bytes.
    has_gap: bool,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        connection: u64,
        direction: Direction,
        conversation: &'a Mutex<Conversation>,
    ) -> Self {
        Self {
            shared,
            connection,
            direction,
            conversation,
            flow: shared.flow(direction).subscribe(),
            swallows: false,
            has_gap: false,
        }
    }

    /// Runs until this direction has ended. An error cuts both.
    pub(super) async fn run(self, from: ReadHalf<'_>, to: WriteHalf<'_>) -> Result<(), Cut> {
        let (queue, arrivals) = mpsc::unbounded_channel();
        let latency = self.shared.latency.subscribe();
        let splitter = Splitter::new(self.shared.protocol, self.direction);
        let read = read(from, splitter, latency, queue).map(Ok);
        future::try_join(read, self.hand_on(arrivals, to)).await?;
        Ok(())
    }

    async fn hand_on(
        mut self,
        mut arrivals: mpsc::UnboundedReceiver<Queued>,
        mut to: WriteHalf<'_>,
    ) -> Result<(), Cut> {
        loop {
            let queued = tokio::select! {
                biased;
                () = closed_gap(&mut self.flow, self.has_gap) => return Err(Cut::Reset),
                queued = arrivals.recv() => queued,
            };
            let Some(queued) = queued else { return Ok(()) };
            if !queued.latency.is_zero() {
                // Tokio's timers count in milliseconds, which is too coarse for the latency of a
                // network.
                Timer::at((queued.arrived + queued.latency).into_std()).await;
            }
            self.item(queued, &mut to).await?;
        }
    }

    async fn item(&mut self, queued: Queued, to: &mut WriteHalf<'_>) -> Result<(), Cut> {
        match queued.item {
            Item::Piece(Piece::Frame(bytes)) => self.frame(&bytes, queued.arrived, to).await,
            Item::Piece(Piece::Raw(bytes)) => {
                if self.may_pass().await? {
                    self.write(&bytes, to).await;
                }
                Ok(())
            }
            Item::End(_) if !self.may_pass().await? => Ok(()),
            Item::End(Cut::Reset) => Err(Cut::Reset),
            Item::End(Cut::Fin) => {
                // If the other end has closed already, its own direction reports that.
                drop(to.shutdown().await);
                Ok(())
            }
        }
    }

    async fn frame(
        &mut self,
        bytes: &[u8],
        arrived: Instant,
        to: &mut WriteHalf<'_>,
    ) -> Result<(), Cut> {
        let message = lock(self.conversation).message(self.direction, bytes);
        let way = (self.connection, self.direction);
        let mut frame = Frame::new(way, message, bytes.len(), arrived);
        let mut fault = None;
        match self.shared.rules.decide(&frame) {
            Some(Act::Hold(gate)) => gate.pass().await,
            Some(Act::Fault(chosen)) => fault = Some(chosen),
            None => {}
        }
        if let Some(Fault::Delay(delay)) = fault {
            tokio::time::sleep(delay).await;
        }
        self.swallows |= fault == Some(Fault::BlackHole);
        let refusal = match fault {
            Some(Fault::Refuse(code)) => self.shared.protocol.refusal(bytes, code),
            _ => None,
        };
        let bytes = refusal.as_deref().unwrap_or(bytes);
        let (end, cut) = match fault {
            _ if !self.may_pass().await? => (0, None),
            Some(Fault::Drop) => (0, None),
            Some(Fault::CutBefore(cut)) => (0, Some(cut)),
            Some(Fault::CutWithin(cut)) => (bytes.len() / 2, Some(cut)),
            Some(Fault::CutAfter(cut)) => (bytes.len(), Some(cut)),
            _ => (bytes.len(), None),
        };
        let part = bytes.get(..end).unwrap_or(bytes);
        match fault {
            Some(Fault::Split { bytes, pause }) => {
                for piece in part.chunks(bytes.max(1)) {
                    self.write(piece, to).await;
                    tokio::time::sleep(pause).await;
                }
            }
            _ => self.write(part, to).await,
        }
        frame.fate = match end {
            0 => Fate::Swallowed,
            end if end < bytes.len() => Fate::Halved,
            _ => Fate::Passed,
        };
        self.shared.journal.add(frame);
        cut.map_or(Ok(()), Err)
    }

    /// Waits while the proxy stalls. False if bytes are swallowed: nothing passes after a gap.
    async fn may_pass(&mut self) -> Result<bool, Cut> {
        let flow = self.flow.wait_for(|flow| *flow != Flow::Stalls).await;
        // An error means that the proxy was dropped, and this connection with it.
        let is_swallowed = flow.is_ok_and(|flow| *flow == Flow::Swallows);
        if self.has_gap && !is_swallowed {
            return Err(Cut::Reset);
        }
        self.has_gap = is_swallowed;
        Ok(!is_swallowed && !self.swallows)
    }

    async fn write(&mut self, bytes: &[u8], to: &mut WriteHalf<'_>) {
        // The other end has closed. Its own direction reports that, unless that is a black hole.
        self.swallows |= to.write_all(bytes).await.is_err();
    }
}

/// Completes when a black hole that has swallowed bytes is lifted: the connection must then be cut.
async fn closed_gap(flow: &mut watch::Receiver<Flow>, has_gap: bool) {
    if !has_gap || flow.wait_for(|flow| *flow == Flow::Passes).await.is_err() {
        future::pending::<()>().await;
    }
}

/// Reads to the end of one direction.
async fn read(
    mut from: ReadHalf<'_>,
    mut splitter: Splitter,
    latency: watch::Receiver<Duration>,
    queue: mpsc::UnboundedSender<Queued>,
) {
    let mut buffer = vec![0; READ_BYTES];
    let put = |item| {
        let queued = Queued {
            arrived: Instant::now(),
            latency: *latency.borrow(),
            item,
        };
        // The receiver is dropped once the connection is being cut.
        drop(queue.send(queued));
    };
    let end = loop {
        match from.read(&mut buffer).await {
            Ok(0) => break Cut::Fin,
            Ok(length) => splitter.push(buffer.get(..length).unwrap_or_default()),
            Err(_) => break Cut::Reset,
        }
        while let Some(piece) = splitter.next_piece() {
            put(Item::Piece(piece));
        }
    };
    splitter
        .rest()
        .into_iter()
        .for_each(|rest| put(Item::Piece(rest)));
    put(Item::End(end));
}
