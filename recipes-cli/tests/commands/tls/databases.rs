//! `lockctl` on databases that encrypt.

use std::process::Output;

use test_rig::{MariaDbServer, PostgresServer};

use super::certificates::Certificates;
use crate::lockctl::{lockctl, output, said};

/// Runs a command under a lock, where the system trusts the authority of these certificates.
async fn run(url: &str, trusted: &Certificates, command: &[&str]) -> Output {
    let arguments = [&["run", "--connect-timeout=60s", "/locks/a", "--"], command].concat();
    let mut lockctl = lockctl(url, &arguments);
    lockctl.env("SSL_CERT_FILE", trusted.path("authority.pem"));
    output(lockctl).await
}

/// Gives up soon, because it cannot succeed.
async fn assert_kept_out(url: &str, trusted: &Certificates, (code, reason): (i32, &str)) {
    let mut lockctl = lockctl(url, &["ls", "--connect-timeout=8s"]);
    lockctl.env("SSL_CERT_FILE", trusted.path("authority.pem"));
    let ran = output(lockctl).await;
    assert_eq!(ran.status.code(), Some(code), "{ran:?}");
    let said = said(&ran);
    assert!(said.contains(reason), "{said}");
}

const UNTRUSTED: (i32, &str) = (69, "certificate");

fn paths(certificates: &Certificates) -> [String; 2] {
    ["server.pem", "server.key"].map(|name| certificates.path(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_postgres_are_encrypted_where_its_certificate_is_trusted() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let [certificate, key] = paths(&certificates);
    let server = PostgresServer::builder().tls(certificate.as_ref(), key.as_ref());
    let server = server.start().await.unwrap();
    let plain = server.url();
    let url = &format!("{plain}?sslmode=require");
    // Both connections of the session.
    let count = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE application_name = 'lock_recipes' AND ssl";
    let asked = &["psql", "-AtX", "-c", count, &plain];
    let ran = run(url, &certificates, asked).await;
    assert_eq!(ran.stdout, b"2\n", "{ran:?}");
    // By default nothing is encrypted.
    let ran = run(&plain, &certificates, asked).await;
    assert_eq!(ran.stdout, b"0\n", "{ran:?}");
    assert_kept_out(url, &others, UNTRUSTED).await;
    // It is for an address.
    let other_name = &url.replace("127.0.0.1", "localhost");
    assert_kept_out(other_name, &certificates, UNTRUSTED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_mariadb_are_encrypted_where_its_certificate_is_trusted() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let [certificate, key] = paths(&certificates);
    let server = MariaDbServer::builder().tls(certificate.as_ref(), key.as_ref());
    let server = server.start().await.unwrap();
    for sql in [
        "CREATE USER clerk@'%' IDENTIFIED BY 'secret' REQUIRE SSL",
        "GRANT ALL ON locks.* TO clerk@'%'",
    ] {
        server.sql(sql).await.unwrap();
    }
    let plain = server.url_of("clerk", "secret");
    let verified = &format!("{plain}?ssl-mode=verify_identity");
    for url in [
        verified,
        &format!("{plain}?ssl-mode=required"),
        &format!("{plain}?ssl-ca={}", certificates.path("authority.pem")),
    ] {
        let ran = run(url, &certificates, &["true"]).await;
        assert_eq!(ran.status.code(), Some(0), "{url}: {ran:?}");
    }
    // The user has to encrypt, and by default nothing is encrypted.
    let refused = (64, "Access denied");
    assert_kept_out(&plain, &certificates, refused).await;
    assert_kept_out(verified, &others, UNTRUSTED).await;
    let other_name = &verified.replace("127.0.0.1", "localhost");
    assert_kept_out(other_name, &certificates, UNTRUSTED).await;
    // Here all have to. MariaDB does not say why.
    server.set("require_secure_transport", "ON").await.unwrap();
    let says = match server.is_mysql() {
        true => "add ssl-mode=required to the address",
        false => "Access denied",
    };
    let refused = (64, says);
    assert_kept_out(&server.url(), &certificates, refused).await;
}
