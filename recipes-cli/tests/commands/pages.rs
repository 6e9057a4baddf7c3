//! Manual pages and completions.

use std::fs;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::lockctl::{lockctl, output, said};

const NO_SERVER: &str = "127.0.0.1:1";

#[tokio::test]
async fn manual_pages_are_written_into_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let written = output(lockctl(NO_SERVER, &["man", path])).await;
    assert!(written.status.success(), "{written:?}");
    for (name, heading) in [
        ("lockctl.1", "SUBCOMMANDS"),
        ("lockctl-run.1", "NOTES"),
        ("lockctl-inspect.1", "OPTIONS"),
    ] {
        let page = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page.contains(&format!("\n.SH {heading}\n")), "{page}");
        // The value of a variable is of this machine.
        assert!(!page.contains(NO_SERVER), "{page}");
    }
}

#[tokio::test]
async fn folder_that_is_missing_is_named() {
    let refused = output(lockctl(NO_SERVER, &["man", "/missing/man1"])).await;
    assert_eq!(refused.status.code(), Some(70));
    assert!(said(&refused).contains("/missing/man1"), "{refused:?}");
}

#[tokio::test]
async fn completions_are_a_script_that_bash_reads() {
    let script = output(lockctl(NO_SERVER, &["completions", "bash"])).await;
    assert!(script.status.success(), "{script:?}");
    let mut bash = Command::new("bash");
    bash.args(["-n", "-s"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut bash = bash.spawn().unwrap();
    let mut input = bash.stdin.take().unwrap();
    input.write_all(&script.stdout).await.unwrap();
    drop(input);
    let read = bash.wait_with_output().await.unwrap();
    assert!(read.status.success(), "{read:?}");
    let script = String::from_utf8(script.stdout).unwrap();
    for option in ["--on-lost", "--timeout", "deadlocks"] {
        assert!(script.contains(option), "{option}");
    }
}
