//! The HTTP interface of the service: routes, answers and status codes.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lock_recipes::{Owner, Participant, SessionHealth};
use serde_json::{Value, json};
use tracing::{error, warn};

use crate::order_codes::{Order, OrderCodes, OrderError};

/// The largest batch. All other requests wait for a batch.
const BATCH_MAX: usize = 100;

/// Load balancers request the health and give up soon.
const HEALTH_PATIENCE: Duration = Duration::from_secs(1);

/// When rejected clients may retry, in seconds.
const RETRY_AFTER: &str = "1";

pub(crate) fn router(codes: Arc<OrderCodes>) -> Router {
    Router::new()
        .route("/orders", post(one))
        .route("/orders/batch/{count}", post(batch))
        .layer(from_fn(as_one_owner))
        .route("/health", get(health))
        .with_state(codes)
}

/// Makes each request an owner. Its functions re-enter the locks that it holds, while other
/// requests wait, in this process and in others.
async fn as_one_owner(request: Request, next: Next) -> Response {
    Owner::new().scope(next.run(request)).await
}

async fn one(State(codes): State<Arc<OrderCodes>>) -> Result<Json<Order>, OrderError> {
    codes.one().await.map(Json)
}

async fn batch(
    State(codes): State<Arc<OrderCodes>>,
    Path(count): Path<usize>,
) -> Result<Json<Vec<Order>>, Response> {
    if !(1..=BATCH_MAX).contains(&count) {
        let reason = format!("a batch has 1 to {BATCH_MAX} codes");
        return Err((StatusCode::BAD_REQUEST, reason).into_response());
    }
    let orders = codes.batch(count).await;
    orders.map(Json).map_err(IntoResponse::into_response)
}

async fn health(State(codes): State<Arc<OrderCodes>>) -> (StatusCode, Json<Value>) {
    let (session, epoch) = codes.session();
    let asked = tokio::time::timeout(HEALTH_PATIENCE, codes.participants()).await;
    // Without an answer both are null, and the state of the session shows the reason.
    let contenders = asked.ok().and_then(Result::ok);
    let holder = contenders.as_ref().and_then(|all| all.first());
    let waiting = contenders.as_ref().and_then(|all| all.get(1..));
    let answer = json!({
        "session": format!("{session:?}"),
        "epoch": epoch,
        "holder": holder.map(contender),
        "waiting": waiting.map(|all| all.iter().map(contender).collect::<Vec<_>>()),
    });
    let status = match session {
        SessionHealth::Connected => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(answer))
}

fn contender(participant: &Participant) -> Value {
    let identity = participant.identity();
    json!({
        "node": participant.path,
        "host": identity.as_ref().map(|it| &it.host),
        "pid": identity.as_ref().map(|it| it.pid),
    })
}

impl IntoResponse for OrderError {
    fn into_response(self) -> Response {
        let reason = self.to_string();
        let details = &self as &dyn StdError;
        match &self {
            Self::Broken(_) => {
                error!(error = details);
                (StatusCode::INTERNAL_SERVER_ERROR, reason).into_response()
            }
            Self::Busy(_) | Self::Outage(_) | Self::Lost(_) | Self::Closed => {
                warn!(error = details);
                let retry = [(header::RETRY_AFTER, RETRY_AFTER)];
                (StatusCode::SERVICE_UNAVAILABLE, retry, reason).into_response()
            }
        }
    }
}
