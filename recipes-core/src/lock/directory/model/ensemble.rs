//! One directory and the nodes in it.

use super::Sole;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    /// A contender of our session.
    Ours(usize),
    /// Made by our session, or the one before, and given up: it will be deleted.
    GivenUp,
    Theirs,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Child {
    pub(super) number: i32,
    pub(super) whose: Whose,
    is_reader: bool,
    /// Whether another client's node was in the directory when it was made.
    pub(super) had_company: bool,
}

/// Children in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Directory {
    pub(super) czxid: i64,
    /// The number of the next node.
    pub(super) count: i32,
    pub(super) children: Vec<Child>,
    /// Watched by our session.
    pub(super) is_watched: bool,
}

impl Directory {
    pub(super) fn new(czxid: i64, count: i32) -> Self {
        Self {
            czxid,
            count,
            children: Vec::new(),
            is_watched: false,
        }
    }

    pub(super) fn create(&mut self, whose: Whose, is_reader: bool) -> i32 {
        let number = self.count;
        self.count += 1;
        let had_company = self.children.iter().any(|it| it.whose == Whose::Theirs);
        self.children.push(Child {
            number,
            whose,
            is_reader,
            had_company,
        });
        number
    }

    /// Whether it is admitted: every holder is, and every admitted contender may hold.
    pub(super) fn admits(&self, index: usize) -> bool {
        let (ahead, from_here) = self.children.split_at(index);
        match from_here {
            [child, ..] if child.is_reader => ahead.iter().all(|it| it.is_reader),
            _ => ahead.is_empty(),
        }
    }

    /// A node of ours and its place.
    pub(super) fn find(&self, made: Made) -> Option<(usize, &Child)> {
        let mut children = self.children.iter().enumerate();
        children
            .find(|(_, it)| it.number == made.number)
            .filter(|(_, it)| self.czxid < made.czxid && matches!(it.whose, Whose::Ours(_)))
    }

    pub(super) fn admits_ours(&self, contender: usize) -> bool {
        let whose = Whose::Ours(contender);
        let index = self.children.iter().position(|it| it.whose == whose);
        index.is_some_and(|it| self.admits(it))
    }

    /// Whether another client may hold a lock that conflicts with this kind.
    pub(super) fn is_held_against(&self, is_reader: bool) -> bool {
        let children = self.children.iter().enumerate();
        let mut theirs = children.filter(|(_, it)| it.whose == Whose::Theirs);
        theirs.any(|(index, it)| self.admits(index) && !(it.is_reader && is_reader))
    }
}

/// A node of ours: its number and its transaction. Those of others are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Made {
    pub(super) number: i32,
    pub(super) czxid: i64,
}

impl Made {
    pub(super) fn sole(self) -> Sole {
        Sole {
            czxid: self.czxid,
            sequence: self.number,
        }
    }
}
