//! The page, as a browser shows it.

use std::iter;
use std::time::Duration;

use futures::future::try_join_all;
use recipes_core::{LockGuard, LockOptions, Owner, Session};
use recipes_multilock::{Member, MultiLock};
use recipes_zookeeper::ZooKeeper;
use serde_json::{Value, json};
use test_rig::TestEnsemble;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode};

use super::browser::Browser;
use super::events::HOSTILE;
use super::{Served, connect, deadlock, lock, server, start};
use crate::lockctl::PATIENCE;

/// The page must be usable with this many locks.
const LOCKS: usize = 2000;

/// Locks in the order of their rows.
pub(crate) const PATHS: &str =
    "[...document.querySelectorAll('#locks button')].map(it => it.title)";

/// The first cell of the rows of open queues, and their lock.
pub(crate) const QUEUES: &str =
    "[...document.querySelectorAll('.queue tr')].map(it => [it.cells[0].innerText, it.title])";

/// Names in the graph, and whether they are marked.
const GRAPH: &str = "[...document.querySelectorAll('#graph g:has(rect)')].map(it => \
    [it.querySelector('title').textContent.split('\\n')[0], it.matches('.bad')]).sort()";

/// How many waits are drawn with a marked line, and how many with another.
const LINES: &str = "[true, false].map(bad => [...document.querySelectorAll('#graph path')].filter(it => \
    it.getAttribute('d').includes('Q') && it.matches('.bad') === bad).length)";

/// Boxes of the graph that are not within it, or overlap another box or a label.
const ASTRAY: &str = "(() => {
    const frame = document.getElementById('graph').getBoundingClientRect();
    const places = what => [...document.querySelectorAll('#graph ' + what)].map(it =>
        it.getBoundingClientRect());
    const boxes = places('rect'), labels = places('text.lock');
    const apart = (a, b) => a.right < b.left || b.right < a.left
        || a.bottom < b.top || b.bottom < a.top;
    return boxes.filter(it => it.width < 50 || it.height < 10
        || it.left < frame.left || it.right > frame.right
        || it.top < frame.top || it.bottom > frame.bottom
        || [...boxes, ...labels].some(other => other !== it && !apart(it, other)));
})()";

const MARKED: &str = "[...document.querySelectorAll('#locks .bad:not(:empty)')].map(it => \
    it.parentElement.querySelector('button').title)";

pub(crate) async fn serve(ensemble: &TestEnsemble) -> (Served, Browser) {
    let served = Served::start(&connect(ensemble), &[]).await;
    let browser = Browser::open(&served.address).await;
    (served, browser)
}

fn text(id: &str) -> String {
    format!("document.getElementById('{id}').textContent")
}

/// The button that opens the queue of a lock.
pub(crate) fn button(path: &str) -> String {
    format!(
        "[...document.querySelectorAll('#locks button')].find(it => it.title === {})",
        json!(path)
    )
}

/// The text of a cell in the row of a lock.
fn cell(path: &str, index: usize) -> String {
    format!("{}.closest('tr').cells[{index}].textContent", button(path))
}

const HOLDER: usize = 6;

fn with_purpose(session: &Session, path: &str, purpose: &str) -> MultiLock {
    let options = LockOptions::new().purpose(purpose).unwrap();
    MultiLock::new(session, [Member::mutex(path).options(options)]).unwrap()
}

async fn application(ensemble: &TestEnsemble, name: &str) -> Session {
    let options = ZooKeeper::builder().application(name);
    // Longer than any pause of a busy machine.
    let options = options.session_timeout(Duration::from_secs(40));
    ensemble.session_with(options).await
}

/// How the page names contenders of one of our applications.
fn named(application: &str) -> String {
    format!("{application} pid {}", std::process::id())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_is_shown_in_order_and_changes_as_the_lock_is_handed_on() {
    let path = "/locks/report";
    let ensemble = start().await;
    let purposes = ["first", "second", "third"];
    let mut queue: Vec<(String, JoinHandle<LockGuard>)> = Vec::new();
    for (index, purpose) in purposes.iter().enumerate() {
        let lock = with_purpose(&ensemble.session().await, path, purpose);
        let acquire = tokio::spawn(async move { lock.acquire().await.unwrap().into() });
        let names = ensemble.await_children(path, index + 1).await;
        let nodes = names.iter().map(|it| format!("{path}/{it}"));
        let known = |it: &String| queue.iter().any(|(node, _)| node == it);
        let node = nodes.into_iter().find(|it| !known(it)).unwrap();
        queue.push((node, acquire));
    }
    let (_served, mut browser) = serve(&ensemble).await;
    browser.shows(PATHS, json!([path])).await;
    browser.click(&button(path)).await;

    for purpose in purposes {
        let standings = ["holds"].into_iter().chain(iter::repeat("waits"));
        let rows = standings.zip(&queue);
        let rows = rows.map(|(standing, (node, _))| json!([standing, node]));
        browser.shows(QUEUES, rows.collect::<Value>()).await;
        let waiting = (queue.len() - 1).to_string();
        let totals = json!(format!("1 locks, 1 hold, {waiting} wait"));
        browser.has(&text("totals"), totals).await;
        browser.has(&cell(path, 3), json!(waiting)).await;
        let holder = browser.value(&cell(path, HOLDER)).await;
        let holder = holder.as_str().unwrap();
        assert!(holder.ends_with(&format!("“{purpose}”")), "{holder}");
        let (_, granted) = queue.remove(0);
        let guard = timeout(PATIENCE, granted).await.expect("not granted");
        guard.unwrap().release().await.unwrap();
    }
    browser.shows(PATHS, json!([])).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlock_is_drawn_and_marked_until_it_is_resolved() {
    let ensemble = start().await;
    let [baker, miller, buyer] = [
        application(&ensemble, "baker").await,
        application(&ensemble, "miller").await,
        application(&ensemble, "buyer").await,
    ];
    let _other = lock(&buyer, "/locks/bread").acquire().await.unwrap();
    let locks = ["/locks/oven-of-the-old-mill", "/locks/sacks-of-flour"];
    let held = deadlock(&ensemble, [&baker, &miller], locks).await;
    let [oven, sacks] = locks;
    let third = lock(&buyer, oven);
    tokio::spawn(async move { third.acquire().await.map(drop) });
    ensemble.await_children(oven, 3).await;

    let (_served, mut browser) = serve(&ensemble).await;
    let [baker, miller, buyer] = ["baker", "miller", "buyer"].map(named);
    let drawn = json!([[baker, true], [buyer, false], [miller, true]]);
    browser.shows(GRAPH, drawn).await;
    browser.has(LINES, json!([2, 1])).await;
    let told = format!("Deadlock 1 of 1: {miller} waits at {oven}, {baker} waits at {sacks}");
    browser.has(&text("deadlocks"), json!(told)).await;
    browser.has(MARKED, json!(locks)).await;
    let paths = [&locks[..], &["/locks/bread"]].concat();
    browser.has(PATHS, json!(paths)).await;
    let title = json!("⚠ deadlock · lockctl");
    browser.has("document.title", title).await;
    browser.has(ASTRAY, json!([])).await;

    let mut held = held.into_iter();
    held.next().unwrap().release().await.unwrap();
    let drawn = json!([[baker, false], [miller, false]]);
    browser.shows(GRAPH, drawn).await;
    browser.has(LINES, json!([0, 1])).await;
    browser.has(&text("deadlocks"), json!("")).await;
    browser.has(MARKED, json!([])).await;
    browser.has("document.title", json!("lockctl")).await;
    browser.close().await;
}

/// Nodes as Curator's, by which threads of a session are not told apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlock_that_rests_on_sessions_is_called_possible() {
    let ensemble = start().await;
    let of = |name: &str| ZooKeeper::builder().identity(name);
    let one = ensemble.session_with(of("one")).await;
    let two = ensemble.session_with(of("two")).await;
    let locks = ["/locks/a", "/locks/b"];
    let _held = deadlock(&ensemble, [&one, &two], locks).await;
    let (_served, mut browser) = serve(&ensemble).await;
    let waits = |who, at| format!("{who} waits at {at} (as far as sessions tell)");
    let (first, second) = (waits("two", locks[0]), waits("one", locks[1]));
    let told = format!("Possible deadlock 1 of 1: {first}, {second}");
    browser.shows(&text("deadlocks"), json!(told)).await;
    let title = json!("possible deadlock · lockctl");
    browser.has("document.title", title).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longer_deadlocks_are_drawn_beside_each_other() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let triangle = [
        "/a/first-of-three-locks",
        "/a/second-of-three-locks",
        "/a/third-of-three-locks",
    ];
    let _three = deadlock(&ensemble, [&session; 3], triangle).await;
    let _six = deadlock(
        &ensemble,
        [&session; 6],
        ["/b/1", "/b/2", "/b/3", "/b/4", "/b/5", "/b/6"],
    )
    .await;
    let (_served, mut browser) = serve(&ensemble).await;
    browser.shows(LINES, json!([9, 0])).await;
    browser.has(ASTRAY, json!([])).await;
    browser.close().await;
}

/// A quarter of them have a waiter, and one has three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_locks_are_shown_counted_and_found() {
    let path = |at: usize| format!("/locks/item-{at:04}");
    let ensemble = start().await;
    let session = ensemble.session().await;
    let acquires = (0..LOCKS).map(|at| {
        let lock = lock(&session, &path(at));
        async move { lock.acquire().owner(&Owner::new()).await }
    });
    let mut held = try_join_all(acquires).await.unwrap();
    let other = ensemble.session().await;
    for at in (0..LOCKS).step_by(4).chain([1200, 1200]) {
        let lock = lock(&other, &path(at));
        tokio::spawn(async move { lock.acquire().await.map(drop) });
    }
    ensemble.await_children(&path(1200), 4).await;
    ensemble.await_children(&path(LOCKS - 4), 2).await;

    let (_served, mut browser) = serve(&ensemble).await;
    let waiting = LOCKS / 4 + 2;
    let totals = |locks| json!(format!("{locks} locks, {locks} hold, {waiting} wait"));
    let drawn_ms = browser.shows(&text("totals"), totals(LOCKS)).await;
    println!("{LOCKS} locks are shown after {drawn_ms:.0} ms");
    let shown = format!("the 300 most contended of {LOCKS}; filter for others");
    browser.has(&text("shown"), json!(shown)).await;
    let others = (0..LOCKS).step_by(4).filter(|it| *it != 1200).take(299);
    let rows: Vec<_> = [1200].into_iter().chain(others).map(path).collect();
    browser.has(PATHS, json!(rows)).await;
    // As many as there is room for, each with another to which a line leads.
    browser.has(&format!("{GRAPH}.length"), json!(30)).await;
    browser.has(ASTRAY, json!([])).await;

    let found = path(LOCKS - 2);
    browser.click("document.getElementById('filter')").await;
    browser.write("ITEM-1998").await;
    browser.shows(PATHS, json!([found])).await;
    let shown = json!(format!("1 of {LOCKS}"));
    browser.has(&text("shown"), shown).await;
    browser.click(&button(&found)).await;
    let guard = held.remove(LOCKS - 2);
    let node = guard.members()[0].node_path.clone();
    browser.shows(QUEUES, json!([["holds", node]])).await;
    guard.release().await.unwrap();
    browser.shows(&text("totals"), totals(LOCKS - 1)).await;
    browser.has(PATHS, json!([])).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_viewer_is_at_outlives_news() {
    let path = "/locks/m";
    let ensemble = start().await;
    let session = ensemble.session().await;
    let held = lock(&session, path).acquire().await.unwrap();
    let node = &held.members()[0].node_path;
    let (_served, mut browser) = serve(&ensemble).await;
    browser.shows(PATHS, json!([path])).await;

    let at = browser.press(&button(path)).await;
    let _n = lock(&session, "/locks/n").acquire().await.unwrap();
    browser.shows(PATHS, json!([path, "/locks/n"])).await;
    browser.release(at).await;
    browser.shows(QUEUES, json!([["holds", node]])).await;

    let select =
        "getSelection().selectAllChildren(document.querySelector('.queue').rows[0].cells[3])";
    browser.value(select).await;
    let _b = lock(&session, "/locks/b").acquire().await.unwrap();
    let paths = json!(["/locks/b", path, "/locks/n"]);
    browser.shows(PATHS, paths).await;
    let selected = browser.value("getSelection().toString()").await;
    assert_eq!(selected, json!("lock-0000000000"));
    // The most contended lock comes first.
    let waiting = lock(&ensemble.session().await, path);
    tokio::spawn(async move { waiting.acquire().await.map(drop) });
    let paths = json!([path, "/locks/b", "/locks/n"]);
    browser.shows(PATHS, paths).await;
    let focused = "document.activeElement.title";
    browser.has(focused, json!(path)).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_needs_its_server_and_nobody_else() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let _held = deadlock(&ensemble, [&session; 2], ["/locks/a", "/locks/b"]).await;
    let (served, mut browser) = serve(&ensemble).await;
    browser.shows(MARKED, json!(["/locks/a", "/locks/b"])).await;
    browser.click(&button("/locks/a")).await;
    browser.until("document.querySelector('.queue')").await;
    let seen = browser.close().await;
    let asked = ["", "events"].map(|it| format!("http://{}/{it}", served.address));
    assert_eq!(seen.requests, asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_are_shown_as_text_and_run_nothing() {
    let tag = |it: &str| format!("<img src=x onerror=\"ran='{it}'\">'");
    let ensemble = start().await;
    let session = application(&ensemble, &tag("application")).await;
    let path = format!("/locks/{}", tag("path"));
    let _held = deadlock(&ensemble, [&session; 2], [&path, "/locks/other"]).await;
    let purpose = with_purpose(&session, "/locks/purpose", &tag("purpose"));
    let _purpose = purpose.acquire().await.unwrap();
    let data = ensemble
        .session_with(
            ZooKeeper::builder()
                .session_timeout(Duration::from_secs(40))
                .identity(HOSTILE),
        )
        .await;
    let _data = lock(&data, "/locks/data").acquire().await.unwrap();
    let operator = server(&ensemble).client_of_place().await;
    let node = format!("/locks/hand/{}-lock-", tag("node"));
    let open = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    ensemble.create("/locks/hand", b"").await;
    let hand = operator.create(&node, tag("hand").as_bytes(), &open);
    hand.await.unwrap();

    let (_served, mut browser) = serve(&ensemble).await;
    let rows = [
        &path,
        "/locks/other",
        "/locks/data",
        "/locks/hand",
        "/locks/purpose",
    ];
    browser.shows(PATHS, json!(rows)).await;
    for row in rows {
        browser.click(&button(row)).await;
    }
    browser.shows(&format!("{QUEUES}.length"), json!(7)).await;
    let name = named(&tag("application"));
    let told = format!("Deadlock 1 of 1: {name} waits at {path}, {name} waits at /locks/other");
    for (expression, shown) in [
        (text("deadlocks"), told),
        (format!("{GRAPH}[0][0]"), name),
        (format!("{}.textContent", button(&path)), path.clone()),
        (cell("/locks/data", HOLDER), HOSTILE.to_owned()),
        (cell("/locks/hand", HOLDER), tag("hand")),
    ] {
        browser.has(&expression, json!(shown)).await;
    }
    for shown in [tag("purpose"), tag("node"), tag("hand")] {
        let is_there = format!("{}.includes({})", text("locks"), json!(shown));
        browser.has(&is_there, json!(true)).await;
    }
    let made = "[document.images.length, document.scripts.length, typeof ran]";
    browser.has(made, json!([0, 1, "undefined"])).await;
    browser.close().await;
}

/// They would show the text of one node in the place of another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direction_marks_are_shown_and_not_obeyed() {
    let ensemble = start().await;
    let marks = "a\u{202e}b\u{2066}c\u{200f}d\u{61c}e";
    let shown = r"a\u202eb\u2066c\u200fd\u061ce";
    let session = application(&ensemble, marks).await;
    let path = format!("/locks/{marks}");
    let _held = with_purpose(&session, &path, marks)
        .acquire()
        .await
        .unwrap();
    let (_served, mut browser) = serve(&ensemble).await;
    let shown_path = format!("/locks/{shown}");
    browser.shows(PATHS, json!([shown_path])).await;
    browser.click(&button(&shown_path)).await;
    browser.shows(&format!("{QUEUES}.length"), json!(1)).await;
    let holder = format!("{shown} ");
    let begins = format!(
        "{}.startsWith({})",
        cell(&shown_path, HOLDER),
        json!(holder)
    );
    browser.has(&begins, json!(true)).await;
    let is_marked = "/[\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]/\
        .test(document.body.innerText + [...document.querySelectorAll('[title]')].map(it => it.title))";
    browser.has(is_marked, json!(false)).await;
    browser.close().await;
}
