//! What a statement in SQL is called.

/// What comes before a statement that matters more, in one text.
const PREFACES: [&str; 3] = ["BEGIN", "START", "SET"];
/// Words after which a function or procedure is called for its own sake.
const CALLS: [&str; 3] = ["SELECT", "FROM", "CALL"];
/// What the store's functions are called where they have no schema of their own.
const PREFIX: &str = "lock_recipes_";

/// The function or procedure that it calls, or its first word in capitals; empty if it has none.
///
/// A function goes by its own name: without its schema, and without the store's prefix.
pub(super) fn name(text: &str) -> String {
    let mut text = after_comments(text);
    loop {
        let end = text.find(|it: char| !it.is_ascii_alphabetic());
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        let word = word.to_ascii_uppercase();
        let next = rest.split_once(';').map(|(_, next)| after_comments(next));
        match next {
            Some(next) if PREFACES.contains(&word.as_str()) && !next.is_empty() => text = next,
            _ if CALLS.contains(&word.as_str()) => {
                return called(text).map_or(word, ToOwned::to_owned);
            }
            _ => return word,
        }
    }
}

/// The names of a message that belongs to a statement: both together, and each by itself.
pub(super) fn names(statement: &str, message: &str) -> Vec<String> {
    match statement {
        "" => vec![message.to_owned()],
        _ => vec![
            format!("{statement} {message}"),
            statement.to_owned(),
            message.to_owned(),
        ],
    }
}

fn called(text: &str) -> Option<&str> {
    let (before, _) = text.split_once('(')?;
    let is_of_a_name = |it: char| it.is_ascii_alphanumeric() || "_$.\"`".contains(it);
    let name = before.rsplit(|it| !is_of_a_name(it)).next()?;
    let before = before.strip_suffix(name)?;
    let word = before.split_whitespace().next_back()?;
    let is_called = CALLS.iter().any(|it| word.eq_ignore_ascii_case(it));
    let name = name.rsplit('.').next()?.trim_matches(['"', '`']);
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    (is_called && !name.is_empty()).then_some(name)
}

fn after_comments(text: &str) -> &str {
    let mut text = text.trim_start();
    // Ends with the last comment.
    loop {
        let rest = match (text.strip_prefix("--"), text.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n'),
            (_, Some(comment)) => comment.split_once("*/"),
            _ => return text,
        };
        text = rest.map_or("", |(_, rest)| rest).trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn statement_is_named_after_the_function_or_its_first_word() {
        for (text, expected) in [
            ("SELECT lock_recipes.requests($1, $2)", "requests"),
            ("select * from \"my_locks\".\"open\"($1)", "open"),
            ("CALL `lock_recipes_requests`(?, ?)", "requests"),
            ("call shop.lock_recipes_beat(?)", "beat"),
            ("SELECT a, b\n  FROM poll(?)", "poll"),
            (
                "BEGIN; SET LOCAL lock_timeout = 1; SELECT s.close($1);",
                "close",
            ),
            ("-- first;\n/* (second) */ SELECT s.fence('/a', 1)", "fence"),
            ("SELECT 1", "SELECT"),
            ("SELECT 1 WHERE 2 IN (3)", "SELECT"),
            ("SELECT a FROM t WHERE b = lower('(')", "SELECT"),
            ("INSERT INTO t(a) VALUES (1)", "INSERT"),
            ("CREATE FUNCTION f() AS $$ SELECT g() $$", "CREATE"),
            ("begin", "BEGIN"),
            ("BEGIN;", "BEGIN"),
            ("SET a = 1", "SET"),
            ("SELECT lock_recipes_(1)", "SELECT"),
            ("CALL", "CALL"),
            ("/* no end", ""),
            ("", ""),
            ("\u{fe}(", ""),
        ] {
            assert_eq!(name(text), expected, "{text}");
        }
    }
}
