//! The same faults, in front of Redis.

use std::sync::Arc;

use recipes_core::{NewNode, NodeEvent, NodeMode, Nodes};
use recipes_redis::Redis;
use test_rig::RedisServer;

use super::*;

/// A server, a proxy in front of it, a session through the proxy, and a direct one.
struct Stage {
    proxy: FaultProxy,
    session: Arc<dyn Nodes>,
    operator: Arc<dyn Nodes>,
    /// It runs as long as this.
    _server: RedisServer,
}

async fn session(url: &str) -> Result<Arc<dyn Nodes>, Box<dyn Error>> {
    // A call without an answer costs the connection after a quarter of it, on a busy machine, too.
    let options = Redis::builder().session_timeout(PATIENCE).new_server();
    Ok(options.store(url)?.connect().await?)
}

fn node(path: &str) -> NewNode {
    NewNode {
        path: path.to_owned(),
        data: (*b"look").into(),
        mode: NodeMode::Persistent,
    }
}

impl Stage {
    async fn set() -> Result<Self, Box<dyn Error>> {
        let server = RedisServer::start().await?;
        let operator = session(&server.url()).await?;
        let proxy = FaultProxy::start_for_redis(&format!("127.0.0.1:{}", server.port())).await?;
        let session = session(&format!("redis://{}", proxy.connect_string())).await?;
        Ok(Self {
            proxy,
            session,
            operator,
            _server: server,
        })
    }

    /// Whether the server has the node.
    async fn has(&self, path: &str) -> Result<bool, Box<dyn Error>> {
        Ok(self.operator.stat(path).await?.is_some())
    }
}

#[tokio::test]
async fn proxy_without_rules_is_not_noticed_and_names_what_passes() -> Outcome {
    let stage = Stage::set().await?;
    let (proxy, session) = (&stage.proxy, &stage.session);
    session.create(&node("/a")).await?;
    let watched = session.watch("/a").await?;
    let (data, _, event) = watched.ok_or("no node")?;
    assert_eq!(data, b"look");
    stage.operator.delete("/a").await?;
    assert_eq!(timeout(PATIENCE, event).await?, NodeEvent::Deleted);
    assert!(session.read("/none").await?.is_none());

    let log = proxy.log();
    let named = |direction| -> Vec<&str> {
        let of_way = log.iter().filter(|it| it.direction == direction);
        let names = of_way.flat_map(|it| it.names.iter().map(String::as_str));
        names.filter(|it| *it != "beat").collect()
    };
    let asked = named(Direction::ToServer);
    let greeting = [
        "HELLO",
        "CLIENT SETINFO",
        "CLIENT SETINFO",
        "INFO",
        "CONFIG GET",
        "EXISTS",
    ];
    let opening = ["FUNCTION LIST", "open", "SUBSCRIBE"];
    let use_of_it = ["multi create", "watch", "read"];
    assert_eq!(asked, [&greeting[..], &opening, &use_of_it].concat());
    let mut answered = named(Direction::FromServer);
    let news = answered.iter().position(|it| *it == "message");
    answered.remove(news.ok_or("no news")?);
    assert_eq!(answered, asked);

    let find = |direction, name: &str| -> Result<&Frame, String> {
        let is_it = |it: &&Frame| it.direction == direction && it.names == [name];
        let found = log.iter().find(is_it);
        found.ok_or_else(|| format!("no {name} {direction:?} in {log:#?}"))
    };
    let request = find(Direction::ToServer, "multi create")?;
    let answer = find(Direction::FromServer, "multi create")?;
    assert_eq!((&request.paths, request.xid), (&answer.paths, answer.xid));
    assert_eq!((request.error, answer.error), (None, Some(0)));
    assert_eq!(answer.paths, ["/a"]);
    let news = find(Direction::FromServer, "message")?;
    assert_eq!(
        (news.opcode, &*news.paths),
        (Opcode::Notification, &["/a".to_owned()][..])
    );
    assert!(
        log.iter()
            .all(|it| it.fate == Fate::Passed && it.connection == 1)
    );
    Ok(())
}

#[tokio::test]
async fn cut_at_a_request_or_its_answer_decides_what_was_done() -> Outcome {
    use Direction::{FromServer, ToServer};
    let stage = Stage::set().await?;
    for (number, (direction, fault, is_done)) in [
        (ToServer, Fault::CutBefore(Cut::Fin), Some(false)),
        (ToServer, Fault::CutBefore(Cut::Reset), Some(false)),
        (ToServer, Fault::CutWithin(Cut::Fin), Some(false)),
        (ToServer, Fault::CutWithin(Cut::Reset), Some(false)),
        // Before the server has read it, the client may be back, after which it is not carried out.
        (ToServer, Fault::CutAfter(Cut::Fin), None),
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
        let message = stage.proxy.on(direction).named("multi create");
        let injected = message.path_contains(&path).then(fault);
        let case = format!("{fault:?} {direction:?}");
        let created = timeout(PATIENCE, stage.session.create(&node(&path))).await?;
        assert!(created.is_err(), "{case}");
        assert_eq!(injected.count(), 1, "{case}");
        // The connection is back, with the same session.
        timeout(PATIENCE, stage.session.sync("/")).await??;
        if let Some(is_done) = is_done {
            assert_eq!(stage.has(&path).await?, is_done, "{case}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn gate_holds_a_message_and_a_refusal_replaces_its_answer() -> Outcome {
    for (direction, is_done) in [(Direction::ToServer, false), (Direction::FromServer, true)] {
        let stage = Stage::set().await?;
        let gate = stage.proxy.on(direction).named("multi create").hold();
        let a = node("/a");
        let mut create = stage.session.create(&a);
        tokio::select! {
            created = &mut create => panic!("went through a closed gate: {created:?}"),
            reached = timeout(PATIENCE, gate.reached()) => reached?,
        }
        assert_eq!(stage.has("/a").await?, is_done, "{direction:?}");
        assert!(create.as_mut().now_or_never().is_none());
        gate.release();
        timeout(PATIENCE, create).await??;

        let answer = stage.proxy.on(Direction::FromServer).named("stat");
        answer.clone().then(Fault::Refuse(7));
        assert!(timeout(PATIENCE, stage.session.stat("/a")).await?.is_err());
        // The refusal is no lasting answer, so the session has another connection.
        timeout(PATIENCE, stage.session.sync("/")).await??;
        assert_eq!(stage.proxy.connections(), 2);
    }
    Ok(())
}

#[tokio::test]
async fn message_that_comes_byte_by_byte_is_noticed_by_nobody() -> Outcome {
    let Stage { proxy, session, .. } = &Stage::set().await?;
    for direction in [Direction::ToServer, Direction::FromServer] {
        let split = Fault::Split {
            bytes: 1,
            pause: Duration::ZERO,
        };
        proxy.on(direction).each().then(split);
    }
    session.create(&node("/a")).await?;
    assert_eq!(session.list("/").await?, ["a"]);
    assert_eq!(proxy.connections(), 1);
    Ok(())
}

#[tokio::test]
async fn refusal_is_whole_even_if_it_is_longer_than_the_answer() -> Outcome {
    let Stage { proxy, .. } = &Stage::set().await?;
    let answer = proxy.on(Direction::FromServer).named("PING");
    answer.then(Fault::Refuse(7));
    let mut stream = TcpStream::connect(proxy.connect_string()).await?;
    stream.write_all(b"PING\r\nQUIT\r\n").await?;
    let mut answers = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answers)).await??;
    assert_eq!(answers, "-ERR refused with code 7\r\n+OK\r\n");
    Ok(())
}
