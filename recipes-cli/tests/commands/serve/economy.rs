//! What the page costs the browser and the ensemble.

use serde_json::json;
use test_rig::{Direction, FaultProxy, Opcode};

use super::browser::Browser;
use super::lifecycle::settled;
use super::page::{PATHS, serve};
use super::{Served, connect, lock, start};

const CONTENDERS: usize = 2000;

/// Sends the news of such a long queue, waits until it is drawn, and counts how many times the page
/// reads the paths of its nodes.
const LOOKS: &str = "(async () => {
    let looks = 0;
    const contenders = Array.from({ length: CONTENDERS }, (_, at) => ({
        get path() { looks++; return `/queue/${at}`; },
        standing: at ? 'waits' : 'holds', mode: 'mutex', waits_for: at ? [`/queue/${at - 1}`] : [],
        session: `0x${at}`, created_ms: 0, revocation_requested: false, readable: true, data: null,
        identity: { host: 'h', pid: at, application: 'a', owner: `o${at}`, purpose: null },
    }));
    const party = at => ({ owner: `o${at}`, session: `0x${at}` });
    const waits = contenders.slice(1).map((_, at) => ({
        lock: '/queue', waiter: party(at + 1), holder: party(at), basis: 'owner',
        waiting_node: `/queue/${at + 1}`, holding_node: `/queue/${at}`,
    }));
    read({
        root: '/', full: false, seen_ms: Date.now(), trouble: null, gone: [],
        changed: [{ path: '/queue', recipe: 'mutex', contenders }],
        deadlocks: { cycles: [], waits, unreadable: [] },
    });
    // What is drawn is drawn before.
    await new Promise(requestAnimationFrame);
    return looks;
})()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_queue_is_looked_through_once_and_not_for_each_of_its_nodes() {
    let ensemble = start().await;
    let (_served, mut browser) = serve(&ensemble).await;
    browser.until("seen !== null").await;
    let looks = LOOKS.replace("CONTENDERS", &CONTENDERS.to_string());
    let looks = browser.value(&looks).await.as_u64().unwrap();
    println!("{CONTENDERS} contenders: {looks} looks");
    browser.has("part('graph-part').hidden", false.into()).await;
    assert!(looks < 20 * CONTENDERS as u64, "{looks}");
    browser.close().await;
}

/// Makes the page believe that it is visible, or hidden.
async fn set_hidden(browser: &mut Browser, is_hidden: bool) {
    let event = "document.dispatchEvent(new Event('visibilitychange'))";
    let hidden = format!("{{ value: {is_hidden}, configurable: true }}");
    let set = format!("Object.defineProperty(document, 'hidden', {hidden}); {event}");
    browser.value(&set).await;
}

/// Each scan begins with a `sync`, and nothing else here sends one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_page_asks_nothing_of_the_ensemble_until_it_is_seen_again() {
    let ensemble = start().await;
    let proxy = FaultProxy::start(&connect(&ensemble)).await.unwrap();
    let scans = || proxy.on(Direction::ToServer).opcode(Opcode::Sync).count();
    let served = Served::start(&proxy.connect_string(), &[]).await;
    let mut browser = Browser::open(&served.address).await;
    browser.until("seen !== null").await;

    set_hidden(&mut browser, true).await;
    settled(&ensemble, scans).await;
    let session = ensemble.session().await;
    let _held = lock(&session, "/locks/a").acquire().await.unwrap();
    browser.shows(PATHS, json!([])).await;

    set_hidden(&mut browser, false).await;
    browser.shows(PATHS, json!(["/locks/a"])).await;
    // A page that is already visible does not request the events again.
    set_hidden(&mut browser, false).await;
    let seen = browser.close().await;
    let listened = seen.requests.iter().filter(|it| it.ends_with("/events"));
    assert_eq!(listened.count(), 2);
}
