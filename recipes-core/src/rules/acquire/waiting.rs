//! What members that have nodes wait for: listings, and the nodes ahead.

use std::collections::BTreeSet;

use super::{AcquireMachine, Action, Failure, Member, Stage};
use crate::names::node_name::{self, LockKind};
use crate::names::order::Rank;
use crate::rules::admission::{self, Blockers, Place, Verdict};
use crate::rules::delay::{Ahead, Awaited};
use crate::rules::mixed::{self, Mixed};

impl AcquireMachine {
    /// What it waits for, for the error of an attempt that runs out of time.
    pub(crate) fn awaited(&self) -> Awaited {
        if let Some(ahead) = &self.busy {
            return Awaited::Contender(ahead.clone());
        }
        let members = self.members.iter().enumerate();
        let mut awaited = members.filter_map(|(member, it)| match &it.stage {
            Stage::Waiting { ahead, .. } => self.nearest(member, ahead).map(Awaited::Contender),
            Stage::Listing { .. } => Some(Awaited::Listing(member)),
            _ => None,
        });
        match awaited.next() {
            Some(awaited) => awaited,
            None if self.wants_too_many() && self.stands_aside() => Awaited::Permits,
            None => Awaited::Answers,
        }
    }

    /// The names of our nodes where this member waits.
    pub(super) fn own_names(&self, member: usize) -> BTreeSet<&str> {
        let group = self.members.get(self.group(member)).unwrap_or_default();
        let nodes = group.iter().filter_map(|it| it.stage.node());
        nodes.map(|node| node.name.as_str()).collect()
    }

    /// The nearest of the nodes ahead: of another contender, if there is any.
    pub(super) fn nearest(&self, member: usize, ahead: &[String]) -> Option<Ahead> {
        let own = self.own_names(member);
        let of_others = ahead.iter().find(|it| !own.contains(it.as_str()));
        let node = of_others.or(ahead.first())?.clone();
        Some(Ahead { member, node })
    }

    pub(super) fn listed(&mut self, member: usize, children: &[String]) -> Vec<Action> {
        let is_listing = |it: &usize| matches!(self.stage(*it), Some(Stage::Listing { .. }));
        let listing: Vec<_> = self.group(member).filter(is_listing).collect();
        if listing.is_empty() {
            return Vec::new();
        }
        let mut actions = Vec::new();
        for member in listing {
            match self.apply_listing(member, children) {
                Ok(then) => actions.extend(then),
                Err(failure) => return vec![Action::Fail(failure)],
            }
        }
        actions.extend(self.settle());
        actions
    }

    /// The node of another recipe, made after ours, that a listing of a member's directory shows. An
    /// earlier one is a failure.
    pub(super) fn mixed<'a>(
        &self,
        member: usize,
        children: &'a [String],
        own: Option<&str>,
    ) -> Result<Option<&'a str>, Failure> {
        let queueing = self
            .members
            .get(member)
            .filter(|it| it.place == Place::Tail);
        let found = queueing.and_then(|it| mixed::other_recipe(it.kind, children, own));
        match found {
            None => Ok(None),
            Some(Mixed::Later(node)) => Ok(Some(node)),
            Some(Mixed::Earlier(node, found)) => Err(Failure::OtherRecipe {
                member,
                node: node.to_owned(),
                found,
            }),
        }
    }

    /// Applies the admission rule to a listing of one member's directory.
    pub(super) fn apply_listing(
        &mut self,
        member: usize,
        children: &[String],
    ) -> Result<Vec<Action>, Failure> {
        let Some(Member {
            kind,
            place,
            stage: Stage::Listing { node, gone },
            ..
        }) = self.members.get(member)
        else {
            return Ok(Vec::new());
        };
        let (node, gone) = (node.clone(), gone.clone());
        let is_decided_by_another = self.is_decided_by_another(member);
        let verdict = match place {
            Place::Beside { .. } if children.contains(&node.name) => Verdict::Granted,
            _ if is_decided_by_another => match children.contains(&node.name) {
                true => Verdict::Granted,
                false => Verdict::Absent,
            },
            _ if *kind == LockKind::Permit => {
                admission::admit_permit(self.permits, children, &node.name)
            }
            _ => admission::admit(*kind, children, &node.name),
        };
        let later = match is_decided_by_another {
            true => None,
            false => self.mixed(member, children, Some(&node.name))?,
        };
        let verdict = match later {
            None => verdict,
            Some(later) => beside(verdict, later),
        };
        let room = self.room(member);
        let is_sure = self.is_sure(member);
        let stage = match verdict {
            Verdict::Granted => Stage::Admitted(node),
            Verdict::Absent => return Ok(self.rejoin(member)),
            Verdict::WaitFor(Blockers {
                nearest_first,
                deletions_grant,
            }) => match still_ahead(&nearest_first, deletions_grant, &gone, room) {
                Some(ahead) => Stage::Waiting {
                    node,
                    ahead,
                    deletions: match deletions_grant {
                        true => Deletions::Grant,
                        false => Deletions::GrantIfFirst,
                    },
                },
                None if deletions_grant && is_sure => Stage::Admitted(node),
                None => {
                    self.set(member, Stage::Listing { node, gone });
                    return Ok(self.list(vec![member]));
                }
            },
        };
        self.set(member, stage);
        Ok(Vec::new())
    }

    /// A node ahead was deleted. `was_first`: nothing was ahead of that one.
    pub(super) fn blocker_gone(
        &mut self,
        member: usize,
        name: &str,
        was_first: bool,
    ) -> Vec<Action> {
        // A name with a uuid never comes back, so its deletion is final and holds for an older
        // listing too. A node with any other name may have been re-created, and the listing by
        // which we wait for it may have shown the new one.
        let is_final = node_name::is_protected(name);
        let heard: Vec<_> = self
            .group(member)
            .map(|it| (it, self.heard_gone(it, name, is_final, was_first)))
            .collect();
        let mut unlisted = Vec::new();
        for (index, _) in heard.iter().filter(|(_, heard)| *heard == Heard::TooLittle) {
            unlisted.extend(self.unlist(*index));
            unlisted.push(*index);
        }
        match heard.iter().any(|(_, heard)| *heard == Heard::Enough) {
            _ if !unlisted.is_empty() => self.list(unlisted),
            true => self.settle(),
            false => Vec::new(),
        }
    }

    /// Applies the deletion of a node to one member.
    fn heard_gone(&mut self, member: usize, name: &str, is_final: bool, was_first: bool) -> Heard {
        let (is_sure, room) = (self.is_sure(member), self.room(member));
        let Some(Member { kind, stage, .. }) = self.members.get_mut(member) else {
            return Heard::Nothing;
        };
        match stage {
            Stage::Waiting {
                node,
                ahead,
                deletions,
            } if ahead.iter().any(|it| it == name) => {
                // For a permit the number of those ahead counts.
                let is_lock = *kind != LockKind::Permit;
                let is_known = *deletions != Deletions::Ask;
                let is_queue = is_lock && admission::queues_behind(*kind, &node.name);
                if was_first && is_final && is_known && is_queue {
                    // What the listing showed ahead of that one is gone, too, and all that is left
                    // ahead of us is between the two.
                    let place = ahead.iter().position(|it| it == name);
                    ahead.truncate(place.map_or(ahead.len(), |place| place + 1));
                    *deletions = Deletions::Grant;
                }
                // Nothing else was ahead, so a listing would show the others and no more.
                let decides = *deletions == Deletions::Grant && is_final;
                ahead.retain(|it| it != name);
                if decides && ahead.len() >= room {
                    return Heard::Enough;
                }
                let node = node.clone();
                if decides && is_sure {
                    *stage = Stage::Admitted(node);
                    return Heard::Enough;
                }
                let gone = match is_final {
                    true => vec![name.to_owned()],
                    false => Vec::new(),
                };
                *stage = Stage::Listing { node, gone };
                Heard::TooLittle
            }
            Stage::Listing { gone: known, .. } if is_final => {
                known.push(name.to_owned());
                Heard::Nothing
            }
            Stage::Listing { .. } => Heard::TooLittle,
            _ => Heard::Nothing,
        }
    }

    /// Whether this is a lease, and another one of this attempt is behind it. All are granted
    /// together, so the last one decides: if it may hold, so may those ahead of it.
    fn is_decided_by_another(&self, member: usize) -> bool {
        // One transaction may have given them one number.
        let own = self.members.get(member);
        let own = own.filter(|it| it.kind == LockKind::Permit);
        let own = own.and_then(rank_of_lease);
        let group = self.members.get(self.group(member)).unwrap_or_default();
        // They are mostly in the order of their numbers, so the last is asked first.
        own.is_some() && group.iter().rev().any(|it| rank_of_lease(it) > own)
    }

    /// Whether the deletion of our nodes up to this member would have been reported before that of
    /// a node that it waits for. If not, a deletion is no grant.
    pub(super) fn is_sure(&self, member: usize) -> bool {
        self.members
            .iter()
            .take(member + 1)
            .all(|it| it.own_watched)
    }

    /// Puts the members before `end` whose node may be gone unnoticed into `Listing`; returns them.
    pub(super) fn unlist(&mut self, end: usize) -> Vec<usize> {
        let mut unlisted = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate().take(end) {
            if let (false, Stage::Admitted(node)) = (member.own_watched, &member.stage) {
                let (node, gone) = (node.clone(), Vec::new());
                member.stage = Stage::Listing { node, gone };
                unlisted.push(index);
            }
        }
        unlisted
    }

    pub(super) fn own_watched(&mut self, member: usize, is_watched: bool) -> Vec<Action> {
        let Some(known) = self.members.get_mut(member) else {
            return Vec::new();
        };
        known.own_watched = is_watched;
        if known.stage.node().is_none() {
            return Vec::new();
        }
        if !is_watched {
            known.is_fresh = false;
            return vec![Action::WatchOwn(member)];
        }
        let is_admitted = |it: &Member| matches!(it.stage, Stage::Admitted(_));
        if self.members.iter().all(is_admitted) {
            // The data of our node changed when everything was granted, which took the grant back.
            return self.settle();
        }
        Vec::new()
    }
}

/// What the deletion of the last one that a listing shows ahead means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Deletions {
    /// Nobody else is ahead.
    Grant,
    /// Others are ahead, unless that one was the first.
    GrantIfFirst,
    /// The store has forgotten its last writes since: a node that was deleted may be ahead again.
    Ask,
}

/// What a deletion means for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Nothing, or not yet.
    Nothing,
    /// It is admitted, or waits for fewer.
    Enough,
    /// A listing must show what is ahead.
    TooLittle,
}

/// A verdict beside a node of another recipe that came later. Who made that one may not look at others
/// and hold the lock. So nothing is granted before a listing shows that the node is gone.
fn beside<'a>(verdict: Verdict<'a>, later: &'a str) -> Verdict<'a> {
    let nearest_first = match verdict {
        Verdict::Absent => return Verdict::Absent,
        Verdict::Granted => vec![later],
        Verdict::WaitFor(ahead) => ahead.nearest_first,
    };
    Verdict::WaitFor(Blockers {
        nearest_first,
        deletions_grant: false,
    })
}

/// What a listing shows ahead, without the nodes whose deletion was reported. `None` if there is
/// room, or if the listing is too old to show it.
fn still_ahead(
    nearest_first: &[&str],
    deletions_grant: bool,
    gone: &[String],
    room: usize,
) -> Option<Vec<String>> {
    let is_gone = |name: &&str| gone.iter().any(|gone| gone == name);
    let nearest = nearest_first.first()?;
    let (left, waits): (Vec<_>, _) = match deletions_grant {
        true => {
            let shown = nearest_first.iter().copied();
            let left: Vec<_> = shown.filter(|it| !is_gone(it)).collect();
            let waits = left.len() >= room;
            (left, waits)
        }
        // More may be ahead than these.
        false => (nearest_first.to_vec(), !is_gone(nearest)),
    };
    waits.then(|| left.into_iter().map(str::to_owned).collect())
}

/// Where a member's lease stands among all.
fn rank_of_lease(member: &Member) -> Option<Rank<'_>> {
    let node = member.stage.node()?;
    Some(Rank::new(LockKind::Permit, &node.name))
}
