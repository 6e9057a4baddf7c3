//! Each fault of the proxy works as documented, observed from both ends of a real connection.
#![cfg(unix)]

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use futures::FutureExt as _;
use test_rig::{Cut, Direction, Fate, Fault, FaultProxy, Frame, Opcode, ZooKeeperServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, EventType};

mod databases;
mod links;
mod redis;

type Outcome = Result<(), Box<dyn Error>>;

/// Far more than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(120);
/// A busy machine loses no session with it. A client gives up a silent connection after two fifths.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
/// The first frame of a client: no session yet, ten seconds.
const CONNECT: &[u8] = b"\0\0\0\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x27\x10\0\0\0\0\0\0\0\0\0\0\0\x10\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// A `ConnectResponse`, with its length.
const CONNECTED_BYTES: usize = 4 + 37;

fn options() -> CreateOptions<'static> {
    CreateMode::Persistent.with_acls(Acls::anyone_all())
}

/// A server, a proxy in front of it, a client through the proxy, and a direct one.
struct Stage {
    proxy: FaultProxy,
    client: Client,
    operator: Client,
    server: ZooKeeperServer,
}

impl Stage {
    async fn set() -> Result<Self, Box<dyn Error>> {
        let server = ZooKeeperServer::start().await?;
        let proxy = FaultProxy::start(&server.connect_string()).await?;
        let client = client(&proxy.connect_string()).await?;
        let operator = server.client().await?;
        Ok(Self {
            proxy,
            client,
            operator,
            server,
        })
    }

    /// Whether the server has the node.
    async fn has(&self, path: &str) -> Result<bool, Box<dyn Error>> {
        Ok(self.operator.check_stat(path).await?.is_some())
    }

    /// Creates a node through the proxy. Returns an error as text.
    async fn create(&self, path: &str) -> Result<(), String> {
        let created = self.client.create(path, b"", &options());
        let created = timeout(PATIENCE, created).await;
        created
            .map_err(|_| "hung".to_owned())?
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

async fn client(connect_string: &str) -> Result<Client, Box<dyn Error>> {
    let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
    Ok(connector.connect(connect_string).await?)
}

/// A connection without a client, whose bytes can be counted.
async fn greeted(proxy: &FaultProxy) -> Result<TcpStream, Box<dyn Error>> {
    let mut stream = TcpStream::connect(proxy.connect_string()).await?;
    stream.write_all(CONNECT).await?;
    Ok(stream)
}

/// Reads to the end. Returns how many bytes came, and whether the end was a reset.
async fn read_out(stream: &mut TcpStream) -> Result<(usize, bool), Box<dyn Error>> {
    let mut bytes = Vec::new();
    match timeout(PATIENCE, stream.read_to_end(&mut bytes)).await? {
        Ok(_) => Ok((bytes.len(), false)),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok((bytes.len(), true)),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn proxy_without_rules_is_not_noticed_and_understands_what_passes() -> Outcome {
    let stage = Stage::set().await?;
    stage.create("/a").await?;
    let (_, watcher) = stage.client.check_and_watch_stat("/a").await?;
    let mut transaction = stage.client.new_multi_writer();
    transaction.add_create("/a/b", b"data", &options())?;
    transaction.add_set_data("/a", b"more", None)?;
    transaction.commit().await?;
    timeout(PATIENCE, watcher.changed()).await?;
    assert!(stage.client.get_data("/none").await.is_err());

    let log = stage.proxy.log();
    let find = |direction, opcode| -> Result<&Frame, String> {
        log.iter()
            .find(|it| it.direction == direction && it.opcode == opcode)
            .ok_or_else(|| format!("no {opcode:?} {direction:?} in {log:#?}"))
    };
    for direction in [Direction::ToServer, Direction::FromServer] {
        find(direction, Opcode::Connect)?;
        assert_eq!(find(direction, Opcode::Create)?.paths, ["/a"]);
        assert!(find(direction, Opcode::Exists)?.watch);
        assert_eq!(find(direction, Opcode::Multi)?.paths, ["/a/b", "/a"]);
    }
    let request = find(Direction::ToServer, Opcode::Create)?;
    let reply = find(Direction::FromServer, Opcode::Create)?;
    assert_eq!(request.xid, reply.xid);
    assert_eq!((request.error, reply.error), (None, Some(0)));
    let (_, stat) = stage.operator.get_data("/a").await?;
    assert_eq!(reply.zxid, Some(stat.czxid));
    let no_node = find(Direction::FromServer, Opcode::GetData)?;
    assert_eq!(
        (no_node.error, no_node.paths.as_slice()),
        (Some(-101), &["/none".to_owned()][..])
    );
    assert_eq!(
        find(Direction::FromServer, Opcode::Notification)?.paths,
        ["/a"]
    );
    assert!(
        log.iter()
            .all(|it| it.fate == Fate::Passed && it.connection == 1)
    );
    assert_eq!(stage.proxy.connections(), 1);
    Ok(())
}

#[tokio::test]
async fn four_letter_words_pass() -> Outcome {
    let stage = Stage::set().await?;
    for (word, answer) in [("ruok", "imok"), ("isro", "rw")] {
        let mut stream = TcpStream::connect(stage.proxy.connect_string()).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut reply = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut reply)).await??;
        assert_eq!(reply, answer);
    }
    Ok(())
}

#[tokio::test]
async fn cut_at_a_request_or_its_reply_decides_what_was_done() -> Outcome {
    use Direction::{FromServer, ToServer};
    let stage = Stage::set().await?;
    for (number, (direction, fault, is_done)) in [
        (ToServer, Fault::CutBefore(Cut::Fin), Some(false)),
        (ToServer, Fault::CutBefore(Cut::Reset), Some(false)),
        (ToServer, Fault::CutWithin(Cut::Fin), Some(false)),
        (ToServer, Fault::CutWithin(Cut::Reset), Some(false)),
        // The client may be back before the server has read it, which closes the old connection.
        (ToServer, Fault::CutAfter(Cut::Fin), None),
        // The reset may overtake what was written before it.
        (ToServer, Fault::CutAfter(Cut::Reset), None),
        (FromServer, Fault::CutBefore(Cut::Fin), Some(true)),
        (FromServer, Fault::CutBefore(Cut::Reset), Some(true)),
        (FromServer, Fault::CutWithin(Cut::Fin), Some(true)),
        (FromServer, Fault::CutWithin(Cut::Reset), Some(true)),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        let frame = stage.proxy.on(direction).opcode(Opcode::Create);
        let injected = frame.path_contains(&path).then(fault);
        let case = format!("{fault:?} {direction:?}");
        assert!(stage.create(&path).await.is_err(), "{case}");
        assert_eq!(injected.count(), 1, "{case}");
        // The connection is back, with the same session.
        timeout(PATIENCE, stage.client.sync("/")).await??;
        if let Some(is_done) = is_done {
            assert_eq!(stage.has(&path).await?, is_done, "{case}");
        }
    }
    // The reply arrives, and then the connection ends.
    let connections = stage.proxy.connections();
    let reply = stage.proxy.on(FromServer).opcode(Opcode::Create);
    reply.then(Fault::CutAfter(Cut::Fin));
    stage.create("/last").await?;
    timeout(PATIENCE, stage.client.sync("/")).await??;
    assert_eq!(stage.proxy.connections(), connections + 1);
    Ok(())
}

#[tokio::test]
async fn cuts_hand_on_what_they_say_and_end_as_they_say() -> Outcome {
    let stage = Stage::set().await?;
    for (fault, bytes, is_reset) in [
        (Fault::CutBefore(Cut::Fin), 0, false),
        (Fault::CutBefore(Cut::Reset), 0, true),
        (Fault::CutWithin(Cut::Fin), CONNECTED_BYTES / 2, false),
        (Fault::CutAfter(Cut::Fin), CONNECTED_BYTES, false),
    ] {
        let reply = stage
            .proxy
            .on(Direction::FromServer)
            .opcode(Opcode::Connect);
        reply.then(fault);
        let end = read_out(&mut greeted(&stage.proxy).await?).await?;
        assert_eq!(end, (bytes, is_reset), "{fault:?}");
    }
    for fault in [Fault::CutWithin(Cut::Reset), Fault::CutAfter(Cut::Reset)] {
        let reply = stage
            .proxy
            .on(Direction::FromServer)
            .opcode(Opcode::Connect);
        reply.then(fault);
        let (_, is_reset) = read_out(&mut greeted(&stage.proxy).await?).await?;
        assert!(is_reset, "{fault:?}");
    }
    let fates: Vec<_> = stage.proxy.log().iter().map(|it| it.fate).collect();
    assert!(
        fates.contains(&Fate::Halved) && fates.contains(&Fate::Swallowed),
        "{fates:?}"
    );
    Ok(())
}

#[tokio::test]
async fn black_hole_at_a_frame_swallows_one_way_of_one_connection() -> Outcome {
    for (direction, is_done) in [(Direction::ToServer, false), (Direction::FromServer, true)] {
        let stage = Stage::set().await?;
        let frame = stage.proxy.on(direction).opcode(Opcode::Create);
        frame.then(Fault::BlackHole);
        let error = stage.create("/a").await.unwrap_err();
        assert!(error.contains("no response"), "{direction:?}: {error}");
        assert_eq!(stage.has("/a").await?, is_done, "{direction:?}");
        // The next connection of the session works.
        timeout(PATIENCE, stage.client.sync("/")).await??;
        assert_eq!(stage.proxy.connections(), 2);
    }
    Ok(())
}

#[tokio::test]
async fn dropped_frame_is_missed_and_the_next_is_not() -> Outcome {
    let stage = Stage::set().await?;
    stage.create("/a").await?;
    stage.create("/b").await?;
    let (_, _, of_a) = stage.client.get_and_watch_data("/a").await?;
    let (_, _, of_b) = stage.client.get_and_watch_data("/b").await?;
    let event = stage
        .proxy
        .on(Direction::FromServer)
        .opcode(Opcode::Notification);
    event.path_contains("/a").then(Fault::Drop);
    stage.operator.delete("/a", None).await?;
    stage.operator.delete("/b", None).await?;
    let event = timeout(PATIENCE, of_b.changed()).await?;
    assert_eq!(event.event_type, EventType::NodeDeleted);
    assert!(of_a.changed().now_or_never().is_none());
    assert_eq!(stage.proxy.connections(), 1);
    Ok(())
}

#[tokio::test]
async fn delayed_frame_delays_those_behind_it() -> Outcome {
    const DELAY: Duration = Duration::from_millis(300);
    let stage = Stage::set().await?;
    let reply = stage.proxy.on(Direction::FromServer).opcode(Opcode::Create);
    reply.then(Fault::Delay(DELAY));
    let sent = Instant::now();
    // The client sends when it is called, so they are sent in this order.
    let options = options();
    let (created, synced) = (
        stage.client.create("/a", b"", &options),
        stage.client.sync("/"),
    );
    let both = async { tokio::join!(created, synced) };
    let (created, synced) = timeout(PATIENCE, both).await?;
    created?;
    synced?;
    assert!(sent.elapsed() >= DELAY);
    let log = stage.proxy.log();
    let answered: Vec<_> = log
        .iter()
        .filter(|it| it.direction == Direction::FromServer && it.xid > Some(0))
        .map(|it| it.opcode)
        .collect();
    assert_eq!(answered, [Opcode::Create, Opcode::Sync]);
    Ok(())
}

#[tokio::test]
async fn gate_holds_a_frame_until_it_is_released() -> Outcome {
    for (direction, is_done) in [(Direction::ToServer, false), (Direction::FromServer, true)] {
        let stage = Stage::set().await?;
        let gate = stage.proxy.on(direction).opcode(Opcode::Create).hold();
        let mut create = Box::pin(stage.create("/a"));
        tokio::select! {
            created = &mut create => panic!("went through a closed gate: {created:?}"),
            reached = timeout(PATIENCE, gate.reached()) => reached?,
        }
        assert_eq!(stage.has("/a").await?, is_done, "{direction:?}");
        assert!(create.as_mut().now_or_never().is_none());
        let frame = stage.proxy.on(direction).opcode(Opcode::Create);
        assert_eq!(frame.clone().count(), 0, "logged before it was handed on");
        gate.release();
        create.await?;
        assert_eq!(timeout(PATIENCE, frame.seen()).await?.fate, Fate::Passed);
    }
    Ok(())
}

#[tokio::test]
async fn gate_that_is_dropped_is_open() -> Outcome {
    let stage = Stage::set().await?;
    drop(
        stage
            .proxy
            .on(Direction::ToServer)
            .opcode(Opcode::Create)
            .hold(),
    );
    Ok(stage.create("/a").await?)
}

#[tokio::test]
async fn split_frame_arrives_in_pieces() -> Outcome {
    let stage = Stage::set().await?;
    let split = Fault::Split {
        bytes: 1,
        pause: Duration::from_millis(2),
    };
    let reply = stage
        .proxy
        .on(Direction::FromServer)
        .opcode(Opcode::Connect);
    reply.then(split);
    let mut stream = greeted(&stage.proxy).await?;
    let (mut reads, mut buffer) = (Vec::new(), [0; 64]);
    while reads.iter().sum::<usize>() < CONNECTED_BYTES {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await??;
        assert!(read > 0, "{reads:?}");
        reads.push(read);
    }
    // Some may arrive together on a busy machine.
    assert!(reads.len() > 4, "{reads:?}");

    for direction in [Direction::ToServer, Direction::FromServer] {
        stage.proxy.on(direction).each().then(split);
    }
    stage.create("/a").await?;
    assert!(stage.has("/a").await?);
    Ok(())
}

#[tokio::test]
async fn rules_pick_their_frames() -> Outcome {
    let stage = Stage::set().await?;
    let replies = stage.proxy.on(Direction::FromServer).opcode(Opcode::Create);
    let second = replies.clone().path_contains("lock-").nth(2);
    let first_set = second.clone().then(Fault::CutBefore(Cut::Fin));
    let set_later = second.then(Fault::CutBefore(Cut::Reset));
    let elsewhere = replies.clone().connection(9).then(Fault::Drop);
    stage.create("/other").await?;
    stage.create("/lock-1").await?;
    assert!(stage.create("/lock-2").await.is_err());
    stage.create("/lock-3").await?;
    timeout(PATIENCE, first_set.struck()).await?;
    assert_eq!(
        [first_set.count(), set_later.count(), elsewhere.count()],
        [1, 0, 0]
    );

    let each = replies
        .clone()
        .path_contains("each")
        .each()
        .then(Fault::CutBefore(Cut::Fin));
    assert!(stage.create("/each-1").await.is_err());
    assert!(stage.create("/each-2").await.is_err());
    assert_eq!(each.count(), 2);
    stage.proxy.clear_rules();
    stage.create("/each-3").await?;

    let third = timeout(PATIENCE, replies.clone().nth(3).seen()).await?;
    assert_eq!(third.paths, ["/lock-2"]);
    assert_eq!(replies.clone().connection(1).count(), 3);
    stage.proxy.clear_log();
    assert_eq!(replies.count(), 0);
    Ok(())
}
