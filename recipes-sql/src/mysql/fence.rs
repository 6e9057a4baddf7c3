//! The statement that keeps nodes until a transaction of the user ends.

/// The statement for these nodes, with the transactions that created them.
pub(super) fn statement(database: &str, prefix: &str, held: &[(&str, i64)]) -> String {
    let paths: Vec<_> = held.iter().map(|(path, _)| *path).collect();
    let tokens: Vec<_> = held.iter().map(|(_, token)| token.to_string()).collect();
    let database = database.replace('`', "``");
    let (paths, tokens) = (quoted(&paths.join("\n")), tokens.join(","));
    format!(
        "CALL `{database}`.{prefix}fence({paths}, {})",
        quoted(&tokens)
    )
}

/// A literal that means the same with every setting of a client. Most paths can be read.
fn quoted(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_graphic() && !matches!(it, '\'' | '\\');
    match text.chars().all(is_plain) {
        // Else a connection can be set up to send other bytes.
        true => format!("_binary'{text}'"),
        false => {
            let digits: String = text.bytes().map(|it| format!("{it:02x}")).collect();
            format!("x'{digits}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_names_nodes_and_tokens() {
        assert_eq!(
            statement("shop", "lock_recipes_", &[("/locks/a/n-0000000001", 17)]),
            "CALL `shop`.lock_recipes_fence(_binary'/locks/a/n-0000000001', _binary'17')"
        );
        assert_eq!(
            statement("a`b", "l_", &[("/a", 1), ("/b", 2)]),
            "CALL `a``b`.l_fence(x'2f610a2f62', _binary'1,2')"
        );
        assert_eq!(quoted("/it's"), "x'2f69742773'");
    }
}
