//! Text of other programs, made fit for a terminal.
//!
//! Names and data of nodes are whatever their makers wrote. They may contain orders to the
//! terminal, or to a text layout, that make one thing look like another.

use std::time::Duration;

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

/// A duration as people say it: one unit, and at most one decimal.
#[must_use]
pub fn human(duration: Duration) -> String {
    const UNITS: [(&str, f64, f64); 4] = [
        ("ms", 0.001, 1000.0),
        ("s", 1.0, 120.0),
        ("min", 60.0, 120.0),
        ("h", 3600.0, f64::INFINITY),
    ];
    let in_unit = |length: f64| (duration.as_secs_f64() / length * 10.0).round() / 10.0;
    let units = UNITS
        .iter()
        .map(|(unit, length, end)| (unit, in_unit(*length), end));
    let mut fitting = units.filter(|(_, count, end)| count < *end);
    match fitting.next() {
        Some((unit, count, _)) if count > 0.0 => format!("{count} {unit}"),
        _ => "0 s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{human, is_text, one_line};

    #[test]
    fn durations_have_one_unit_and_no_digits_that_nobody_reads() {
        for (micros, expected) in [
            (0, "0 s"),
            (20, "0 s"),
            (1_500, "1.5 ms"),
            (700_000, "700 ms"),
            (999_980, "1 s"),
            (1_000_000, "1 s"),
            (1_500_321, "1.5 s"),
            (15_000_000, "15 s"),
            (119_960_000, "2 min"),
            (300_000_000, "5 min"),
            (7_200_000_000, "2 h"),
            (2_147_483_647_000, "596.5 h"),
        ] {
            assert_eq!(human(Duration::from_micros(micros)), expected);
        }
    }

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
