//! One connection, for one caller at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use recipes_keeper::CallError;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::errors::Unexpected;

/// One connection, for one caller at a time, in the order in which they come.
pub(super) struct Line(Mutex<Inner>);

struct Inner {
    connection: Conn,
    /// A turn has begun. If it was dropped, nobody knows what comes next over the connection.
    is_busy: bool,
    used: Instant,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

/// The right to use the connection.
pub(super) struct Turn<'a>(MutexGuard<'a, Inner>);

impl Line {
    pub(super) fn new(connection: Conn) -> Self {
        Self(Mutex::new(Inner {
            connection,
            is_busy: false,
            used: Instant::now(),
        }))
    }

    /// Waits for its turn.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, CallError> {
        Turn::begin(self.0.lock().await)
    }

    /// Asks the server whether it is there, if nothing was asked for so long and nothing is now.
    pub(super) async fn ping(&self, idle: Duration) -> Result<(), CallError> {
        let Ok(inner) = self.0.try_lock() else {
            return Ok(());
        };
        if inner.used.elapsed() < idle {
            return Ok(());
        }
        let mut turn = Turn::begin(inner)?;
        let pinged: Result<(), Error> = turn.connection().ping().await;
        turn.end();
        pinged.map_err(|error| CallError::Lost(Arc::new(error)))
    }
}

impl<'a> Turn<'a> {
    fn begin(mut inner: MutexGuard<'a, Inner>) -> Result<Self, CallError> {
        if inner.is_busy {
            return Err(CallError::Lost(Arc::new(Unexpected::GivenUp)));
        }
        inner.is_busy = true;
        Ok(Self(inner))
    }

    pub(super) fn connection(&mut self) -> &mut Conn {
        &mut self.0.connection
    }

    /// All that was asked is answered.
    pub(super) fn end(mut self) {
        self.0.is_busy = false;
        self.0.used = Instant::now();
    }
}
