//! Clients that request codes at the same time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::client::{Http, Order};
use super::service::Service;

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(300);

/// How many codes the clients must get together, and those that they got.
pub(crate) struct Load {
    http: Http,
    urls: Vec<String>,
    /// Codes that were not requested yet.
    left: Mutex<usize>,
    answers: Mutex<Vec<Vec<Order>>>,
    /// Codes that were requested from a process that ended before it answered.
    pub(crate) died: Mutex<usize>,
    handed_out: watch::Sender<usize>,
}

impl Load {
    pub(crate) fn new<'a>(
        services: impl IntoIterator<Item = &'a Service>,
        codes: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            http: Http::new(),
            urls: services.into_iter().map(|it| it.url.clone()).collect(),
            left: Mutex::new(codes),
            answers: Mutex::default(),
            died: Mutex::default(),
            handed_out: watch::Sender::new(0),
        })
    }

    /// Starts clients that share the services evenly. They go on until all codes are handed out.
    pub(crate) fn start(self: &Arc<Self>, clients: usize) -> Vec<JoinHandle<()>> {
        let client = |number| tokio::spawn(Arc::clone(self).client(number));
        (0..clients).map(client).collect()
    }

    pub(crate) async fn has_handed_out(&self, codes: usize) {
        let mut handed_out = self.handed_out.subscribe();
        let enough = handed_out.wait_for(|sum| *sum >= codes);
        timeout(PATIENCE, enough).await.unwrap().unwrap();
    }

    async fn client(self: Arc<Self>, number: usize) {
        let mut service = number;
        for round in number.. {
            let count = self.claim(if round % 4 == 0 { 7 } else { 1 });
            if count == 0 {
                return;
            }
            let url = &self.urls[service % self.urls.len()];
            match self.ask(url, count).await {
                Some(orders) => {
                    assert_eq!(orders.len(), count);
                    self.answers.lock().unwrap().push(orders);
                    self.handed_out.send_modify(|sum| *sum += count);
                }
                None => {
                    *self.died.lock().unwrap() += count;
                    *self.left.lock().unwrap() += count;
                    service += 1;
                }
            }
        }
    }

    /// Takes up to this many of the remaining codes.
    fn claim(&self, count_max: usize) -> usize {
        let mut left = self.left.lock().unwrap();
        let count = count_max.min(*left);
        *left -= count;
        count
    }

    /// Requests codes until it gets some; `None` if the service ended.
    async fn ask(&self, url: &str, count: usize) -> Option<Vec<Order>> {
        let uri = match count {
            1 => format!("{url}/orders"),
            _ => format!("{url}/orders/batch/{count}"),
        };
        loop {
            let answer = self.http.send("POST", &uri).await.ok()?;
            if answer.status == StatusCode::OK {
                return Some(answer.orders());
            }
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
            let seconds = answer.headers["retry-after"]
                .to_str()
                .unwrap()
                .parse()
                .unwrap();
            sleep(Duration::from_secs(seconds)).await;
        }
    }

    /// The codes that were handed out, in order, each once.
    ///
    /// Also checks that each batch is contiguous and of one hold, and that each later hold has a
    /// higher token.
    pub(crate) fn checked(&self) -> Vec<usize> {
        let mut answers = self.answers.lock().unwrap().clone();
        answers.sort_by_key(|orders| orders[0].number);
        for orders in &answers {
            for pair in orders.windows(2) {
                assert_eq!(
                    pair[1].number,
                    pair[0].number + 1,
                    "broken batch: {orders:?}"
                );
                assert_eq!(pair[1].token, pair[0].token, "two holds: {orders:?}");
            }
        }
        for pair in answers.windows(2) {
            let (before, after) = (pair[0].last().unwrap(), pair[1][0]);
            assert!(before.number < after.number, "handed out twice: {pair:?}");
            assert!(before.token < after.token, "token does not rise: {pair:?}");
        }
        answers.iter().flatten().map(|order| order.number).collect()
    }
}
