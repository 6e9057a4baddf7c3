//! Frames as clients and servers write them, and damaged frames.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Writes the serialization that [`Jute`] reads.
#[derive(Clone, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn bool(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    fn buffer(self, bytes: &[u8]) -> Self {
        let mut this = self.int(i32::try_from(bytes.len()).unwrap());
        this.0.extend(bytes);
        this
    }

    fn strings(self, strings: &[String]) -> Self {
        let this = self.int(i32::try_from(strings.len()).unwrap());
        strings
            .iter()
            .fold(this, |this, it| this.buffer(it.as_bytes()))
    }

    /// The operands of one operation.
    fn operands(self, number: i32, path: &str, data: &[u8], flag: bool) -> Self {
        let this = self.buffer(path.as_bytes());
        match number {
            1 | 15 | 19 | 21 => {
                let acl = this.buffer(data).int(2);
                let acl = acl.int(31).buffer(b"world").buffer(b"anyone");
                let acl = acl.int(1).buffer(b"digest").buffer(b"a:b").int(3);
                if number == 21 { acl.long(1000) } else { acl }
            }
            3 | 4 | 8 | 12 => this.bool(flag),
            5 => this.buffer(data).int(-1),
            9 => this,
            _ => this.int(-1),
        }
    }
}

/// Operations that name one node.
const SINGLE: [i32; 14] = [1, 2, 3, 4, 5, 8, 9, 12, 13, 15, 18, 19, 21, 106];
/// Operations of transactions.
const IN_MULTI: [i32; 9] = [1, 2, 4, 5, 8, 13, 15, 19, 21];

fn connected() -> Conversation {
    let mut conversation = Conversation::default();
    for direction in [Direction::ToServer, Direction::FromServer] {
        let greeting = conversation.message(direction, &[0; 45]);
        assert_eq!(greeting.opcode, Opcode::Connect);
    }
    conversation
}

fn reply(xid: i32) -> Vec<u8> {
    Writer::default().int(xid).long(77).int(-101).0
}

fn path() -> impl Strategy<Value = String> {
    "/[a-zß]{0,12}(/lock-[0-9]{0,4})?"
}

proptest! {
    #[test]
    fn request_names_its_node_and_the_reply_that_of_its_request(
        xid in 1..i32::MAX,
        number in proptest::sample::select(&SINGLE[..]),
        path in path(),
        data in vec(any::<u8>(), 0..30),
        watch: bool,
    ) {
        let mut conversation = connected();
        let request = Writer::default().int(xid).int(number);
        let request = request.operands(number, &path, &data, watch).0;
        let asked = conversation.message(Direction::ToServer, &request);
        prop_assert_eq!(asked.opcode, opcode(number));
        prop_assert_eq!(&asked.paths, &[path]);
        prop_assert_eq!(asked.watch, watch && matches!(number, 3 | 4 | 8 | 12));
        prop_assert_eq!((asked.xid, asked.error), (Some(xid), None));

        let answered = conversation.message(Direction::FromServer, &reply(xid));
        let answer = Message { zxid: Some(77), error: Some(-101), ..asked };
        prop_assert_eq!(answered, answer);
        // It is answered only once.
        let again = conversation.message(Direction::FromServer, &reply(xid));
        prop_assert_eq!(again.opcode, Opcode::Unknown);
    }

    #[test]
    fn transaction_names_the_nodes_of_all_its_operations(
        operations in vec((proptest::sample::select(&IN_MULTI[..]), path()), 0..6),
        data in vec(any::<u8>(), 0..30),
    ) {
        let mut request = Writer::default().int(5).int(14);
        for (number, path) in &operations {
            request = request.int(*number).bool(false).int(-1);
            request = request.operands(*number, path, &data, false);
        }
        let request = request.int(-1).bool(true).int(-1).0;
        let asked = connected().message(Direction::ToServer, &request);
        let paths: Vec<_> = operations.into_iter().map(|(_, path)| path).collect();
        prop_assert_eq!((asked.opcode, asked.paths), (Opcode::Multi, paths));
    }

    #[test]
    fn watches_set_again_name_their_nodes(lists in vec(vec(path(), 0..4), 5)) {
        for (number, count) in [(101, 3), (105, 5)] {
            let request = Writer::default().int(-8).int(number).long(9);
            let lists = &lists[..count];
            let request = lists.iter().fold(request, |it, list| it.strings(list)).0;
            let asked = connected().message(Direction::ToServer, &request);
            prop_assert_eq!((asked.opcode, asked.paths), (Opcode::SetWatches, lists.concat()));
        }
    }

    #[test]
    fn no_bytes_are_too_wild(frames in vec((any::<bool>(), vec(any::<u8>(), 0..80)), 0..20)) {
        let mut conversation = Conversation::default();
        for (to_server, body) in frames {
            let direction = if to_server { Direction::ToServer } else { Direction::FromServer };
            conversation.message(direction, &body);
        }
    }

    /// Noise seldom gets past the header. A good request that is cut short or has one byte changed
    /// does.
    #[test]
    fn no_damage_is_too_subtle(
        number in proptest::sample::select(&[1, 4, 5, 14, 21, 22, 101, 105][..]),
        path in path(),
        position: proptest::sample::Index,
        byte: u8,
        length: proptest::sample::Index,
    ) {
        let request = Writer::default().int(5).int(number);
        let mut request = match number {
            14 | 22 => request.int(1).bool(false).int(-1).operands(1, &path, b"data", false),
            101 | 105 => request.long(9).strings(&[]).strings(&[path.clone(), path]),
            number => request.operands(number, &path, b"data", false),
        }.0;
        let position = position.index(request.len());
        request[position] = byte;
        let length = length.index(request.len());
        connected().message(Direction::ToServer, &request);
        connected().message(Direction::ToServer, &request[..length]);
    }
}

#[test]
fn forged_counts_and_lengths_are_not_believed() {
    let (most, least) = (i32::MAX, i32::MIN);
    for count in [most, least] {
        for number in [1, 5, 101] {
            let request = Writer::default().int(1).int(number).int(count).int(count).0;
            let asked = connected().message(Direction::ToServer, &request);
            assert_eq!(asked.paths, [""; 0], "operation {number}, count {count}");
        }
        let lists = Writer::default().int(1).int(101).long(0).int(count);
        let asked = connected().message(Direction::ToServer, &lists.int(4).0);
        assert_eq!(asked.paths, [""; 0], "count {count}");
    }
}

#[test]
fn notifications_and_what_has_no_number_are_known() {
    let mut conversation = connected();
    let event = Writer(reply(-1)).int(2).int(3).buffer(b"/locks/a").0;
    let event = conversation.message(Direction::FromServer, &event);
    assert_eq!(event.opcode, Opcode::Notification);
    assert_eq!(event.paths, ["/locks/a"]);
    for (xid, opcode) in [
        (-2, Opcode::Ping),
        (-4, Opcode::Auth),
        (-8, Opcode::SetWatches),
    ] {
        let unasked = conversation.message(Direction::FromServer, &reply(xid));
        assert_eq!(unasked.opcode, opcode);
    }
    let ping = Writer::default().int(-2).int(11).0;
    assert_eq!(
        conversation.message(Direction::ToServer, &ping).opcode,
        Opcode::Ping
    );
}
