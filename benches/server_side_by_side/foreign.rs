//! Sides in processes of their own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::counts;
use super::peer::Peer;
use super::side::Side;
use super::work::{Order, Place, Work};

/// A peer of `tests/peers` with its version, or the reason why it is left out.
#[derive(Clone)]
pub(crate) struct Program(Result<(Arc<Mutex<Peer>>, String), String>);

impl Program {
    /// Builds and starts it.
    pub(crate) async fn start(name: &str, run: impl FnOnce(&str) -> Command) -> Self {
        Self(Self::try_start(name, run).await)
    }

    async fn try_start(
        name: &str,
        run: impl FnOnce(&str) -> Command,
    ) -> Result<(Arc<Mutex<Peer>>, String), String> {
        let peers = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/peers");
        let built = Command::new(peers.join(name).join("build")).output().await;
        let built = built.map_err(|error| error.to_string())?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).trim().to_owned());
        }
        let built = String::from_utf8_lossy(&built.stdout);
        let mut peer = Peer::start(run(built.trim()))?;
        let version = peer.version().await?;
        Ok((Arc::new(Mutex::new(peer)), version))
    }

    /// The version, or why there is none.
    pub(crate) fn version(&self) -> String {
        match &self.0 {
            Ok((_, version)) => version.clone(),
            Err(reason) => format!("left out: {reason}"),
        }
    }

    /// One of its kinds of locks, as a side. Its column stays empty if it is left out.
    pub(crate) fn side(&self, name: &'static str, kind: Kind) -> Box<dyn Side> {
        Box::new(Foreign {
            name,
            kind,
            program: self.clone(),
        })
    }
}

/// One kind of the locks of a program.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// What the program calls it.
    pub(crate) name: &'static str,
    pub(crate) does: fn(Work) -> bool,
    /// After this it is as fast as it gets.
    pub(crate) warm_up: Duration,
}

impl Kind {
    /// Warm at once, and neither a set nor a pair.
    pub(crate) const fn single(name: &'static str) -> Self {
        Self {
            name,
            does: |work| {
                !work.is_a_queue()
                    && !matches!(
                        work,
                        Work::RoundTrip | Work::Set { .. } | Work::ReadWrite { .. }
                    )
            },
            warm_up: counts::LENGTH,
        }
    }
}

struct Foreign {
    name: &'static str,
    kind: Kind,
    program: Program,
}

impl Foreign {
    async fn work(&mut self, work: Work, place: &Place) -> Vec<u64> {
        let order = Order(self.kind.name, work, place).to_string();
        let (peer, _) = self.program.0.as_ref().expect("it is left out");
        let performed = peer.lock().await.perform(&order).await;
        performed.unwrap_or_else(|error| panic!("{order}: {error}"))
    }

    async fn end(self) {
        let peer = self.program.0.ok();
        // The last of its sides ends the process.
        let last = peer.and_then(|(peer, _)| Arc::into_inner(peer));
        if let Some(peer) = last {
            peer.into_inner().close().await;
        }
    }
}

impl Side for Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    fn does(&self, work: Work) -> bool {
        self.program.0.is_ok() && (self.kind.does)(work)
    }

    fn warm_up(&self) -> Duration {
        self.kind.warm_up
    }

    fn perform<'a>(&'a mut self, work: Work, place: &'a Place) -> LocalBoxFuture<'a, Vec<u64>> {
        Box::pin(self.work(work, place))
    }

    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.end())
    }
}
