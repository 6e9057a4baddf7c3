//! Go's mutex and election and the commands of `etcdctl`, in one queue with ours on etcd.

use std::time::Duration;

use futures::future::try_join_all;
use lock_recipes::{
    AcquireError, Error, Etcd, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphore,
    LeaderElection, LockKind, Session,
};
use test_rig::{EtcdPeer, EtcdServer, EtcdctlPeer, Grant, GrantKind, check_grants};
use tokio::time::timeout;

/// Far more than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(900);
const SESSION: Duration = Duration::from_secs(60);
/// As long for `etcdctl lock`, whose lease is one of 10 s otherwise.
const LEASE: &str = "--ttl=60";
/// Many times what a grant takes.
const A_WHILE: Duration = Duration::from_millis(300);

pub(crate) const PATH: &str = "/orders/4711";
const COUNTER: &str = "/counter";
/// Grants of each: of ours, of Go's mutex, of `etcdctl lock`. 500 in all.
const ROUNDS: (u32, u32, u32) = (225, 225, 50);
const THREADS: u16 = 5;

/// A server, a session of ours and a client of Go's named `go`, with a lock and a candidate of that name on our path.
pub(crate) struct Stage {
    pub(crate) server: EtcdServer,
    pub(crate) ours: Session,
    pub(crate) go: EtcdPeer,
}

impl Stage {
    pub(crate) async fn set_up() -> Self {
        let server = EtcdServer::start().await.unwrap();
        let ours = Etcd::builder().session_timeout(SESSION);
        let ours = ours.connect(&server.url()).await.unwrap();
        let go = EtcdPeer::start().await.unwrap();
        assert!(go.version().starts_with("3.5."), "{}", go.version());
        go.open("go", &server.address(), SESSION).await.unwrap();
        go.lock("go", "go", PATH).await.unwrap();
        go.candidate("go", "go", PATH).await.unwrap();
        Self { server, ours, go }
    }

    fn mutex(&self) -> InterProcessMutex {
        InterProcessMutex::new(&self.ours, PATH).unwrap()
    }

    fn etcdctl(&self, words: &[&str]) -> EtcdctlPeer {
        EtcdctlPeer::start(&self.server, &self.server.address(), words).unwrap()
    }

    /// Reads the counter under our lock and writes it back plus one, by a command that knows nothing of the lock.
    async fn contend(&self, rounds: u32) -> Vec<Grant> {
        let lock = self.mutex();
        let mut grants = Vec::new();
        for _ in 0..rounds {
            let guard = lock.acquire().await.unwrap();
            let read = self.server.command(&["get", COUNTER, "--print-value-only"]);
            let value: u64 = read.await.unwrap().trim().parse().unwrap();
            let written = (value + 1).to_string();
            let put = ["put", COUNTER, &written];
            self.server.command(&put).await.unwrap();
            let token = guard.fencing_token().as_i64();
            grants.push(Grant {
                kind: GrantKind::Exclusive,
                value,
                sequence: u32::try_from(token).unwrap(),
            });
            guard.release().await.unwrap();
        }
        grants
    }

    /// As [`contend`](Self::contend), by a shell under `etcdctl lock`.
    async fn contend_in_a_shell(&self, rounds: u32) -> Vec<Grant> {
        let client = self.server.client().display();
        let script = format!(
            r#"e="{client} --endpoints={} --dial-timeout=30s --command-timeout=30s"
            v=$($e get {COUNTER} --print-value-only)
            r=$($e get "$ETCD_LOCK_KEY" --write-out=fields | sed -n 's/"CreateRevision" : //p')
            $e put {COUNTER} $((v + 1)) >/dev/null
            echo $v $r"#,
            self.server.address()
        );
        let mut grants = Vec::new();
        for _ in 0..rounds {
            let words = ["lock", LEASE, "--", PATH, "sh", "-c", &script];
            let mut shell = self.etcdctl(&words);
            let line = shell.line().await.unwrap().unwrap();
            let (value, sequence) = line.split_once(' ').unwrap();
            grants.push(Grant {
                kind: GrantKind::Exclusive,
                value: value.parse().unwrap(),
                sequence: sequence.parse().unwrap(),
            });
            shell.ended().await.unwrap();
        }
        grants
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_gos_and_etcdctls_contenders_share_one_queue() {
    let stage = Stage::set_up().await;
    stage.server.command(&["put", COUNTER, "0"]).await.unwrap();
    let (ours, go, shell) = ROUNDS;
    let go = stage.go.contend("go", PATH, COUNTER, (go, THREADS), None);
    let of_ours = (0..THREADS)
        .map(|_| async { Ok::<_, Error>(stage.contend(ours / u32::from(THREADS)).await) });
    let (ours, go, shell) = tokio::join!(
        timeout(PATIENCE, try_join_all(of_ours)),
        timeout(PATIENCE, go),
        timeout(PATIENCE, stage.contend_in_a_shell(shell)),
    );
    let mut grants = ours.unwrap().unwrap().concat();
    grants.extend(go.unwrap().unwrap());
    grants.extend(shell.unwrap());
    assert_eq!(grants.len(), 500);
    check_grants(0, &grants).unwrap();
}

#[tokio::test]
async fn holder_of_either_keeps_out_the_other_and_hands_on_to_it() {
    let stage = Stage::set_up().await;
    let lock = stage.mutex();
    assert!(stage.go.try_acquire("t", "go").await.unwrap());
    assert!(lock.try_acquire().await.unwrap().is_none());
    let participants = lock.participants().await.unwrap();
    assert_eq!(participants.len(), 1);
    let revision = stage.go.revision("t", "go").await.unwrap();
    assert_eq!(participants[0].sequence, Some(revision));
    let session = stage.go.session("go").await.unwrap();
    assert_eq!(participants[0].session_id, session);
    let waiter = tokio::spawn(lock.acquire());
    while lock.participants().await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    stage.go.release("t", "go").await.unwrap();
    let held = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(held.fencing_token().as_i64() > revision);

    assert!(!stage.go.try_acquire("t", "go").await.unwrap());
    let waiting = stage.go.acquire("t", "go", None);
    while lock.participants().await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    held.release().await.unwrap();
    assert!(timeout(PATIENCE, waiting).await.unwrap().unwrap());

    // Its session ends as that of a process that has crashed.
    let waiter = tokio::spawn(lock.acquire());
    let lease = format!("{session:x}");
    let revoke = ["lease", "revoke", &lease];
    stage.server.command(&revoke).await.unwrap();
    let held = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();

    let mut shell = stage.etcdctl(&["lock", LEASE, PATH]);
    assert!(timeout(A_WHILE, shell.line()).await.is_err());
    held.release().await.unwrap();
    let key = timeout(PATIENCE, shell.line()).await.unwrap();
    assert!(key.unwrap().unwrap().starts_with(PATH));
    assert!(lock.try_acquire().await.unwrap().is_none());
    shell.release().await.unwrap();
    let acquired = timeout(PATIENCE, lock.acquire()).await.unwrap();
    acquired.unwrap().release().await.unwrap();
}

/// Go uses one key for all of its locks on a path, in one session after the other.
#[tokio::test]
async fn key_that_go_makes_again_is_another_contender() {
    let stage = Stage::set_up().await;
    let lock = stage.mutex();
    for _ in 0..20 {
        assert!(stage.go.acquire("t", "go", Some(PATIENCE)).await.unwrap());
        let waiter = tokio::spawn(lock.acquire());
        while lock.participants().await.unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        stage.go.release("t", "go").await.unwrap();
        let again = stage.go.acquire("t", "go", Some(PATIENCE));
        let held = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
        held.release().await.unwrap();
        assert!(again.await.unwrap());
        stage.go.release("t", "go").await.unwrap();
    }
}

#[tokio::test]
async fn candidates_of_both_see_each_other_and_lead_in_turn() {
    let stage = Stage::set_up().await;
    let election = LeaderElection::new(&stage.ours, PATH, "ours").unwrap();
    let leading = election.campaign().await.unwrap();
    let leader = stage.go.leader("go").await.unwrap();
    assert_eq!(leader.as_deref(), Some("ours"));
    let waiting = stage.go.campaign("t", "go", "gopher", None);
    while election.candidates().await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    let candidates = election.candidates().await.unwrap();
    let ids: Vec<_> = candidates.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["ours", "gopher"]);
    leading.resign().await.unwrap();
    assert!(timeout(PATIENCE, waiting).await.unwrap().unwrap());
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(leader.id, "gopher");
    assert!(election.try_campaign().await.unwrap().is_none());
    let next = tokio::spawn(election.campaign());
    stage.go.resign("go").await.unwrap();
    let leading = timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();
    let mut shell = stage.etcdctl(&["elect", PATH, "shell"]);
    assert!(timeout(A_WHILE, shell.line()).await.is_err());
    leading.resign().await.unwrap();
    assert!(timeout(PATIENCE, shell.line()).await.unwrap().is_ok());
    assert_eq!(election.leader().await.unwrap().unwrap().id, "shell");
    shell.release().await.unwrap();
}

/// Go's mutex knows neither readers nor permits.
#[tokio::test]
async fn other_recipes_refuse_a_path_on_which_go_has_a_lock() {
    let stage = Stage::set_up().await;
    assert!(stage.go.try_acquire("t", "go").await.unwrap());
    let lock = InterProcessReadWriteLock::new(&stage.ours, PATH).unwrap();
    let semaphore = InterProcessSemaphore::new(&stage.ours, PATH, 3).unwrap();
    let refused = [
        lock.read().await.err(),
        lock.write().await.err(),
        semaphore.acquire().await.err(),
    ];
    for refused in refused {
        let Some(Error::Acquire(AcquireError::RecipeDiffers { found, node, .. })) = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(*found, LockKind::Mutex, "{node}");
    }
    stage.go.release("t", "go").await.unwrap();
    let held = timeout(PATIENCE, lock.read()).await.unwrap().unwrap();
    assert!(!stage.go.try_acquire("t", "go").await.unwrap());
    held.release().await.unwrap();
}
