//! Connections of two clients as they were recorded, in any chunks, and damaged ones.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::proxy::protocol::Protocol;
use crate::proxy::recorded::{Sent, damaged, messages, names, pieces, stream};
use crate::proxy::splitter::Piece;

const TO: Direction = Direction::ToServer;
const FROM: Direction = Direction::FromServer;

/// `psql`, which asks for TLS, calls a function and divides by zero.
const PSQL: [Sent; 10] = [
    (TO, b"\0\0\0\x08\x04\xd2\x16/"),
    (FROM, b"N"),
    (
        TO,
        b"\0\0\0?\0\x03\0\0user\0postgres\0database\0postgres\0application_name\0psql\0\0",
    ),
    (
        FROM,
        b"R\0\0\0\x08\0\0\0\0S\0\0\0\x1aapplication_name\0psql\0S\0\0\0\x19client_encoding\0\
        UTF8\0S\0\0\0\x17DateStyle\0ISO, MDY\0S\0\0\0&default_transaction_read_only\0off\0S\
        \0\0\0\x17in_hot_standby\0off\0S\0\0\0\x19integer_datetimes\0on\0S\0\0\0\x1bInterval\
        Style\0postgres\0S\0\0\0\x14is_superuser\0on\0S\0\0\0\x19server_encoding\0UTF8\0S\0\
        \0\x002server_version\x0015.18 (Debian 15.18-0+deb12u1)\0S\0\0\0#session_authorization\0\
        postgres\0S\0\0\0#standard_conforming_strings\0on\0S\0\0\0\x15TimeZone\0Etc/UTC\0K\0\
        \0\0\x0c\0\0\x11S\xe5mn)Z\0\0\0\x05I",
    ),
    (TO, b"Q\0\0\0 select lock_recipes.beat(5)\0"),
    (
        FROM,
        b"T\0\0\0\x1d\0\x01beat\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0D\0\0\0\x0b\
        \0\x01\0\0\0\x015C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I",
    ),
    (TO, b"Q\0\0\0\x0fselect 1/0\0"),
    (
        FROM,
        b"E\0\0\0ASERROR\0VERROR\0C22012\0Mdivision by zero\0Fint.c\0L869\0Rint4div\0\0",
    ),
    (FROM, b"Z\0\0\0\x05I"),
    (TO, b"X\0\0\0\x04"),
];

/// tokio-postgres: a function that is prepared, called, refuses and is called again; news; the
/// statement is dropped.
const DRIVER: [Sent; 18] = [
    (
        TO,
        b"\0\0\0,\0\x03\0\0client_encoding\0UTF8\0user\0postgres\0\0",
    ),
    (
        FROM,
        b"R\0\0\0\x08\0\0\0\0S\0\0\0\x16application_name\0\0S\0\0\0\x19client_encoding\0UTF8\
        \0S\0\0\0\x17DateStyle\0ISO, MDY\0S\0\0\0&default_transaction_read_only\0off\0S\0\0\
        \0\x17in_hot_standby\0off\0S\0\0\0\x19integer_datetimes\0on\0S\0\0\0\x1bIntervalStyl\
        e\0postgres\0S\0\0\0\x14is_superuser\0on\0S\0\0\0\x19server_encoding\0UTF8\0S\0\0\x002\
        server_version\x0015.18 (Debian 15.18-0+deb12u1)\0S\0\0\0#session_authorization\0postg\
        res\0S\0\0\0#standard_conforming_strings\0on\0S\0\0\0\x15TimeZone\0Etc/UTC\0K\0\0\0\
        \x0c\0\0\x11Z\xd1\xfc\x05(Z\0\0\0\x05I",
    ),
    (
        TO,
        b"P\0\0\0&s0\0SELECT lock_recipes.beat($1)\0\0\0D\0\0\0\x08Ss0\0S\0\0\0\x04",
    ),
    (
        FROM,
        b"1\0\0\0\x04t\0\0\0\n\0\x01\0\0\0\x17T\0\0\0\x1d\0\x01beat\0\0\0\0\0\0\0\0\0\0\x17\
        \0\x04\xff\xff\xff\xff\0\0Z\0\0\0\x05I",
    ),
    (
        TO,
        b"B\0\0\0\x1a\0s0\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01E\0\0\0\t\0\0\0\
        \0\0S\0\0\0\x04",
    ),
    (
        FROM,
        b"2\0\0\0\x04D\0\0\0\x0e\0\x01\0\0\0\x04\0\0\0\x07C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I",
    ),
    (
        TO,
        b"B\0\0\0\x1a\0s0\0\0\x01\0\x01\0\x01\0\0\0\x04\xff\xff\xff\xff\0\x01\0\x01E\0\0\0\t\
        \0\0\0\0\0S\0\0\0\x04",
    ),
    (
        FROM,
        b"2\0\0\0\x04E\0\0\0\x81SERROR\0VERROR\0CLR001\0Mended\0WPL/pgSQL function lock_reci\
        pes.beat(integer) line 1 at RAISE\0Fpl_exec.c\0L3891\0Rexec_stmt_raise\0\0",
    ),
    (FROM, b"Z\0\0\0\x05I"),
    (
        TO,
        b"B\0\0\0\x1a\0s0\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x08\0\x01\0\x01E\0\0\0\t\0\0\0\
        \0\0S\0\0\0\x04",
    ),
    (
        FROM,
        b"2\0\0\0\x04D\0\0\0\x0e\0\x01\0\0\0\x04\0\0\0\x08C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I",
    ),
    (TO, b"Q\0\0\0\"LISTEN bell; NOTIFY bell, 'x'\0"),
    (
        FROM,
        b"C\0\0\0\x0bLISTEN\0C\0\0\0\x0bNOTIFY\0A\0\0\0\x0f\0\0\x11Zbell\0x\0Z\0\0\0\x05I",
    ),
    (TO, b"C\0\0\0\x08Ss0\0S\0\0\0\x04Q\0\0\0\x0bCOMMIT\0"),
    (FROM, b"3\0\0\0\x04Z\0\0\0\x05I"),
    (
        FROM,
        b"N\0\0\0fSWARNING\0VWARNING\0C25P01\0Mthere is no transaction in progress\0Fxact.c\
        \0L3987\0REndTransactionBlock\0\0",
    ),
    (FROM, b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I"),
    (TO, b"X\0\0\0\x04"),
];

fn greeting(parameters: usize) -> Vec<&'static str> {
    let mut greeting = vec!["> StartupMessage", "< Authentication"];
    greeting.extend(vec!["< ParameterStatus"; parameters]);
    greeting.extend(["< BackendKeyData", "< ReadyForQuery"]);
    greeting
}

#[test]
fn simple_queries_are_named_after_the_function_or_the_first_word() {
    let asked = ["> SSLRequest", "< EncryptionAnswer"];
    let called = [
        "> beat Query",
        "< beat RowDescription",
        "< beat DataRow",
        "< beat CommandComplete",
        "< beat ReadyForQuery",
    ];
    let refused = [
        "> SELECT Query",
        "< SELECT ErrorResponse",
        "< SELECT ReadyForQuery",
        "> Terminate",
    ];
    let expected = [&asked[..], &greeting(13), &called, &refused].concat();
    assert_eq!(names(Protocol::Postgres, &PSQL), expected);

    let messages = messages(Protocol::Postgres, &PSQL);
    let (_, error) = messages
        .iter()
        .find(|(_, it)| it.error == Some(REFUSED))
        .unwrap();
    assert_eq!(
        error.names,
        ["SELECT ErrorResponse", "SELECT", "ErrorResponse", "22012"]
    );
    // TLS, the start, the call, and this.
    assert_eq!((error.opcode, error.xid), (Opcode::Sql, Some(4)));
}

#[test]
fn messages_of_a_prepared_statement_are_named_after_it_even_those_that_are_skipped() {
    let prepared = [
        "> beat Parse",
        "> beat Describe",
        "> beat Sync",
        "< beat ParseComplete",
        "< beat ParameterDescription",
        "< beat RowDescription",
        "< beat ReadyForQuery",
    ];
    let call = ["> beat Bind", "> beat Execute", "> beat Sync"];
    let done = [
        "< beat BindComplete",
        "< beat DataRow",
        "< beat CommandComplete",
        "< beat ReadyForQuery",
    ];
    let refused = [
        "< beat BindComplete",
        "< beat ErrorResponse",
        "< beat ReadyForQuery",
    ];
    let news = [
        "> LISTEN Query",
        "< LISTEN CommandComplete",
        "< LISTEN CommandComplete",
        "< NotificationResponse",
        "< LISTEN ReadyForQuery",
    ];
    // The driver does not wait for the end of the one.
    let last = [
        "> beat Close",
        "> beat Sync",
        "> COMMIT Query",
        "< beat CloseComplete",
        "< beat ReadyForQuery",
        "< COMMIT NoticeResponse",
        "< COMMIT CommandComplete",
        "< COMMIT ReadyForQuery",
        "> Terminate",
    ];
    let expected = [
        &greeting(13)[..],
        &prepared,
        &call,
        &done,
        &call,
        &refused,
        &call,
        &done,
        &news,
        &last,
    ];
    assert_eq!(names(Protocol::Postgres, &DRIVER), expected.concat());

    let messages = messages(Protocol::Postgres, &DRIVER);
    let named = |name: &str| {
        let named = messages.iter().find(|it| it.1.names[0] == name);
        named.map(|it| it.1.clone()).unwrap()
    };
    let news = named("NotificationResponse");
    assert_eq!(
        (news.opcode, &*news.paths, news.xid),
        (Opcode::Notification, &["bell".to_owned()][..], None)
    );
    assert!(
        named("beat ErrorResponse")
            .names
            .contains(&"LR001".to_owned())
    );
    assert_eq!(named("beat Execute").xid, named("beat DataRow").xid);
    assert_eq!(named("beat DataRow").error, Some(0));
}

#[test]
fn error_that_nobody_asked_for_is_news() {
    let ended = b"E\0\0\0\x13SFATAL\0C57P01\0\0";
    let sent = [&DRIVER[..2], &[(FROM, &ended[..])]].concat();
    let messages = messages(Protocol::Postgres, &sent);
    let (_, news) = messages.last().unwrap();
    assert_eq!(
        (news.opcode, &*news.names, news.error),
        (
            Opcode::Notification,
            &["ErrorResponse".to_owned(), "57P01".to_owned()][..],
            None
        )
    );
}

#[test]
fn tls_is_no_message() {
    let hello = b"\x16\x03\x01\0\xa5\x01\0\0\xa1";
    let asked = b"\0\0\0\x08\x04\xd2\x16/";
    for (direction, before) in [(TO, &b""[..]), (TO, asked), (FROM, b"S"), (FROM, b"NG")] {
        let found = pieces(
            Protocol::Postgres,
            direction,
            &[before, hello].concat(),
            &[before.len()],
        );
        assert_eq!(found.last(), Some(&Piece::Raw(hello.to_vec())));
        let frames = found.iter().filter(|it| matches!(it, Piece::Frame(_)));
        assert_eq!(
            frames.count(),
            if direction == TO {
                before.len() / 8
            } else {
                before.len()
            }
        );
    }
    // A length that cannot be, and a protocol of the last century.
    for noise in [
        &b"\0\0\0\x07\0\x03\0\0"[..],
        b"\0\x01\0\0\0\x03\0\0",
        b"\0\0\0\x08\0\x02\0\0",
    ] {
        assert_eq!(
            pieces(Protocol::Postgres, TO, noise, &[]),
            [Piece::Raw(noise.to_vec())]
        );
    }
}

#[test]
fn refusal_is_a_message_with_the_code_as_its_state() {
    let refusal = refusal(40001).unwrap();
    let sent = [&PSQL[..4], &PSQL[4..5]].concat();
    let mut conversation = Conversation::default();
    for (direction, bytes) in sent {
        for piece in pieces(Protocol::Postgres, direction, bytes, &[]) {
            if let Piece::Frame(frame) = piece {
                conversation.message(direction, &frame);
            }
        }
    }
    let length = refusal.len() - 1;
    assert_eq!(refusal[1..5], u32::try_from(length).unwrap().to_be_bytes());
    let message = conversation.message(FROM, &refusal);
    assert!(message.names.contains(&"40001".to_owned()), "{message:?}");
}

#[test]
fn error_without_a_state_has_no_name_of_one() {
    assert_eq!(
        super::state(b'E', b"SERROR\0C40001\0Mwhy\0\0"),
        Some("40001".to_owned())
    );
    assert_eq!(super::state(b'E', b"SERROR\0C\0Mwhy\0\0"), None);
}

proptest! {
    #[test]
    fn messages_are_found_however_they_arrive(sizes in vec(0_usize..60, 0..60)) {
        for sent in [&PSQL[..], &DRIVER[..]] {
            for direction in [TO, FROM] {
                let stream = stream(sent, direction);
                let whole = pieces(Protocol::Postgres, direction, &stream, &[]);
                prop_assert!(whole.iter().all(|it| matches!(it, Piece::Frame(_))));
                prop_assert_eq!(pieces(Protocol::Postgres, direction, &stream, &sizes), whole);
            }
        }
    }

    #[test]
    fn damaged_connection_is_forwarded_unchanged(at: usize, byte: u8) {
        damaged(Protocol::Postgres, &PSQL, at, byte);
        damaged(Protocol::Postgres, &DRIVER, at, byte);
    }
}
