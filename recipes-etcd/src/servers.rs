//! The members of a cluster, one of which is connected to at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use futures::future;
use futures::stream::{FuturesUnordered, StreamExt};
use recipes_core::NodesError;
use tokio::time::timeout;

use crate::refusals::refusal_of_session;

/// How long a member is tried alone before the next one is tried beside it: one without a quorum is silent. A member
/// that is far away, or on a busy machine, may take longer.
const HEAD_START: Duration = Duration::from_millis(700);

/// The members that a URL names.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// `http://host:port`
    pub(crate) members: Vec<String>,
    pub(crate) login: Option<(String, Secret)>,
    /// Where the next connection is tried first.
    pub(crate) next: Arc<AtomicUsize>,
}

/// A password, which is not shown.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Servers {
    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    /// The member that is tried first: the one after that of the last connection.
    pub(crate) fn first(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// This one was connected to.
    pub(crate) fn is_good(&self, member: usize) {
        self.next.store(member + 1, Ordering::Relaxed);
    }

    pub(crate) async fn client(&self, member: usize) -> Result<Client, NodesError> {
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some((user, Secret(password))) = &self.login {
            options = options.with_user(user, password);
        }
        let member = self
            .members
            .iter()
            .cycle()
            .nth(member % self.count().max(1));
        let member = member.map(String::as_str).unwrap_or_default();
        let client = Client::connect([member], Some(options)).await;
        client.map_err(refusal_of_session)
    }
}

/// Tries members until one can be used. The next is tried when one has failed, or has been silent for a while, and
/// whichever answers first is taken. Waits for silent members without end.
///
/// # Errors
/// As the last of them if all have failed, or at once if one refuses, as it speaks for all of them.
pub(crate) async fn first_of<T, F>(
    members: impl Iterator<Item = usize>,
    try_member: impl Fn(usize) -> F,
) -> Result<(usize, T), NodesError>
where
    F: Future<Output = Result<T, NodesError>>,
{
    let mut members = members.peekable();
    let mut tries = FuturesUnordered::new();
    loop {
        tries.extend(members.next().map(|member| {
            let tried = try_member(member);
            async move { (member, tried.await) }
        }));
        let is_last = members.peek().is_none();
        let wait = if is_last { Duration::MAX } else { HEAD_START };
        match timeout(wait, tries.next()).await {
            Ok(Some((member, Ok(connected)))) => return Ok((member, connected)),
            Ok(Some((_, Err(error @ NodesError::Refused(_))))) => return Err(error),
            Ok(Some((_, Err(error)))) if is_last && tries.is_empty() => return Err(error),
            Ok(Some(_)) | Err(_) => {}
            // There is none.
            Ok(None) => future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::time::{Instant, sleep};

    use super::*;

    /// What members do, each after so many milliseconds.
    #[derive(Clone, Copy)]
    enum Does {
        Answers(u64),
        Fails(u64),
        Refuses(u64),
        Nothing,
    }
    use Does::{Answers, Fails, Nothing, Refuses};

    fn error(member: usize) -> Arc<io::Error> {
        Arc::new(io::Error::other(format!("member {member}")))
    }

    /// Which member is taken, or the error, and after how many milliseconds.
    async fn taken<const N: usize>(members: [Does; N]) -> (Result<usize, String>, u128) {
        let begun = Instant::now();
        let first = first_of(0..N, |member| async move {
            let after = |millis| sleep(Duration::from_millis(millis));
            match members[member] {
                Answers(millis) => after(millis).await,
                Nothing => future::pending().await,
                Fails(millis) => {
                    after(millis).await;
                    return Err(NodesError::Unknown(error(member)));
                }
                Refuses(millis) => {
                    after(millis).await;
                    return Err(NodesError::Refused(error(member)));
                }
            }
            Ok(member)
        });
        let taken = match first.await {
            Ok((member, connected)) => {
                assert_eq!(member, connected);
                Ok(member)
            }
            Err(NodesError::Unknown(error) | NodesError::Refused(error)) => Err(error.to_string()),
            Err(error) => panic!("{error:?}"),
        };
        (taken, begun.elapsed().as_millis())
    }

    fn failed(member: usize) -> Result<usize, String> {
        Err(format!("member {member}"))
    }

    /// Over a long road, with TLS, a session takes seconds to begin.
    #[tokio::test(start_paused = true)]
    async fn members_that_are_slow_are_waited_for() {
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
