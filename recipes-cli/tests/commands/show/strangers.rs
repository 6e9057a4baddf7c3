//! Nodes in lock directories that no contender owns. Whoever comes may have to wait for them, so they
//! are shown before anybody does.

use std::process::Stdio;

use recipes_multilock::Member;
use serde_json::json;

use super::{held, json, node_of, printed, server, start};
use crate::lockctl::{lockctl, output, said};

const PATH: &str = "/locks/nightly";
const LEFT: &str = "/locks/nightly/lock-0000000000";
const CONFIG: &str = "/locks/nightly/config";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_only_a_left_node_blocks_is_shown_and_can_be_broken() {
    let ensemble = start().await;
    ensemble.create(LEFT, b"by hand").await;
    ensemble.create(CONFIG, b"limit=5").await;
    let shown = json(&ensemble, &["inspect", PATH]).await;
    let nodes = shown["contenders"].as_array().unwrap().iter();
    let nodes: Vec<_> = nodes.map(|it| (&it["path"], &it["standing"])).collect();
    let stranger = json!("stranger");
    let [left, config] = [json!(LEFT), json!(CONFIG)];
    assert_eq!(nodes, [(&left, &stranger), (&config, &stranger)]);
    assert_eq!(shown["recipe"], json!("mutex"));
    let text = printed(&ensemble, &["inspect", PATH]).await;
    let line = text.lines().find(|it| it.contains("lock-0000000000"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    assert_eq!(
        (words[0], &words[4..]),
        ("stranger", &["by", "hand"][..]),
        "{text}"
    );
    let listed = printed(&ensemble, &["ls"]).await;
    let line = listed.lines().find(|it| it.contains(PATH)).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    let expected = "/locks/nightly mutex 0 0 (strangers lock-0000000000 and 1 more)";
    assert_eq!(words.join(" "), expected);
    assert_eq!(json(&ensemble, &["ls"]).await["locks"], json!([shown]));

    // The question has both, and what it would do to each.
    let connect = server(&ensemble).connect_string();
    let mut command = lockctl(&connect, &["break", PATH]);
    command.stdin(Stdio::null());
    let asked = output(command).await;
    assert_eq!(asked.status.code(), Some(64), "{asked:?}");
    let question = String::from_utf8(asked.stderr).unwrap();
    let expected = format!(
        "These are deleted, and others may get the lock at once:\n  {LEFT}  by hand\n\
         These belong to no contender, and stay:\n  {CONFIG}  limit=5\nDelete them? [y/N] "
    );
    assert!(question.starts_with(&expected), "{question}");
    let deleted = printed(&ensemble, &["break", "-y", PATH]).await;
    assert_eq!(deleted, format!("deleted: {LEFT}\n"));
    let (data, _) = ensemble.read(CONFIG).await.unwrap();
    assert_eq!(data, b"limit=5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_next_to_a_holder_are_shown_though_nobody_waits() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guard = held(&session, Member::mutex(PATH)).await;
    ensemble.create(CONFIG, b"limit=5").await;
    let listed = printed(&ensemble, &["ls"]).await;
    assert!(listed.contains("(stranger config) "), "{listed}");
    let connect = server(&ensemble).connect_string();
    let asked = output(lockctl(&connect, &["break", PATH])).await;
    let question = String::from_utf8(asked.stderr).unwrap();
    let stays = format!("These belong to no contender, and stay:\n  {CONFIG}  limit=5\n");
    assert!(question.contains(&stays), "{question}");
    let deleted = printed(&ensemble, &["break", "-y", PATH]).await;
    assert_eq!(deleted, format!("deleted: {}\n", node_of(&guard)));
    // One with the name of a lock node can be named itself.
    ensemble.create(LEFT, b"").await;
    let deleted = printed(&ensemble, &["break", "-y", LEFT]).await;
    assert_eq!(deleted, format!("deleted: {LEFT}\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_for_what_is_no_lock_names_what_is_there() {
    let ensemble = start().await;
    for name in ["a", "b", "c", "d", "e"] {
        ensemble.create(&format!("{PATH}/{name}"), b"").await;
    }
    let connect = server(&ensemble).connect_string();
    for task in ["inspect", "revoke", "break"] {
        let ran = output(lockctl(&connect, &[task, PATH])).await;
        assert_eq!(ran.status.code(), Some(66), "{ran:?}");
        let said = said(&ran);
        let begin = format!("lockctl: \"{PATH}\" is no lock that anybody holds or waits for; ");
        assert!(said.starts_with(&begin), "{said}");
        // The store lists them in any order.
        let end = " and 2 more\n";
        assert!(
            said.contains("belong to no contender: ") && said.ends_with(end),
            "{said}"
        );
    }
}
