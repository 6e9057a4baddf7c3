//! Text of other programs, made fit for a terminal.
//!
//! Names and data of nodes are whatever their makers wrote. They may contain orders to the
//! terminal, or to a text layout, that make one thing look like another.

/// Whether a character is text. These are not: controls (C0, DEL, C1), line and paragraph
/// separators, and characters that change the direction of the text around them.
#[must_use]
pub const fn is_text(c: char) -> bool {
    !matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with a space for each character that is not text.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.replace(|c| !is_text(c), " ")
}

#[cfg(test)]
mod tests {
    use super::{is_text, one_line};

    #[test]
    fn orders_to_a_terminal_become_spaces() {
        let orders = "a\nb\u{1b}[2Jc\u{9b}2Jd\u{7f}e\u{85}f";
        assert_eq!(one_line(orders), "a b [2Jc 2Jd e f");
        for order in ('\u{200e}'..='\u{200f}')
            .chain('\u{2028}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}')
            .chain(['\u{61c}', '\t', '\r', '\0', '\u{80}'])
        {
            assert_eq!(one_line(&format!("a{order}b")), "a b", "{order:?}");
        }
    }

    #[test]
    fn text_of_any_script_stays() {
        for text in [
            "",
            "nightly export",
            "für alle",
            "日本",
            "שלום",
            "مرحبا",
            "👩\u{200d}💻",
            "\u{a0}",
        ] {
            assert!(text.chars().all(is_text), "{text}");
            assert_eq!(one_line(text), text);
        }
    }
}
