//! A program that has children and becomes `lockctl`.

use rustix::process::Signal;
use tokio::process::Command;

use super::family::{Family, alive, gone, named};
use super::process::{ended, pid, signal};
use super::{LONG, PATH, server, start};

/// A shell that starts a script and becomes this command, as after `exec 2> >(logger)`.
fn after(script: &str, becomes: &Command) -> Command {
    let becomes = becomes.as_std();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{script}\nexec \"$0\" \"$@\"")]);
    shell.arg(becomes.get_program()).args(becomes.get_args());
    for (name, value) in becomes.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(folder) = becomes.get_current_dir() {
        shell.current_dir(folder);
    }
    shell.kill_on_drop(true);
    shell
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ran_before_is_left_alone_with_what_it_starts() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let before = r#"
        sleep 1000 & echo "before $!" >> family
        (until [ -e ready ]; do sleep 0.05; done; sleep 1000 & echo "orphan $!" >> family) &
    "#;
    let script = ": > ready; until [ -e go ]; do sleep 0.05; done; exit 5";
    let mut run = after(before, &family.run(&connect, &[LONG, PATH], script))
        .spawn()
        .unwrap();
    let lockctl = pid(&run);
    let adopted = async || {
        let members = family.written();
        let orphan = members.iter().find(|it| it.name == "orphan")?;
        (orphan.parent() == lockctl).then_some(members)
    };
    let members = ensemble.until("an orphan", adopted).await;
    std::fs::write(family.path("go"), "").unwrap();
    assert_eq!(ended(&mut run).await, Some(5));
    assert_eq!(alive(&members).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ran_before_is_left_alone_when_the_supervisor_is_killed() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let before = r#"
        sh -c 'sleep 1000 & echo "inner $!" >> before; wait' & echo "outer $!" >> before
        until [ "$(wc -l < before)" -eq 2 ]; do sleep 0.05; done
    "#;
    let mut run = after(before, &family.command(&connect, &[LONG, PATH]))
        .spawn()
        .unwrap();
    let members = family.members(&ensemble).await;
    let before = family.read("before");
    std::fs::write(family.path("family"), family.read("family") + &before).unwrap();
    let all = family.written();
    signal(named(&members, "shell").parent(), Signal::KILL);
    gone(&ensemble, &members).await;
    assert_eq!(ended(&mut run).await, Some(70));
    let left: Vec<_> = alive(&all).iter().map(|it| it.name.clone()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(
        before.contains(&left[0]) && before.contains(&left[1]),
        "{left:?}"
    );
}
