//! `lockctl` on a server that encrypts.

mod certificates;
mod databases;

use recipes_multilock::{Member, MultiLock};
use test_rig::{TestEnsemble, ZooKeeperServer};
use tokio::process::Command;

use crate::lockctl::{lockctl, output, said};
use certificates::Certificates;

/// On one port it accepts encrypted and plain connections. The plain ones are the tests' own.
async fn start(certificates: &Certificates, client_auth: &str) -> ZooKeeperServer {
    let stores = [
        ("keyStore", certificates.path("server.pem")),
        ("trustStore", certificates.path("authority.pem")),
    ];
    let mut server = ZooKeeperServer::builder()
        .property("zookeeper.client.portUnification", "true")
        .property("zookeeper.ssl.clientAuth", client_auth)
        .property(
            "zookeeper.authProvider.x509",
            "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        )
        .property(
            "zookeeper.serverCnxnFactory",
            "org.apache.zookeeper.server.NettyServerCnxnFactory",
        );
    for (store, path) in stores {
        server = server
            .property(format!("zookeeper.ssl.{store}.type"), "PEM")
            .property(format!("zookeeper.ssl.{store}.location"), &path);
    }
    server.start().await.unwrap()
}

fn ls(server: &ZooKeeperServer, tls: &[&str]) -> Command {
    let arguments = [&["ls", "--connect-timeout=60s"], tls].concat();
    lockctl(&server.connect_string(), &arguments)
}

/// Gives up soon, because it cannot succeed.
fn in_vain(server: &ZooKeeperServer, tls: &[&str]) -> Command {
    let arguments = [&["ls", "--connect-timeout=2s"], tls].concat();
    lockctl(&server.connect_string(), &arguments)
}

async fn assert_kept_out(server: &ZooKeeperServer, tls: &[&str]) {
    let ran = output(in_vain(server, tls)).await;
    assert_eq!(ran.status.code(), Some(69), "{ran:?}");
    let said = said(&ran);
    assert!(said.contains(&server.connect_string()), "{said}");
    assert!(said.contains("--tls-ca"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_listed_where_the_servers_are_trusted() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let server = start(&certificates, "none").await;
    let ensemble = TestEnsemble::Real(server.into());
    let TestEnsemble::Real(server) = &ensemble else {
        panic!("not a server")
    };
    let session = ensemble.session().await;
    let lock = MultiLock::new(&session, [Member::mutex("/locks/orders")]).unwrap();
    let _held = lock.acquire().await.unwrap();
    let authority = certificates.path("authority.pem");

    let mut by_environment = ls(server, &[]);
    by_environment
        .env("LOCKCTL_TLS", "true")
        .env("LOCKCTL_TLS_CA", &authority);
    let by_flags = ls(server, &["--tls", "--tls-ca", &authority]);
    let by_authority = ls(server, &["--tls-ca", &authority]);
    for trusting in [by_flags, by_authority, by_environment] {
        let ran = output(trusting).await;
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        let listed = String::from_utf8(ran.stdout).unwrap();
        assert!(listed.contains("/locks/orders"), "{listed}");
    }
    let other = others.path("authority.pem");
    for tls in [&["--tls", "--tls-ca", &other][..], &["--tls-ca", &other]] {
        assert_kept_out(server, tls).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_ask_for_a_certificate_get_it() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let server = start(&certificates, "need").await;
    let authority = certificates.path("authority.pem");
    let trusting = ["--tls", "--tls-ca", &authority];
    let with = |of: &Certificates| [of.path("client.pem"), of.path("client.key")];
    let [certificate, key] = with(&certificates);
    let identity = ["--tls-cert", &certificate, "--tls-key", &key];
    let mut by_both = ls(&server, &[&trusting[..], &identity[..2]].concat());
    by_both.env("LOCKCTL_TLS_KEY", &key);
    let mut by_environment = ls(&server, &[]);
    by_environment
        .env("LOCKCTL_TLS_CA", &authority)
        .env("LOCKCTL_TLS_CERT", &certificate)
        .env("LOCKCTL_TLS_KEY", &key);
    let by_flags = ls(&server, &[&trusting[..], &identity].concat());
    let around = [&identity[..2], &["ls"], &trusting, &identity[2..]].concat();
    let around = lockctl(&server.connect_string(), &around);
    for known in [by_flags, by_environment, by_both, around] {
        let ran = output(known).await;
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    }

    assert_kept_out(&server, &trusting).await;
    let [certificate, key] = with(&others);
    let stranger = ["--tls-cert", &certificate, "--tls-key", &key];
    assert_kept_out(&server, &[&trusting[..], &stranger].concat()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_no_certificates_are_told() {
    let certificates = Certificates::new();
    let path = |name| certificates.path(name);
    let (authority, certificate, key) = (
        path("authority.pem"),
        path("client.pem"),
        path("client.key"),
    );
    let trusting = ["--tls", "--tls-ca", &authority];
    // No server listens there, and no request is sent.
    let lockctl = |tls: &[&str]| lockctl("127.0.0.1:1", &[&["ls"], tls].concat());
    let swapped = ["--tls-cert", &key, "--tls-key", &certificate];
    for (arguments, names) in [
        (&["--tls"][..], "--tls-ca"),
        (&["--tls", "--tls-ca", "/no/such.pem"], "/no/such.pem"),
        (&["--tls", "--tls-ca", &key], &key),
        (&[&trusting[..], &swapped].concat(), &certificate),
    ] {
        let ran = output(lockctl(arguments)).await;
        assert_eq!(ran.status.code(), Some(64), "{ran:?}");
        assert!(said(&ran).contains(names), "{ran:?}");
    }
    // One of two options that belong together.
    for arguments in [["--tls-cert", &certificate], ["--tls-key", &key]] {
        let ran = output(lockctl(&arguments)).await;
        assert_eq!(ran.status.code(), Some(64), "{arguments:?}: {ran:?}");
        let said = said(&ran);
        assert!(said.contains("--tls-cert and --tls-key"), "{said}");
    }
    let mut in_vain = lockctl(&["--tls-cert", &certificate, "--tls-key", &key]);
    in_vain.env("LOCKCTL_TLS", "false");
    assert!(said(&output(in_vain).await).contains("--tls-ca"));
}
