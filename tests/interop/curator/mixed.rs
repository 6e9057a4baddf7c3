//! Paths that Curator uses as another recipe.

use std::time::Duration;

use test_rig::{CandidateKind, CuratorPeer};

use super::{PATIENCE, Stage};
use crate::each_recipe::{Meets, RECIPES, Recipe, assert_refused, meets};

/// How long a contender waits that is behind another one.
const SHORT: Duration = Duration::from_millis(300);

impl Recipe {
    /// Has Curator hold it. Returns the name that the peer knows it by.
    async fn hold_by(self, curator: &CuratorPeer, path: &str) -> String {
        let name = path.replace('/', "-");
        let candidate = async |kind| {
            let made = curator.candidate(&name, kind, "c", path, "curator");
            made.await.unwrap();
            assert!(curator.leads_within(&name, PATIENCE).await.unwrap());
        };
        let (made, lock) = match self {
            Self::Selector => {
                candidate(CandidateKind::Selector).await;
                return name;
            }
            Self::Latch => {
                candidate(CandidateKind::Latch).await;
                return name;
            }
            Self::Mutex => (curator.mutex(&name, "c", path).await, name),
            Self::Reader => {
                let made = curator.read_write_lock(&name, "c", path).await;
                (made, format!("{name}.read"))
            }
            Self::Writer => {
                let made = curator.read_write_lock(&name, "c", path).await;
                (made, format!("{name}.write"))
            }
            Self::Semaphore => (curator.semaphore(&name, "c", path, 2).await, name),
            Self::SemaphoreMutex => (curator.semaphore_mutex(&name, "c", path).await, name),
        };
        made.unwrap();
        assert!(curator.acquire("t", &lock, Some(PATIENCE)).await.unwrap());
        lock
    }

    async fn release_by(self, curator: &CuratorPeer, name: &str) {
        match self {
            Self::Selector | Self::Latch => curator.resign(name).await.unwrap(),
            _ => curator.release("t", name).await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_that_curator_uses_is_refused_to_all_recipes_but_those_that_exclude_each_other() {
    let stage = Stage::set_up().await;
    for first in RECIPES {
        for second in RECIPES {
            let path = format!("/mixed/{first:?}-{second:?}");
            let held = first.hold_by(&stage.curator, &path).await;
            for patience in [None, Some(SHORT)] {
                let told = format!("{second:?} beside Curator's {first:?}, {patience:?}");
                let asked = second.ask(&stage.ours, &path, patience).await;
                match (meets(first, second), asked) {
                    (Meets::Refusal, Err(refusal)) => assert_refused(&refusal, first, &path),
                    (Meets::Exclusion, Ok(None)) => {}
                    (Meets::Exclusion, Err(busy)) => assert!(busy.is_busy(), "{told}: {busy}"),
                    (Meets::Company, Ok(Some(too))) => drop(too.release().await.unwrap()),
                    (_, other) => panic!("{told}: {other:?}"),
                }
            }
            first.release_by(&stage.curator, &held).await;
            if meets(first, second) != Meets::Refusal {
                let held = second.hold(&stage.ours, &path).await;
                held.release().await.unwrap();
            }
        }
    }
}
