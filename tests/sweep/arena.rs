//! Judges exclusion outside the lock's code: which contenders hold a lock, with which token, and
//! whether the server's state agrees.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lock_recipes::{LockGuard, LockKind};

use crate::operator::Operator;
use crate::recipe::Place;

/// The locks of one run.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    inside: Mutex<Vec<Inside>>,
    /// Grants of each lock, in order.
    granted: Mutex<BTreeMap<String, Vec<(Place, i64)>>>,
}

#[derive(Debug)]
struct Inside {
    who: &'static str,
    places: Vec<Place>,
    guard: Arc<LockGuard>,
}

impl Arena {
    /// Notes a grant. Any conflicting guard must be invalid by now (P1), and tokens must rise (P2).
    /// `partition` judges whether a loss is reported in time. Its sessions are so long that a busy
    /// machine makes no difference.
    pub(crate) fn enter(
        &self,
        who: &'static str,
        places: &[Place],
        guard: &Arc<LockGuard>,
    ) -> Result<(), String> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        for other in inside.iter() {
            let is_in_the_way = places
                .iter()
                .any(|place| other.places.iter().any(|it| it.conflicts(place)));
            if is_in_the_way && other.guard.is_valid() {
                return Err(format!("P1: {who} is granted what {} holds", other.who));
            }
        }
        self.note_tokens(who, places, guard)?;
        inside.push(Inside {
            who,
            places: places.to_vec(),
            guard: Arc::clone(guard),
        });
        Ok(())
    }

    /// Call before the release is requested.
    pub(crate) fn leave(&self, who: &'static str) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.retain(|it| it.who != who);
    }

    fn note_tokens(
        &self,
        who: &'static str,
        places: &[Place],
        guard: &LockGuard,
    ) -> Result<(), String> {
        let members = guard.members();
        if members.len() != places.len() {
            return Err(format!("{who} is granted {members:?} of {places:?}"));
        }
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        for place in places {
            let member = members.iter().find(|it| it.path == place.path);
            let member = member.ok_or_else(|| format!("{who} is not granted {place:?}"))?;
            let token = member.fencing_token.as_i64();
            let before = granted.entry(place.path.clone()).or_default();
            let highest = before
                .iter()
                .filter(|(it, _)| it.conflicts(place))
                .map(|(_, it)| *it);
            if let Some(highest) = highest.max().filter(|highest| *highest >= token) {
                return Err(format!("P2: {who} has token {token} after {highest}"));
            }
            before.push((place.clone(), token));
        }
        Ok(())
    }
}

/// Checks that no conflicting node is older than the granted one (P3): one that exists now, and was
/// created earlier, existed at the time of the grant.
pub(crate) async fn check_order(
    operator: &Operator,
    who: &str,
    places: &[Place],
    guard: &LockGuard,
) -> Result<(), String> {
    for place in places {
        let Some(own) = guard.members().into_iter().find(|it| it.path == place.path) else {
            return Err(format!("{who} is not granted {place:?}"));
        };
        // A reader in the place of its owner's writer keeps the writer's token. There is none in
        // this sweep.
        let own_created = own.fencing_token.as_i64();
        // This server may lag behind that of the guard.
        operator.sync(&place.path).await?;
        for name in operator.names(&place.path).await? {
            let path = format!("{}/{name}", place.path);
            let other = Place {
                path: place.path.clone(),
                kind: kind_of(&name),
            };
            let node = operator.node(&path).await?;
            let older = node.is_some_and(|it| it.created < own_created);
            if older && path != own.node_path && other.conflicts(place) {
                return Err(format!(
                    "P3: {who} is granted {} after {path}",
                    own.node_path
                ));
            }
        }
    }
    Ok(())
}

fn kind_of(name: &str) -> LockKind {
    match name {
        name if name.contains("__READ__") => LockKind::Read,
        name if name.contains("__WRIT__") => LockKind::Write,
        name if name.contains("-lease-") => LockKind::Permit,
        _ => LockKind::Mutex,
    }
}
