//! Waits for futures of which there may be none.

use std::future::pending;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

/// The next output; never completes while there are no futures.
pub(crate) async fn next<T>(futures: &mut FuturesUnordered<BoxFuture<'static, T>>) -> T {
    match futures.next().await {
        Some(output) => output,
        None => pending().await,
    }
}

/// The output of a future, which is dropped then; never completes while there is none.
pub(crate) async fn output<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    let Some(running) = future.as_mut() else {
        return pending().await;
    };
    let output = running.await;
    *future = None;
    output
}
