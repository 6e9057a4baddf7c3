//! Which of several servers is connected to.

use std::time::Duration;

use futures::future;
use futures::stream::{FuturesUnordered, StreamExt};
use recipes_core::NodesError;
use tokio::time::timeout;

/// How long a server is tried alone before the next one is tried beside it: one whose machine is gone is silent. A
/// server that is far away, or on a busy machine, may take longer.
const HEAD_START: Duration = Duration::from_millis(700);

/// Tries servers until one can be used. The next is tried when one has failed, or has been silent for a while, and
/// whichever answers first is taken. Waits for silent servers without end.
///
/// # Errors
/// As the last of them if all have failed, or at once with an error that speaks for all of them.
pub async fn first_of<M, T, F>(
    servers: impl IntoIterator<Item = M>,
    try_server: impl Fn(M) -> F,
    speaks_for_all: fn(&NodesError) -> bool,
) -> Result<T, NodesError>
where
    F: Future<Output = Result<T, NodesError>>,
{
    let mut servers = servers.into_iter().peekable();
    let mut tries = FuturesUnordered::new();
    loop {
        tries.extend(servers.next().map(&try_server));
        let is_last = servers.peek().is_none();
        let wait = if is_last { Duration::MAX } else { HEAD_START };
        match timeout(wait, tries.next()).await {
            Ok(Some(Ok(connected))) => return Ok(connected),
            Ok(Some(Err(error))) if speaks_for_all(&error) => return Err(error),
            Ok(Some(Err(error))) if is_last && tries.is_empty() => return Err(error),
            Ok(Some(_)) | Err(_) => {}
            // There is none.
            Ok(None) => future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use tokio::time::{Instant, sleep};

    use super::*;

    /// What servers do, each after so many milliseconds.
    #[derive(Clone, Copy)]
    enum Does {
        Answers(u64),
        Fails(u64),
        Refuses(u64),
        Nothing,
    }
    use Does::{Answers, Fails, Nothing, Refuses};

    fn error(server: usize) -> Arc<io::Error> {
        Arc::new(io::Error::other(format!("server {server}")))
    }

    /// Which server is taken, or the error, and after how many milliseconds.
    async fn taken<const N: usize>(servers: [Does; N]) -> (Result<usize, String>, u128) {
        let begun = Instant::now();
        let tried = |server: usize| async move {
            let after = |millis| sleep(Duration::from_millis(millis));
            match servers[server] {
                Answers(millis) => after(millis).await,
                Nothing => future::pending().await,
                Fails(millis) => {
                    after(millis).await;
                    return Err(NodesError::Unknown(error(server)));
                }
                Refuses(millis) => {
                    after(millis).await;
                    return Err(NodesError::Refused(error(server)));
                }
            }
            Ok(server)
        };
        let refuses = |error: &NodesError| matches!(error, NodesError::Refused(_));
        let taken = match first_of(0..N, tried, refuses).await {
            Ok(server) => Ok(server),
            Err(NodesError::Unknown(error) | NodesError::Refused(error)) => Err(error.to_string()),
            Err(error) => panic!("{error:?}"),
        };
        (taken, begun.elapsed().as_millis())
    }

    fn failed(server: usize) -> Result<usize, String> {
        Err(format!("server {server}"))
    }

    /// Over a long road, with TLS, a session takes seconds to begin.
    #[tokio::test(start_paused = true)]
    async fn servers_that_are_slow_are_waited_for() {
        assert_eq!(taken([Answers(4_000)]).await, (Ok(0), 4_000));
        let all_slow = [Answers(4_000), Answers(2_000), Answers(5_000)];
        assert_eq!(taken(all_slow).await, (Ok(1), 2_700));
        assert_eq!(taken([Answers(1_000), Nothing]).await, (Ok(0), 1_000));
    }

    #[tokio::test(start_paused = true)]
    async fn next_is_tried_when_one_fails_or_is_silent() {
        assert_eq!(taken([Fails(5), Answers(5)]).await, (Ok(1), 10));
        assert_eq!(taken([Nothing, Answers(5)]).await, (Ok(1), 705));
        assert_eq!(taken([Nothing, Fails(5), Answers(5)]).await, (Ok(2), 710));
        assert_eq!(taken([Fails(900), Answers(300)]).await, (Ok(1), 1_000));
    }

    #[tokio::test(start_paused = true)]
    async fn all_fail_or_one_refuses() {
        assert_eq!(taken([Fails(5), Fails(5)]).await, (failed(1), 10));
        assert_eq!(taken([Fails(900), Fails(5)]).await, (failed(0), 900));
        assert_eq!(taken([Refuses(5), Answers(5)]).await, (failed(0), 5));
        assert_eq!(
            taken([Nothing, Refuses(5), Answers(5)]).await,
            (failed(1), 705)
        );
    }
}
