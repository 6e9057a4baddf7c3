use super::*;

fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

fn stat(parts: [i64; 7]) -> Vec<Value> {
    parts.map(Value::Number).to_vec()
}

fn look<'a>() -> Request<'a> {
    Request::Look {
        directory: b"/a",
        own: b"",
        numbers: [b"4", b"5", b"6"],
    }
}

fn create<'a>(path: &'a [u8]) -> Operation<'a> {
    Operation::Create {
        path,
        data: b"own",
        kind: b'S',
    }
}

#[test]
fn answers_are_read_in_the_order_of_the_requests() {
    let requests = [
        Request::Multi(vec![create(b"/a/n-"), create(b"/b/")]),
        Request::Multi(vec![]),
        look(),
        Request::Nothing,
        Request::Watch(b"/a/n"),
        Request::Stat(b"/x"),
        Request::List(b"/"),
    ];
    let text = b"0 90 3 90 2147483648 \
                 0 \
                 0 2 7 n-1/n-21 3 n-22  d90 91 1 7 0 0 90 \
                 0 3 n 18 8 0 6 2 5 8 \
                 1 \
                 0 1 1 a";
    let answers = of_requests(&requests, 7, text).unwrap();
    let created = vec![
        bytes(""),
        bytes("/a/n-0000000003"),
        Value::Number(90),
        bytes("/b/-2147483648"),
        Value::Number(90),
    ];
    let names = Value::List(vec![bytes("n-1"), bytes("n-2")]);
    let mut looked = vec![bytes(""), names, bytes("4"), bytes("n-2"), bytes(" d")];
    looked.extend(stat([90, 91, 1, 7, 0, 0, 90]));
    let mut read = vec![bytes(""), bytes("n 1")];
    // Five created, two there: eight changes.
    read.extend(stat([8, 8, 0, 6, 2, 8, 8]));
    let all = [
        created,
        vec![bytes("")],
        looked,
        vec![bytes("")],
        read,
        vec![bytes("NoNode")],
        vec![bytes(""), Value::List(vec![bytes("a")])],
    ];
    assert_eq!(answers.values, all.map(Value::List));
    let watched = |path: &[u8], is_own| Watched {
        path: path.to_vec(),
        is_own,
    };
    assert_eq!(
        answers.watched,
        [watched(b"/a/n-2", true), watched(b"/a/n", false)]
    );
}

#[test]
fn refusals_are_named() {
    let long = [b'x'; 2_000];
    let requests = [
        Request::Multi(vec![create(b"/a/n-")]),
        Request::Multi(vec![create(b"/a"), create(&long)]),
        Request::Stat(&long),
    ];
    let answers = of_requests(&requests, 7, b"6 0 ").unwrap();
    let all = [
        vec![bytes("Busy"), Value::Number(0)],
        vec![bytes("TooLong"), Value::Number(1)],
        vec![bytes("TooLong")],
    ];
    assert_eq!(answers.values, all.map(Value::List));
    assert!(of_requests(&requests, 7, b"7 0 ").is_err());
}

#[test]
fn listing_that_was_cut_is_no_answer() {
    let cut = of_requests(&[Request::List(b"/a")], 7, b"0 3 3 n/m");
    assert!(cut.is_err());
    assert!(of_requests(&[Request::List(b"/a")], 7, b"0 2 3 n/m").is_ok());
    // A node without a name.
    assert!(of_requests(&[Request::List(b"/a")], 7, b"0 1 0 ").is_ok());
    assert!(of_requests(&[Request::List(b"/a")], 7, b"0 1 0 1").is_err());
}

#[test]
fn entered_node_is_watched_with_those_ahead() {
    let requests = [Request::Multi(vec![create(b"/a/n-")]), look()];
    let mut entered = Entered {
        number: 90,
        place: 1,
        names: vec![b"m-0000000000".to_vec(), b"n-0000000001".to_vec()],
        ahead: 1,
        nodes: b"12 m-00000000001 d80 80 0 6 0 0 80 ".to_vec(),
    };
    let answers = of_enter(&requests, 7, &entered).unwrap();
    let mut looked = vec![
        bytes(""),
        Value::List(vec![bytes("m-0000000000"), bytes("n-0000000001")]),
        bytes("4"),
        bytes("n-0000000001"),
        bytes("own"),
    ];
    looked.extend(stat([90, 90, 0, 7, 0, 0, 90]));
    looked.extend([bytes("5"), bytes("m-0000000000"), bytes("d")]);
    looked.extend(stat([80, 80, 0, 6, 0, 0, 80]));
    let created = vec![bytes(""), bytes("/a/n-0000000001"), Value::Number(90)];
    assert_eq!(answers.values, [Value::List(created), Value::List(looked)]);
    let own = Watched {
        path: b"/a/n-0000000001".to_vec(),
        is_own: true,
    };
    let other = Watched {
        path: b"/a/m-0000000000".to_vec(),
        is_own: false,
    };
    assert_eq!(answers.watched, [own, other]);
    entered.ahead = 0;
    assert!(of_enter(&requests, 7, &entered).unwrap().watched.is_empty());
}

#[test]
fn places_go_on_in_negative_numbers_as_in_zookeeper() {
    assert_eq!(placed(b"n", 2_147_483_647), b"n2147483647");
    assert_eq!(placed(b"n", 2_147_483_648), b"n-2147483648");
    assert_eq!(placed(b"n", 4_294_967_295), b"n-000000001");
}
