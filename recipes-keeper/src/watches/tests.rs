use super::*;

const SEEN: Seen = Seen {
    czxid: 1,
    mzxid: 1,
    owner: 0,
};

fn stat() -> NodeStat {
    NodeStat::new(1, 1, 0, 0, 0)
}

#[test]
fn event_is_not_for_a_watch_that_is_set_after_it() {
    let watches = Watches::default();
    let (first, mut earlier) = watches.enter("/a");
    let (second, mut later) = watches.enter("/a");
    watches.fire(0, "/a", first, NodeEvent::Deleted);
    assert_eq!(earlier.try_recv(), Ok(NodeEvent::Deleted));
    assert!(later.try_recv().is_err());
    assert_eq!(watches.last_on("/a"), Some(second));
    watches.fire(0, "/a", u64::MAX, NodeEvent::Changed);
    assert_eq!(later.try_recv(), Ok(NodeEvent::Changed));
    assert_eq!(watches.last_on("/a"), None);
}

#[test]
fn event_of_an_earlier_connection_is_none() {
    let watches = Watches::default();
    let (number, mut news) = watches.enter("/a");
    watches.count_on(2);
    watches.fire(1, "/a", number, NodeEvent::Deleted);
    // Nor that of one whose session does not go on yet.
    watches.fire(3, "/a", number, NodeEvent::Deleted);
    assert!(news.try_recv().is_err());
    watches.fire(2, "/a", number, NodeEvent::Deleted);
    assert_eq!(news.try_recv(), Ok(NodeEvent::Deleted));
}

#[test]
fn only_what_was_confirmed_is_watched_again() {
    let watches = Watches::default();
    let (first, _a) = watches.enter("/b");
    let (second, _b) = watches.enter("/a");
    let (_, mut other) = watches.enter("/a");
    watches.confirm("/a", second, SEEN);
    watches.confirm("/b", first, SEEN);
    let numbers: Vec<_> = watches.confirmed().iter().map(|it| it.number).collect();
    assert_eq!(numbers, [first, second]);
    assert!(!watches.remove("/a", second));
    watches.fire(0, "/a", u64::MAX, NodeEvent::Changed);
    assert_eq!(other.try_recv(), Ok(NodeEvent::Changed));
    assert!(watches.remove("/b", first));
    assert!(!watches.remove("/b", first));
}

#[test]
fn event_that_comes_before_the_server_has_said_where_is_not_missed() {
    let watches = Watches::default();
    let (one, mut anywhere) = watches.enter_anywhere(2);
    let two = one + 1;
    watches.fire(0, "/a", one, NodeEvent::Deleted);
    anywhere.bind(one, "/a", Vec::new(), stat());
    anywhere.bind(two, "/b", Vec::new(), stat());
    drop(anywhere);
    let mut spare = watches.take_spare("/a").unwrap();
    assert_eq!(spare.news.try_recv(), Ok(NodeEvent::Deleted));
    let mut spare = watches.take_spare("/b").unwrap();
    assert!(spare.news.try_recv().is_err());
    watches.fire(0, "/b", two, NodeEvent::Changed);
    assert_eq!(spare.news.try_recv(), Ok(NodeEvent::Changed));
    assert!(watches.lock().unclear.is_empty());
}

#[test]
fn spare_watch_is_given_up_when_nobody_wants_it_or_its_connection_is_gone() {
    let watches = Watches::default();
    let spare = |path: &str| {
        let (number, mut anywhere) = watches.enter_anywhere(1);
        anywhere.bind(number, path, Vec::new(), stat());
    };
    spare("/a");
    spare("/b");
    let (_, _news) = watches.enter("/b");
    let dropped = watches.drop_spares(Instant::now());
    assert_eq!(dropped, ["/a"], "somebody watches /b");
    assert!(watches.take_spare("/b").is_none());
    spare("/c");
    watches.count_on(1);
    assert!(watches.take_spare("/c").is_none());
    assert!(watches.confirmed().is_empty());
}

/// The removal is on its way to the server, behind the request that sets the watch.
#[test]
fn watch_that_a_removal_may_have_hit_is_not_offered() {
    let watches = Watches::default();
    let (own, _news) = watches.enter("/a");
    let (one, mut anywhere) = watches.enter_anywhere(2);
    let two = one + 1;
    assert!(watches.remove("/a", own));
    anywhere.bind(one, "/a", Vec::new(), stat());
    anywhere.bind(two, "/b", Vec::new(), stat());
    drop(anywhere);
    assert!(watches.take_spare("/a").is_none());
    assert!(watches.take_spare("/b").is_some());
    // What is requested after the removal is not hit by it.
    let (next, mut anywhere) = watches.enter_anywhere(1);
    anywhere.bind(next, "/a", Vec::new(), stat());
    assert!(watches.take_spare("/a").is_some());
}

#[test]
fn what_happened_before_a_listing_is_not_kept_for_it() {
    let watches = Watches::default();
    let (earlier, _news) = watches.enter("/a");
    let _anywhere = watches.enter_anywhere(2);
    watches.fire(0, "/a", earlier, NodeEvent::Deleted);
    assert!(watches.lock().unclear.is_empty());
}

#[test]
fn watch_is_awaited_until_it_is_confirmed_or_given_up() {
    let watches = Watches::default();
    assert!(!watches.are_awaited());
    let (number, _news) = watches.enter("/a");
    assert!(watches.are_awaited());
    watches.confirm("/a", number, SEEN);
    assert!(!watches.are_awaited());
    let (other, _other) = watches.enter("/a");
    assert!(watches.are_awaited(), "one of two");
    assert!(!watches.remove("/a", other) && !watches.are_awaited());
    let anywhere = watches.enter_anywhere(1);
    assert!(watches.are_awaited());
    drop(anywhere);
    assert!(!watches.are_awaited());
}

/// The server numbers them as it likes, and others have news meanwhile.
#[test]
fn watch_is_told_what_has_happened_to_its_node_since_it_was_asked_for() {
    let watches = Watches::default();
    let (one, mut anywhere) = watches.enter_anywhere(5);
    let (two, three, four, five) = (one + 1, one + 2, one + 3, one + 4);
    // Of this node before the third, and of another one.
    watches.fire(0, "/c", two, NodeEvent::Changed);
    watches.fire(0, "/d", four, NodeEvent::Changed);
    watches.fire(0, "/e", five, NodeEvent::Deleted);
    watches.fire(0, "/b", two, NodeEvent::Deleted);
    watches.fire(0, "/b", four, NodeEvent::Changed);
    anywhere.bind(three, "/c", Vec::new(), stat());
    anywhere.bind(one, "/a", Vec::new(), stat());
    anywhere.bind(two, "/b", Vec::new(), stat());
    anywhere.bind(four, "/e", Vec::new(), stat());
    let news = |path: &str| watches.take_spare(path).unwrap().news;
    let (mut a, mut b, mut c) = (news("/a"), news("/b"), news("/c"));
    assert_eq!(b.try_recv(), Ok(NodeEvent::Deleted), "what came first");
    assert_eq!(news("/e").try_recv(), Ok(NodeEvent::Deleted));
    assert!(a.try_recv().is_err() && c.try_recv().is_err());
    watches.fire(0, "/a", u64::MAX, NodeEvent::Deleted);
    watches.fire(0, "/c", u64::MAX, NodeEvent::Changed);
    assert_eq!(a.try_recv(), Ok(NodeEvent::Deleted));
    assert_eq!(c.try_recv(), Ok(NodeEvent::Changed));
}

#[test]
fn latest_of_the_spare_watches_on_a_node_is_taken_first() {
    let watches = Watches::default();
    let (one, mut anywhere) = watches.enter_anywhere(2);
    anywhere.bind(one, "/a", vec![1], stat());
    anywhere.bind(one + 1, "/a", vec![2], stat());
    let take = || watches.take_spare("/a").map(|it| (it.number, it.data));
    assert_eq!(take(), Some((one + 1, vec![2])));
    assert_eq!(take(), Some((one, vec![1])));
    assert_eq!(take(), None);
    assert!(watches.lock().spares.is_empty());
}

#[tokio::test(start_paused = true)]
async fn spare_watch_is_kept_that_is_younger_than_those_to_give_up() {
    let watches = Watches::default();
    let spare = |path: &str| {
        let (number, mut anywhere) = watches.enter_anywhere(1);
        anywhere.bind(number, path, Vec::new(), stat());
    };
    spare("/a");
    let since = Instant::now();
    tokio::time::advance(std::time::Duration::from_millis(1)).await;
    spare("/a");
    spare("/b");
    assert!(watches.drop_spares(since).is_empty(), "one is on each");
    assert_eq!(watches.confirmed().len(), 2);
    assert!(watches.take_spare("/b").is_some());
    assert!(watches.take_spare("/a").is_some());
    assert!(watches.take_spare("/a").is_none());
}

/// Nobody watches for an answer that is not to come.
#[test]
fn what_was_requested_for_a_listing_without_an_answer_is_forgotten() {
    let watches = Watches::default();
    let offers = |path: &str| {
        let (number, mut anywhere) = watches.enter_anywhere(1);
        anywhere.bind(number, path, Vec::new(), stat());
        drop(anywhere);
        watches.take_spare(path).is_some()
    };
    // It was given up before there was a listing.
    let (own, _news) = watches.enter("/a");
    assert!(watches.remove("/a", own));
    assert!(offers("/a"));
    let (own, _news) = watches.enter("/b");
    let (_, anywhere) = watches.enter_anywhere(1);
    assert!(watches.remove("/b", own));
    drop(anywhere);
    assert!(offers("/b"));
    let (own, _news) = watches.enter("/c");
    let (first, mut anywhere) = watches.enter_anywhere(1);
    assert!(watches.remove("/c", own));
    watches.count_on(1);
    assert!(!watches.are_awaited());
    // The connection is another one.
    anywhere.bind(first, "/c", Vec::new(), stat());
    assert!(watches.take_spare("/c").is_none());
    assert!(offers("/c"));
}

#[test]
fn all_watches_hear_of_the_end_of_the_session() {
    let watches = Watches::default();
    let (_, mut one) = watches.enter("/a");
    let (_, mut other) = watches.enter("/b");
    watches.end();
    assert_eq!(one.try_recv(), Ok(NodeEvent::SessionEnded));
    assert_eq!(other.try_recv(), Ok(NodeEvent::SessionEnded));
}
