//! Compares our reading of the transaction log with that of the tool that comes with the server.

use recipes_zookeeper::{Acls, ZooKeeper};
use zookeeper_client::CreateMode;

use recipes_testing::ZooKeeperServer;

use super::{Change, LogRecord, TransactionLog, WritesLog as _};

/// `org.apache.zookeeper.server.persistence.TxnLogToolkit` on all files: one line for each record.
fn dump(server: &ZooKeeperServer) -> Vec<String> {
    let folder = server.log_folder();
    let mut files: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    files.retain(|it| {
        it.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("log.")
    });
    let number = |hex: &str| i64::from_str_radix(hex, 16).unwrap();
    files.sort_by_key(|it| number(it.extension().unwrap().to_str().unwrap()));
    let mut lines = Vec::new();
    for file in files {
        let mut toolkit = server.tool("org.apache.zookeeper.server.persistence.TxnLogToolkit");
        let output = toolkit.arg("-d").arg(file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        lines.extend(
            text.lines()
                .filter(|it| it.contains(" session 0x"))
                .map(str::to_owned),
        );
    }
    lines
}

/// How the tool begins a line about a record, without the date.
fn line(record: &LogRecord) -> String {
    let what = match &record.change {
        Change::Create { path, ephemeral: _ } => path.clone(),
        Change::Delete { path } => format!("delete '{path}"),
        Change::Set { path, .. } => format!("setData {path}"),
        Change::OpenSession => "createSession".to_owned(),
        Change::CloseSession => "closeSession".to_owned(),
        Change::Multi(_) | Change::Refused => String::new(),
        Change::Check { .. } | Change::Other { .. } => panic!("{record:?}"),
    };
    format!(
        "session {:#x} zxid {:#x} {what}",
        record.session, record.zxid
    )
}

fn says_the_same(record: &LogRecord, tool: &str) -> bool {
    let mut words = tool.split(" session ").nth(1).unwrap().split_whitespace();
    let (session, zxid) = (words.next(), words.nth(3));
    let word = words.next().unwrap();
    let own = line(record);
    let what = own.split_whitespace().skip(4).collect::<Vec<_>>().join(" ");
    let is_there = match &record.change {
        Change::Create { .. } => word.starts_with("create") && tool.contains(&format!(" {what},")),
        Change::Multi(_) => word == "multi",
        Change::Refused => word == "error" || word == "multi",
        _ => tool.contains(&what),
    };
    session == own.split_whitespace().nth(1) && zxid == own.split_whitespace().nth(3) && is_there
}

#[tokio::test]
async fn log_says_what_the_servers_own_tool_says() {
    let server = ZooKeeperServer::start().await.unwrap();
    let acls = Acls::anyone_all();
    let (plain, ephemeral) = (
        CreateMode::Persistent.with_acls(acls),
        CreateMode::EphemeralSequential.with_acls(acls),
    );
    let container = CreateMode::Container.with_acls(acls);
    let client = server.client().await.unwrap();
    client.create("/locks", b"", &container).await.unwrap();
    client.create("/a", b"data", &plain).await.unwrap();
    client.create("/a", b"", &plain).await.unwrap_err();
    client
        .create("/locks/_c_x-lock-", b"me", &ephemeral)
        .await
        .unwrap();
    client.set_data("/a", b"17", None).await.unwrap();
    for version in [1, 7] {
        let mut writer = client.new_multi_writer();
        writer.add_check_version("/a", version).unwrap();
        writer.add_set_data("/a", b"18", None).unwrap();
        writer.add_create("/b", b"", &plain).unwrap();
        assert_eq!(writer.commit().await.is_ok(), version == 1);
    }
    client.delete("/b", None).await.unwrap();
    // The end of a file that is not whole, and another file.
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    let session = ZooKeeper::connect(&server.connect_string()).await.unwrap();
    session.read("/a").await.unwrap();
    server.expire(client.session_id().0).await.unwrap();
    let closed = [client.session_id().0, session.session_id().unwrap()];
    session.close().await;

    let log = server.transaction_log().unwrap();
    let tool = dump(&server);
    let records = log.records();
    assert_eq!(
        records.len(),
        tool.len(),
        "{records:#?}, and the tool: {tool:#?}"
    );
    for (record, tool) in records.iter().zip(&tool) {
        assert!(
            says_the_same(record, tool),
            "{record:?}, and the tool: {tool}"
        );
    }
    let count = |is: fn(&Change) -> bool| records.iter().filter(|it| is(&it.change)).count();
    assert_eq!(
        count(|it| matches!(it, Change::Multi(parts) if parts.len() == 3)),
        1
    );
    assert_eq!(count(|it| *it == Change::Refused), 2);
    // Ending a session whose client comes back may take further sessions.
    for id in closed {
        let closes = records.iter().filter(|it| it.session == id);
        let closes = closes.filter(|it| it.change == Change::CloseSession);
        assert_eq!(closes.count(), 1, "{id:#x}");
    }
    assert!(records.windows(2).all(|pair| pair[0].zxid < pair[1].zxid));
    check_life(&log, client.session_id().0);
}

fn check_life(log: &TransactionLog, session: i64) {
    let nodes = log.lock_nodes();
    let life = nodes.get("/locks/_c_x-lock-0000000000").unwrap();
    assert_eq!(nodes.iter().count(), 1);
    assert_eq!((life.session, life.place), (session, life.czxid));
    let removal = life.removed.unwrap();
    assert!(removal.with_session && removal.by == session && removal.zxid > life.czxid);
}
