//! Connections as sessions use them, other clients, and noise.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn request(words: &[&str]) -> Vec<u8> {
    let word = |it: &&str| format!("${}\r\n{it}\r\n", it.len());
    let words_of: String = words.iter().map(word).collect();
    format!("*{}\r\n{words_of}", words.len()).into_bytes()
}

/// A conversation with pushes.
fn greeted() -> Conversation {
    let mut conversation = Conversation::default();
    conversation.message(Direction::ToServer, &request(&["HELLO", "3"]));
    conversation.message(Direction::FromServer, b"%1\r\n+proto\r\n:3\r\n");
    conversation
}

fn name_of(function: &str) -> String {
    format!("lock_recipes_0123456789abcdef_{function}")
}

/// What the words of a call of this function are taken for.
fn called(function: &str, words: &[&str]) -> Message {
    let name = name_of(function);
    let call = [&["FCALL", &name, "1", "{locks}"], words].concat();
    greeted().message(Direction::ToServer, &request(&call))
}

#[test]
fn calls_are_named_after_the_function_and_what_is_in_them() {
    let opened = called("open", &["secret", "400000", "run", "1"]);
    assert_eq!(
        (opened.names, opened.paths),
        (vec!["open".to_owned()], vec![])
    );
    let resumed = called(
        "resume",
        &[
            "1:2:s", "1", "2", "2", "run", "0", "1", "7", "/a", "8", "8", "9", "/b", "8", "8",
        ],
    );
    assert_eq!(resumed.names, ["resume"]);
    assert_eq!(resumed.paths, ["/a", "/b"]);
    assert_eq!(called("close", &["1:2:s:1"]).names, ["close"]);

    let session = ["1:2:s:1", "1", "2", "60000000"];
    let entered = [
        "multi", "1", "create", "/a/lock-", "beat", "S", "look", "/a", "", "1", "2", "3",
    ];
    let entered = called("requests", &[&session[..], &entered].concat());
    // What looks like a request is the data of a node.
    assert_eq!(entered.names, ["multi create", "look"]);
    assert_eq!(entered.paths, ["/a/lock-", "/a"]);
    let more = [
        "multi", "3", "check", "/a", "", "set", "/b", "", "", "delete", "/c", "3", "multi", "1",
        "delete", "/d", "", "list", "/e", "read", "/f", "stat", "/g", "watch", "/h", "4",
        "unwatch", "/i", "beat",
    ];
    let more = called("requests", &[&session[..], &more].concat());
    assert_eq!(
        more.names,
        [
            "multi check",
            "multi set",
            "multi delete",
            "list",
            "read",
            "stat",
            "watch",
            "unwatch",
            "beat"
        ]
    );
    let paths = ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i"];
    assert_eq!(more.paths, paths);
    for garbled in [&["multi"][..], &["multi", "x"], &["what"], &[]] {
        let words = [&session[..], garbled].concat();
        assert_eq!(
            called("requests", &words).names,
            ["requests"],
            "{garbled:?}"
        );
    }
}

#[test]
fn answers_have_the_names_of_their_requests_in_order_and_news_are_not_answers() {
    let mut conversation = greeted();
    let requests = name_of("requests");
    let beat = request(&[
        "FCALL", &requests, "1", "{locks}", "1:2:s:1", "1", "2", "1", "beat",
    ]);
    let other = request(&["FCALL", "unknown", "0"]);
    let subscribe = request(&["SUBSCRIBE", "a", "b"]);
    let asked: Vec<_> = [&beat, &subscribe, &other]
        .map(|it| conversation.message(Direction::ToServer, it))
        .into();
    let answers = [
        (
            &b"*2\r\n*1\r\n$0\r\n\r\n:5\r\n"[..],
            Opcode::Redis,
            "beat",
            Some(0),
        ),
        (
            b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
            Opcode::Redis,
            "SUBSCRIBE",
            Some(0),
        ),
        (
            b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$6\r\nD 7 /a\r\n",
            Opcode::Notification,
            "message",
            None,
        ),
        (
            b">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n",
            Opcode::Redis,
            "SUBSCRIBE",
            Some(0),
        ),
        // An answer that looks like news is none.
        (
            b"|1\r\n+a\r\n:1\r\n*2\r\n$7\r\nmessage\r\n:1\r\n",
            Opcode::Redis,
            "FCALL",
            Some(0),
        ),
        (b"-ERR nobody asked\r\n", Opcode::Unknown, "", None),
    ];
    for (bytes, opcode, name, error) in answers {
        let answered = conversation.message(Direction::FromServer, bytes);
        assert_eq!((answered.opcode, answered.error), (opcode, error), "{name}");
        assert_eq!(answered.names.first().map_or("", |it| it), name);
        match opcode {
            Opcode::Notification => assert_eq!(answered.paths, ["/a"]),
            Opcode::Redis => {
                let request = asked.iter().find(|it| it.xid == answered.xid).unwrap();
                assert_eq!(request.names, answered.names);
            }
            _ => {}
        }
    }
}

#[test]
fn functions_of_others_and_loading_are_named_by_their_commands() {
    let mut conversation = greeted();
    for (words, name) in [
        (&["function", "load", "x"][..], "FUNCTION LOAD"),
        (&["fcall", "lock_recipes", "1", "p"], "FCALL"),
        (&["EVALSHA", "x", "0"], "EVALSHA"),
    ] {
        let asked = conversation.message(Direction::ToServer, &request(words));
        assert_eq!(asked.names, [name]);
        let refused = conversation.message(Direction::FromServer, b"-NOPERM no\r\n");
        assert_eq!((refused.error, refused.names), (Some(-1), asked.names));
    }
}

#[test]
fn news_of_the_older_protocol_are_arrays() {
    let mut conversation = Conversation::default();
    conversation.message(Direction::ToServer, b"subscribe a\r\n");
    let confirmed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
    let confirmed = conversation.message(Direction::FromServer, confirmed);
    assert_eq!(confirmed.names, ["SUBSCRIBE"]);
    let news = conversation.message(
        Direction::FromServer,
        b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n",
    );
    assert_eq!(news.opcode, Opcode::Notification);
}

proptest! {
    #[test]
    fn no_bytes_are_too_wild(messages in vec((any::<bool>(), vec(any::<u8>(), 0..80)), 0..20)) {
        let mut conversation = Conversation::default();
        for (to_server, bytes) in messages {
            let direction = if to_server { Direction::ToServer } else { Direction::FromServer };
            conversation.message(direction, &bytes);
        }
    }

    #[test]
    fn no_words_are_too_wild(
        function in "(open|resume|requests|close|_|)",
        words in vec("(multi|look|watch|list|create|delete|beat|[0-9]{1,20}|/a)?", 0..20),
    ) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        prop_assert!(!called(&function, &words).names.is_empty());
    }
}
