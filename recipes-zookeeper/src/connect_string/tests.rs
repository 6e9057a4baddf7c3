use super::*;

fn read(text: &str) -> Vec<(String, u16)> {
    let read = ConnectString::parse(text).unwrap();
    let servers = read.servers.into_iter().map(|it| (it.host, it.port));
    servers.collect()
}

fn chroot(text: &str) -> String {
    ConnectString::parse(text).unwrap().chroot
}

fn flaw(text: &str) -> String {
    let flaw = ConnectString::parse(text).unwrap_err().to_string();
    let start = format!("{text:?} is no address of a store: ");
    flaw.strip_prefix(&start).unwrap().to_owned()
}

#[test]
fn servers_are_those_that_the_client_connects_to() {
    let two = [("zk1".to_owned(), 2181), ("zk2".to_owned(), 2182)];
    assert_eq!(read("zk1,zk2:2182"), two);
    assert_eq!(read("zk1:,zk2:2182/app/locks"), two);
    assert_eq!(read("zk://zk1:,zk2:2182/app/locks"), two);
    assert_eq!(read("tcp+tls://zk1:2181,tcp://zk2:2182/app"), two);
    let six = [("::1".to_owned(), 2181), ("fe80::2".to_owned(), 2182)];
    assert_eq!(read("[::1],[fe80::2]:2182/app"), six);
}

#[test]
fn server_says_whether_it_wants_encryption() {
    let read = ConnectString::parse("tcp+tls://zk1,tcp://zk2,zk3").unwrap();
    let wanted: Vec<_> = read.servers().iter().map(|it| it.tls).collect();
    assert_eq!(wanted, [Some(true), Some(false), None]);
    let shown: Vec<_> = read.servers().iter().map(Server::to_string).collect();
    assert_eq!(shown, ["zk1:2181", "zk2:2181", "zk3:2181"]);
    let six = ConnectString::parse("[::1]:2182").unwrap();
    assert_eq!(six.servers()[0].to_string(), "[::1]:2182");
}

#[test]
fn chroot_comes_after_the_last_server() {
    assert_eq!(chroot("zk1,zk2:2182"), "");
    assert_eq!(chroot("zk1:2181,zk2/app/locks"), "/app/locks");
    assert_eq!(chroot("tcp+tls://zk1:2181,tcp://zk2:2181/app"), "/app");
    assert_eq!(chroot("tcp://zk1:2181/"), "");
}

#[test]
fn text_without_servers_is_refused() {
    assert_eq!(flaw(""), "it is empty");
    assert_eq!(flaw("zk://"), "it is empty");
    assert_eq!(flaw(","), "a server is missing in it");
    assert_eq!(flaw("zk1,,zk2"), "a server is missing in it");
    assert_eq!(flaw("zk1,"), "a server is missing in it");
    assert_eq!(flaw("/app"), "a server is missing in it");
    assert_eq!(flaw(":2181"), "\":2181\" has no host");
    assert_eq!(flaw("[]:2181"), "\"[]:2181\" has no host");
    let spaces = "it has white space or control characters";
    for text in [" ", "zk1, zk2", "zk1 zk2", "zk1\n", "zk1\t", "zk1\0"] {
        assert_eq!(flaw(text), spaces);
    }
}

#[test]
fn port_that_no_server_has_is_refused() {
    let reason = "has a port that is no number from 1 to 65535";
    for server in [
        "zk1:port",
        "zk1:0",
        "zk1:70000",
        "zk1:-1",
        "zk1:+1",
        "[::1]:x",
    ] {
        assert_eq!(flaw(server), format!("{server:?} {reason}"));
        assert_eq!(
            flaw(&format!("zk0,{server}/app")),
            format!("{server:?} {reason}")
        );
    }
}

#[test]
fn address_that_is_cut_in_the_wrong_place_is_refused() {
    assert_eq!(flaw("[::1"), "\"[::1\" has a bracket that is not closed");
    assert_eq!(
        flaw("[::1]2181"),
        "\"[::1]2181\" has something between its bracket and its port"
    );
    assert_eq!(
        flaw("::1"),
        "\"::1\" has more than one colon: IPv6 addresses stand in brackets"
    );
    assert_eq!(
        flaw("http://zk1:2181"),
        "\"http\" in front of a server is neither \"tcp\" nor \"tcp+tls\""
    );
}

#[test]
fn url_of_another_store_with_a_slash_less_is_refused() {
    for url in ["redis:/cache", "redis:/", "zk:/zk1:2181", "zk1,zk2:/app"] {
        assert!(flaw(url).contains("two slashes"), "{url}: {}", flaw(url));
    }
}

#[test]
fn chroot_that_is_no_path_is_refused() {
    assert_eq!(
        flaw("zk1:2181/app/"),
        "its chroot \"/app/\" is no path: it ends with '/'"
    );
    assert_eq!(
        flaw("zk1//app"),
        "its chroot \"//app\" is no path: it has an empty part ('//')"
    );
    assert_eq!(
        flaw("zk1/app,zk2/app"),
        "\"zk1/app\" is no server: only the last one is followed by a chroot"
    );
}

#[test]
fn password_is_refused_and_not_shown() {
    for between in ["", "/", ":", "@", "?", "#", "://", ","] {
        for scheme in ["", "zk://"] {
            let (s, t) = ("s".repeat(9), "t".repeat(9));
            let address = format!("{scheme}user:{s}{between}{t}@host:2181/locks");
            let flaw = ConnectString::parse(&address).unwrap_err().to_string();
            assert!(flaw.contains("identity"), "{flaw}");
            assert!(!flaw.contains("sss") && !flaw.contains("ttt"), "{flaw}");
        }
    }
    assert_eq!(chroot("host:2181/a@b"), "/a@b");
}
