//! Nodes in lock directories that no lock recipe made, named where nothing else is to be shown.

use recipes_core::internal::inspect_front;
use recipes_core::{QueryError, Session};

use crate::exit::Failure;

/// How many are named.
const NAMED_MAX: usize = 3;

/// The failure of an inspection. Where no lock is, it names what is there: contenders may wait for
/// such nodes too.
pub(crate) async fn explained(session: &Session, error: QueryError) -> Failure {
    let others = match &error {
        QueryError::NotALock { path } => match inspect_front(session, path, 0).await {
            Ok(front) => listed(&front.strangers),
            // The first error is the one that counts.
            Err(_) => String::new(),
        },
        _ => String::new(),
    };
    Failure::from(error).with(&others)
}

/// The rest of a sentence; empty if there are none.
pub(crate) fn listed(names: &[impl AsRef<str>]) -> String {
    let named: Vec<_> = names.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    let more = match names.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match named.is_empty() {
        true => String::new(),
        false => format!(
            "; nodes that belong to no contender: {}{more}",
            named.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn few_are_named_and_the_others_counted() {
        assert_eq!(listed(&[""; 0]), "");
        let two = "; nodes that belong to no contender: a, b";
        assert_eq!(listed(&["a", "b"]), two);
        let many = "; nodes that belong to no contender: a, b, c and 2 more";
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), many);
    }
}
