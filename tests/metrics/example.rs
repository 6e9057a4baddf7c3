//! The example prints what a Prometheus server gets.

use test_rig::ZooKeeperServer;

use crate::executable::executable;

/// Runs the example, and returns what it printed.
async fn example(arguments: &[&str]) -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let output = tokio::process::Command::new(executable("metrics"))
        .args(["--listen", &address])
        .args(arguments)
        .env_remove("LOCKS_URL")
        .output();
    let output = output.await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn check_example(printed: &str) {
    for line in [
        r#"lock_recipes_acquires_total{kind="read",outcome="granted"} 40"#,
        r#"lock_recipes_acquires_total{kind="write",outcome="granted"} 20"#,
        r#"lock_recipes_grants_total{kind="write"} 20"#,
        r#"lock_recipes_local_handoffs_total{kind="mutex"}"#,
        r#"lock_recipes_acquires_total{kind="mutex",outcome="timed_out"}"#,
        "lock_recipes_cleanups_pending 0",
    ] {
        assert!(printed.contains(line), "no {line:?} in\n{printed}");
    }
}

#[tokio::test]
async fn example_serves_the_metrics_of_its_run_in_memory() {
    check_example(&example(&[]).await);
}

#[tokio::test]
async fn example_serves_the_metrics_of_its_run_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    check_example(&example(&["--connect", &server.connect_string()]).await);
}
