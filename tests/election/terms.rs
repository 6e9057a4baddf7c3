//! Who leads, in which order, under which id and number.

use std::pin::pin;

use futures::poll;
use lock_recipes::{InterProcessMutex, LeaderElection, LockFactory, Owner};
use test_rig::{TestEnsemble, on_every_ensemble};

use crate::{LAYOUTS, PATH, election, ids};

on_every_ensemble!(
    one_candidate_leads_and_the_others_follow_in_order,
    campaigns_of_one_process_are_candidates_of_their_own,
    try_leads_only_an_election_without_candidates,
    stranger_ahead_of_all_keeps_everybody_waiting,
    mutex_on_the_path_excludes_the_leader,
    factory_makes_the_election_of_a_key,
);
on_every_ensemble!(
    but_etcd:
    nodes_have_the_layout_of_curator_and_the_id_as_data,
);

async fn one_candidate_leads_and_the_others_follow_in_order(ensemble: TestEnsemble) {
    for (layout, path) in LAYOUTS {
        let sessions = [
            ensemble.session().await,
            ensemble.session().await,
            ensemble.session().await,
        ];
        let mut campaigns = Vec::new();
        for (number, session) in sessions.iter().enumerate() {
            let id = format!("host-{number}");
            let election = LeaderElection::with_layout(session, path, &id, layout).unwrap();
            campaigns.push(tokio::spawn(election.campaign()));
            ensemble.await_children(path, number + 1).await;
        }
        let observer = LeaderElection::with_layout(&sessions[2], path, "nobody", layout).unwrap();
        let mut terms = Vec::new();
        for (number, campaign) in campaigns.into_iter().enumerate() {
            let term = campaign.await.unwrap().unwrap();
            assert!(term.is_valid());
            assert_eq!(term.path(), path);
            let candidates = observer.candidates().await.unwrap();
            let all = ["host-0", "host-1", "host-2"];
            assert_eq!(ids(&candidates), all[number..]);
            let first = &candidates[0];
            assert_eq!(first.term, term.fencing_token());
            assert_eq!(first.node_path, term.members()[0].node_path);
            assert_eq!(first.session_id, sessions[number].session_id().unwrap());
            let leading: Vec<_> = candidates.iter().map(|it| it.is_leader).collect();
            assert!(leading[0], "{leading:?}");
            assert!(!leading[1..].contains(&true), "{leading:?}");
            assert_eq!(observer.leader().await.unwrap().as_ref(), Some(first));
            terms.push(term.fencing_token());
            term.resign().await.unwrap();
        }
        assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
        assert_eq!(observer.leader().await.unwrap(), None);
        assert_eq!(observer.candidates().await.unwrap(), []);
    }
}

async fn nodes_have_the_layout_of_curator_and_the_id_as_data(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for ((layout, path), marker) in LAYOUTS.into_iter().zip(["-lock-", "-latch-"]) {
        let id = "Zürich 7/b";
        let election = LeaderElection::with_layout(&session, path, id, layout).unwrap();
        let term = election.campaign().await.unwrap();
        let children = ensemble.children(path).await;
        let [node] = children.as_slice() else {
            panic!("{children:?}")
        };
        let (start, sequence) = node.rsplit_once(marker).unwrap();
        assert!(start.starts_with("_c_") && start.len() == 3 + 36, "{node}");
        assert_eq!(sequence, "0000000000");
        let (data, stat) = ensemble.read(&format!("{path}/{node}")).await.unwrap();
        assert_eq!(data, id.as_bytes());
        assert_eq!(stat.czxid, term.fencing_token().as_i64());
        let leader = election.leader().await.unwrap().unwrap();
        assert_eq!(leader.id, id);
        assert_eq!(leader.data, id.as_bytes());
        term.resign().await.unwrap();
    }
}

async fn campaigns_of_one_process_are_candidates_of_their_own(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    // Different ids on one path and session, and the same id twice, inside one owner's scope.
    let elections = [
        election(&session, "a"),
        election(&session, "b"),
        election(&session, "a"),
    ];
    let owner = Owner::new();
    let campaigns = owner.scope(async {
        let first = elections[0].campaign().await.unwrap();
        let mut second = Box::pin(elections[1].campaign());
        ensemble
            .until("the second candidate", async || {
                assert!(poll!(&mut second).is_pending());
                (ensemble.children(PATH).await.len() == 2).then_some(())
            })
            .await;
        let mut third = Box::pin(elections[2].campaign().owner(&owner));
        ensemble
            .until("the third candidate", async || {
                assert!(poll!(&mut third).is_pending(), "re-entered");
                (ensemble.children(PATH).await.len() == 3).then_some(())
            })
            .await;
        (first, second, third)
    });
    let (first, second, third) = campaigns.await;
    let candidates = elections[0].candidates().await.unwrap();
    assert_eq!(ids(&candidates), ["a", "b", "a"]);
    assert_eq!(first.hold_count(), 1);
    first.resign().await.unwrap();
    let second = second.await.unwrap();
    second.resign().await.unwrap();
    third.await.unwrap().resign().await.unwrap();
    ensemble.await_children(PATH, 0).await;
}

async fn try_leads_only_an_election_without_candidates(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let term = election(&here, "here").try_campaign().await.unwrap();
    let term = term.expect("a free election");
    let other = election(&elsewhere, "elsewhere");
    assert!(other.try_campaign().await.unwrap().is_none());
    assert!(
        election(&here, "here")
            .try_campaign()
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    term.resign().await.unwrap();
    assert!(other.try_campaign().await.unwrap().is_some());
}

async fn stranger_ahead_of_all_keeps_everybody_waiting(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for (layout, path) in LAYOUTS {
        let election = LeaderElection::with_layout(&session, path, "host", layout).unwrap();
        let (ahead, after) = (format!("{path}/-stranger"), format!("{path}/zstranger"));
        ensemble.create(&ahead, b"").await;
        ensemble.create(&after, b"").await;
        let mut campaign = pin!(election.campaign());
        ensemble
            .until("a candidate", async || {
                assert!(poll!(&mut campaign).is_pending());
                (ensemble.children(path).await.len() == 3).then_some(())
            })
            .await;
        assert_eq!(election.leader().await.unwrap(), None);
        let candidates = election.candidates().await.unwrap();
        assert_eq!(ids(&candidates), ["host"]);
        assert!(!candidates[0].is_leader);
        ensemble.delete(&ahead).await;
        let term = campaign.await.unwrap();
        assert_eq!(election.leader().await.unwrap().unwrap().id, "host");
        term.resign().await.unwrap();
        assert_eq!(election.leader().await.unwrap(), None);
        ensemble.delete(&after).await;
    }
}

async fn mutex_on_the_path_excludes_the_leader(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let mutex = InterProcessMutex::new(&session, PATH).unwrap();
    let term = election(&session, "host").campaign().await.unwrap();
    assert!(mutex.try_acquire().await.unwrap().is_none());
    term.resign().await.unwrap();
    let held = mutex.acquire().await.unwrap();
    assert!(held.fencing_token().as_i64() > 0);
    let refused = election(&session, "host").try_campaign().await.unwrap();
    assert!(refused.is_none());
    held.release().await.unwrap();
}

async fn factory_makes_the_election_of_a_key(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let factory = LockFactory::new(&session, "/elections").unwrap();
    let election = factory.election("eu/west", "host").unwrap();
    assert_eq!(election.id(), "host");
    let term = election.campaign().await.unwrap();
    let mutex = factory.mutex("eu/west").unwrap();
    assert_eq!(mutex.path(), election.path());
    assert!(mutex.try_acquire().await.unwrap().is_none());
    term.resign().await.unwrap();
}
