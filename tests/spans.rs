//! What a trace shows about a lock.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use lock_recipes::InterProcessMutex;
use test_rig::TestEnsemble;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Subscriber, subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

const PATH: &str = "/locks/orders";

#[derive(Clone, Debug, Default)]
struct Span {
    name: &'static str,
    parent: Option<&'static str>,
    follows: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
    /// How many spans had closed when this one did.
    closed: Option<usize>,
}

impl Visit for Span {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// The spans of this library, numbered as they begin.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<BTreeMap<u64, Span>>>);

impl Trace {
    fn spans(&self, name: &str) -> Vec<Span> {
        let spans = self.0.lock().unwrap();
        let named = spans.values().filter(|it| it.name == name);
        named.cloned().collect()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Trace {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut seen = Span {
            name: span.name(),
            parent: span.parent().map(|it| it.name()),
            ..Span::default()
        };
        attributes.record(&mut seen);
        let mut spans = self.0.lock().unwrap();
        // The registry reuses its ids.
        let key = spans.len() as u64;
        span.extensions_mut().insert(key);
        spans.insert(key, seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.change(id, &context, |span| values.record(span));
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, context: Context<'_, S>) {
        let follows = context.span(follows).map(|it| it.name());
        self.change(id, &context, |span| span.follows = follows);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let spans = self.0.lock().unwrap();
        let closed = spans.values().filter(|it| it.closed.is_some()).count();
        drop(spans);
        self.change(&id, &context, |span| span.closed = Some(closed));
    }
}

impl Trace {
    fn change<S: Subscriber + for<'a> LookupSpan<'a>>(
        &self,
        id: &Id,
        context: &Context<'_, S>,
        how: impl FnOnce(&mut Span),
    ) {
        let span = context.span(id).unwrap();
        let key = *span.extensions().get::<u64>().unwrap();
        how(self.0.lock().unwrap().get_mut(&key).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn trace_of_two_contenders_tells_who_waited_for_whom_and_how_long_each_held() {
    let trace = Trace::default();
    let filter =
        tracing_subscriber::filter::filter_fn(|it| it.target().starts_with("lock_recipes"));
    let registry = tracing_subscriber::registry().with(trace.clone().with_filter(filter));
    let _tracing = subscriber::set_default(registry);
    let ensemble = TestEnsemble::in_memory();
    let session = ensemble.session().await;
    let lock = InterProcessMutex::new(&session, PATH).unwrap();

    let first = lock.acquire().await.unwrap();
    let second = lock.clone();
    let second = tokio::spawn(second.acquire());
    ensemble.await_children(PATH, 2).await;
    let first_node = first.members().remove(0);
    let waits = async || trace.spans("wait").pop();
    let wait = ensemble.until("a wait", waits).await;
    assert_eq!(wait.closed, None);
    assert_eq!(trace.spans("hold").len(), 1);
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    let second_node = second.members().remove(0);

    let [acquired, waited_for] = <[Span; 2]>::try_from(trace.spans("acquire")).unwrap();
    for (acquire, node) in [(&acquired, &first_node), (&waited_for, &second_node)] {
        assert_eq!(acquire.fields["lock"], PATH);
        assert_eq!(acquire.fields["kind"], "mutex");
        assert_eq!(acquire.fields["outcome"], "granted");
        assert_eq!(acquire.fields["node"], node.node_path);
        assert_eq!(acquire.fields["token"], node.fencing_token.to_string());
        assert!(acquire.closed.is_some());
    }

    let [wait] = <[Span; 1]>::try_from(trace.spans("wait")).unwrap();
    assert_eq!(wait.parent, Some("acquire"));
    assert_eq!(wait.fields["lock"], PATH);
    assert!(second_node.node_path.ends_with(&wait.fields["node"]));
    assert!(first_node.node_path.ends_with(&wait.fields["predecessor"]));
    assert!(wait.closed < waited_for.closed, "{wait:?}, {waited_for:?}");

    // Both would keep their parent spans open.
    let [held, holds] = <[Span; 2]>::try_from(trace.spans("hold")).unwrap();
    for (hold, node) in [(&held, &first_node), (&holds, &second_node)] {
        assert_eq!((hold.parent, hold.follows), (None, Some("acquire")));
        assert_eq!(hold.fields["lock"], PATH);
        assert_eq!(hold.fields["node"], node.node_path);
        assert_eq!(hold.fields["token"], node.fencing_token.to_string());
    }
    assert_eq!(held.fields["end"], "released");
    assert!(held.closed.is_some());
    assert_eq!(holds.closed, None);

    let [release] = <[Span; 1]>::try_from(trace.spans("release")).unwrap();
    assert_eq!(release.fields["lock"], PATH);
    assert_eq!(release.fields["node"], first_node.node_path);
    assert_eq!(
        release.fields["token"],
        first_node.fencing_token.to_string()
    );
    assert!(release.closed.is_some());

    ensemble.delete(&second_node.node_path).await;
    second.lost().await;
    let [_, lost] = <[Span; 2]>::try_from(trace.spans("hold")).unwrap();
    assert_eq!(lost.fields["end"], "node_removed");
    assert!(lost.closed.is_some());
}
