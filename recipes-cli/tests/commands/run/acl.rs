//! Who may use the nodes that a run creates.

use std::process::Stdio;

use zookeeper_client::{Acl, AuthId, Permission};

use super::process::ended;
use super::{LONG, PATH, server, start};
use crate::lockctl::lockctl;

/// Of `ops:opspass`.
const DIGEST: &str = "ops:6oydJrFeF0qMiG4jeCQ0VpiwJpM=";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_have_the_acl_that_was_asked_for() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let operator = server(&ensemble).client_of_place().await;
    operator.auth("digest", b"ops:opspass").await.unwrap();
    let ops = || AuthId::new("digest", DIGEST);
    let anyone = || AuthId::anyone();
    let listed = format!("digest:{DIGEST}:cdrwa,world:anyone:r");
    for (name, acl, expected) in [
        ("open", None, vec![Acl::new(Permission::ALL, anyone())]),
        (
            "creator",
            Some("creator"),
            vec![Acl::new(Permission::ALL, ops())],
        ),
        (
            "listed",
            Some(listed.as_str()),
            vec![
                Acl::new(Permission::ALL, ops()),
                Acl::new(Permission::READ, anyone()),
            ],
        ),
    ] {
        let path = format!("{PATH}-{name}");
        let mut run = lockctl(&connect, &["run", LONG, &path, "--", "cat"]);
        run.env("LOCKCTL_AUTH", "digest:ops:opspass");
        run.envs(acl.map(|it| ("LOCKCTL_ACL", it)));
        let mut run = run.stdin(Stdio::piped()).spawn().unwrap();
        let node = async || {
            let names = operator.list_children(&path).await.ok()?;
            names.first().map(|it| format!("{path}/{it}"))
        };
        let node = ensemble.until("a node", node).await;
        for made in [&path, &node] {
            let (acl, _) = operator.get_acl(made).await.unwrap();
            assert_eq!(acl, expected, "{made}");
        }
        drop(run.stdin.take());
        assert_eq!(ended(&mut run).await, Some(0));
    }
}
