//! What a search is told.

use super::*;

/// Begins to search for a create in `/a`, up to its listing.
async fn searching(
    stage: &Stage,
    ids: &[u128],
) -> (tokio::sync::oneshot::Receiver<Deleted>, Answer<Vec<String>>) {
    let made = |id: &u128| ("/a".to_owned(), Uuid::from_u128(*id));
    let made = Doomed::MadeWith(ids.iter().map(made).collect());
    let outcome = cleanup(stage).delete(made, &stage.epoch);
    let (_, committed) = deleting_together(stage).await;
    committed.send(Ok(vec![NodeOpDone::Checked])).unwrap();
    match stage.asked().await {
        Asked::List(_, listed) => (outcome, listed),
        other => panic!("{other:?}"),
    }
}

fn name(id: u128) -> String {
    format!(
        "{}lock-000000000{id}",
        node_name::protection(Uuid::from_u128(id))
    )
}

#[tokio::test(start_paused = true)]
async fn node_that_may_not_be_deleted_is_told_and_stops_none_of_the_others() {
    let stage = Stage::new().await;
    let (mut outcome, listed) = searching(&stage, &[1, 2, 3]).await;
    listed.send(Ok([1, 2, 3].map(name).to_vec())).unwrap();
    let refused = format!("/a/{}", name(2));
    let mut deleted = Vec::new();
    let told = loop {
        settle().await;
        match stage.nodes.asked() {
            Some(Asked::Multi(_, together)) => {
                together.send(Err(failed(NodesError::NoAuth))).unwrap();
            }
            Some(Asked::Delete(path, answer)) => {
                let may = path != refused;
                let said = match (may, deleted.contains(&path)) {
                    (false, _) => Err(NodesError::NoAuth),
                    (true, true) => Err(NodesError::NoNode),
                    (true, false) => Ok(()),
                };
                deleted.extend(may.then_some(path));
                answer.send(said).unwrap();
            }
            Some(other) => panic!("{other:?}"),
            None => break outcome.try_recv(),
        }
    };
    let told = told.unwrap();
    assert!(
        matches!(told, Deleted::Refused(NodesError::NoAuth)),
        "{told:?}"
    );
    for id in [1, 3] {
        assert!(deleted.contains(&format!("/a/{}", name(id))), "{deleted:?}");
    }
    cleanup(&stage).drained().await;
}

#[tokio::test(start_paused = true)]
async fn directory_that_may_not_be_listed_is_told() {
    let stage = Stage::new().await;
    let (outcome, listed) = searching(&stage, &[1]).await;
    listed.send(Err(NodesError::NoAuth)).unwrap();
    let told = outcome.await.unwrap();
    assert!(
        matches!(told, Deleted::Refused(NodesError::NoAuth)),
        "{told:?}"
    );
    assert!(stage.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn listing_or_delete_without_an_answer_is_asked_for_again() {
    let stage = Stage::new().await;
    let (mut outcome, listed) = searching(&stage, &[1]).await;
    listed.send(Err(unknown())).unwrap();
    settle().await;
    assert!(outcome.try_recv().is_err());
    assert!(stage.nodes.asked().is_none(), "there is no pause");
    for answer in [Err(unknown()), Ok(())] {
        tokio::time::advance(SECOND).await;
        let (_, committed) = deleting_together(&stage).await;
        committed.send(Ok(vec![NodeOpDone::Checked])).unwrap();
        let Asked::List(_, listed) = stage.asked().await else {
            panic!("no list");
        };
        listed.send(Ok(vec![name(1)])).unwrap();
        assert!(outcome.try_recv().is_err());
        let path = format!("/a/{}", name(1));
        deleting(&stage, &path).await.send(answer).unwrap();
        settle().await;
    }
    assert!(matches!(outcome.await.unwrap(), Deleted::ByUs));
}

/// Another create with it may still be under way.
#[tokio::test(start_paused = true)]
async fn uuid_that_was_searched_for_is_not_used_again() {
    let stage = Stage::new().await;
    let (outcome, listed) = searching(&stage, &[7]).await;
    listed.send(Ok(vec![name(7)])).unwrap();
    let path = format!("/a/{}", name(7));
    deleting(&stage, &path).await.send(Ok(())).unwrap();
    assert!(matches!(outcome.await.unwrap(), Deleted::ByUs));
    assert_eq!(stage.epoch.free_uuids.take("/a"), None);
}
