//! Connections of two clients as they were recorded, in any chunks, and damaged ones.

use proptest::collection::vec;
use proptest::prelude::*;

use super::scan::PACKET_BYTES_MAX;
use super::*;
use crate::proxy::protocol::Protocol;
use crate::proxy::recorded::{Sent, damaged, messages, names, pieces, stream};
use crate::proxy::splitter::Piece;

const TO: Direction = Direction::ToServer;
const FROM: Direction = Direction::FromServer;

/// `mariadb`: a procedure with two results, and a table that is not there.
const CLIENT: [Sent; 10] = [
    (
        FROM,
        b"d\0\0\0\n5.5.5-10.11.19-MariaDB-0+deb12u1\0\x04\0\0\0mQ./@7/)\0\xfe\xf7\x08\x02\0\
        \xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0}_Bila\"$/]fh\0mysql_native_password\0",
    ),
    (
        TO,
        b"\xc1\0\0\x01\x8c\xa2\xbf\0\0\0\x10\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x1d\0\
        \0\0root\0\0locks\0mysql_native_password\0~\x03_os\x05Linux\x0c_client_name\nlibmari\
        adb\x04_pid\x044447\x0f_client_version\x063.3.20\t_platform\x06x86_64\x0cprogram_nam\
        e\x05mysql\x0c_server_host\t127.0.0.1",
    ),
    (FROM, b"\x11\0\0\x02\0\0\0\x02@\0\0\0\x08\x01\x06\x05locks"),
    (TO, b"\x1a\0\0\0\x03call lock_recipes_beat(5)"),
    (
        FROM,
        b"\x02\0\0\x01\x01\x01\x19\0\0\x02\x03def\0\0\0\x01n\x01n\0\x0c?\0\x0b\0\0\0\x03\0\0\
        \0\0\0\x05\0\0\x03\xfe\0\0\n\0\x02\0\0\x04\x015\x05\0\0\x05\xfe\0\0\n\0",
    ),
    (
        FROM,
        b"\x02\0\0\x06\x01\x01\x1a\0\0\x07\x03def\0\0\0\x03n+1\0\0\x0c?\0\x0c\0\0\0\x08\x80\
        \0\0\0\0\x05\0\0\x08\xfe\0\0\n\0\x02\0\0\t\x016\x05\0\0\n\xfe\0\0\n\0",
    ),
    (FROM, b"\x07\0\0\x0b\0\0\0\x02\0\0\0"),
    (TO, b"\x16\0\0\0\x03select * from nowhere"),
    (
        FROM,
        b",\0\0\x01\xffz\x04#42S02Table 'locks.nowhere' doesn't exist",
    ),
    (TO, b"\x01\0\0\0\x01"),
];

/// mysql_async, which needs no `EOF` after columns: a procedure is prepared, called, and refuses.
const DRIVER: [Sent; 16] = [
    (
        FROM,
        b"d\0\0\0\n5.5.5-10.11.19-MariaDB-0+deb12u1\0\x05\0\0\0L;~+Y_QX\0\xfe\xf7\x08\x02\0\
        \xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0E3mO\"WrZKGc<\0mysql_native_password\0",
    ),
    (
        TO,
        b"B\0\0\x01\x88\xa2\x0f\x01\0\0@\0-\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x14\0\0\0r\
        oot\0\0locks\0mysql_native_password\0",
    ),
    (FROM, b"\x07\0\0\x02\0\0\0\x02\0\0\0"),
    (
        TO,
        b"4\0\0\0\x03SELECT @@max_allowed_packet,@@wait_timeout,@@socket",
    ),
    (
        FROM,
        b"\x02\0\0\x01\x03\x01*\0\0\x02\x03def\0\0\0\x14@@max_allowed_packet\0\x0c?\0\x15\0\
        \0\0\x08\xa0\0\0\0\0$\0\0\x03\x03def\0\0\0\x0e@@wait_timeout\0\x0c?\0\x15\0\0\0\x08\
        \xa0\0\0\0\0\x1e\0\0\x04\x03def\0\0\0\x08@@socket\0\x0c-\0\x18\0\0\0\xfd\0\0'\0\0\
        \x16\0\0\x05\x0816777216\x0528800\x06s.sock\x07\0\0\x06\xfe\0\0\x02\0\0\0",
    ),
    (TO, b"\x1a\0\0\0\x16CALL lock_recipes_beat(?)"),
    (
        FROM,
        b"\x0c\0\0\x01\0\x01\0\0\0\0\0\x01\0\0\0\0\x17\0\0\x02\x03def\0\0\0\x01?\0\x0c?\0\0\
        \0\0\0\x06\x80\0\0\0\0",
    ),
    (
        TO,
        b"\x16\0\0\0\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x08\0\x07\0\0\0\0\0\0\0",
    ),
    (
        FROM,
        b"\x02\0\0\x01\x01\x01\x18\0\0\x02\x03def\0\0\0\x01n\x01n\x0c?\0\x0b\0\0\0\x03\0\0\0\
        \0\0\x06\0\0\x03\0\0\x07\0\0\0\x07\0\0\x04\xfe\0\0\n\0\0\0",
    ),
    (
        FROM,
        b"\x02\0\0\x05\x01\x01\x19\0\0\x06\x03def\0\0\0\x03n+1\0\x0c?\0\x0c\0\0\0\x08\x80\0\
        \0\0\0\n\0\0\x07\0\0\x08\0\0\0\0\0\0\0\x07\0\0\x08\xfe\0\0\n\0\0\0\x07\0\0\t\0\0\0\
        \x02\0\0\0",
    ),
    (
        TO,
        b"\x16\0\0\0\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x08\0\xff\xff\xff\xff\xff\xff\xff\xff",
    ),
    (FROM, b"\x0e\0\0\x01\xffl\x06#45000ended"),
    (TO, b"\x05\0\0\0\x19\x01\0\0\0"),
    (TO, b"\x07\0\0\0\x03COMMIT"),
    (FROM, b"\x07\0\0\x01\0\0\0\x02\0\0\0"),
    (TO, b"\x01\0\0\0\x01"),
];

const GREETING: [&str; 3] = ["< Greeting", "> HandshakeResponse", "< OK"];

#[test]
fn text_queries_are_named_after_the_procedure_or_the_first_word() {
    let result = [
        "< beat ColumnCount",
        "< beat ColumnDefinition",
        "< beat EOF",
        "< beat Row",
        "< beat EOF",
    ];
    let refused = ["> SELECT Query", "< SELECT ERR", "> Quit"];
    let expected = [
        &GREETING[..],
        &["> beat Query"],
        &result,
        &result,
        &["< beat OK"],
        &refused,
    ];
    assert_eq!(names(Protocol::MySql, &CLIENT), expected.concat());

    let messages = messages(Protocol::MySql, &CLIENT);
    let (_, error) = &messages[messages.len() - 2];
    assert_eq!(error.names, ["SELECT ERR", "SELECT", "ERR", "42S02"]);
    assert_eq!((error.error, error.xid), (Some(1146), Some(3)));
}

#[test]
fn messages_of_a_prepared_statement_are_named_after_it() {
    let asked = [
        "> SELECT Query",
        "< SELECT ColumnCount",
        "< SELECT ColumnDefinition",
        "< SELECT ColumnDefinition",
        "< SELECT ColumnDefinition",
        "< SELECT Row",
        "< SELECT EOF",
    ];
    let prepared = [
        "> beat Prepare",
        "< beat PrepareOK",
        "< beat ColumnDefinition",
    ];
    let result = [
        "< beat ColumnCount",
        "< beat ColumnDefinition",
        "< beat Row",
        "< beat EOF",
    ];
    let last = [
        "> beat StatementExecute",
        "< beat ERR",
        "> beat StatementClose",
        "> COMMIT Query",
        "< COMMIT OK",
        "> Quit",
    ];
    let expected = [
        &GREETING[..],
        &asked,
        &prepared,
        &["> beat StatementExecute"],
        &result,
        &result,
        &["< beat OK"],
        &last,
    ];
    assert_eq!(names(Protocol::MySql, &DRIVER), expected.concat());

    let messages = messages(Protocol::MySql, &DRIVER);
    let of = |xid| messages.iter().filter(move |it| it.1.xid == Some(xid));
    // The procedure's call and all its answers.
    assert_eq!(of(4).count(), 10);
    assert!(of(4).skip(1).all(|it| it.1.error == Some(0)));
}

#[test]
fn answers_follow_what_the_client_understands() {
    let client = Client {
        has_no_eof: true,
        knows_columns: true,
    };
    // One column, which is left out; and a cursor, whose rows come when they are asked for.
    for (status, next) in [(b"\x02\0", Awaited::Nothing), (b"\x0a\0", Awaited::First)] {
        let mut awaited = Awaited::First;
        let mut name = |message: &[u8]| awaited.next(message, false, client).name;
        assert_eq!(name(b"\x02\0\0\x01\x01\0"), "ColumnCount");
        assert_eq!(name(b"\x03\0\0\x02\0\0\0"), "Row");
        let end = [b"\x07\0\0\x03\xfe\0\0", &status[..], b"\0\0"].concat();
        assert_eq!(name(&end), "EOF");
        assert_eq!(awaited, next);
    }
    let mut awaited = Awaited::ColumnsEnd;
    let end = b"\x05\0\0\x03\xfe\0\0\x42\0";
    assert_eq!(awaited.next(end, false, Client::default()).name, "EOF");
    assert_eq!(awaited, Awaited::Nothing);
    // A row that begins with a number of eight bytes is no end.
    let mut awaited = Awaited::Rows;
    let long = vec![0xFE; PACKET_BYTES_MAX + HEADER_BYTES];
    assert_eq!(awaited.next(&long, false, Client::default()).name, "Row");
}

#[test]
fn message_of_sixteen_megabytes_is_one_however_many_packets_it_has() {
    let packet = |number: u8, body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        [&length[..3], &[number], body].concat()
    };
    let text = [b"\x03INSERT", &vec![b' '; 2 * PACKET_BYTES_MAX - 7][..]].concat();
    let [one, two] = [&text[..PACKET_BYTES_MAX], &text[PACKET_BYTES_MAX..]];
    // It ends with an empty packet, or else nobody would know that it ends.
    let message = [packet(0, one), packet(1, two), packet(2, b"")].concat();
    let before = DRIVER[1].1;
    let sent = [before, &message, b"\x01\0\0\0\x0e"].concat();
    let found = pieces(
        Protocol::MySql,
        TO,
        &sent,
        &[before.len(), 1 << 20, 1 << 24],
    );
    let lengths: Vec<_> = found
        .iter()
        .map(|piece| match piece {
            Piece::Frame(frame) => frame.len(),
            Piece::Raw(_) => panic!("not a message"),
        })
        .collect();
    assert_eq!(lengths, [before.len(), message.len(), 5]);

    let mut conversation = Conversation::default();
    for (direction, bytes) in &DRIVER[..3] {
        conversation.message(*direction, bytes);
    }
    assert_eq!(conversation.message(TO, &message).names[0], "INSERT Query");
    assert_eq!(conversation.message(TO, b"\x01\0\0\0\x0e").names, ["Ping"]);
}

#[test]
fn tls_is_no_message() {
    let hello = b"\x16\x03\x01\0\xa5\x01\0\0\xa1";
    let mut request = DRIVER[1].1[..36].to_vec();
    request[0] = 32;
    request[5] |= 0x08;
    for (direction, before) in [(TO, request), (FROM, DRIVER[0].1.to_vec())] {
        let found = pieces(
            Protocol::MySql,
            direction,
            &[&before, &hello[..]].concat(),
            &[before.len()],
        );
        assert_eq!(found, [Piece::Frame(before), Piece::Raw(hello.to_vec())]);
    }
    for (direction, noise) in [
        (TO, &hello[..]),
        (FROM, hello),
        (FROM, b"\x09\0\0\0HTTP/1.1 "),
    ] {
        assert_eq!(
            pieces(Protocol::MySql, direction, noise, &[]),
            [Piece::Raw(noise.to_vec())]
        );
    }
}

#[test]
fn refusal_is_an_error_with_the_number_of_the_answer() {
    let refusal = refusal(b"\x07\0\0\x05\0\0\0\x02\0\0\0", 1213).unwrap();
    assert_eq!(refusal[..7], *b"\x1f\0\0\x05\xff\xbd\x04");
    assert_eq!(refusal.len(), 4 + 0x1f);
    let mut awaited = Awaited::First;
    let part = awaited.next(&refusal, false, Client::default());
    assert_eq!(part.error, Some((1213, &b"HY000"[..])));
}

proptest! {
    #[test]
    fn messages_are_found_however_they_arrive(sizes in vec(0_usize..60, 0..60)) {
        for sent in [&CLIENT[..], &DRIVER[..]] {
            for direction in [TO, FROM] {
                let stream = stream(sent, direction);
                let whole = pieces(Protocol::MySql, direction, &stream, &[]);
                prop_assert!(whole.iter().all(|it| matches!(it, Piece::Frame(_))));
                prop_assert_eq!(pieces(Protocol::MySql, direction, &stream, &sizes), whole);
            }
        }
    }

    #[test]
    fn damaged_connection_is_forwarded_unchanged(at: usize, byte: u8) {
        damaged(Protocol::MySql, &CLIENT, at, byte);
        damaged(Protocol::MySql, &DRIVER, at, byte);
    }
}
