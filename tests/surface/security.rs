//! Options of TLS and SASL come with the features, without a dependency on the client.
//!
//! A caller that takes them from another version of the client has other types.

use std::fs;
use std::process::Command;

use lock_recipes::{Error, ZooKeeper};
use test_rig::ZooKeeperServer;

use crate::guides::{blocks, pages};

/// What a page says that a command prints. It takes `openssl`, as other tests here do.
#[test]
fn digests_are_those_that_the_pages_say() {
    let mut count = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "sh") {
            for line in block.lines().filter(|it| it.trim().starts_with("printf ")) {
                let (command, said) = line.split_once('#').unwrap();
                let ran = Command::new("sh").args(["-c", command]).output().unwrap();
                let printed = String::from_utf8(ran.stdout).unwrap();
                assert_eq!(printed.trim(), said.trim(), "{command}");
                count += 1;
            }
        }
    }
    assert!(count > 0);
}

#[tokio::test]
async fn server_without_tls_is_not_spoken_to_in_the_clear() {
    use lock_recipes::{ConnectError, TlsOptions};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(2);
    const AUTHORITY: &str = include_str!("../support/authority.pem");
    let server = ZooKeeperServer::start().await.unwrap();
    let tls = TlsOptions::new().with_pem_ca(AUTHORITY).unwrap();
    let builder = || {
        ZooKeeper::builder()
            .tls(tls.clone())
            .connect_timeout(PATIENCE)
    };
    let refused = builder()
        .connect(&server.connect_string())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, Error::Connect(ConnectError::TimedOut { .. })),
        "{refused}"
    );
    let found = std::error::Error::source(&refused).unwrap().to_string();
    let address = server.connect_string();
    assert_eq!(found, format!("{address} speaks no TLS on this port"));
    // Unless encryption is requested.
    let plain = format!("tcp://{}", server.connect_string());
    let patient = ZooKeeper::builder().tls(tls);
    patient.connect(&plain).await.unwrap().close().await;
}

/// The client does not say what is wrong with a certificate, so the text names what can be.
#[tokio::test]
async fn bad_certificate_is_told_from_a_server_that_does_not_answer() {
    use lock_recipes::{ConnectError, TlsOptions};
    use std::error::Error as _;
    use std::time::Duration;

    use crate::certificates::Certificates;

    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let server = ZooKeeperServer::builder()
        .property("zookeeper.client.portUnification", "true")
        .property("zookeeper.ssl.clientAuth", "none")
        .property("zookeeper.ssl.keyStore.type", "PEM")
        .property(
            "zookeeper.ssl.keyStore.location",
            certificates.path("server.pem"),
        )
        .property(
            "zookeeper.serverCnxnFactory",
            "org.apache.zookeeper.server.NettyServerCnxnFactory",
        );
    let server = server.start().await.unwrap();
    let by_address = server.connect_string();
    // The certificate is for the address only.
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let tls = |authority: &Certificates| {
        let authority = std::fs::read_to_string(authority.path("authority.pem")).unwrap();
        let tls = TlsOptions::new().with_pem_ca(&authority).unwrap();
        ZooKeeper::builder().tls(tls)
    };
    for (authority, address) in [(&strangers, &by_address), (&certificates, &by_name)] {
        let in_vain = tls(authority).connect_timeout(Duration::from_secs(10));
        let refused = in_vain.connect(address).await.unwrap_err();
        assert!(
            matches!(refused, Error::Connect(ConnectError::TimedOut { .. })),
            "{refused}"
        );
        assert_eq!(
            refused.to_string(),
            format!("no server of {address:?} answered within 10 s")
        );
        assert_eq!(
            refused.source().unwrap().to_string(),
            format!(
                "{address} speaks TLS, but the handshake or the session failed: check who signed \
                 the certificates, and for which names"
            )
        );
    }
    let trusted = tls(&certificates).connect(&by_address).await;
    trusted.unwrap().close().await;
}

#[tokio::test]
async fn server_without_sasl_takes_a_client_with_a_password_for_nobody() {
    use lock_recipes::{Acls, AcquireError, InterProcessMutex, SaslOptions};

    let server = ZooKeeperServer::start().await.unwrap();
    let builder = || ZooKeeper::builder().sasl(SaslOptions::digest_md5("orders", "secret"));
    let session = builder()
        .acl(Acls::creator_all())
        .connect(&server.connect_string())
        .await;
    let lock = InterProcessMutex::new(&session.unwrap(), "/locks/orders").unwrap();
    let refused = lock.acquire().await.unwrap_err();
    assert!(
        matches!(refused, Error::Acquire(AcquireError::Refused { .. })),
        "{refused}"
    );
    let session = builder().connect(&server.connect_string()).await.unwrap();
    let open = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    open.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn server_with_sasl_knows_its_users_by_their_passwords() {
    use lock_recipes::{Acls, ConnectError, InterProcessMutex, SaslOptions};

    const USERS: &str = "Server {
        org.apache.zookeeper.server.auth.DigestLoginModule required user_orders=\"secret\";
    };";
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("jaas.conf");
    std::fs::write(&users, USERS).unwrap();
    let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    let server = ZooKeeperServer::builder()
        .property("java.security.auth.login.config", users.to_str().unwrap())
        .config("authProvider.1", provider);
    let server = server.start().await.unwrap();
    let with_password = |password: &'static str| {
        let sasl = SaslOptions::digest_md5("orders", password);
        ZooKeeper::builder().sasl(sasl).acl(Acls::creator_all())
    };
    let session = with_password("secret")
        .connect(&server.connect_string())
        .await
        .unwrap();
    let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    let held = lock.acquire().await.unwrap();
    let nobody = ZooKeeper::connect(&server.connect_string()).await.unwrap();
    let foreign = InterProcessMutex::new(&nobody, "/locks/orders").unwrap();
    foreign.try_acquire().await.unwrap_err();
    held.release().await.unwrap();
    let refused = with_password("guess")
        .connect(&server.connect_string())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, Error::Connect(ConnectError::Refused { .. })),
        "{refused}"
    );
}
