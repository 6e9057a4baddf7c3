//! A certificate authority, and the certificates that it has signed.

use std::process::Command;

use tempfile::TempDir;

/// Made by `openssl`, which JDKs depend on in Debian.
pub(crate) struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let certificates = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        certificates.make("authority", &["-addext", "keyUsage=critical,keyCertSign"]);
        let (authority, key) = (
            certificates.path("authority.pem"),
            certificates.path("authority.key"),
        );
        for name in ["server", "client"] {
            let signed = ["-CA", &authority, "-CAkey", &key];
            let address = ["-addext", "subjectAltName=IP:127.0.0.1"];
            let end = ["-addext", "basicConstraints=critical,CA:FALSE"];
            certificates.make(name, &[&signed[..], &address, &end].concat());
        }
        // Servers read both from one file.
        let read = |name| std::fs::read_to_string(certificates.path(name)).unwrap();
        let both = read("server.key") + &read("server.pem");
        std::fs::write(certificates.path("server.pem"), both).unwrap();
        certificates
    }

    /// The file of `authority`, `server` or `client`: `.pem`, and except for the server `.key`.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn make(&self, name: &str, more: &[&str]) {
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ]);
        openssl.args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")]);
        openssl.args(["-keyout", &self.path(&format!("{name}.key"))]);
        openssl.args(["-out", &self.path(&format!("{name}.pem"))]);
        let made = openssl.args(more).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
}
