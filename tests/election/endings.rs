//! How a term ends, and what is left of it.

use std::pin::pin;

use futures::poll;
use lock_recipes::{Error, LeaderElection, ReleaseError};
use test_rig::{TestEnsemble, on_every_ensemble};

use crate::{LAYOUTS, PATH, election, ids};

/// More polls than any campaign needs.
const POLLS_MAX: usize = 200;

on_every_ensemble!(
    leader_whose_session_ends_is_over_before_the_next_one_leads,
    candidate_whose_session_ends_leads_on_a_node_of_the_next_one,
    campaign_dropped_at_every_poll_leaves_nothing,
    dropped_term_goes_to_the_next_candidate,
);

async fn leader_whose_session_ends_is_over_before_the_next_one_leads(ensemble: TestEnsemble) {
    for (layout, path) in LAYOUTS {
        let (leading, waiting) = (ensemble.session().await, ensemble.session().await);
        let first = LeaderElection::with_layout(&leading, path, "first", layout).unwrap();
        let second = LeaderElection::with_layout(&waiting, path, "second", layout).unwrap();
        let term = first.campaign().await.unwrap();
        let next = tokio::spawn(second.campaign());
        ensemble.await_children(path, 2).await;

        ensemble.expire(&leading).await;
        let next = next.await.unwrap().unwrap();
        assert!(!term.is_valid(), "two lead");
        assert!(next.fencing_token() > term.fencing_token());
        let lost = term.lost().await;
        assert_eq!(lost.path, path);
        let resigned = term.resign().await.unwrap_err();
        assert!(
            matches!(resigned, Error::Release(ReleaseError::Lost(_))),
            "{resigned}"
        );
        // The old leader is a candidate like any other.
        let again = tokio::spawn(first.campaign());
        ensemble.await_children(path, 2).await;
        assert_eq!(
            ids(&second.candidates().await.unwrap()),
            ["second", "first"]
        );
        next.resign().await.unwrap();
        again.await.unwrap().unwrap().resign().await.unwrap();
    }
}

async fn candidate_whose_session_ends_leads_on_a_node_of_the_next_one(ensemble: TestEnsemble) {
    let (leading, waiting) = (ensemble.session().await, ensemble.session().await);
    let term = election(&leading, "first").campaign().await.unwrap();
    let next = election(&waiting, "second");
    let campaign = tokio::spawn(next.campaign());
    ensemble.await_children(PATH, 2).await;
    let ended = waiting.session_id().unwrap();
    ensemble.expire(&waiting).await;
    let rejoined = async || {
        let candidates = next.candidates().await.ok()?;
        let last = candidates.into_iter().nth(1)?;
        (last.session_id != ended).then_some(())
    };
    ensemble
        .until("a candidate of the next session", rejoined)
        .await;
    term.resign().await.unwrap();
    let granted = campaign.await.unwrap().unwrap();
    let leader = next.leader().await.unwrap().unwrap();
    assert_eq!(leader.session_id, waiting.session_id().unwrap());
    assert_ne!(leader.session_id, ended);
    assert_eq!(leader.node_path, granted.members()[0].node_path);
    granted.resign().await.unwrap();
}

async fn campaign_dropped_at_every_poll_leaves_nothing(ensemble: TestEnsemble) {
    let (leading, waiting) = (ensemble.session().await, ensemble.session().await);
    let (leader, candidate) = (election(&leading, "leads"), election(&waiting, "waits"));
    for polls in 0..POLLS_MAX {
        let term = leader.campaign().await.unwrap();
        let granted = {
            let mut campaign = pin!(candidate.campaign());
            let queued = async || {
                assert!(poll!(&mut campaign).is_pending());
                (ensemble.children(PATH).await.len() == 2).then_some(())
            };
            // Also dropped before it is a candidate.
            if polls > 4 {
                ensemble.until("a candidate", queued).await;
                term.resign().await.unwrap();
            } else {
                drop(term);
            }
            let mut granted = false;
            for _ in 0..polls {
                granted = poll!(&mut campaign).is_ready();
                if granted {
                    break;
                }
                ensemble.let_something_happen().await;
            }
            granted
        };
        ensemble.await_children(PATH, 0).await;
        if granted && polls > 4 {
            return;
        }
    }
    panic!("no campaign was granted within {POLLS_MAX} polls");
}

async fn dropped_term_goes_to_the_next_candidate(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let term = election(&session, "first").campaign().await.unwrap();
    let next = tokio::spawn(election(&session, "second").campaign());
    ensemble.await_children(PATH, 2).await;
    drop(term);
    next.await.unwrap().unwrap().resign().await.unwrap();
    ensemble.await_children(PATH, 0).await;
}
