use super::*;
use crate::scripted::{Asked, SECOND, Scripted, Sessions, T, failed, node, settle, unknown};
use crate::store::Store;
use crate::store::nodes::NodeMode;

struct Scene {
    nodes: Arc<Scripted>,
    ledger: Arc<Ledger>,
    witness: Arc<Witness>,
    start: Moment,
}

fn scene() -> Scene {
    let nodes = Scripted::new(Some(T));
    let store: Arc<dyn Store> = Sessions::of(&nodes, Duration::ZERO);
    let clock = Clock::new(&store);
    let start = clock.now();
    let ledger = Arc::new(Ledger {
        evidence: Mutex::new(Evidence::new(Some(T), false, start)),
        silence: Mutex::default(),
        clock,
        highest: Arc::default(),
        lapsed: Arc::default(),
    });
    let witness = Arc::new(Witness::new(
        Arc::clone(&nodes) as Arc<dyn Nodes>,
        Arc::clone(&ledger),
    ));
    Scene {
        nodes,
        ledger,
        witness,
        start,
    }
}

impl Scene {
    fn until(&self) -> Moment {
        lock(&self.ledger.evidence).until().unwrap()
    }

    /// Whether an answer that is good enough moved the deadline on as a commit does.
    fn is_committed(&self) -> bool {
        let (_, proof) = lock(&self.ledger.evidence).next_beat(self.start).unwrap();
        // Without one, the beat after four seconds of syncs is a commit.
        proof == Proof::Leader
    }
}

fn new_node() -> NewNode {
    NewNode {
        path: "/a".to_owned(),
        data: Arc::default(),
        mode: NodeMode::Ephemeral,
    }
}

/// The requests whose answer proves something.
const WRITES: [&str; 4] = ["create", "delete", "multi", "sync"];

fn send(witness: &Arc<Witness>, request: &str) -> tokio::task::JoinHandle<()> {
    let (witness, request) = (Arc::clone(witness), request.to_owned());
    tokio::spawn(async move {
        let node = new_node();
        match request.as_str() {
            "create" => drop(witness.create(&node).await),
            "delete" => drop(witness.delete("/a").await),
            "multi" => drop(witness.multi(Vec::new()).await),
            "sync" => drop(witness.sync("/").await),
            "list" => drop(witness.list("/").await),
            "list_all" => drop(witness.list_all(&["/", "/a"]).await),
            "read" => drop(witness.read("/").await),
            "stat" => drop(witness.stat("/").await),
            "watch" => drop(witness.watch("/").await),
            other => panic!("{other}"),
        }
    })
}

fn answer(asked: Asked, error: Option<NodesError>) {
    fn result<T>(good: T, error: Option<NodesError>) -> Result<T, NodesError> {
        error.map_or(Ok(good), Err)
    }
    let created = Created {
        path: "/a".to_owned(),
        czxid: Some(5),
    };
    match asked {
        Asked::Create(_, it) => drop(it.send(result(created, error))),
        Asked::Delete(_, it) => drop(it.send(result((), error))),
        Asked::List(_, it) => drop(it.send(result(Vec::new(), error))),
        Asked::Read(_, it) => drop(it.send(result(Some(node(1, b"")), error))),
        Asked::Stat(_, it) => drop(it.send(result(Some(node(1, b"").1), error))),
        Asked::Watch(_, it) => drop(it.send(result(None, error))),
        Asked::Sync(it) => drop(it.send(result((), error))),
        Asked::Multi(_, it) => drop(it.send(result(Vec::new(), error).map_err(failed))),
    }
}

#[tokio::test(start_paused = true)]
async fn answer_counts_from_before_its_request_was_sent() {
    for request in WRITES {
        let scene = scene();
        tokio::time::advance(SECOND).await;
        // The machine sleeps between the look at the clock and the wire.
        *lock(&scene.nodes.asleep_while_sending) = SECOND;
        let sent = send(&scene.witness, request);
        settle().await;
        tokio::time::advance(3 * SECOND).await;
        answer(scene.nodes.asked().unwrap(), None);
        sent.await.unwrap();
        assert_eq!(scene.until(), scene.start + SECOND + T / 2, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn write_is_proof_of_a_quorum_and_sync_of_a_leader() {
    for request in WRITES {
        let scene = scene();
        for _ in 0..2 {
            tokio::time::advance(2 * SECOND).await;
            let sent = send(&scene.witness, request);
            settle().await;
            answer(scene.nodes.asked().unwrap(), None);
            sent.await.unwrap();
        }
        assert_eq!(scene.is_committed(), request != "sync", "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn read_proves_nothing() {
    for request in ["list", "list_all", "read", "stat", "watch"] {
        let scene = scene();
        tokio::time::advance(SECOND).await;
        let sent = send(&scene.witness, request);
        settle().await;
        while let Some(asked) = scene.nodes.asked() {
            answer(asked, None);
        }
        sent.await.unwrap();
        assert_eq!(scene.until(), scene.start + T / 2, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_by_the_tree_was_committed_and_no_other_error_says_anything() {
    use NodesError as E;
    let cases = || {
        let because = || Arc::new(std::io::Error::other("for some reason"));
        [
            (E::NoNode, true),
            (E::NodeExists, true),
            (E::BadVersion, true),
            (E::NoAuth, true),
            (E::Unsupported, false),
            (E::Throttled, false),
            (E::Refused(because()), false),
            (unknown(), false),
            (E::SessionEnded, false),
        ]
    };
    for request in WRITES {
        for (error, is_committed) in cases() {
            let scene = scene();
            tokio::time::advance(SECOND).await;
            let sent = send(&scene.witness, request);
            settle().await;
            let case = format!("{request}: {error}");
            answer(scene.nodes.asked().unwrap(), Some(error));
            sent.await.unwrap();
            let counts = is_committed && request != "sync";
            let from = if counts { SECOND } else { Duration::ZERO };
            assert_eq!(scene.until(), scene.start + from + T / 2, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lapse_is_told_and_an_answer_in_time_is_none() {
    for (pause, is_late) in [(T / 2 - SECOND, false), (T / 2, true)] {
        let scene = scene();
        let sent = send(&scene.witness, "delete");
        settle().await;
        tokio::time::advance(pause).await;
        answer(scene.nodes.asked().unwrap(), None);
        sent.await.unwrap();
        let told = scene.ledger.lapsed.notified().now_or_never();
        assert_eq!(told.is_some(), is_late);
        let lapses = lock(&scene.ledger.evidence).lapses();
        assert_eq!(lapses, u64::from(is_late));
    }
}

#[tokio::test(start_paused = true)]
async fn highest_number_is_of_all_that_was_told() {
    let scene = scene();
    let highest = || scene.ledger.highest.get();
    let stat = |czxid, mzxid, pzxid| NodeStat {
        pzxid,
        ..NodeStat::new(czxid, mzxid, 0, 0, 0)
    };
    let read = send(&scene.witness, "read");
    settle().await;
    match scene.nodes.asked().unwrap() {
        Asked::Read(_, it) => it.send(Ok(Some((Vec::new(), stat(1, 9, 3))))).unwrap(),
        other => panic!("{other:?}"),
    }
    read.await.unwrap();
    assert_eq!(highest(), 9);
    let stated = send(&scene.witness, "stat");
    settle().await;
    match scene.nodes.asked().unwrap() {
        Asked::Stat(_, it) => it.send(Ok(Some(stat(1, 2, 11)))).unwrap(),
        other => panic!("{other:?}"),
    }
    stated.await.unwrap();
    assert_eq!(highest(), 11);
    let watched = send(&scene.witness, "watch");
    settle().await;
    match scene.nodes.asked().unwrap() {
        Asked::Watch(_, it) => {
            let watch = futures::FutureExt::boxed(std::future::pending());
            assert!(
                it.send(Ok(Some((Vec::new(), stat(12, 2, 3), watch))))
                    .is_ok()
            );
        }
        other => panic!("{other:?}"),
    }
    watched.await.unwrap();
    assert_eq!(highest(), 12);
    let created = send(&scene.witness, "create");
    settle().await;
    match scene.nodes.asked().unwrap() {
        Asked::Create(_, it) => {
            let path = "/a".to_owned();
            let czxid = Some(13);
            it.send(Ok(Created { path, czxid })).unwrap();
        }
        other => panic!("{other:?}"),
    }
    created.await.unwrap();
    assert_eq!(highest(), 13);
    for (done, is) in [
        (NodeOpDone::Set(stat(1, 14, 1)), 14),
        (
            NodeOpDone::Created(Created {
                path: "/a".to_owned(),
                czxid: Some(15),
            }),
            15,
        ),
        // A lower number takes nothing back.
        (NodeOpDone::Set(stat(1, 14, 1)), 15),
    ] {
        let sent = send(&scene.witness, "multi");
        settle().await;
        match scene.nodes.asked().unwrap() {
            Asked::Multi(_, it) => it.send(Ok(vec![done])).unwrap(),
            other => panic!("{other:?}"),
        }
        sent.await.unwrap();
        assert_eq!(highest(), is);
    }
}
