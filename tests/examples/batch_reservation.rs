//! The example of batches: several processes, no seat twice, no batch in part.

mod journal;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use futures::future::join_all;
use rustix::process::Signal;
use tempfile::TempDir;
use test_rig::{TestEnsemble, ZooKeeperServer};
use tokio::time::Instant;

use journal::{Journal, done};
use process::{Answer, Process};

const LOCKS: &str = "/demo/seats";
const DATABASE: &str = "seats.db";

const DONE: Option<i32> = Some(0);
const NOT_TO_BE_HAD: Option<i32> = Some(2);
const STALE: Option<i32> = Some(3);

fn database() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(DATABASE);
    (folder, file)
}

#[tokio::test]
async fn batches_of_three_processes_are_whole_and_take_no_seat_twice_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    batches_are_whole_and_take_no_seat_twice(TestEnsemble::Real(server.into()), &connect).await;
}

#[tokio::test]
async fn batches_of_three_processes_are_whole_and_take_no_seat_twice_on_redis() {
    let server = test_rig::RedisServer::start().await.unwrap();
    let connect = server.url();
    let ensemble = TestEnsemble::Redis(server.into());
    // It says that nobody held a lock before.
    ensemble.session().await.close().await;
    batches_are_whole_and_take_no_seat_twice(ensemble, &connect).await;
}

async fn batches_are_whole_and_take_no_seat_twice(ensemble: TestEnsemble, connect: &str) {
    const SEATS: [&str; 8] = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let (_folder, db) = database();
    let start = Instant::now();
    let processes = [1, 2, 3].map(|number| {
        let words = format!(
            "load --client process-{number} --clients 4 --batches 40 --seed {number} --seats {} \
             --session-timeout-ms 20000 --patience-ms 120000",
            SEATS.join(",")
        );
        Process::on(connect, &db, &words).answer()
    });
    let answers = join_all(processes).await;
    let seconds = start.elapsed().as_secs_f64();
    // In a deadlock, some batch would not be answered within its patience.
    for answer in &answers {
        assert_eq!(answer.code, DONE, "{:?}", answer.lines.last());
    }
    let lines: Vec<_> = answers.into_iter().flat_map(|it| it.lines).collect();
    assert_eq!(lines.len(), 3 * 4 * 40);
    let said: BTreeMap<_, _> = lines.iter().filter_map(|line| done(line)).collect();
    println!(
        "{} batches, {} of them done, in {seconds:.1} s",
        lines.len(),
        said.len()
    );
    assert!(said.len() > 100, "the seats were hardly used");
    assert!(
        said.len() < lines.len(),
        "the clients were hardly in contention"
    );

    let journal = Journal::read(&db);
    journal.check();
    assert_eq!(journal.batches(), said);
    assert_eq!(ensemble.children(LOCKS).await, SEATS);
    for seat in SEATS {
        assert_eq!(ensemble.children(&format!("{LOCKS}/{seat}")).await, [""; 0]);
    }
}

/// Alice is stopped between her check and her write. By now Bob holds the lock of 7-12, and has
/// made his check.
struct Scene {
    server: ZooKeeperServer,
    folder: TempDir,
    alice: Process,
    bob: Process,
}

impl Scene {
    async fn begin() -> Self {
        let server = ZooKeeperServer::start().await.unwrap();
        let (folder, db) = database();
        let reserve = |words: &str| {
            let words = format!("reserve --pause-at payment {words}");
            Process::on(&server.connect_string(), &db, &words)
        };
        let mut alice = reserve("--client alice --seats 7-11,7-12 --session-timeout-ms 1000");
        alice.is_holding().await;
        alice.signal(Signal::STOP);
        // Bob waits long enough for her session to end.
        let mut bob = reserve(
            "--client bob --seats 7-13,7-12 --session-timeout-ms 20000 --patience-ms 120000",
        );
        bob.is_holding().await;
        Self {
            server,
            folder,
            alice,
            bob,
        }
    }
}

async fn wake_up(alice: Process) -> Answer {
    alice.signal(Signal::CONT);
    alice.go_on().await
}

async fn check_that_only_bob_booked(
    (server, folder): (ZooKeeperServer, TempDir),
    alice: &Answer,
    bob: &Answer,
) {
    assert_eq!(bob.lines, ["bob: book 7-13,7-12: done, batch 1"]);
    assert_eq!(bob.code, DONE);
    let refused = "alice: book 7-11,7-12: refused, token ";
    assert!(alice.lines[0].starts_with(refused), "{alice:?}");
    assert!(
        alice.lines[0].contains(" of seat 7-12 is stale, "),
        "{alice:?}"
    );
    assert_eq!(alice.code, STALE);

    let journal = Journal::read(&folder.path().join(DATABASE));
    journal.check();
    let booked: BTreeSet<_> = journal.entries.iter().map(|it| it.seat.as_str()).collect();
    assert_eq!(booked, BTreeSet::from(["7-12", "7-13"]));
    let ensemble = TestEnsemble::Real(server.into());
    for seat in ["7-11", "7-12", "7-13"] {
        assert_eq!(ensemble.children(&format!("{LOCKS}/{seat}")).await, [""; 0]);
    }
}

#[tokio::test]
async fn write_of_a_process_that_slept_past_its_session_is_refused_on_a_real_server() {
    let Scene {
        server,
        folder,
        alice,
        bob,
    } = Scene::begin().await;
    let bob = bob.go_on().await;
    let alice = wake_up(alice).await;
    check_that_only_bob_booked((server, folder), &alice, &bob).await;
}

#[tokio::test]
async fn write_is_refused_even_before_the_next_holder_has_written_on_a_real_server() {
    let Scene {
        server,
        folder,
        alice,
        bob,
    } = Scene::begin().await;
    let alice = wake_up(alice).await;
    let bob = bob.go_on().await;
    check_that_only_bob_booked((server, folder), &alice, &bob).await;
}

#[tokio::test]
async fn loser_is_told_which_seat_is_whose_and_gets_none_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let (_folder, db) = database();
    let connect = server.connect_string();
    let ask = async |words: &str| Process::on(&connect, &db, words).answer().await;

    let alice = ask("reserve --client alice --seats 7-11,7-12").await;
    assert_eq!(alice.lines, ["alice: book 7-11,7-12: done, batch 1"]);
    let bob = ask("reserve --client bob --seats 7-13,7-12").await;
    let refused = "bob: book 7-13,7-12: refused, seat 7-12 is taken by alice";
    assert_eq!(
        (&bob.lines[..], bob.code),
        (&[refused.to_owned()][..], NOT_TO_BE_HAD)
    );
    let bob = ask("cancel --client bob --seats 7-12").await;
    assert_eq!(
        bob.lines,
        ["bob: cancel 7-12: refused, seat 7-12 is taken by alice"]
    );
    let alice = ask("cancel --client alice --seats 7-12,7-11").await;
    assert_eq!(alice.lines, ["alice: cancel 7-12,7-11: done, batch 2"]);
    let alice = ask("cancel --client alice --seats 7-12").await;
    assert_eq!(
        alice.lines,
        ["alice: cancel 7-12: refused, seat 7-12 is booked by nobody"]
    );
    assert_eq!(alice.code, NOT_TO_BE_HAD);
    let bob = ask("reserve --client bob --seats 7-13,7-12").await;
    assert_eq!(bob.lines, ["bob: book 7-13,7-12: done, batch 3"]);

    let shown = ask("show").await;
    let holders: Vec<_> = shown.lines[..3].iter().map(|it| it.trim()).collect();
    assert_eq!(holders, ["7-11: nobody", "7-12: bob", "7-13: bob"]);
    Journal::read(&db).check();
}

#[tokio::test]
async fn demo_needs_nothing_and_ends_well() {
    let told = Process::start("").answer().await;
    let story = told.lines.join("\n");
    assert_eq!(told.code, DONE, "{story}");
    for line in [
        "refused, seat 7-1",
        "Carol: book 8-1,8-2: refused, token ",
        "is stale, the database has seen",
        "Carol: book 8-1: done",
    ] {
        assert!(story.contains(line), "no {line:?} in\n{story}");
    }
}

/// The seats are where the locks are, so there are no tokens to compare.
#[tokio::test]
async fn sleeper_is_refused_by_the_database_that_has_the_locks_on_postgres() {
    let ensemble = test_rig::own::on_postgres().await;
    // It says that nobody held a lock before.
    ensemble.session().await.close().await;
    let url = ensemble.url();
    let on = |words: &str| Process::on(&url, std::path::Path::new(&url), words);
    let reserve = |words: &str| on(&format!("reserve --pause-at payment {words}"));
    let mut alice = reserve("--client alice --seats 7-11,7-12 --session-timeout-ms 1000");
    alice.is_holding().await;
    alice.signal(Signal::STOP);
    let mut bob =
        reserve("--client bob --seats 7-13,7-12 --session-timeout-ms 20000 --patience-ms 120000");
    bob.is_holding().await;
    let alice = wake_up(alice).await;
    assert_eq!(alice.code, STALE, "{alice:?}");
    let bob = bob.go_on().await;
    assert_eq!(bob.lines, ["bob: book 7-13,7-12: done, batch 1"]);
    let shown = on("show").answer().await.lines;
    let seats: Vec<_> = shown.iter().map(|line| line.trim()).take(2).collect();
    assert_eq!(seats, ["7-12: bob", "7-13: bob"], "{shown:?}");
    assert_eq!(shown.len(), 4, "{shown:?}");
}
