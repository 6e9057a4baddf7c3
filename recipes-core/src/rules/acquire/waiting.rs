//! What members that have nodes wait for: listings, and the nodes ahead.

use super::{AcquireMachine, Action, Member, Stage};
use crate::names::node_name;
use crate::rules::admission::{self, Blocker, Place, Verdict};
use crate::rules::delay::{Ahead, Awaited};

impl AcquireMachine {
    /// What it waits for, for the error of an attempt that runs out of time.
    pub(crate) fn awaited(&self) -> Awaited {
        if let Some(ahead) = &self.busy {
            return Awaited::Contender(ahead.clone());
        }
        let members = self.members.iter().enumerate();
        let mut awaited = members.filter_map(|(member, it)| match &it.stage {
            Stage::Waiting { blocker, .. } => {
                let node = blocker.clone();
                Some(Awaited::Contender(Ahead { member, node }))
            }
            Stage::Listing { .. } => Some(Awaited::Listing(member)),
            _ => None,
        });
        awaited.next().unwrap_or(Awaited::Answers)
    }

    pub(super) fn listed(&mut self, member: usize, children: &[String]) -> Vec<Action> {
        if !matches!(self.stage(member), Some(Stage::Listing { .. })) {
            return Vec::new();
        }
        let mut actions = self.apply_listing(member, children);
        actions.extend(self.settle());
        actions
    }

    /// Applies the admission rule to a listing of one member's directory.
    pub(super) fn apply_listing(&mut self, member: usize, children: &[String]) -> Vec<Action> {
        let Some(Member {
            kind,
            place,
            stage: Stage::Listing { node, gone },
            ..
        }) = self.members.get(member)
        else {
            return Vec::new();
        };
        let (node, gone) = (node.clone(), gone.clone());
        let verdict = match place {
            Place::Beside { .. } if children.contains(&node.name) => Verdict::Granted,
            _ => admission::admit(*kind, children, &node.name),
        };
        let is_sure = self.is_sure(member);
        let stage = match verdict {
            Verdict::Granted => Stage::Admitted(node),
            Verdict::Absent => return self.rejoin(member),
            Verdict::WaitFor(it) => match still_ahead(it, &gone) {
                Some(ahead) => Stage::Waiting {
                    node,
                    blocker: ahead.name.to_owned(),
                    before: ahead.before.map(str::to_owned),
                    deletions_grant: ahead.deletions_grant,
                },
                None if it.deletions_grant && is_sure => Stage::Admitted(node),
                None => {
                    self.set(member, Stage::Listing { node, gone });
                    return self.list(vec![member]);
                }
            },
        };
        self.set(member, stage);
        Vec::new()
    }

    pub(super) fn blocker_gone(&mut self, member: usize, name: String) -> Vec<Action> {
        // A name with a uuid never comes back, so its deletion is final and holds for an older
        // listing too. A node with any other name may have been re-created, and the listing by
        // which we wait for it may have shown the new one.
        let is_final = node_name::is_protected(&name);
        let gone = || match is_final {
            true => vec![name.clone()],
            false => Vec::new(),
        };
        let is_sure = self.is_sure(member);
        let Some(stage) = self.members.get_mut(member).map(|member| &mut member.stage) else {
            return Vec::new();
        };
        match stage {
            Stage::Waiting {
                node,
                blocker,
                before: Some(before),
                deletions_grant: true,
            } if is_final && (*blocker == name || *before == name) => {
                // Nothing else was ahead, so a listing would show the other one and no more.
                let other = if *before == name { blocker } else { before };
                let waiting = Stage::Waiting {
                    node: node.clone(),
                    blocker: other.clone(),
                    before: None,
                    deletions_grant: true,
                };
                *stage = waiting;
                self.settle()
            }
            Stage::Waiting {
                node,
                blocker,
                deletions_grant: true,
                ..
            } if *blocker == name && is_sure && is_final => {
                *stage = Stage::Admitted(node.clone());
                self.settle()
            }
            Stage::Waiting {
                node,
                blocker,
                before,
                ..
            } if *blocker == name || before.as_ref() == Some(&name) => {
                let node = node.clone();
                *stage = Stage::Listing { node, gone: gone() };
                let mut unlisted = self.unlist(member);
                unlisted.push(member);
                self.list(unlisted)
            }
            Stage::Listing { gone: known, .. } if is_final => {
                known.push(name);
                Vec::new()
            }
            Stage::Listing { .. } => self.list(vec![member]),
            _ => Vec::new(),
        }
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

/// What a listing shows ahead, without the nodes whose deletion was reported. `None` if the listing
/// is too old to show it.
fn still_ahead<'a>(shown: Blocker<'a>, gone: &[String]) -> Option<Blocker<'a>> {
    let is_gone = |name: &str| gone.iter().any(|gone| gone == name);
    if shown.deletions_grant {
        return shown.without(is_gone);
    }
    // More may be ahead than these two.
    Some(shown).filter(|it| !is_gone(it.name))
}
