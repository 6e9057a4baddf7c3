use std::sync::Arc;

use recipes_core::{NewNode, NodesError};

use super::*;

fn look() -> Asked {
    Asked::Look {
        directory: "/a".to_owned(),
        own: None,
        first: 4,
    }
}

fn create(path: &str) -> NodeOp {
    NodeOp::Create(NewNode {
        path: path.to_owned(),
        data: Arc::from(*b"own"),
        mode: NodeMode::EphemeralSequential,
    })
}

fn created(path: &str, number: i64) -> NodeOpDone {
    let (path, czxid) = (path.to_owned(), Some(number));
    NodeOpDone::Created(Created { path, czxid })
}

fn multi<const N: usize>(operations: [NodeOp; N]) -> Asked {
    Asked::Multi(operations.into())
}

fn list(path: &str) -> Asked {
    Asked::List(path.to_owned())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

fn watched(number: u64, name: &str, data: &str, parts: [i64; 7]) -> Watched {
    Watched {
        number,
        name: name.to_owned(),
        data: data.into(),
        stat: stat(parts).unwrap(),
    }
}

#[test]
fn answers_are_read_in_the_order_of_the_requests() {
    let path = || "/a/n".to_owned();
    let requests = [
        multi([create("/a/n-"), create("/b/")]),
        multi([]),
        look(),
        Asked::Beat,
        Asked::Watch(path(), 9),
        Asked::Stat(path()),
        list("/"),
    ];
    let text = b"0 90 3 90 2147483648 \
                 0 \
                 0 2 7 n-1/n-21 3 n-22  d90 91 1 7 0 0 90 \
                 0 3 n 18 8 0 6 2 5 8 \
                 1 \
                 0 1 1 a";
    let outcomes = of_requests(&requests, text).unwrap();
    let [entered, nothing, looked, beaten, read, missing, listed] = outcomes.try_into().unwrap();
    let both = vec![
        created("/a/n-0000000003", 90),
        created("/b/-2147483648", 90),
    ];
    assert_eq!(entered.unwrap(), Said::Multi(both));
    assert_eq!(nothing.unwrap(), Said::Multi(Vec::new()));
    let ahead = watched(4, "n-2", " d", [90, 91, 1, 7, 0, 0, 90]);
    let expected = Said::Names(names(&["n-1", "n-2"]), vec![ahead]);
    assert_eq!(looked.unwrap(), expected);
    assert_eq!(beaten.unwrap(), Said::Nothing);
    // Five created, two there: eight changes.
    let like = stat([8, 8, 0, 6, 2, 8, 8]).unwrap();
    assert_eq!(read.unwrap(), Said::Node(b"n 1".to_vec(), like));
    assert!(matches!(missing.unwrap_err().source, NodesError::NoNode));
    assert_eq!(listed.unwrap(), Said::Names(names(&["a"]), Vec::new()));
}

#[test]
fn refusals_are_named() {
    let long = "x".repeat(2_000);
    let requests = [
        multi([create("/a/n-")]),
        multi([create("/a"), create(&long)]),
        Asked::Stat(long),
    ];
    let outcomes = of_requests(&requests, b"6 0 ").unwrap();
    let refused = outcomes.into_iter().map(Result::unwrap_err);
    let [busy, too_long, alone] = refused.collect::<Vec<_>>().try_into().unwrap();
    assert!(matches!(busy.source, NodesError::Throttled));
    assert_eq!(busy.index, Some(0));
    assert!(matches!(too_long.source, NodesError::NotSent(_)));
    assert_eq!(too_long.index, Some(1));
    assert!(matches!(alone.source, NodesError::NotSent(_)));
    assert!(of_requests(&requests, b"7 0 ").is_err());
}

#[test]
fn listing_that_was_cut_is_no_answer() {
    let cut = of_requests(&[list("/a")], b"0 3 3 n/m");
    assert!(cut.is_err());
    assert!(of_requests(&[list("/a")], b"0 2 3 n/m").is_ok());
    // A node without a name.
    assert!(of_requests(&[list("/a")], b"0 1 0 ").is_ok());
    assert!(of_requests(&[list("/a")], b"0 1 0 1").is_err());
}

#[test]
fn entered_node_is_watched_with_those_ahead() {
    let requests = [multi([create("/a/n-")]), look()];
    let mut entered = Entered {
        number: 90,
        place: 1,
        count: 2,
        names: b"m-0000000000/n-0000000001".to_vec(),
        ahead: 1,
        nodes: b"12 m-00000000001 d80 80 0 6 0 0 80 ".to_vec(),
    };
    let looked = |entered: &Entered| {
        let outcomes = of_enter(&requests, 7, entered).unwrap();
        let [entered, looked] = outcomes.try_into().unwrap();
        let own = vec![created("/a/n-0000000001", 90)];
        assert_eq!(entered.unwrap(), Said::Multi(own));
        looked.unwrap()
    };
    let names = || names(&["m-0000000000", "n-0000000001"]);
    let both = vec![
        watched(4, "n-0000000001", "own", [90, 90, 0, 7, 0, 0, 90]),
        watched(5, "m-0000000000", "d", [80, 80, 0, 6, 0, 0, 80]),
    ];
    assert_eq!(looked(&entered), Said::Names(names(), both));
    // The first waits for nobody.
    entered.ahead = 0;
    assert_eq!(looked(&entered), Said::Names(names(), Vec::new()));
    entered.count = 3;
    assert!(of_enter(&requests, 7, &entered).is_err());
}

#[test]
fn places_go_on_in_negative_numbers_as_in_zookeeper() {
    assert_eq!(placed("n", 2_147_483_647), "n2147483647");
    assert_eq!(placed("n", 2_147_483_648), "n-2147483648");
    assert_eq!(placed("n", 4_294_967_295), "n-000000001");
}
