//! Requests to a service, and its answers.

use std::error::Error;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The codes in the answer, in their order.
    pub(crate) fn orders(&self) -> Vec<Order> {
        match self.json() {
            Value::Array(orders) => orders.iter().map(Order::parse).collect(),
            order => vec![Order::parse(&order)],
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Http(Client<HttpConnector, Body>);

impl Http {
    pub(crate) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Sends a request. It fails if the service ended before it had answered.
    pub(crate) async fn send(&self, method: &str, uri: &str) -> Result<Answer, Box<dyn Error>> {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .body(Body::empty())?;
        let (parts, body) = self.0.request(request).await?.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await?;
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.into())?,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) number: usize,
    pub(crate) token: i64,
}

impl Order {
    pub(crate) fn parse(json: &Value) -> Self {
        let code = json["code"].as_str().unwrap();
        Self {
            number: code.strip_prefix("A-").unwrap().parse().unwrap(),
            token: json["token"].as_i64().unwrap(),
        }
    }
}
