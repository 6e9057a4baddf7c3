//! Names that end in what each world chooses itself.
//!
//! A script for etcd says `#` for the number of a node whose name no other node has, and `+` behind the name of one
//! that goes with its session. In memory a number has ten digits, and nothing is behind the name.

use std::collections::BTreeMap;

use recipes_core::NodeOpDone;

use crate::script::{Change, Place, Request};
use crate::seen::{Answer, Heard, Leaf, Seen};

/// In front of a number.
const LOCK: &str = "-lock-";

/// The numbers that one world has told so far.
#[derive(Debug)]
pub(crate) struct Numbers {
    is_etcd: bool,
    by_name: BTreeMap<String, String>,
}

impl Numbers {
    pub(crate) fn new(is_etcd: bool) -> Self {
        Self {
            is_etcd,
            by_name: BTreeMap::new(),
        }
    }

    /// What is asked of this world. A number that it has not told is one of no node.
    pub(crate) fn resolve(&self, request: &Request) -> Request {
        let mut request = request.clone();
        match &mut request {
            Request::Delete(place)
            | Request::List(place)
            | Request::Read(place)
            | Request::Watch(place)
            | Request::Sync(place) => self.place(place),
            Request::Create(_) => {}
            Request::Multi(changes) => changes.iter_mut().for_each(|change| match change {
                Change::Create(_) => {}
                Change::Delete(place, _) | Change::Set(place, _, _) | Change::Check(place, _) => {
                    self.place(place);
                }
            }),
        }
        request
    }

    fn place(&self, Place(place): &mut Place) {
        if let Some(named) = place.strip_suffix('#') {
            let name = named.rsplit('/').next().unwrap_or_default();
            let digits = self.by_name.get(name).map(String::as_str);
            let nobodys = match self.is_etcd {
                true => "0999999999999999999",
                false => "9999999999",
            };
            *place = format!("{named}{}", digits.unwrap_or(nobodys));
        } else if let Some(named) = place.strip_suffix('+').filter(|_| !self.is_etcd) {
            *place = named.to_owned();
        }
    }

    /// Notes the numbers that were told, and shows the answers without them.
    pub(crate) fn learn(&mut self, answers: &mut [Answer]) {
        for answer in answers {
            match answer {
                Answer::Created { path, .. } => self.name(path),
                Answer::Names(names) => names.iter_mut().for_each(|it| self.name(it)),
                Answer::Done(done) => done.iter_mut().for_each(|done| {
                    if let NodeOpDone::Created(created) = done {
                        self.name(&mut created.path);
                    }
                }),
                _ => {}
            }
        }
    }

    fn name(&mut self, path: &mut String) {
        let name = path.rsplit('/').next().unwrap_or_default();
        if let Some((name, digits)) = name.rsplit_once(LOCK) {
            let name = format!("{name}{LOCK}");
            self.by_name.insert(name, digits.to_owned());
        }
        *path = plain(path);
    }
}

/// Without number and `+`.
fn plain(path: &str) -> String {
    match path.rsplit_once(LOCK) {
        Some((name, _)) => format!("{name}{LOCK}#"),
        None => path.strip_suffix('+').unwrap_or(path).to_owned(),
    }
}

/// Shows events by the places of a script.
pub(crate) fn heard(seen: &mut Seen) {
    for heard in &mut seen.heard {
        if let Heard::Event { place, .. } = heard {
            place.0 = plain(&place.0);
        }
    }
}

pub(crate) fn leaves(mut leaves: Vec<Leaf>) -> Vec<Leaf> {
    for leaf in &mut leaves {
        leaf.path = plain(&leaf.path);
    }
    leaves
}
