//! The frames that a proxy has dealt with.

use std::sync::Mutex;

use tokio::sync::watch;

use super::frame::Frame;
use super::lock;
use super::rule::Pattern;

#[derive(Debug, Default)]
pub(super) struct Journal {
    frames: Mutex<Vec<Frame>>,
    changed: watch::Sender<()>,
}

impl Journal {
    pub(super) fn add(&self, frame: Frame) {
        lock(&self.frames).push(frame);
        self.changed.send_replace(());
    }

    pub(super) fn frames(&self) -> Vec<Frame> {
        lock(&self.frames).clone()
    }

    pub(super) fn clear(&self) {
        lock(&self.frames).clear();
    }

    pub(super) fn count(&self, pattern: &Pattern) -> usize {
        lock(&self.frames)
            .iter()
            .filter(|frame| pattern.matches(frame))
            .count()
    }

    /// Waits for the n-th matching frame, counted from 1.
    pub(super) async fn nth(&self, pattern: &Pattern, n: usize) -> Frame {
        let mut changed = self.changed.subscribe();
        loop {
            let found = lock(&self.frames)
                .iter()
                .filter(|frame| pattern.matches(frame))
                .nth(n.saturating_sub(1))
                .cloned();
            if let Some(frame) = found {
                return frame;
            }
            // The sender is ours, so waiting does not fail. The loop ends with the frame.
            drop(changed.changed().await);
        }
    }
}
