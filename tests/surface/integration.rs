//! `.ci/run` fails if any of its parts does, also one beside another that ends later.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// It fails if it is the one that is named. The zoo first waits until nothing is left of what failed beside it.
const STUB: &str = r#"#!/bin/sh
name="$(basename "$0")"
if [ "$name" = "$FAILS" ]; then
    echo $$ >failing
    exit 1
fi
case "$name:$FAILS" in
zoo:newest)
    children="/proc/$PPID/task/$PPID/children"
    while [ ! -s failing ] || [ "$(wc -w <"$children")" -gt 1 ]; do sleep 0.05; done ;;
esac
"#;

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whether it succeeds where this part fails.
fn succeeds(run: &str, parts: &BTreeSet<&str>, failing: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in [".ci", "scripts", "bin"] {
        fs::create_dir(at(name)).unwrap();
    }
    write(&at(".ci/run"), run);
    write(&at("bin/cargo"), STUB);
    for part in parts {
        write(&at("scripts").join(part), STUB);
    }
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let ended = Command::new(at(".ci/run"))
        .env("PATH", path)
        .env("FAILS", failing)
        .stdout(Stdio::null())
        .status();
    ended.unwrap().success()
}

#[test]
fn fails_if_a_part_does() {
    let run = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/run")).unwrap();
    let commands = run.lines().filter(|it| !it.trim_start().starts_with('#'));
    let mut parts: BTreeSet<_> = commands
        .flat_map(|it| it.split("scripts/").skip(1))
        .map(|it| it.split(' ').next().unwrap())
        .collect();
    assert!(parts.len() > 4, "{parts:?}");
    assert!(succeeds(&run, &parts, "none of them"));
    parts.insert("cargo");
    for part in &parts {
        assert!(!succeeds(&run, &parts, part), "{part}");
    }
}
