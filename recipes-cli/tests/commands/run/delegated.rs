//! A `lockctl` that is not root, in a cgroup that belongs to its user, as in a unit with
//! `Delegate=yes`.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::family::{Family, SCRIPT, alive, gone};
use super::{LONG, PATH, server, start};
use crate::lockctl::{PATIENCE, set_environment};

/// Nobody's.
const USER: u32 = 61_234;

/// A cgroup of that user, removed when it is dropped.
struct Delegated(PathBuf);

impl Delegated {
    fn make() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mut mounts = mounts.lines().map(|it| it.split(' ').collect::<Vec<_>>());
        let unified = mounts.find(|it| it[2] == "cgroup2");
        let unified = unified.ok_or_else(|| io::Error::other("no cgroup2 is mounted"))?;
        let name = format!("delegated-{}", std::process::id());
        let folder = Self(Path::new(unified[1]).join(name));
        fs::create_dir(&folder.0)?;
        for file in [
            "",
            "cgroup.procs",
            "cgroup.threads",
            "cgroup.subtree_control",
        ] {
            chown(folder.0.join(file), Some(USER), Some(USER))?;
        }
        fs::metadata(folder.0.join("cgroup.kill"))?;
        Ok(folder)
    }

    fn inner(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|it| it.unwrap().path());
        entries.filter(|it| it.is_dir()).collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        // It stays if a failed test has left processes there.
        fs::remove_dir(&self.0).ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lockctl_that_is_not_root_ends_its_command_by_a_cgroup_that_was_delegated_to_it() {
    let delegated = match Delegated::make() {
        Ok(delegated) => delegated,
        Err(error) => return println!("skipped: no cgroup can be delegated here: {error}"),
    };
    let ensemble = start().await;
    let family = Family::new();
    // The folder of the build may be closed to others.
    let program = family.path("lockctl");
    fs::copy(env!("CARGO_BIN_EXE_lockctl"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    chown(family.path("."), Some(USER), Some(USER)).unwrap();
    let mut run = Command::new("setsid");
    let enter = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
    run.args(["env", "--default-signal", "sh", "-c", enter]);
    let user = USER.to_string();
    run.arg(&delegated.0).args(["setpriv", "--clear-groups"]);
    run.args(["--reuid", &user, "--regid", &user]).arg(&program);
    run.args(["run", "--log=lockctl=debug", LONG, PATH, "--", "sh", "-c"]);
    run.arg(format!(
        "cat /proc/self/cgroup > group; id -u > user; {SCRIPT}"
    ));
    set_environment(&mut run, &server(&ensemble).connect_string());
    run.current_dir(family.path(".")).kill_on_drop(true);
    let run = run.stdin(Stdio::null()).stderr(Stdio::piped());
    let run = run.spawn().unwrap();
    let members = family.members(&ensemble).await;
    assert_eq!(family.read("user").trim(), user);
    let inner = delegated.inner();
    assert_eq!(inner.len(), 1, "{inner:?}");
    let name = inner[0].file_name().unwrap().to_str().unwrap();
    let group = family.read("group");
    assert!(group.lines().any(|it| it.ends_with(name)), "{group} {name}");
    let node = ensemble.await_children(PATH, 1).await;
    ensemble.delete(&format!("{PATH}/{}", node[0])).await;
    gone(&ensemble, &members).await;
    let ran = tokio::time::timeout(PATIENCE, run.wait_with_output()).await;
    let ran = ran.expect("lockctl does not end").unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(76), "{said}");
    assert!(
        said.contains("the command is ended by its cgroup"),
        "{said}"
    );
    assert!(alive(&members).is_empty());
    assert_eq!(delegated.inner(), Vec::<PathBuf>::new());
}
