//! The routes of the live page: the page, and the events that keep it up to date.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use futures::Stream;
use tokio::sync::watch;
use uuid::Uuid;

use crate::commands::serve::snapshot::Snapshot;
use crate::commands::serve::watcher::{Latest, Viewers};

const PAGE: &str = include_str!("page.html");

/// How often the page hears something, so that it soon knows when it hears nothing.
const BEAT: Duration = Duration::from_secs(1);

/// The placeholder in the page for the word that marks its own script and style.
const NONCE: &str = "{nonce}";

/// The routes. A request must name one of `names` as its host.
pub(crate) fn router(viewers: Viewers, names: Names) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .with_state(viewers)
        .layer(from_fn_with_state(Arc::new(names), refuse_other_names))
        .layer(from_fn(confine))
}

async fn page() -> Response {
    let nonce = Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let headers = [(header::CONTENT_SECURITY_POLICY, policy)];
    (headers, Html(PAGE.replace(NONCE, &nonce))).into_response()
}

async fn events(
    State(viewers): State<Viewers>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let told = (viewers.join(), None);
    let beat = KeepAlive::new()
        .interval(BEAT)
        .event(Event::default().event("beat").data("1"));
    Sse::new(futures::stream::unfold(told, next_event)).keep_alive(beat)
}

/// A viewer that reads slowly gets fewer events, each with all changes since the previous one.
async fn next_event(
    (mut latest, told): (watch::Receiver<Latest>, Option<Arc<Snapshot>>),
) -> Option<(
    Result<Event, Infallible>,
    (watch::Receiver<Latest>, Option<Arc<Snapshot>>),
)> {
    loop {
        latest.changed().await.ok()?;
        let Some(snapshot) = latest.borrow_and_update().clone() else {
            continue;
        };
        let news = serde_json::to_string(&snapshot.news_since(told.as_deref())).ok()?;
        let event = Event::default().data(news);
        return Some((Ok(event), (latest, Some(snapshot))));
    }
}

/// The host names under which this machine may be requested.
///
/// A page of another site can resolve its own name to this machine, and then has the same origin to
/// the browser. But the request names that site. It cannot do so with an address.
#[derive(Debug)]
pub(crate) struct Names {
    is_loopback: bool,
    hosts: Vec<String>,
}

impl Names {
    /// The names of a listener at this address, and other names that are known to lead to it.
    pub(crate) fn new(address: IpAddr, hosts: &[String]) -> Self {
        Self {
            is_loopback: address.is_loopback(),
            hosts: hosts.to_vec(),
        }
    }

    fn include(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
        let Some(authority) = host.and_then(|it| it.parse::<Authority>().ok()) else {
            return false;
        };
        let name = authority.host();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        match address.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || !self.is_loopback,
            Err(_) => {
                let hosts = self.hosts.iter().map(String::as_str);
                let mut names = hosts.chain(["localhost"]);
                names.any(|it| it.eq_ignore_ascii_case(name))
            }
        }
    }
}

async fn refuse_other_names(
    State(names): State<Arc<Names>>,
    request: Request,
    next: Next,
) -> Response {
    if !names.include(request.headers()) {
        let message = "this page is for addresses, localhost and names that --host allows\n";
        return (StatusCode::FORBIDDEN, message).into_response();
    }
    next.run(request).await
}

/// Forbids other sites and caches to use what is served here.
async fn confine(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let rules: [(HeaderName, &str); 5] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in rules {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use axum::http::header::{HOST, HeaderMap, HeaderValue};

    use super::{BEAT, Names, PAGE};

    /// The number after a text of the page.
    fn number_after(text: &str) -> u128 {
        let (_, rest) = PAGE.split_once(text).unwrap();
        let digits = rest.split(|it: char| !it.is_ascii_digit()).next();
        digits.unwrap().parse().unwrap()
    }

    /// A page that misses two beats says so at its next look at the clock.
    #[test]
    fn page_shows_within_three_seconds_that_nothing_comes() {
        let silence_ms = number_after("performance.now() - heardMs < ");
        let look_ms = number_after("say(part(\"trouble\"), gone);\n}, ");
        assert!(
            2 * BEAT.as_millis() < silence_ms,
            "one late beat is no outage"
        );
        assert!(silence_ms + look_ms < 3000, "{silence_ms} {look_ms}");
    }

    fn is_let_in(address: Ipv4Addr, host: &'static str) -> bool {
        let names = Names::new(IpAddr::V4(address), &["locks.example".to_owned()]);
        names.include(&HeaderMap::from_iter([(
            HOST,
            HeaderValue::from_static(host),
        )]))
    }

    #[test]
    fn names_of_this_machine_are_told_from_others() {
        for host in [
            "localhost",
            "LocalHost:80",
            "127.0.0.1:4000",
            "127.9.9.9",
            "[::1]:1",
            "locks.example",
            "Locks.Example:8080",
        ] {
            for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
                assert!(is_let_in(address, host), "{address} {host}");
            }
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "locks.example.evil.example",
            "evil@",
            "a b",
        ] {
            for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
                assert!(!is_let_in(address, host), "{address} {host}");
            }
        }
        let names = Names::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), &[]);
        assert!(!names.include(&HeaderMap::new()));
    }

    #[test]
    fn other_addresses_are_those_of_listeners_for_others() {
        for host in ["10.0.0.1", "0.0.0.0:80", "[::2]"] {
            assert!(!is_let_in(Ipv4Addr::LOCALHOST, host), "{host}");
            assert!(is_let_in(Ipv4Addr::UNSPECIFIED, host), "{host}");
        }
    }
}
