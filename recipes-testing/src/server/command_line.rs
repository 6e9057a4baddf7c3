//! The command-line client of a server, which carries out a statement or a command for a test.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

/// A server that runs answers in milliseconds, unless a statement waits for a lock.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A client whose arguments are known.
pub(super) fn client(program: &Path) -> Command {
    let mut command = Command::new(program);
    // Settings of the person who runs the tests are not settings of the test.
    command.env_clear().env("LC_ALL", "C");
    command
}

/// Passes text to the client and returns what it prints, or its error.
pub(super) async fn run(mut command: Command, text: &str) -> Result<String, String> {
    let carried_out = async {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take();
        let write = async {
            if let Some(mut input) = input {
                // A client that cannot connect does not read it.
                input.write_all(text.as_bytes()).await.ok();
            }
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        output
    };
    let output = match timeout(ANSWER_MAX, carried_out).await {
        Ok(output) => output,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr).trim().to_owned()),
    }
}

/// What `psql --csv` prints: values are in quotes if they must be, and quotes in them are doubled.
pub(super) fn rows_of_csv(printed: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let (mut row, mut value) = (Vec::new(), String::new());
    let mut is_quoted = false;
    let mut letters = printed.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => value.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(std::mem::take(&mut value)),
            '\n' if !is_quoted => {
                row.push(std::mem::take(&mut value));
                rows.push(std::mem::take(&mut row));
            }
            letter => value.push(letter),
        }
    }
    rows
}

/// What `mariadb --batch` prints: tabs, line ends, zeros and backslashes in a value are escaped.
pub(super) fn rows_of_batch(printed: &str) -> Vec<Vec<String>> {
    let value = |escaped: &str| {
        let mut value = String::new();
        let mut letters = escaped.chars();
        while let Some(letter) = letters.next() {
            value.push(match letter {
                '\\' => match letters.next() {
                    Some('t') => '\t',
                    Some('n') => '\n',
                    Some('0') => '\0',
                    escaped => escaped.unwrap_or('\\'),
                },
                letter => letter,
            });
        }
        value
    };
    let row = |line: &str| line.split('\t').map(value).collect();
    printed.lines().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{rows_of_batch, rows_of_csv};

    #[test]
    fn values_are_what_they_were_whatever_is_in_them() {
        let csv = "1,\"a,\"\"b\"\"\nc\",NULL\n\n";
        assert_eq!(
            rows_of_csv(csv),
            [vec!["1", "a,\"b\"\nc", "NULL"], vec![""]]
        );
        let batch = "1\ta\\tb\\nc\\\\n\tNULL\n\n";
        assert_eq!(
            rows_of_batch(batch),
            [vec!["1", "a\tb\nc\\n", "NULL"], vec![""]]
        );
        assert!(rows_of_csv("").is_empty() && rows_of_batch("").is_empty());
    }
}
