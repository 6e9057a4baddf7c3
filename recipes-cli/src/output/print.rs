//! Standard output, for people and scripts.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};

use recipes_core::internal::is_text;
use serde::Serialize;

use crate::exit::Failure;

/// Prints text, or a view if `--json` is set.
pub(crate) fn print(
    as_json: bool,
    view: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let text = match as_json {
        true => {
            let failed = |error| Failure::system("print", &io::Error::from(error));
            printable(&serde_json::to_string_pretty(view).map_err(failed)?) + "\n"
        }
        false => text(),
    };
    write(&text)
}

/// JSON made safe for a terminal: C1 controls and direction marks in strings, which other
/// programs may have written there, are escaped.
fn printable(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_text(c) || c == '\n' {
            true => text.push(c),
            // Writing to a string does not fail. None of these is beyond U+FFFF.
            false => drop(write!(text, "\\u{:04x}", u32::from(c))),
        }
    }
    text
}

pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        // The reader has seen enough, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::system("print", &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn json_has_no_orders_to_a_terminal_and_says_the_same() {
        let text = "10.0.0.7\u{9b}2J\u{7f}\u{1b}[2J\u{202e}\u{200f}ü\n";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let printed = printable(&json);
        assert_eq!(
            printed,
            "[\n  \"10.0.0.7\\u009b2J\\u007f\\u001b[2J\\u202e\\u200fü\\n\"\n]"
        );
        let read: [String; 1] = serde_json::from_str(&printed).unwrap();
        assert_eq!(read, [text]);
    }
}
