//! The same faults, in front of databases, whose own clients are the judges.

use test_rig::{MariaDbServer, PostgresServer};
use tokio::process::Command;

use super::*;

/// What a client has printed, or why it has not.
type Answer = Result<String, String>;

/// A server, a proxy in front of it, and the client that goes through the proxy.
enum Stage {
    Postgres(PostgresServer, FaultProxy),
    MariaDb(MariaDbServer, FaultProxy),
}

const FUNCTION: &str = "CREATE SCHEMA lock_recipes; CREATE TABLE t (path text);
    CREATE FUNCTION lock_recipes.enter(path text) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO t VALUES (path); RETURN path; END $$";
const PROCEDURE: &str = "CREATE TABLE t (path text);
    CREATE PROCEDURE lock_recipes_enter(path text) BEGIN INSERT INTO t VALUES (path); SELECT path; END";

impl Stage {
    async fn postgres() -> Result<Self, Box<dyn Error>> {
        let server = PostgresServer::start().await?;
        server.sql(FUNCTION).await?;
        let address = format!("127.0.0.1:{}", server.port());
        let proxy = FaultProxy::start_for_postgres(&address).await?;
        Ok(Self::Postgres(server, proxy))
    }

    async fn mariadb() -> Result<Self, Box<dyn Error>> {
        let server = MariaDbServer::start().await?;
        server.sql(PROCEDURE).await?;
        let address = format!("127.0.0.1:{}", server.port());
        let proxy = FaultProxy::start_for_mysql(&address).await?;
        Ok(Self::MariaDb(server, proxy))
    }

    fn proxy(&self) -> &FaultProxy {
        match self {
            Self::Postgres(_, proxy) | Self::MariaDb(_, proxy) => proxy,
        }
    }

    /// What the last message of the answer to a call is called.
    fn last(&self) -> &'static str {
        match self {
            Self::Postgres(..) => "enter ReadyForQuery",
            Self::MariaDb(..) => "enter OK",
        }
    }

    async fn client(&self, statement: &str) -> Answer {
        let address = self.proxy().connect_string();
        let (host, port) = address.split_once(':').ok_or("no port")?;
        let mut client = match self {
            Self::Postgres(..) => {
                let mut psql = Command::new("psql");
                psql.args(["-XAtq", "-h", host, "-p", port, "-U", "postgres", "-c"]);
                psql
            }
            Self::MariaDb(..) => {
                let mut mariadb = Command::new("mariadb");
                mariadb.args(["--no-defaults", "-NB", "-h", host, "-P", port]);
                mariadb.args(["-u", "root", "locks", "-e"]);
                mariadb
            }
        };
        let printed = client.arg(statement).kill_on_drop(true).output();
        let printed = timeout(PATIENCE, printed).await;
        let printed = printed.map_err(|_| "hung".to_owned())?;
        let printed = printed.map_err(|error| error.to_string())?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
        match printed.status.success() {
            true => Ok(text(printed.stdout)),
            false => Err(text(printed.stderr)),
        }
    }

    async fn enter(&self, path: &str) -> Answer {
        let call = match self {
            Self::Postgres(..) => format!("SELECT lock_recipes.enter('{path}')"),
            Self::MariaDb(..) => format!("CALL lock_recipes_enter('{path}')"),
        };
        self.client(&call).await
    }

    /// Whether the server has it.
    async fn has(&self, path: &str) -> Result<bool, Box<dyn Error>> {
        let asked = format!("SELECT count(*) FROM t WHERE path = '{path}'");
        let rows = match self {
            Self::Postgres(server, _) => server.sql(&asked).await?,
            Self::MariaDb(server, _) => server.sql(&asked).await?,
        };
        Ok(rows == [["1"]])
    }
}

async fn both(test: impl AsyncFn(Stage) -> Outcome) -> Outcome {
    test(Stage::postgres().await?).await?;
    test(Stage::mariadb().await?).await
}

#[tokio::test]
async fn proxy_without_rules_is_not_noticed_and_names_what_passes() -> Outcome {
    both(async |stage| {
        assert_eq!(stage.enter("/a").await?, "/a");
        assert!(stage.has("/a").await?);
        let error = stage.client("SELECT * FROM nowhere").await.unwrap_err();
        assert!(error.contains("nowhere"), "{error}");
        let log = stage.proxy().log();
        let named = |name: &str| -> Result<&Frame, String> {
            let found = log
                .iter()
                .find(|it| it.names.first().is_some_and(|it| it == name));
            found.ok_or_else(|| format!("no {name} in {log:#?}"))
        };
        let (request, answer) = (named("enter Query")?, named(stage.last())?);
        assert_eq!((request.opcode, answer.opcode), (Opcode::Sql, Opcode::Sql));
        assert_eq!(request.xid, answer.xid);
        assert_eq!((request.error, answer.error), (None, Some(0)));
        let (refusal, state) = match &stage {
            Stage::Postgres(..) => ("SELECT ErrorResponse", "42P01"),
            Stage::MariaDb(..) => ("SELECT ERR", "42S02"),
        };
        let refusal = named(refusal)?;
        assert!(refusal.names.iter().any(|it| it == state) && refusal.error != Some(0));
        assert!(log.iter().all(|it| it.fate == Fate::Passed));
        // Nothing was left over that was no message.
        let is_known = |it: &Frame| !it.names.iter().any(|it| it == "Unknown");
        assert!(log.iter().all(is_known), "{log:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn cut_at_a_call_or_its_answer_decides_what_was_done() -> Outcome {
    use Direction::{FromServer, ToServer};
    both(async |stage| {
        for (number, (direction, fault, is_done)) in [
            (ToServer, Fault::CutBefore(Cut::Fin), false),
            (ToServer, Fault::CutBefore(Cut::Reset), false),
            (ToServer, Fault::CutWithin(Cut::Fin), false),
            (ToServer, Fault::CutWithin(Cut::Reset), false),
            (FromServer, Fault::CutBefore(Cut::Fin), true),
            (FromServer, Fault::CutBefore(Cut::Reset), true),
            (FromServer, Fault::CutWithin(Cut::Fin), true),
            (FromServer, Fault::CutWithin(Cut::Reset), true),
        ]
        .into_iter()
        .enumerate()
        {
            let path = format!("/{number}");
            let name = match direction {
                ToServer => "enter Query",
                FromServer => stage.last(),
            };
            let injected = stage.proxy().on(direction).named(name).then(fault);
            let case = format!("{fault:?} {direction:?}");
            assert!(stage.enter(&path).await.is_err(), "{case}");
            assert_eq!(injected.count(), 1, "{case}");
            assert_eq!(stage.has(&path).await?, is_done, "{case}");
            stage.proxy().clear_rules();
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn gate_holds_a_call_and_a_refusal_replaces_its_answer() -> Outcome {
    both(async |stage| {
        let gate = stage.proxy().on(Direction::ToServer).named("enter").hold();
        let mut entered = Box::pin(stage.enter("/a"));
        tokio::select! {
            entered = &mut entered => panic!("went through a closed gate: {entered:?}"),
            reached = timeout(PATIENCE, gate.reached()) => reached?,
        }
        assert!(!stage.has("/a").await?);
        assert!(entered.as_mut().now_or_never().is_none());
        gate.release();
        assert_eq!(entered.await?, "/a");

        let (answer, code, shown) = match &stage {
            Stage::Postgres(..) => ("INSERT CommandComplete", 40001, "refused with code 40001"),
            Stage::MariaDb(..) => ("INSERT OK", 1213, "ERROR 1213"),
        };
        let answer = stage.proxy().on(Direction::FromServer).named(answer);
        answer.then(Fault::Refuse(code));
        let insert = "INSERT INTO t VALUES ('/b')";
        let error = stage.client(insert).await.unwrap_err();
        assert!(error.contains(shown), "{error}");
        assert!(stage.has("/b").await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn message_that_comes_byte_by_byte_is_noticed_by_nobody() -> Outcome {
    both(async |stage| {
        for direction in [Direction::ToServer, Direction::FromServer] {
            let split = Fault::Split {
                bytes: 1,
                pause: Duration::ZERO,
            };
            stage.proxy().on(direction).each().then(split);
        }
        assert_eq!(stage.enter("/a").await?, "/a");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn encrypted_connections_pass_and_have_no_frames_but_the_first() -> Outcome {
    let folder = tempfile::tempdir()?;
    let [certificate, key] = crate::databases::certificate(folder.path())?;
    let postgres = PostgresServer::builder()
        .tls(&certificate, &key)
        .start()
        .await?;
    let proxy = FaultProxy::start_for_postgres(&format!("127.0.0.1:{}", postgres.port())).await?;
    let url = format!(
        "{}?sslmode=require",
        postgres.url_at(&proxy.connect_string())
    );
    let asked = Command::new("psql")
        .args(["-XAtc", "SELECT 7", &url])
        .output();
    assert_eq!(timeout(PATIENCE, asked).await??.stdout, b"7\n");
    let names = |proxy: &FaultProxy| -> Vec<String> {
        proxy.log().into_iter().flat_map(|it| it.names).collect()
    };
    assert_eq!(names(&proxy), ["SSLRequest", "EncryptionAnswer"]);

    let mariadb = MariaDbServer::builder()
        .tls(&certificate, &key)
        .start()
        .await?;
    let proxy = FaultProxy::start_for_mysql(&format!("127.0.0.1:{}", mariadb.port())).await?;
    let address = proxy.connect_string();
    let (host, port) = address.split_once(':').ok_or("no port")?;
    let asked = Command::new("mariadb")
        .args([
            "--no-defaults",
            "--ssl",
            "-NB",
            "-h",
            host,
            "-P",
            port,
            "-u",
            "root",
        ])
        .args(["-e", "SELECT 7"])
        .output();
    assert_eq!(timeout(PATIENCE, asked).await??.stdout, b"7\n");
    assert_eq!(names(&proxy), ["Greeting", "SSLRequest"]);
    Ok(())
}

/// More than a packet of MySQL holds.
#[tokio::test]
async fn long_messages_pass_both_ways() -> Outcome {
    both(async |stage| {
        const BYTES: usize = 17 << 20;
        if let Stage::MariaDb(server, _) = &stage {
            server.set("max_allowed_packet", "1073741824").await?;
        }
        let address = stage.proxy().connect_string();
        let (host, port) = address.split_once(':').ok_or("no port")?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), format!("SELECT '{}'", "x".repeat(BYTES)))?;
        let mut client = match &stage {
            Stage::Postgres(..) => Command::new("psql"),
            Stage::MariaDb(..) => Command::new("mariadb"),
        };
        match &stage {
            Stage::Postgres(..) => client.args(["-XAtq", "-h", host, "-p", port, "-U", "postgres"]),
            Stage::MariaDb(..) => {
                client.args([
                    "--no-defaults",
                    "--max-allowed-packet=1G",
                    "-NB",
                    "-h",
                    host,
                ]);
                client.args(["-P", port, "-u", "root", "locks"])
            }
        };
        let input = std::fs::File::open(file.path())?;
        let printed = client.stdin(input).kill_on_drop(true).output();
        let printed = timeout(2 * PATIENCE, printed).await??;
        let error = String::from_utf8_lossy(&printed.stderr);
        assert_eq!(printed.stdout.len(), BYTES + 1, "{error}");
        let log = stage.proxy().log();
        for direction in [Direction::ToServer, Direction::FromServer] {
            let is_long = |it: &&Frame| it.direction == direction && it.bytes > BYTES;
            assert_eq!(log.iter().filter(is_long).count(), 1, "{direction:?}");
        }
        Ok(())
    })
    .await
}
