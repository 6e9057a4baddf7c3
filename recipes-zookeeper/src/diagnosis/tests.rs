use std::net::TcpListener;

use super::*;

fn server(host: &str, port: u16) -> Server {
    Server {
        host: host.to_owned(),
        port,
        tls: None,
    }
}

/// A server that answers each connection with these bytes, once it has been asked.
fn answering(answer: &'static [u8]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(answer).unwrap();
    });
    server("127.0.0.1", port)
}

async fn said(server: Server, tls: bool) -> String {
    let shown = server.to_string();
    let text = diagnose(&[(server, tls)]).await.to_string();
    let finding = text.strip_prefix(&format!("{shown} "));
    finding.unwrap().to_owned()
}

#[tokio::test]
async fn closed_port_refuses_connections() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let text = said(server("127.0.0.1", port), false).await;
    assert_eq!(text, "refuses connections");
}

#[tokio::test]
async fn each_server_has_its_finding_in_the_order_of_the_connect_string() {
    let report = answering(b"Zookeeper version: 3.9.2\nMode: standalone\n");
    let port = report.port;
    let servers = [(server("host.invalid", 2181), false), (report, false)];
    let text = diagnose(&servers).await.to_string();
    let (unknown, known) = text.split_once("), ").unwrap();
    let start = "host.invalid:2181 is not known by this name (";
    assert!(unknown.starts_with(start), "{text}");
    assert_eq!(
        known,
        format!("127.0.0.1:{port} is up, but opened no session")
    );
}

#[tokio::test]
async fn answer_says_what_keeps_a_server_from_opening_a_session() {
    for (answer, finding) in [
        (
            &b""[..],
            "accepts connections and closes them, as it does for a host that has too many (maxClientCnxns)",
        ),
        (b"\x15\x03\x03\x00\x02\x02\x50", "expects TLS on this port"),
        (
            b"This ZooKeeper instance is not currently serving requests\n",
            "is up, but serves no requests: it has no quorum",
        ),
        (
            b"Zookeeper version: 3.9.2\nMode: read-only\n",
            "is up, but serves no requests: it has no quorum",
        ),
        (
            b"srvr is not executed because it is not in the whitelist.\n",
            "is up, but opened no session",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n", "is no ZooKeeper server"),
    ] {
        assert_eq!(said(answering(answer), false).await, finding);
    }
}

#[tokio::test]
async fn answer_over_tls_says_whether_there_is_any() {
    for (answer, finding) in [
        (&b""[..], "speaks no TLS on this port"),
        (
            b"HTTP/1.1 400 Bad Request\r\n",
            "speaks no TLS on this port",
        ),
        (
            b"\x15\x03\x03\x00\x02\x02\x28",
            "speaks TLS, but the handshake or the session failed: check who signed the \
             certificates, and for which names",
        ),
    ] {
        assert_eq!(said(answering(answer), true).await, finding);
    }
}

/// Nothing accepts its connections, and nothing answers what the kernel has accepted.
#[tokio::test]
async fn silence_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = said(server("127.0.0.1", port), false).await;
    assert_eq!(text, "does not answer");
}

/// As the lengths in it say.
#[test]
fn client_hello_is_as_long_as_it_says() {
    let record = usize::from(u16::from_be_bytes([CLIENT_HELLO[3], CLIENT_HELLO[4]]));
    assert_eq!(record + 5, CLIENT_HELLO.len());
    let body = usize::from(CLIENT_HELLO[8]);
    assert_eq!(body + 9, CLIENT_HELLO.len());
    let suites = usize::from(CLIENT_HELLO[9 + 2 + 32 + 1 + 1]);
    assert_eq!(9 + 2 + 32 + 1 + 2 + suites + 2, CLIENT_HELLO.len());
}
