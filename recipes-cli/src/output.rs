//! What is printed for others to read.

use std::io::{self, ErrorKind, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Prints text, or a view where `--json` asks for it.
pub(crate) fn print(
    as_json: bool,
    view: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let text = match as_json {
        true => {
            let failed = |error| Failure::system("print", &io::Error::from(error));
            serde_json::to_string_pretty(view).map_err(failed)? + "\n"
        }
        false => text(),
    };
    write(&text)
}

/// Prints text.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::system("print", &error)),
    }
}
