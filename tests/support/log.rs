//! Collects what is logged.

use std::io::{Result, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing_subscriber::fmt::MakeWriter;

/// The writer of a subscriber. Clones share the text.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// While there is one subscriber in the process, tracing-core (0.1.36, `Rebuilder::JustOne`) asks
/// only the thread that comes to a line of the program first whether anybody wants it, and remembers
/// the answer. If that is the thread of a test that collects nothing, no other test gets the line.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Collects what is logged on this thread from level info on, as long as the second value exists.
pub(crate) fn logging() -> (Log, DefaultGuard) {
    LazyLock::force(&SECOND);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false);
    let logging = tracing::subscriber::set_default(subscriber.finish());
    (log, logging)
}

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines that contain this.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(part));
        lines.map(str::to_owned).collect()
    }
}
