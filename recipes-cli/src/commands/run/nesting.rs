//! Runs inside runs: `lockctl run /a -- lockctl run /b -- ...`.
//!
//! Each process has a session and an owner of its own, and the inner run does not enter what the
//! outer one holds. But the outer one goes on only when the inner one has ended. So the outer one
//! passes its owner on, and the nodes of the inner one name it too. Otherwise nobody could see that
//! two pairs of runs, which took `/a` and `/b` in opposite orders, wait for each other.

use std::env;

use recipes_core::Owner;

use crate::exit::{Failure, code};

/// The variable with the owners of the runs around a command, outermost first, with slashes.
pub(crate) const VARIABLE: &str = "LOCKCTL_OWNER";

/// Bytes of the variable: more than thirty runs inside each other.
const CHAIN_MAX: usize = 1024;

/// The place of this run among those around it.
#[derive(Debug)]
pub(crate) struct Nesting {
    within: Option<String>,
    owner: Owner,
}

impl Nesting {
    /// The place that the environment gives.
    pub(crate) fn from_environment() -> Result<Self, Failure> {
        let within = env::var_os(VARIABLE).map(|it| it.to_string_lossy().into_owned());
        Self::new(within.filter(|it| !it.is_empty()))
    }

    fn new(within: Option<String>) -> Result<Self, Failure> {
        if let Some(bytes) = within
            .as_ref()
            .map(String::len)
            .filter(|it| *it > CHAIN_MAX)
        {
            let message = format!(
                "{VARIABLE} has {bytes} bytes, and {CHAIN_MAX} at most are accepted, which is enough for \
                 thirty runs inside each other: nest fewer, or unset it"
            );
            return Err(Failure::new(code::USAGE, message));
        }
        if within.as_deref().is_some_and(|it| !is_chain(it)) {
            let message = format!(
                "{VARIABLE} is for runs in the command of a run, and no run has set it to this: \
                 unset it"
            );
            return Err(Failure::new(code::USAGE, message));
        }
        let owner = Owner::new();
        Ok(Self { within, owner })
    }

    /// The owner around this run.
    pub(crate) fn within(&self) -> Option<&str> {
        self.within.as_deref()
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// This run, as the nodes of it and of the runs in its command name it.
    pub(crate) fn chain(&self) -> String {
        let owner = self.owner.id();
        match &self.within {
            Some(within) => format!("{within}/{owner}"),
            None => owner,
        }
    }
}

fn is_chain(text: &str) -> bool {
    let is_owner = |owner: &str| {
        let mut bytes = owner.bytes();
        !owner.is_empty() && bytes.all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    text.split('/').all(is_owner)
}

#[cfg(test)]
mod tests {
    use super::{CHAIN_MAX, Nesting};

    #[test]
    fn nested_run_adds_itself_to_the_owners_around_it() {
        let outer = Nesting::new(None).unwrap();
        assert_eq!(outer.chain(), outer.owner().id());
        let inner = Nesting::new(Some(outer.chain())).unwrap();
        assert_eq!(inner.within(), Some(&*outer.chain()));
        let chain = format!("{}/{}", outer.owner().id(), inner.owner().id());
        assert_eq!(inner.chain(), chain);
        assert!(recipes_core::internal::encloses(&outer.chain(), &chain));
    }

    #[test]
    fn what_no_run_has_passed_on_is_refused() {
        let long = "a".repeat(CHAIN_MAX + 1);
        for wrong in ["/", "a/", "/a", "a//b", "a b", "a\n", "ä", &long] {
            let refused = Nesting::new(Some(wrong.to_owned())).unwrap_err();
            assert_eq!(refused.code, 64, "{wrong}");
            assert!(refused.to_string().contains("unset it"), "{refused}");
        }
    }
}
