use super::*;

#[tokio::test(start_paused = true)]
async fn beats_come_each_sixth_of_the_timeout_and_each_third_is_committed() {
    let stage = Stage::new().await;
    let _contending = contend(&stage);
    let mut beats = Vec::new();
    for tick in 1..=240_u32 {
        // The clock, in tenths of a second.
        beats.extend(kinds(&stage).await.into_iter().map(|it| (tick - 1, it)));
        tokio::time::advance(100 * MILLI).await;
    }
    let wanted: Vec<_> = (1..=11_u32)
        .map(|it| (it * 20, if it % 3 == 0 { "commit" } else { "sync" }))
        .collect();
    assert_eq!(beats, wanted);
    assert_eq!(stage.epoch.lapses(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_beats_for_nobody() {
    let stage = Stage::new().await;
    tokio::time::advance(T).await;
    assert!(stage.log().await.is_empty());
    let contending = contend(&stage);
    // A new contender sends requests of its own.
    assert!(stage.log().await.is_empty());
    tokio::time::advance(T / 6 + MILLI).await;
    assert_eq!(kinds(&stage).await, ["commit"]);
    drop(contending);
    tokio::time::advance(T).await;
    // One heartbeat may have been planned while there was a contender.
    settle().await;
    tokio::time::advance(T).await;
    assert!(kinds(&stage).await.len() <= 1);
    tokio::time::advance(T).await;
    assert!(stage.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_beat_is_under_way_at_a_time_and_one_that_failed_is_sent_again_soon() {
    let stage = Stage::new().await;
    let _contending = contend(&stage);
    settle().await;
    tokio::time::advance(T / 6).await;
    let Asked::Sync(first) = stage.asked().await else {
        panic!("no beat");
    };
    tokio::time::advance(SECOND).await;
    assert!(stage.log().await.is_empty());
    first.send(Err(unknown())).unwrap();
    assert!(stage.log().await.is_empty());
    tokio::time::advance(BEAT_PAUSE - 10 * MILLI).await;
    assert!(stage.log().await.is_empty());
    tokio::time::advance(11 * MILLI).await;
    let Asked::Sync(second) = stage.asked().await else {
        panic!("no beat");
    };
    second.send(Err(unknown())).unwrap();
    settle().await;
    // A new connection may be better, so there is no pause.
    stage.nodes.reconnect();
    assert_eq!(kinds(&stage).await, ["sync"]);
}

#[tokio::test(start_paused = true)]
async fn slow_beat_counts_from_its_sending() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    let _contending = contend(&stage);
    settle().await;
    tokio::time::advance(T / 6).await;
    let sent = Instant::now();
    let beat = loop {
        if let Asked::Sync(beat) = stage.asked().await {
            break beat;
        }
    };
    tokio::time::advance(3 * SECOND).await;
    beat.send(Ok(())).unwrap();
    settle().await;
    assert_eq!(lease.valid_until(), Some(sent + T / 2));
}
