use super::*;

const SEEN: [Option<bool>; 3] = [Some(true), Some(false), None];

/// What servers with these views of one node say together. `None`: no answer.
fn outcome(servers: &[Option<bool>]) -> Option<bool> {
    let mut views = Views::new(servers.len(), 1);
    for view in servers {
        if views.is_decided() {
            break;
        }
        views.add(match view {
            Some(is_seen) => Ok(vec![*is_seen]),
            None => Err(NodesError::Throttled),
        });
    }
    views.outcome().ok().map(|seen| seen == [true])
}

/// All that up to five servers can say of a node, in every order.
fn all_views() -> Vec<Vec<Option<bool>>> {
    let mut all = vec![Vec::new()];
    for _ in 0..5 {
        let longer = all
            .iter()
            .flat_map(|views: &Vec<_>| SEEN.map(|view| [&views[..], &[view]].concat()));
        all = [all.clone(), longer.collect()].concat();
    }
    all.retain(|views| !views.is_empty());
    all
}

#[test]
fn node_is_gone_only_if_most_servers_say_so_and_none_shows_it() {
    for views in all_views() {
        let count = |view| views.iter().filter(|it| **it == view).count();
        let is_gone = outcome(&views) == Some(false);
        let (gone, shown) = (count(Some(false)), count(Some(true)));
        assert_eq!(is_gone, gone * 2 > views.len() && shown == 0, "{views:?}");
    }
}

#[test]
fn node_is_there_only_if_a_server_shows_it() {
    for views in all_views() {
        if outcome(&views) == Some(true) {
            assert!(views.contains(&Some(true)), "{views:?}");
        }
    }
    assert_eq!(
        outcome(&[None, None, Some(true)]),
        None,
        "not asked any more"
    );
    assert_eq!(outcome(&[Some(false), Some(true), None]), Some(true));
}

#[test]
fn nodes_that_different_servers_show_are_all_there() {
    let mut views = Views::new(3, 2);
    views.add(Ok(vec![true, false]));
    assert!(!views.is_decided());
    views.add(Ok(vec![false, true]));
    assert!(views.is_decided());
    assert_eq!(views.outcome().unwrap(), [true, true]);
}
