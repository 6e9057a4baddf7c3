//! One connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, StreamExt};
use recipes_core::NodesError;
use recipes_keeper::{Loss, LossSender};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error as PgError, Row, Statement};

use crate::bell::Bell;

use super::answers::refusal;

/// One connection. Dropping it closes it.
pub(super) struct Line {
    client: Client,
    /// Whether the server made the settings that came with the connection. A pooler drops them, and shares
    /// its connections with others, whose prepared statements may have the same names.
    is_direct: bool,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("is_direct", &self.is_direct)
            .finish_non_exhaustive()
    }
}

/// A statement with the types of its parameters.
pub(super) struct Call {
    text: String,
    types: Vec<Type>,
    prepared: Option<Statement>,
}

impl Call {
    pub(super) fn new(text: String, types: &[Type]) -> Self {
        Self {
            text,
            types: types.to_vec(),
            prepared: None,
        }
    }
}

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

impl Line {
    /// Connects, with settings unless the other end is known to refuse them.
    pub(super) async fn open(
        config: &Config,
        settings: &str,
        are_refused: &AtomicBool,
        bell: &Arc<Bell>,
        loss: &LossSender,
    ) -> Result<Self, NodesError> {
        let mut settled = config.clone();
        if !are_refused.load(Ordering::Relaxed) {
            let own = config.get_options().unwrap_or_default();
            settled.options(format!("{own} {settings}").trim());
        }
        let client = match connect(&settled, bell, loss).await {
            Err(error) if is_unsupported(&error) => {
                are_refused.store(true, Ordering::Relaxed);
                connect(config, bell, loss).await
            }
            connected => connected,
        };
        Ok(Self {
            client: client.map_err(refusal)?,
            is_direct: false,
        })
    }

    /// What the server has said about the settings.
    pub(super) fn settled(&mut self, is_direct: bool) {
        self.is_direct = is_direct;
    }

    /// Whether this is a connection of the server's own, and not one that a pooler lends.
    pub(super) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Makes a statement ready that is sent often.
    pub(super) async fn prepare(&self, call: &mut Call) -> Result<(), PgError> {
        if self.is_direct {
            let prepared = self.client.prepare_typed(&call.text, &call.types);
            call.prepared = Some(prepared.await?);
        }
        Ok(())
    }

    /// Asks for one row. It is sent at the first poll.
    pub(super) async fn one(&self, call: &Call, said: &[Parameter<'_>]) -> Result<Row, PgError> {
        if let Some(prepared) = &call.prepared {
            return self.client.query_one(prepared, said).await;
        }
        let typed: Vec<_> = said
            .iter()
            .copied()
            .zip(call.types.iter().cloned())
            .collect();
        self.client.query_typed_one(&call.text, &typed).await
    }

    /// Carries out statements without parameters.
    pub(super) async fn run(&self, statements: &str) -> Result<(), PgError> {
        self.client.batch_execute(statements).await
    }
}

/// Whether the other end is a pooler that does not know this setting of a connection.
fn is_unsupported(error: &PgError) -> bool {
    let told = error.as_db_error();
    told.is_some_and(|it| {
        *it.code() == SqlState::PROTOCOL_VIOLATION || it.message().contains("startup parameter")
    })
}

async fn connect(config: &Config, bell: &Arc<Bell>, loss: &LossSender) -> Result<Client, PgError> {
    #[cfg(feature = "tls")]
    if config.get_ssl_mode() == tokio_postgres::config::SslMode::Require {
        let (client, connection) = config.connect(super::tls::Tls).await?;
        serve(connection, bell, loss);
        return Ok(client);
    }
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    serve(connection, bell, loss);
    Ok(client)
}

/// Reads the connection until it is over. It ends when the client is dropped.
fn serve<S, T>(mut connection: Connection<S, T>, bell: &Arc<Bell>, loss: &LossSender)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (bell, loss) = (Arc::clone(bell), Arc::clone(loss));
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(ring) = message {
                bell.signal(|it| it.rung.ring(ring.payload()));
            }
        }
        loss.send_if_modified(|loss| loss.replace(Loss::Connection).is_none());
    });
}
