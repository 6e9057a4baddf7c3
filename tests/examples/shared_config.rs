//! The example of a shared configuration: readers in several processes never see half of it.

mod process;

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use futures::future::join_all;
use lock_recipes::InterProcessReadWriteLock;
use rustix::process::Signal;
use test_rig::{TestEnsemble, ZooKeeperServer};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use process::{PATIENCE, Read, Reader, Written, command, signal};

const LOCK: &str = "/demo/config/lock";

async fn write(server: &str, arguments: &[&str]) -> Vec<Written> {
    let arguments = [&["write", "--connect", server], arguments].concat();
    Written::all(&output(command(&arguments)).await)
}

async fn output(mut command: Command) -> Output {
    let output = timeout(PATIENCE, command.stderr(Stdio::piped()).output()).await;
    output.expect("the process does not end").unwrap()
}

/// Version and process that all values name.
fn origin(read: &Read) -> &str {
    let mut origins = read
        .values
        .iter()
        .map(|it| it.split_once(" of ").unwrap().1);
    let first = origins.next().unwrap();
    assert!(origins.all(|it| it == first), "a mixture: {read:?}");
    assert_eq!(read.values.len(), 5, "{read:?}");
    let version = format!("version {} by process ", read.version);
    assert!(first.starts_with(&version), "{read:?}");
    first
}

fn assert_refused(output: &Output, why: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains(&format!("error: {why}")), "{errors}");
}

fn overlap(a: [u64; 2], b: [u64; 2]) -> bool {
    a[0] <= b[1] && b[0] <= a[1]
}

/// Asserts that a reader saw only whole versions, and none after a later one.
fn assert_in_order(reads: &[Read]) {
    for read in reads {
        origin(read);
    }
    for pair in reads.windows(2) {
        assert!(
            pair[0].version <= pair[1].version,
            "versions fall: {pair:?}"
        );
    }
}

fn together_max(readers: &[Vec<Read>]) -> usize {
    let reads = || readers.iter().flatten().map(|it| it.held_us);
    let at = |moment| reads().filter(|it| overlap(*it, [moment; 2])).count();
    reads().map(|[from, _]| at(from)).max().unwrap()
}

#[tokio::test]
async fn readers_side_by_side_see_whole_versions_while_two_writers_rewrite_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    let ensemble = TestEnsemble::Real(server.into());
    let mut written = write(&connect, &[]).await;
    let mut readers = [(); 3].map(|()| Reader::start(&connect));
    join_all(readers.iter_mut().map(|it| it.until(|_| true))).await;

    let times = ["--times", "20"];
    let is_the_last = |read: &Read| read.version == 41;
    // All outputs are read all the time. Otherwise a reader stops when its pipe is full.
    let (first, second, _) = tokio::join!(
        write(&connect, &times),
        write(&connect, &times),
        join_all(readers.iter_mut().map(|it| it.until(is_the_last))),
    );
    written.extend([first, second].concat());
    let readers = join_all(readers.into_iter().map(Reader::stop)).await;

    let mut versions: Vec<_> = written.iter().map(|it| it.version).collect();
    versions.sort_unstable();
    assert_eq!(versions, Vec::from_iter(1..=41));
    let checksums: BTreeMap<_, _> = written
        .iter()
        .map(|it| (it.version, &it.checksum))
        .collect();
    for reads in &readers {
        assert_in_order(reads);
        for read in reads {
            assert_eq!(read.problem, None, "{read:?}");
            assert_eq!(&read.checksum, checksums[&read.version], "{read:?}");
        }
    }
    for read in readers.iter().flatten() {
        let mut writes = written.iter();
        let beside = writes.find(|it| overlap(it.held_us, read.held_us));
        assert!(beside.is_none(), "{read:?} beside {beside:?}");
    }
    let together = together_max(&readers);
    let reads: Vec<_> = readers.iter().map(Vec::len).collect();
    println!("reads of each: {reads:?}, at the same time: {together}");
    assert!(together > 1, "readers wait for each other");
    assert_eq!(ensemble.children(LOCK).await, [""; 0]);
}

#[tokio::test]
async fn readers_read_beside_another_and_wait_for_a_writer_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    let ensemble = TestEnsemble::Real(server.into());
    write(&connect, &[]).await;
    let session = ensemble.session().await;
    let lock = InterProcessReadWriteLock::new(&session, LOCK).unwrap();

    // Whatever they print, they read it while we held the lock too.
    let beside = lock.read().await.unwrap();
    let mut readers = [(); 3].map(|()| Reader::start(&connect));
    join_all(readers.iter_mut().map(|it| it.until(|_| true))).await;
    assert!(beside.is_valid());
    beside.release().await.unwrap();

    let alone = lock.write().await.unwrap();
    ensemble
        .until("all readers wait", async || {
            let waiting = lock.read_participants().await.unwrap();
            (waiting.len() == 3).then_some(())
        })
        .await;
    alone.release().await.unwrap();
    for reader in readers {
        assert_in_order(&reader.stop().await);
    }
    assert_eq!(ensemble.children(LOCK).await, [""; 0]);
}

#[tokio::test]
async fn half_of_a_killed_writer_is_never_served_and_the_next_writer_repairs_it_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    let ensemble = TestEnsemble::Real(server.into());
    write(&connect, &["--times", "2"]).await;
    let mut readers = [(); 3].map(|()| Reader::start(&connect));
    join_all(readers.iter_mut().map(|it| it.until(|_| true))).await;
    let dead = kill_a_writer_midway(&ensemble, &connect).await;

    let find_the_half = |it: &Read| it.problem.is_some();
    for read in join_all(readers.iter_mut().map(|it| it.until(find_the_half))).await {
        assert_eq!(read.version, 2);
        let problem = read.problem.unwrap();
        assert!(
            problem.contains("incomplete, last writer died"),
            "{problem}"
        );
    }
    let newcomer = command(&["serve", "--connect", &connect]);
    let refused = "configuration incomplete, last writer died";
    assert_refused(&output(newcomer).await, refused);

    let repaired = write(&connect, &[]).await;
    let find_it_whole = |it: &Read| it.problem.is_none() && it.version == 3;
    for read in join_all(readers.iter_mut().map(|it| it.until(find_it_whole))).await {
        assert_eq!(read.checksum, repaired[0].checksum);
    }
    for reader in readers {
        let reads = reader.stop().await;
        assert_in_order(&reads);
        let of_the_dead = |read: &&Read| origin(read).ends_with(&format!(" {dead}"));
        assert_eq!(reads.iter().filter(of_the_dead).count(), 0);
    }
    assert_eq!(ensemble.children(LOCK).await, [""; 0]);
}

#[tokio::test]
async fn writer_stopped_midway_says_so_and_frees_the_lock_before_it_ends_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    let ensemble = TestEnsemble::Real(server.into());
    let writer = start_a_writer(&ensemble, &connect).await;
    signal(&writer, Signal::TERM);
    let output = timeout(PATIENCE, writer.wait_with_output()).await;
    assert_refused(&output.unwrap().unwrap(), "stopped by a signal");
    assert_eq!(ensemble.children(LOCK).await, [""; 0]);
}

/// Starts a writer and waits until it has written three of five nodes, where it pauses.
async fn start_a_writer(ensemble: &TestEnsemble, connect: &str) -> Child {
    let mut writer = command(&["write", "--connect", connect, "--pause-ms", "600000"]);
    let writer = writer.stderr(Stdio::piped()).spawn().unwrap();
    let by_it = format!(" by process {}", writer.id().unwrap());
    ensemble
        .until("the writer is midway", async || {
            let (limits, _) = ensemble.read("/demo/config/limits").await?;
            limits.ends_with(by_it.as_bytes()).then_some(())
        })
        .await;
    writer
}

/// Kills a writer midway, ends its session, and returns its process id.
async fn kill_a_writer_midway(ensemble: &TestEnsemble, connect: &str) -> u32 {
    let mut writer = start_a_writer(ensemble, connect).await;
    let id = writer.id().unwrap();
    writer.kill().await.unwrap();
    let session = ensemble.session().await;
    let lock = InterProcessReadWriteLock::new(&session, LOCK).unwrap();
    let writers = lock.write_participants().await.unwrap();
    assert_eq!(writers.len(), 1, "{writers:?}");
    // The session ends at once, instead of at its timeout.
    let TestEnsemble::Real(server) = ensemble else {
        panic!("processes need a real server")
    };
    server.expire(writers[0].session_id).await.unwrap();
    id
}

#[tokio::test]
async fn demo_tells_its_story_in_memory_and_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    for arguments in [&[][..], &["demo", "--connect", &connect]] {
        let told = output(command(arguments)).await;
        let story = String::from_utf8(told.stdout).unwrap();
        assert!(told.status.success(), "{story}");
        for line in [
            "Three readers hold the read lock at the same time",
            "all three wait in the queue",
            "reader serves version 2; configuration incomplete, last writer died",
            "reader serves version 3\n",
            "The sessions are closed.",
        ] {
            assert!(story.contains(line), "no {line:?} in\n{story}");
        }
        assert_eq!(story.contains("in memory"), arguments.is_empty(), "{story}");
    }
}

#[tokio::test]
async fn it_explains_what_it_cannot_do_on_a_real_server() {
    for (arguments, why) in [
        (&["serve"][..], "name an ensemble with --connect"),
        (&["read"], "no command \"read\": serve, write or demo"),
        (&["serve", "--times", "1"], "no option --times of serve"),
        (&["write", "--times", "x"], "\"x\" is no number"),
    ] {
        assert_refused(&output(command(arguments)).await, why);
    }
    let server = ZooKeeperServer::start().await.unwrap();
    let serve = ["serve", "--connect", &server.connect_string()];
    assert_refused(&output(command(&serve)).await, "no configuration yet");
}
