use super::*;

fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

fn stat(parts: [i64; 7]) -> Vec<Value> {
    parts.map(Value::Number).to_vec()
}

fn look<'a>() -> Request<'a> {
    Request::Look {
        directory: "/a",
        own: "",
        numbers: ["4", "5", "6"],
    }
}

fn create(path: &str) -> Operation<'_> {
    Operation::Create {
        path,
        data: b"own",
        kind: b'S',
    }
}

#[test]
fn answers_are_read_in_the_order_of_the_requests() {
    let requests = [
        Request::Multi(vec![create("/a/n-"), create("/b/")]),
        Request::Multi(vec![]),
        look(),
        Request::Nothing,
        Request::Watch("/a/n"),
        Request::Stat("/x"),
        Request::List("/"),
    ];
    let text = b"0 90 3 90 2147483648 \
                 0 \
                 0 2 7 n-1/n-21 3 n-22  d90 91 1 7 0 0 90 \
                 0 3 n 18 8 0 6 2 5 8 \
                 1 \
                 0 1 1 a";
    let answers = of_requests(&requests, text).unwrap();
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
    assert_eq!(answers, all.map(Value::List));
}

#[test]
fn refusals_are_named() {
    let long = "x".repeat(2_000);
    let requests = [
        Request::Multi(vec![create("/a/n-")]),
        Request::Multi(vec![create("/a"), create(&long)]),
        Request::Stat(&long),
    ];
    let answers = of_requests(&requests, b"6 0 ").unwrap();
    let all = [
        vec![bytes("Busy"), Value::Number(0)],
        vec![bytes("TooLong"), Value::Number(1)],
        vec![bytes("TooLong")],
    ];
    assert_eq!(answers, all.map(Value::List));
    assert!(of_requests(&requests, b"7 0 ").is_err());
}

#[test]
fn listing_that_was_cut_is_no_answer() {
    let cut = of_requests(&[Request::List("/a")], b"0 3 3 n/m");
    assert!(cut.is_err());
    assert!(of_requests(&[Request::List("/a")], b"0 2 3 n/m").is_ok());
    // A node without a name.
    assert!(of_requests(&[Request::List("/a")], b"0 1 0 ").is_ok());
    assert!(of_requests(&[Request::List("/a")], b"0 1 0 1").is_err());
}

#[test]
fn entered_node_is_watched_with_those_ahead() {
    let requests = [Request::Multi(vec![create("/a/n-")]), look()];
    let mut entered = Entered {
        number: 90,
        place: 1,
        count: 2,
        names: b"m-0000000000/n-0000000001".to_vec(),
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
    assert_eq!(answers, [Value::List(created), Value::List(looked)]);
    // The first waits for nobody.
    entered.ahead = 0;
    let Some(Value::List(looked)) = of_enter(&requests, 7, &entered).unwrap().pop() else {
        panic!("no list")
    };
    assert_eq!(looked.len(), 2);
    entered.count = 3;
    assert!(of_enter(&requests, 7, &entered).is_err());
}

#[test]
fn places_go_on_in_negative_numbers_as_in_zookeeper() {
    assert_eq!(placed("n", 2_147_483_647), "n2147483647");
    assert_eq!(placed("n", 2_147_483_648), "n-2147483648");
    assert_eq!(placed("n", 4_294_967_295), "n-000000001");
}
