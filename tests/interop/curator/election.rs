//! Leaders among our candidates and Curator's, in both layouts.

use std::time::Duration;

use lock_recipes::{ElectionLayout, LeaderElection, LeaderLatch, Session, ZooKeeper};
use test_rig::history::monotonic_now;
use test_rig::{CandidateKind, CuratorPeer, Direction, FaultProxy, TestEnsemble};
use tokio::time::Instant;

use super::{PATIENCE, Stage, sequence};
use crate::again::{self, Again};
use crate::peers_fail_here::server;

const LAYOUTS: [(ElectionLayout, CandidateKind, &str); 2] = [
    (
        ElectionLayout::LeaderLatch,
        CandidateKind::Latch,
        "/elections/latch",
    ),
    (
        ElectionLayout::LeaderSelector,
        CandidateKind::Selector,
        "/elections/selector",
    ),
];

/// For leaders that are killed.
const SHORT: Duration = Duration::from_secs(2);

fn election(session: &Session, path: &str, id: &str, layout: ElectionLayout) -> LeaderElection {
    LeaderElection::with_layout(session, path, id, layout).unwrap()
}

async fn leads(curator: &CuratorPeer, name: &str) {
    let leads = curator.leads_within(name, PATIENCE).await.unwrap();
    assert!(leads, "{name} does not lead");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_leads_and_we_wait_and_then_the_other_way_round() {
    let stage = Stage::set_up().await;
    let curator = &stage.curator;
    for (layout, kind, path) in LAYOUTS {
        curator
            .candidate("theirs", kind, "c", path, "curator")
            .await
            .unwrap();
        leads(curator, "theirs").await;
        let ours = election(&stage.ours, path, "rust", layout);
        let campaign = tokio::spawn(ours.campaign());
        stage.ensemble.await_children(path, 2).await;
        assert!(!campaign.is_finished());
        assert!(ours.try_campaign().await.unwrap().is_none());
        curator.resign("theirs").await.unwrap();
        let term = campaign.await.unwrap().unwrap();

        curator
            .candidate("theirs", kind, "c", path, "curator")
            .await
            .unwrap();
        stage.ensemble.await_children(path, 2).await;
        assert!(!curator.leads("theirs").await.unwrap());
        assert!(term.is_valid());
        term.resign().await.unwrap();
        leads(curator, "theirs").await;
        curator.resign("theirs").await.unwrap();
        stage.ensemble.await_children(path, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_read_the_ids_of_all_candidates_in_one_order() {
    let stage = Stage::set_up().await;
    let curator = &stage.curator;
    for (layout, kind, path) in LAYOUTS {
        let ours = election(&stage.ours, path, "Rust auf Zürich-7", layout);
        let mut observer = ours.observe();
        assert_eq!(observer.next().await.unwrap().unwrap(), None);
        let term = ours.campaign().await.unwrap();
        for (name, count) in [("one", 2), ("two", 3)] {
            let id = format!("Curator {name}, größer");
            curator.candidate(name, kind, "c", path, &id).await.unwrap();
            stage.ensemble.await_children(path, count).await;
        }
        for leading in 0..3 {
            let candidates = ours.candidates().await.unwrap();
            let seen: Vec<_> = candidates
                .iter()
                .map(|it| (it.id.clone(), it.is_leader))
                .collect();
            let all = [
                "Rust auf Zürich-7",
                "Curator one, größer",
                "Curator two, größer",
            ];
            let wanted = all[leading..].iter().enumerate();
            let wanted: Vec<_> = wanted.map(|(at, id)| ((*id).to_owned(), at == 0)).collect();
            assert_eq!(seen, wanted);
            assert_eq!(curator.candidates("two").await.unwrap(), wanted);
            assert_eq!(curator.leader("two").await.unwrap(), all[leading]);
            let observed = observer.next().await.unwrap().unwrap().unwrap();
            assert_eq!(observed.id, all[leading]);
            assert_eq!(ours.leader().await.unwrap(), Some(observed));
            match leading {
                // An operator ends the first term.
                0 => {
                    stage.ensemble.delete(&term.members()[0].node_path).await;
                    leads(curator, "one").await;
                }
                1 => {
                    curator.resign("one").await.unwrap();
                    leads(curator, "two").await;
                }
                _ => curator.resign("two").await.unwrap(),
            }
        }
        assert_eq!(observer.next().await.unwrap().unwrap(), None);
        drop(term);
        stage.ensemble.await_children(path, 0).await;
    }
}

/// Both are latches, each side steps down and campaigns again when its session is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_of_both_follow_each_other_when_sessions_end() {
    const PATH: &str = "/elections/latch";
    let stage = Stage::set_up().await;
    let curator = &stage.curator;
    let ours = LeaderLatch::start(&stage.ours, PATH, "rust").unwrap();
    ours.wait_until_leader().await.unwrap();
    curator
        .candidate("theirs", CandidateKind::Latch, "c", PATH, "curator")
        .await
        .unwrap();
    stage.ensemble.await_children(PATH, 2).await;
    for _ in 0..2 {
        let term = ours.term().unwrap();
        stage.ensemble.expire(&stage.ours).await;
        leads(curator, "theirs").await;
        assert!(!ours.is_leader(), "two lead");
        // It is a candidate again.
        let again = async || {
            let candidates = curator.candidates("theirs").await.unwrap();
            let wanted = [("curator".to_owned(), true), ("rust".to_owned(), false)];
            (candidates == wanted).then_some(())
        };
        stage.ensemble.until("our latch again", again).await;

        let ended = curator.expire_session("c").await.unwrap();
        let next = ours.wait_until_leader().await.unwrap();
        assert!(next > term);
        let again = async || {
            let candidates = ours.election().candidates().await.unwrap();
            let last = candidates.get(1)?;
            (last.id == "curator" && last.session_id != ended).then_some(())
        };
        stage.ensemble.until("their latch again", again).await;
    }
    ours.stop().await.unwrap();
    leads(curator, "theirs").await;
}

/// A leader of ours that is killed, as a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process that another test starts"]
async fn leader_process() {
    let Some(connect_string) = again::orders() else {
        return;
    };
    let options = ZooKeeper::builder().session_timeout(SHORT);
    let session = options.connect(&connect_string).await.unwrap();
    let latch = LeaderLatch::start(&session, LAYOUTS[0].2, "process").unwrap();
    latch.wait_until_leader().await.unwrap();
    std::future::pending::<()>().await;
}

async fn their_candidate(connect_string: &str) -> CuratorPeer {
    let curator = CuratorPeer::start().await.unwrap();
    curator.open("c", connect_string, SHORT).await.unwrap();
    let (_, kind, path) = LAYOUTS[0];
    let started = curator.candidate("theirs", kind, "c", path, "curator");
    started.await.unwrap();
    curator
}

/// How long nobody leads after a leader was killed: a measurement, which is printed. The server counts
/// the timeout from the last request of the leader, so the pause is shorter the older that one is.
/// It is a moment old where we follow. Curator needs a second to start meanwhile, and the leader sends
/// heartbeats: ours each sixth of the timeout, Curator's each third.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latch_follows_a_killed_leader_of_either_side() {
    const ROUNDS: usize = 3;
    const TRIES: usize = 10;
    let ensemble = test_rig::own::on_a_real_server().await;
    let options = ZooKeeper::builder().session_timeout(SHORT);
    let session = ensemble.session_with(options).await;
    let mut version = String::new();
    let mut pauses: [Vec<Pause>; 4] = std::array::from_fn(|_| Vec::new());
    for round in 0..ROUNDS * 4 {
        let sides = (round % 2 == 1, round % 4 >= 2);
        let mut led = None;
        for _ in 0..TRIES {
            led = play(&ensemble, &session, sides, &mut version).await;
            if led.is_some() {
                break;
            }
        }
        pauses[round % 4].push(led.unwrap());
    }
    report(pauses, ROUNDS, &version);
}

/// Kills a leader that another candidate waits for. `None` if its session had ended before, as on a machine that is too
/// busy for such a short one.
async fn play(
    ensemble: &TestEnsemble,
    session: &Session,
    (theirs_leads, theirs_follows): (bool, bool),
    version: &mut String,
) -> Option<Pause> {
    let path = LAYOUTS[0].2;
    let connect_string = server(ensemble).connect_string();
    // Of the leader alone, so that its last request is known.
    let proxy = FaultProxy::start(&connect_string).await.unwrap();
    let mut process = None;
    let mut peer = None;
    match theirs_leads {
        true => {
            let curator = their_candidate(&proxy.connect_string()).await;
            leads(&curator, "theirs").await;
            peer = Some(curator);
        }
        false => {
            let test = "curator::election::leader_process";
            process = Some(Again::start(test, &proxy.connect_string()));
        }
    }
    let leader = ensemble.await_children(path, 1).await;
    let kill = async {
        let queue = ensemble.await_children(path, 2).await;
        let first = queue.iter().min_by_key(|it| sequence(it));
        let is_first = first == leader.first();
        let killed = monotonic_now();
        if let Some(process) = &mut process {
            process.kill().await;
        }
        if let Some(peer) = peer.take() {
            peer.kill().await.unwrap();
        }
        is_first.then(|| (killed, last_request(&proxy)))
    };
    let mut led = None;
    match theirs_follows {
        true => {
            let curator = their_candidate(&connect_string).await;
            curator.curator_version().clone_into(version);
            if let Some(killed) = kill.await {
                leads(&curator, "theirs").await;
                led = Some(Pause::since(killed));
            }
            curator.exit().await.unwrap();
        }
        false => {
            let ours = LeaderLatch::start(session, path, "rust").unwrap();
            if let Some(killed) = kill.await {
                ours.wait_until_leader().await.unwrap();
                led = Some(Pause::since(killed));
            }
            ours.stop().await.unwrap();
        }
    }
    ensemble.await_children(path, 0).await;
    led
}

/// Ends when the next one leads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pause {
    since_death: Duration,
    since_request: Duration,
}

impl Pause {
    fn since((killed, last_request): (u64, Instant)) -> Self {
        let since_request = last_request.elapsed();
        assert!(since_request >= SHORT, "{since_request:?}");
        Self {
            since_death: Duration::from_nanos(monotonic_now() - killed),
            since_request,
        }
    }
}

fn last_request(proxy: &FaultProxy) -> Instant {
    let log = proxy.log();
    let requests = log.iter().filter(|it| it.direction == Direction::ToServer);
    requests.map(|it| it.arrived).max().unwrap()
}

fn report(pauses: [Vec<Pause>; 4], rounds: usize, version: &str) {
    let names = [
        "ours killed, ours follows",
        "Curator's killed, ours follows",
        "ours killed, Curator's follows",
        "Curator's killed, Curator's follows",
    ];
    for (name, mut pauses) in names.into_iter().zip(pauses) {
        pauses.sort_unstable();
        let (median, worst) = (pauses[rounds / 2], pauses[rounds - 1]);
        println!(
            "{name}: nobody led for {:?} (median), {:?} (worst) of {rounds}, {:?} and {:?} after the \
             leader's last request; session timeout {SHORT:?}, Curator {version}",
            median.since_death, worst.since_death, median.since_request, worst.since_request
        );
    }
}
