//! Literals in the statement of `guard.fence()`.

/// A text in a statement for PostgreSQL, whatever `standard_conforming_strings` is.
#[cfg(feature = "postgres")]
pub(crate) fn postgres_literal(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "''");
    format!("E'{text}'")
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "postgres")]
    #[test]
    fn no_text_ends_its_literal() {
        let literal = super::postgres_literal;
        assert_eq!(literal("/a/b"), "E'/a/b'");
        assert_eq!(literal("/a'; DROP"), "E'/a''; DROP'");
        assert_eq!(literal("/a\\'"), "E'/a\\\\'''");
    }
}
