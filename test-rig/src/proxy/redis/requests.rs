//! What is in a call of the function that carries out requests: the grammar stands above it.

use super::text;
use crate::proxy::message::Message;

/// Names each kind of request once, in the order in which they come, and all nodes.
///
/// `operands` come after the key. A call that is cut short or garbled names less.
pub(super) fn read(operands: &[&[u8]], message: &mut Message) {
    // The session in three words, and how long a container may be empty.
    let words = operands.iter().skip(4).copied();
    if read_all(words, message).is_none() || message.names.is_empty() {
        name("requests", message);
    }
}

/// `None` if they end too early, or are not understood.
fn read_all<'a>(mut words: impl Iterator<Item = &'a [u8]>, message: &mut Message) -> Option<()> {
    while let Some(word) = words.next() {
        let word = text(word);
        // How many words come after the path.
        let more = match word.as_str() {
            "multi" => {
                let count: usize = text(words.next()?).parse().ok()?;
                for _ in 0..count {
                    operation(&mut words, message)?;
                }
                continue;
            }
            "beat" => {
                name(&word, message);
                continue;
            }
            "look" => 4,
            "watch" => 1,
            "list" | "read" | "stat" | "unwatch" => 0,
            _ => return None,
        };
        name(&word, message);
        path(&mut words, more, message)?;
    }
    Some(())
}

fn operation<'a>(words: &mut impl Iterator<Item = &'a [u8]>, message: &mut Message) -> Option<()> {
    let word = text(words.next()?);
    let more = match word.as_str() {
        "create" | "set" => 2,
        "delete" | "check" => 1,
        _ => return None,
    };
    name(&format!("multi {word}"), message);
    path(words, more, message)
}

/// Takes the path, and as many words after it.
fn path<'a>(
    words: &mut impl Iterator<Item = &'a [u8]>,
    more: usize,
    message: &mut Message,
) -> Option<()> {
    message.paths.push(text(words.next()?));
    for _ in 0..more {
        words.next()?;
    }
    Some(())
}

fn name(name: &str, message: &mut Message) {
    if !message.names.iter().any(|it| it == name) {
        message.names.push(name.to_owned());
    }
}
