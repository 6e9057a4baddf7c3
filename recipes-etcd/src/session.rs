//! The lease of a session, its key, and what they prove.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{
    Client, Error, KeyValue, LeaseKeepAliveStream, LeaseKeeper, Txn, TxnOpResponse, TxnResponse,
};
use recipes_keeper::{CallError, Caller, Moment};

use crate::answers::by;
use crate::lease::{KeptAlive, Lease};
use crate::refusals::{Failed, call_error, failed};
use crate::words;

/// How long the lease of a session lives, in seconds: a quarter longer than its timeout. An answer is believed if the
/// lease outlives the timeout after its request, so a keep-alive that counts may be a quarter old.
pub(crate) fn ttl(timeout: Duration) -> i64 {
    let seconds = (timeout * 5 / 4).as_millis().div_ceil(1_000);
    i64::try_from(seconds).unwrap_or(i64::MAX).max(1)
}

/// A session over one connection.
pub(crate) struct Kept {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) number: u64,
    timeout: Duration,
    lease: Mutex<Lease>,
    stream: tokio::sync::Mutex<Option<(LeaseKeeper, LeaseKeepAliveStream)>>,
}

impl Kept {
    /// One whose lease lives for so long after a keep-alive, such as that which was sent then.
    pub(crate) fn new(caller: &Caller, key: String, ttl: Duration, sent: Option<Moment>) -> Self {
        Self {
            id: caller.id,
            key,
            number: caller.connection,
            timeout: caller.timeout,
            lease: Mutex::new(Lease::new(ttl, sent)),
            stream: tokio::sync::Mutex::default(),
        }
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a transaction, whose answer the quorum stands behind. `None` if the session is over.
    pub(crate) async fn commit(
        &self,
        client: &Client,
        txn: Txn,
    ) -> Result<Option<(TxnResponse, i64)>, Failed> {
        let sent = Moment::now();
        let mut kv = client.kv_client().max_decoding_message_size(ANSWER_MAX);
        let done = kv.txn(txn).await.map_err(failed)?;
        let (said, revision) = by(done.header()).map_err(Failed::Lost)?;
        self.lease().committed(sent, said);
        if done.succeeded() {
            return Ok(Some((done, revision)));
        }
        match done.op_responses().first() {
            Some(TxnOpResponse::Get(got)) if got.kvs().is_empty() => Ok(None),
            Some(TxnOpResponse::Get(got)) if self.is_used_here(got.kvs()) => Err(Failed::Unmet),
            // It goes on over another connection.
            other => Err(Failed::Lost(CallError::unexpected(format!("{other:?}")))),
        }
    }

    fn is_used_here(&self, own: &[KeyValue]) -> bool {
        let number = words::connection(self.number);
        own.first()
            .is_some_and(|it| it.value() == number.as_bytes())
    }

    /// Keeps the lease alive, and has that proven. False if the session is over.
    pub(crate) async fn beat(&self, client: &Client) -> Result<bool, CallError> {
        let sent = Moment::now();
        let mut stream = self.stream.lock().await;
        loop {
            self.keep_alive(client, &mut stream).await?;
            let check = words::of_session(&self.key, self.number, Vec::new(), Vec::new());
            let checked = self.commit(client, check).await;
            if checked.or_else(Failed::or_over)?.is_none() {
                return Ok(false);
            }
            // Otherwise another leader has answered, or the lease is gone and its keys are not yet.
            if self.covers(sent) {
                return Ok(true);
            }
        }
    }

    /// Whether what was answered to a request that was sent then may be believed: the session lives for its timeout
    /// after that.
    pub(crate) fn covers(&self, sent: Moment) -> bool {
        self.lease().covers(sent, self.timeout)
    }

    async fn keep_alive(
        &self,
        client: &Client,
        stream: &mut Option<(LeaseKeeper, LeaseKeepAliveStream)>,
    ) -> Result<(), CallError> {
        // Whoever gives up leaves no stream: the next answer would be that to an earlier question.
        let (mut keeper, mut answers) = match stream.take() {
            Some(stream) => stream,
            None => match client.lease_client().keep_alive(self.id).await {
                Ok(stream) => stream,
                Err(Error::LeaseKeepAliveError(_)) => return Ok(()),
                Err(error) => return Err(call_error(error)),
            },
        };
        let sent = Moment::now();
        keeper.keep_alive().await.map_err(call_error)?;
        let response = answers.message().await.map_err(call_error)?;
        *stream = Some((keeper, answers));
        let response = response.ok_or_else(|| CallError::unexpected("the end of the beats"))?;
        if response.ttl() > 0 {
            let (by, _) = by(response.header())?;
            let answered = Moment::now();
            self.lease().kept_alive(KeptAlive { sent, answered, by });
        }
        Ok(())
    }
}

/// The largest answer: a listing with some hundred thousand contenders.
pub(crate) const ANSWER_MAX: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_lives_for_a_quarter_longer_than_the_timeout_in_whole_seconds() {
        for (millis, seconds) in [
            (100, 1),
            (800, 1),
            (1_000, 2),
            (4_000, 5),
            (6_000, 8),
            (12_000, 15),
        ] {
            assert_eq!(ttl(Duration::from_millis(millis)), seconds, "{millis}");
        }
        assert!(ttl(Duration::MAX / 8) > 1_000_000);
    }
}
