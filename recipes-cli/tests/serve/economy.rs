//! What the page costs the browser, and the ensemble.

use crate::page::serve;
use crate::start;

/// Whoever waits in a queue.
const CONTENDERS: usize = 2000;

/// A queue as long as that is news, and drawn; how often the page looks at the paths of its nodes.
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
