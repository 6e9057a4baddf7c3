//! Contenders of ours, of Curator's and made by hand in one queue. Everything that shows the queue
//! must show the order of the grants that follow.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::{LockKind, Session};
use recipes_multilock::{Member, MultiLock};
use serde_json::{Value, json};
use test_rig::{CuratorPeer, TestEnsemble};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

use super::browser::Browser;
use super::http::Events;
use super::page::{PATHS, QUEUES, button, serve};
use super::{Served, connect, start};
use crate::lockctl::{PATIENCE, lockctl, output};

const MUTEX: &str = "/locks/orders";
const SETTINGS: &str = "/locks/settings";
const BY_HAND: &str = "made by hand";

/// Long enough that a busy machine loses no session.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// How a node is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Ours,
    Curators,
    /// A script that lets the server number its node.
    Hand,
    /// A script that writes the next number itself.
    HandNumbered,
    /// A node of no contender, which is not ephemeral.
    Stranger,
}

use Maker::{Curators, Hand, HandNumbered, Ours, Stranger};

/// A contender: its lock, its kind, and how its node is made.
#[derive(Clone, Copy, Debug)]
struct Place {
    path: &'static str,
    /// The number that the server gives it, which counts created nodes.
    number: usize,
    maker: Maker,
    kind: LockKind,
}

/// The channels to and from a contender.
struct Hold {
    granted: mpsc::UnboundedSender<String>,
    go: oneshot::Receiver<()>,
}

impl Hold {
    async fn until_told(self, node: &str) {
        self.granted.send(node.to_owned()).unwrap();
        self.go.await.unwrap();
    }
}

/// All makers of nodes.
struct Stage {
    ensemble: TestEnsemble,
    ours: Session,
    curator: CuratorPeer,
    hand: Client,
}

impl Stage {
    async fn set_up() -> Arc<Self> {
        let ensemble = start().await;
        let connect = connect(&ensemble);
        let curator = CuratorPeer::start().await.unwrap();
        let opened = curator.open("c", &connect, SESSION_TIMEOUT).await;
        opened.unwrap();
        curator.mutex("mutex", "c", MUTEX).await.unwrap();
        let read_write = curator.read_write_lock("rw", "c", SETTINGS).await;
        read_write.unwrap();
        let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
        Arc::new(Self {
            ours: ensemble.session().await,
            hand: connector.connect(&connect).await.unwrap(),
            ensemble,
            curator,
        })
    }

    /// Contends, reports the node that was granted, and holds until it is notified to release.
    async fn contend(self: Arc<Self>, place: Place, hold: Hold) {
        match place.maker {
            Ours => self.contend_by_our_lock(place, hold).await,
            Curators => self.contend_by_curator(place, hold).await,
            Hand | HandNumbered | Stranger => self.contend_by_hand(place, hold).await,
        }
    }

    async fn contend_by_our_lock(&self, place: Place, hold: Hold) {
        let member = match place.kind {
            LockKind::Mutex => Member::mutex(place.path),
            LockKind::Read => Member::read(place.path),
            LockKind::Write => Member::write(place.path),
            kind @ (LockKind::Permit | LockKind::Latch) => unreachable!("no place is a {kind:?}"),
        };
        let lock = MultiLock::new(&self.ours, [member]).unwrap();
        let guard = lock.acquire().await.unwrap();
        hold.until_told(&guard.members()[0].node_path).await;
        guard.release().await.unwrap();
    }

    async fn contend_by_curator(&self, place: Place, hold: Hold) {
        let lock = match place.kind {
            LockKind::Mutex => "mutex",
            LockKind::Read => "rw.read",
            LockKind::Write => "rw.write",
            kind @ (LockKind::Permit | LockKind::Latch) => unreachable!("no place is a {kind:?}"),
        };
        let (curator, thread) = (&self.curator, format!("{} {}", place.path, place.number));
        assert!(curator.acquire(&thread, lock, None).await.unwrap());
        let node = curator.lock_path(&thread, lock).await.unwrap();
        hold.until_told(&node.unwrap()).await;
        curator.release(&thread, lock).await.unwrap();
    }

    async fn contend_by_hand(&self, place: Place, hold: Hold) {
        let node = self.create(place).await;
        if place.maker == Stranger {
            hold.go.await.unwrap();
        } else {
            self.until_granted(place, &node).await;
            hold.until_told(&node).await;
        }
        self.hand.delete(&node, None).await.unwrap();
    }

    /// Creates a node without any of our code.
    async fn create(&self, place: Place) -> String {
        let marker = match place.kind {
            LockKind::Mutex => "x-lock-",
            LockKind::Read => "x-__READ__",
            LockKind::Write => "x-__WRIT__",
            kind @ (LockKind::Permit | LockKind::Latch) => unreachable!("no place is a {kind:?}"),
        };
        let (mode, number) = match place.maker {
            Hand => (CreateMode::EphemeralSequential, String::new()),
            HandNumbered => (CreateMode::Ephemeral, format!("{:010}", place.number)),
            _ => (CreateMode::Persistent, format!("{:010}", place.number)),
        };
        let node = format!("{}/{marker}{number}", place.path);
        let open = mode.with_acls(Acls::anyone_all());
        let (_, sequence) = self
            .hand
            .create(&node, BY_HAND.as_bytes(), &open)
            .await
            .unwrap();
        match place.maker {
            Hand => format!("{node}{sequence}"),
            _ => node,
        }
    }

    /// Waits as a script would, by the numbers alone.
    async fn until_granted(&self, place: Place, node: &str) {
        loop {
            let listed = self.hand.list_and_watch_children(place.path).await;
            let (names, changed) = listed.unwrap();
            let is_in_the_way = |name: &String| {
                number(name) < number(node)
                    && (place.kind != LockKind::Read || name.contains("__WRIT__"))
            };
            if !names.iter().any(is_in_the_way) {
                return;
            }
            changed.changed().await;
        }
    }
}

fn number(name: &str) -> u32 {
    let (_, digits) = name.split_at(name.len() - 10);
    digits.parse().unwrap()
}

/// The contenders of one lock that have not released yet, in the order in which they came.
struct Queue {
    stage: Arc<Stage>,
    path: &'static str,
    granted: mpsc::UnboundedSender<String>,
    told: mpsc::UnboundedReceiver<String>,
    waiting: Vec<(String, Maker, oneshot::Sender<()>)>,
}

impl Queue {
    /// Starts them one after the other.
    async fn of(stage: &Arc<Stage>, path: &'static str, makers: &[(Maker, LockKind)]) -> Self {
        let (granted, told) = mpsc::unbounded_channel();
        let mut waiting: Vec<(String, _, _)> = Vec::new();
        for (number, &(maker, kind)) in makers.iter().enumerate() {
            let (goes, go) = oneshot::channel();
            let granted = granted.clone();
            let place = Place {
                path,
                number,
                maker,
                kind,
            };
            drop(tokio::spawn(
                Arc::clone(stage).contend(place, Hold { granted, go }),
            ));
            let names = stage.ensemble.await_children(path, number + 1).await;
            let mut nodes = names.into_iter().map(|name| format!("{path}/{name}"));
            let node = nodes.find(|node| waiting.iter().all(|(other, _, _)| other != node));
            waiting.push((node.unwrap(), maker, goes));
        }
        let stage = Arc::clone(stage);
        Self {
            stage,
            path,
            granted,
            told,
            waiting,
        }
    }

    /// Releases the first, again and again, and compares each grant with the contender that was
    /// shown.
    async fn drain(mut self, viewers: &mut Viewers) {
        let announced = viewers.look(self.path).await;
        let (mut order, mut holding) = (Vec::new(), BTreeSet::new());
        while !self.waiting.is_empty() {
            let shown = viewers.look(self.path).await;
            let holders = BTreeSet::from_iter(nodes(&shown, |it| it["standing"] == "holds"));
            let mut granted = Vec::new();
            while holding.len() < holders.len() {
                let node = timeout(PATIENCE, self.told.recv()).await;
                let node = node.expect("nobody is granted").unwrap();
                holding.insert(node.clone());
                granted.push(node);
            }
            assert_eq!(holding, holders, "{shown}");
            let more = self.told.try_recv();
            assert!(more.is_err(), "{more:?} is granted too: {shown}");
            // Readers that are granted together are granted in any order.
            granted.sort_by_key(|node| number(node));
            order.extend(granted);
            let (node, _, go) = self.waiting.remove(0);
            go.send(()).unwrap();
            let left = self.waiting.len();
            self.stage.ensemble.await_children(self.path, left).await;
            holding.remove(&node);
        }
        drop(self.granted);
        let more = timeout(PATIENCE, self.told.recv()).await;
        assert_eq!(more.expect("somebody does not end"), None);
        assert_eq!(order, nodes(&announced, |it| it["standing"] != "stranger"));
    }

    /// Checks that each contender is shown with its maker, in the order in which they came.
    async fn check_makers(&self, shown: &Value) {
        let session = self.stage.curator.session("c").await.unwrap();
        let hex = |id: i64| json!(format!("{id:#x}"));
        let contenders = shown["contenders"].as_array().unwrap();
        assert_eq!(contenders.len(), self.waiting.len(), "{shown}");
        for (contender, (node, maker, _)) in contenders.iter().zip(&self.waiting) {
            assert_eq!(contender["path"], json!(node), "{shown}");
            let (identity, data) = (&contender["identity"], &contender["data"]);
            match maker {
                Ours => assert_eq!(identity["pid"], json!(std::process::id())),
                Curators => {
                    let address = data.as_str().unwrap().parse::<IpAddr>();
                    assert!(address.is_ok() && identity.is_null(), "{contender}");
                    assert_eq!(contender["session"], hex(session));
                }
                Hand | HandNumbered | Stranger => {
                    assert_eq!((identity, data), (&Value::Null, &json!(BY_HAND)));
                    assert_eq!(contender["standing"] == "stranger", *maker == Stranger);
                }
            }
        }
    }
}

fn nodes(lock: &Value, of: impl Fn(&Value) -> bool) -> Vec<String> {
    let contenders = lock["contenders"].as_array().unwrap().iter();
    let nodes = contenders.filter(|it| of(it)).map(|it| &it["path"]);
    nodes.map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// Everything that shows locks.
struct Viewers {
    connect: String,
    served: Served,
    browser: Browser,
}

impl Viewers {
    async fn of(ensemble: &TestEnsemble) -> Self {
        let (served, browser) = serve(ensemble).await;
        let connect = connect(ensemble);
        Self {
            connect,
            served,
            browser,
        }
    }

    async fn printed(&self, arguments: &[&str]) -> Value {
        let arguments = [&["--json"], arguments].concat();
        let ran = output(lockctl(&self.connect, &arguments)).await;
        serde_json::from_slice(&ran.stdout).unwrap()
    }

    /// The output of `inspect` for a lock, which must agree with `ls`, the page's events and the
    /// page's open queue.
    async fn look(&mut self, path: &str) -> Value {
        let lock = self.printed(&["inspect", path]).await;
        let has_it = |list: &Value| list.as_array().unwrap().contains(&lock);
        let list = self.printed(&["ls"]).await;
        assert!(has_it(&list["locks"]), "{lock} is not in {list}");
        // The last scan may be from before. The next one reports what has changed.
        let mut events = Events::of(&self.served.address).await;
        events.until(|it| has_it(&it["changed"])).await;
        let contenders = lock["contenders"].as_array().unwrap().iter();
        let rows = contenders.map(|it| json!([it["standing"], it["path"]]));
        self.browser.shows(QUEUES, rows.collect()).await;
        lock
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_that_is_shown_is_the_order_of_the_grants_whoever_made_the_nodes() {
    use LockKind::{Mutex, Read, Write};
    let stage = Stage::set_up().await;
    let makers = [
        Ours,
        Curators,
        Hand,
        HandNumbered,
        Curators,
        Stranger,
        Ours,
        Hand,
        Stranger,
        Curators,
        Ours,
        HandNumbered,
        Ours,
    ];
    let orders = Queue::of(&stage, MUTEX, &makers.map(|it| (it, Mutex))).await;
    let makers = [
        (Curators, Read),
        (Ours, Read),
        (Hand, Read),
        (Ours, Write),
        (Curators, Write),
        (Hand, Write),
        (HandNumbered, Read),
        (Curators, Read),
        (Ours, Read),
        (HandNumbered, Write),
        (Ours, Read),
        (Curators, Write),
        (Ours, Write),
        (Hand, Read),
    ];
    let settings = Queue::of(&stage, SETTINGS, &makers).await;

    let mut viewers = Viewers::of(&stage.ensemble).await;
    let browser = &mut viewers.browser;
    browser.shows(&format!("{PATHS}.length"), json!(2)).await;
    for queue in [orders, settings] {
        viewers.browser.click(&button(queue.path)).await;
        let shown = viewers.look(queue.path).await;
        queue.check_makers(&shown).await;
        queue.drain(&mut viewers).await;
    }
    viewers.browser.close().await;
}
