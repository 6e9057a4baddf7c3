//! Creates that are given up before their answer.

use std::sync::Arc;

use super::*;
use crate::names::owner::{Owner, OwnerLabel};
use crate::store::nodes::{Created, MultiError, NodeOp, NodeOpDone};

/// An attempt of the session to acquire these.
macro_rules! attempt {
    ($flight:ident, $stage:ident, $targets:expr) => {
        let nodes = $stage.epoch.nodes().unwrap();
        let targets: Vec<Target> = $targets;
        let directories = targets.iter().map(|it| Arc::clone(&it.lock.path));
        let leftovers = Arc::new(Leftovers::new(directories));
        let mut $flight =
            InFlight::new(&$stage.session, &$stage.epoch, &nodes, &targets, leftovers);
    };
}

struct Create {
    path: String,
    created: Answer<Created>,
    listed: Answer<Vec<String>>,
}

impl Create {
    /// Answers with this node as the only one. Returns its name.
    fn answer(self) -> String {
        let path = format!("{}0000000001", self.path);
        let name = path.rsplit_once('/').unwrap().1.to_owned();
        self.listed.send(Ok(vec![name.clone()])).unwrap();
        let czxid = Some(5);
        self.created.send(Ok(Created { path, czxid })).unwrap();
        name
    }
}

/// The create and the listing that are sent for a single node.
async fn create(stage: &Stage) -> Create {
    let Asked::Create(new, created) = stage.asked().await else {
        panic!("no create");
    };
    let listed = listing(stage).await;
    let path = new.path;
    Create {
        path,
        created,
        listed,
    }
}

/// Enters the first member until its requests are sent.
async fn enter(flight: &mut InFlight<'_>) {
    flight.carry_out(Action::Enter(vec![0]));
    let mut event = Box::pin(flight.next_event());
    assert!(poll!(event.as_mut()).is_pending());
}

/// An attempt that is given up before its create is answered.
async fn give_up(stage: &Stage, targets: Vec<Target>) {
    attempt!(flight, stage, targets);
    enter(&mut flight).await;
}

fn one(stage: &Stage) -> Vec<Target> {
    targets(stage, &["/a"])
}

async fn deleted(stage: &Stage, name: &str) {
    settle().await;
    let Asked::Delete(path, answer) = stage.asked().await else {
        panic!("no delete");
    };
    assert_eq!(path, format!("/a/{name}"));
    answer.send(Ok(())).unwrap();
    settle().await;
    assert!(stage.log().await.is_empty());
    stage.session.core().cleanup.drained().await;
}

#[tokio::test(start_paused = true)]
async fn next_acquire_adopts_the_create_and_its_listing() {
    let stage = Stage::new().await;
    give_up(&stage, one(&stage)).await;
    let create = create(&stage).await;
    for _ in 0..3 {
        give_up(&stage, one(&stage)).await;
        settle().await;
    }
    attempt!(flight, stage, one(&stage));
    enter(&mut flight).await;
    let asked = stage.log().await;
    assert!(asked.is_empty(), "one is in flight already: {asked:?}");
    let name = create.answer();
    let entered = flight.next_event().await.unwrap();
    let (children, czxid) = (Some(vec![name.clone()]), Some(5));
    let node = Node {
        name: name.clone(),
        czxid,
    };
    assert_eq!(entered, Event::Entered(vec![Entry { node, children }]));
    // It has the node now, and nobody else deletes it.
    settle().await;
    let asked = stage.log().await;
    assert!(asked.is_empty(), "{asked:?}");
    stage.session.core().cleanup.drained().await;
    drop(flight);
    deleted(&stage, &name).await;
}

#[tokio::test(start_paused = true)]
async fn node_that_nobody_adopts_is_deleted_without_a_search() {
    let stage = Stage::new().await;
    give_up(&stage, one(&stage)).await;
    let create = create(&stage).await;
    settle().await;
    assert!(stage.log().await.is_empty());
    let name = create.answer();
    deleted(&stage, &name).await;
    // Only what is unanswered is adopted.
    attempt!(flight, stage, one(&stage));
    enter(&mut flight).await;
    assert!(stage.log().await[0].starts_with("create"));
}

#[tokio::test(start_paused = true)]
async fn each_of_many_adopts_one_and_the_oldest_first() {
    let stage = Stage::new().await;
    let mut creates = Vec::new();
    {
        attempt!(first, stage, one(&stage));
        enter(&mut first).await;
        creates.push(create(&stage).await);
        attempt!(second, stage, one(&stage));
        enter(&mut second).await;
        creates.push(create(&stage).await);
        drop(first);
    }
    attempt!(first, stage, one(&stage));
    enter(&mut first).await;
    attempt!(second, stage, one(&stage));
    enter(&mut second).await;
    assert!(stage.log().await.is_empty());
    attempt!(third, stage, one(&stage));
    enter(&mut third).await;
    assert!(stage.log().await[0].starts_with("create"));
    let last = creates.pop().unwrap().answer();
    assert!(poll!(Box::pin(first.next_event())).is_pending());
    assert!(matches!(
        second.next_event().await.unwrap(),
        Event::Entered(entries) if entries[0].node.name == last
    ));
}

#[tokio::test(start_paused = true)]
async fn create_for_something_else_is_not_adopted() {
    let others: [fn(&Stage) -> Vec<Target>; 4] = [
        |stage| targets(stage, &["/b"]),
        |stage| targets(stage, &["/a", "/b"]),
        |stage| {
            let kind = LockKind::Latch;
            vec![Target {
                kind,
                ..one(stage).remove(0)
            }]
        },
        |stage| {
            let data = Some(b"me".as_slice().into());
            vec![Target {
                data,
                ..one(stage).remove(0)
            }]
        },
    ];
    for other in others {
        let stage = Stage::new().await;
        {
            let other = other(&stage);
            let all = (0..other.len()).collect();
            attempt!(flight, stage, other);
            flight.carry_out(Action::Enter(all));
            assert!(poll!(Box::pin(flight.next_event())).is_pending());
        }
        stage.log().await;
        attempt!(flight, stage, one(&stage));
        enter(&mut flight).await;
        let asked = stage.log().await;
        assert!(asked[0].starts_with("create"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn listing_of_an_earlier_connection_is_not_believed() {
    let stage = Stage::new().await;
    give_up(&stage, one(&stage)).await;
    let create = create(&stage).await;
    stage.nodes.reconnect();
    settle().await;
    stage.log().await;
    attempt!(flight, stage, one(&stage));
    enter(&mut flight).await;
    create.answer();
    let Event::Entered(entries) = flight.next_event().await.unwrap() else {
        panic!("not entered");
    };
    assert_eq!(entries[0].children, None);
}

#[tokio::test(start_paused = true)]
async fn floor_is_what_was_seen_before_the_create_was_sent() {
    let stage = Stage::new().await;
    give_up(&stage, one(&stage)).await;
    let _create = create(&stage).await;
    let read = stage.session.read("/x");
    let seen = async {
        let Asked::Read(_, answer) = stage.asked().await else {
            panic!("no read");
        };
        answer.send(Ok(Some(node(9, b"")))).unwrap();
    };
    let (read, ()) = tokio::join!(read, seen);
    read.unwrap();
    attempt!(flight, stage, one(&stage));
    enter(&mut flight).await;
    assert_eq!(flight.floors, [0]);
}

/// Deadlocks are found by the owners in the records of the nodes.
#[tokio::test(start_paused = true)]
async fn adopted_node_names_its_owner() {
    let stage = Stage::new().await;
    let owned = |owner: &Owner| {
        let owner = Some(OwnerLabel::from(owner));
        let target = one(&stage).remove(0);
        vec![Target { owner, ..target }]
    };
    let (one, other) = (Owner::new(), Owner::new());
    for owner in [&one, &other] {
        give_up(&stage, owned(&one)).await;
        let create = create(&stage).await;
        let wanted = owned(owner).remove(0);
        attempt!(flight, stage, owned(owner));
        enter(&mut flight).await;
        let name = create.answer();
        flight.next_event().await.unwrap();
        if owner == &other {
            let Asked::Multi(operations, _) = stage.asked().await else {
                panic!("no transaction");
            };
            let lock = &wanted.lock;
            let [
                NodeOp::Set {
                    path,
                    data,
                    version,
                },
            ] = &*operations
            else {
                panic!("{operations:?}");
            };
            assert_eq!((path, *version), (&lock.node_path(&name), Some(0)));
            let data = String::from_utf8(data.clone()).unwrap();
            assert!(data.contains(&wanted.owner.unwrap().to_string()), "{data}");
        }
        assert!(stage.log().await.is_empty());
        drop(flight);
        deleted(&stage, &name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn create_of_unknown_outcome_is_searched_for() {
    let stage = Stage::new().await;
    give_up(&stage, one(&stage)).await;
    let create = create(&stage).await;
    create.listed.send(Err(crate::scripted::unknown())).unwrap();
    create
        .created
        .send(Err(crate::scripted::unknown()))
        .unwrap();
    settle().await;
    let asked = stage.log().await;
    assert_eq!(asked, ["multi of 1", "list /a"]);
}

#[tokio::test(start_paused = true)]
async fn create_that_was_refused_leaves_nothing_to_do() {
    let stage = Stage::new().await;
    give_up(&stage, one(&stage)).await;
    let create = create(&stage).await;
    create.listed.send(Err(NodesError::NoNode)).unwrap();
    create.created.send(Err(NodesError::NoNode)).unwrap();
    settle().await;
    assert!(stage.log().await.is_empty());
    stage.session.core().cleanup.drained().await;
}

/// Another create with its name may have been carried out before.
#[tokio::test(start_paused = true)]
async fn create_that_follows_one_of_unknown_outcome_is_searched_for() {
    let stage = Stage::new().await;
    {
        attempt!(flight, stage, one(&stage));
        enter(&mut flight).await;
        let create = create(&stage).await;
        create.listed.send(Err(crate::scripted::unknown())).unwrap();
        create
            .created
            .send(Err(crate::scripted::unknown()))
            .unwrap();
        assert_eq!(flight.next_event().await.unwrap(), Event::EnterUnknown);
        enter(&mut flight).await;
        assert!(stage.log().await[0].starts_with("create"));
    }
    settle().await;
    assert_eq!(stage.log().await, ["multi of 1", "list /a"]);
}

#[tokio::test(start_paused = true)]
async fn create_of_a_session_that_is_over_is_not_adopted() {
    let (stage, next) = Stage::with_next().await;
    give_up(&stage, one(&stage)).await;
    let _create = create(&stage).await;
    stage
        .nodes
        .connection_is(Connection::Ended(EndReason::Expired));
    settle().await;
    let core = stage.session.core();
    let epoch = core.open_epoch("/a").await.unwrap();
    assert_ne!(epoch.number, stage.epoch.number);
    next.log();
    let targets = one(&stage);
    let nodes = epoch.nodes().unwrap();
    let leftovers = Arc::new(Leftovers::new([Arc::clone(&targets[0].lock.path)]));
    let mut flight = InFlight::new(&stage.session, &epoch, &nodes, &targets, leftovers);
    enter(&mut flight).await;
    assert!(next.log()[0].starts_with("create"));
}

/// All nodes of a set come together, and go together.
#[tokio::test(start_paused = true)]
async fn creates_of_sets_are_adopted_and_deleted_as_a_whole() {
    let stage = Stage::new().await;
    let both = || targets(&stage, &["/a", "/b"]);
    let enter_both = |flight: &mut InFlight<'_>| flight.carry_out(Action::Enter(vec![0, 1]));
    let mut together: Option<Answer<Vec<NodeOpDone>, MultiError>> = None;
    let mut made = Vec::new();
    for _ in 0..2 {
        attempt!(flight, stage, both());
        enter_both(&mut flight);
        assert!(poll!(Box::pin(flight.next_event())).is_pending());
        while let Some(asked) = stage.nodes.asked() {
            match asked {
                Asked::Multi(operations, answer) => {
                    assert!(together.replace(answer).is_none(), "sent again");
                    made = operations.iter().map(|it| it.path().to_owned()).collect();
                }
                Asked::List(_, answer) => answer.send(Ok(Vec::new())).unwrap(),
                _ => {}
            }
        }
    }
    let paths: Vec<_> = made.iter().map(|it| format!("{it}0000000001")).collect();
    let done = paths.iter().map(|path| {
        let (path, czxid) = (path.clone(), Some(5));
        NodeOpDone::Created(Created { path, czxid })
    });
    together.unwrap().send(Ok(done.collect())).unwrap();
    settle().await;
    let Asked::Multi(deletes, _) = stage.asked().await else {
        panic!("no deletes");
    };
    let deleted: Vec<_> = deletes.iter().map(|it| it.path().to_owned()).collect();
    assert_eq!(deleted, paths);
}

/// Nobody may ever answer the requests of a session that is over.
#[tokio::test(start_paused = true)]
async fn create_that_is_given_up_after_its_session_is_looked_for_in_the_next() {
    let (stage, next) = Stage::with_next().await;
    let _unanswered = {
        attempt!(flight, stage, one(&stage));
        enter(&mut flight).await;
        let create = create(&stage).await;
        stage
            .nodes
            .connection_is(Connection::Ended(EndReason::Expired));
        settle().await;
        stage.session.core().open_epoch("/").await.unwrap();
        create
    };
    settle().await;
    assert_eq!(next.log(), ["list /a"]);
}

#[tokio::test(start_paused = true)]
async fn create_that_was_not_sent_before_it_is_given_up_is_not_sent_then() {
    let stage = Stage::new().await;
    {
        attempt!(flight, stage, one(&stage));
        flight.carry_out(Action::Enter(vec![0]));
    }
    let log = stage.log().await;
    assert!(!log.iter().any(|it| it.starts_with("create")), "{log:?}");
}

/// It has the name that its first attempt gave it. Whoever looks for another waits behind it for ever.
#[tokio::test(start_paused = true)]
async fn node_of_an_adopted_create_without_an_answer_is_looked_for_by_its_name() {
    let stage = Stage::new().await;
    give_up(&stage, one(&stage)).await;
    let adopted = create(&stage).await;
    {
        attempt!(flight, stage, one(&stage));
        enter(&mut flight).await;
        assert!(stage.log().await.is_empty());
        adopted.listed.send(Ok(Vec::new())).unwrap();
        adopted
            .created
            .send(Err(crate::scripted::unknown()))
            .unwrap();
        let event = flight.next_event().await.unwrap();
        assert_eq!(event, Event::EnterUnknown);
    }
    let Asked::Multi(_, committed) = stage.asked().await else {
        panic!("nothing is committed");
    };
    committed.send(Ok(vec![NodeOpDone::Checked])).unwrap();
    let name = format!("{}0000000001", adopted.path.rsplit_once('/').unwrap().1);
    listing(&stage).await.send(Ok(vec![name.clone()])).unwrap();
    deleted(&stage, &name).await;
}
