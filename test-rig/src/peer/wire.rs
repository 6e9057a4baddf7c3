//! The peers' protocol: words with one space between them, bytes percent-encoded.

use std::fmt::Write as _;

use super::PeerError;

/// The command of one request. Its `Display` is shown in errors, and sent after the id.
#[derive(Debug, Clone)]
pub(super) struct Command(String);

impl Command {
    /// `main` runs a command at once; any other thread runs its commands in order.
    pub(super) fn new(thread: &str, verb: &str) -> Self {
        Self(String::new())
            .word(thread.as_bytes())
            .word(verb.as_bytes())
    }

    pub(super) fn word(mut self, bytes: impl AsRef<[u8]>) -> Self {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        for &byte in bytes.as_ref() {
            if byte.is_ascii_alphanumeric() || b"-_./:,*".contains(&byte) {
                self.0.push(char::from(byte));
            } else {
                // Writing to a String cannot fail.
                let _ = write!(self.0, "%{byte:02X}");
            }
        }
        self
    }

    pub(super) fn number(self, number: impl Into<u64>) -> Self {
        self.word(number.into().to_string())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The values of an answer `ok VALUE...`, in order.
#[derive(Debug)]
pub(super) struct Values {
    command: Command,
    answer: String,
    words: std::vec::IntoIter<Vec<u8>>,
}

impl Values {
    /// Parses `ok ...` or `error CLASS MESSAGE`, which is the answer without its id.
    pub(super) fn parse(command: Command, answer: String) -> Result<Self, PeerError> {
        let malformed = |command: &Command, answer: &str| PeerError::Malformed {
            command: command.0.clone(),
            answer: answer.to_owned(),
        };
        let mut words = answer.split(' ');
        match words.next() {
            Some("ok") => {
                let Some(decoded) = words.map(decode).collect::<Option<Vec<_>>>() else {
                    return Err(malformed(&command, &answer));
                };
                Ok(Self {
                    command,
                    answer,
                    words: decoded.into_iter(),
                })
            }
            Some("error") => Err(PeerError::Refused {
                command: command.0,
                class: words.next().unwrap_or_default().to_owned(),
                message: words.collect::<Vec<_>>().join(" "),
            }),
            _ => Err(malformed(&command, &answer)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.len() == 0
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, PeerError> {
        self.words.next().ok_or_else(|| self.malformed())
    }

    pub(super) fn text(&mut self) -> Result<String, PeerError> {
        String::from_utf8(self.bytes()?).map_err(|_| self.malformed())
    }

    pub(super) fn parsed<T: std::str::FromStr>(&mut self) -> Result<T, PeerError> {
        self.text()?.parse().map_err(|_| self.malformed())
    }

    /// A session id or ephemeral owner: Java prints the bits, without a sign.
    pub(super) fn hexadecimal(&mut self) -> Result<i64, PeerError> {
        let text = self.text()?;
        let bits = u64::from_str_radix(&text, 16).map_err(|_| self.malformed())?;
        Ok(i64::from_ne_bytes(bits.to_ne_bytes()))
    }

    /// All remaining values.
    pub(super) fn texts(&mut self) -> Result<Vec<String>, PeerError> {
        let mut texts = Vec::new();
        while !self.is_empty() {
            texts.push(self.text()?);
        }
        Ok(texts)
    }

    pub(super) fn malformed(&self) -> PeerError {
        PeerError::Malformed {
            command: self.command.0.clone(),
            answer: self.answer.clone(),
        }
    }
}

fn decode(word: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(word.len());
    let mut bytes = word.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(bytes.next()?)? * 16 + digit(bytes.next()?)?;
                u8::try_from(value).ok()?
            }
            literal => literal,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_empty_or_hold_any_byte() {
        let command = Command::new("main", "set")
            .word("/a b+c%")
            .word([])
            .word([0, 255, b'\n']);
        assert_eq!(command.as_str(), "main set /a%20b%2Bc%25  %00%FF%0A");
        let answer = format!("ok {}", "/a+b%2Bc%25  %00%FF%0A");
        let mut values = Values::parse(command, answer).unwrap();
        assert_eq!(values.text().unwrap(), "/a b+c%");
        assert_eq!(values.bytes().unwrap(), b"");
        assert_eq!(values.bytes().unwrap(), [0, 255, b'\n']);
        assert!(values.is_empty());
        assert!(matches!(values.text(), Err(PeerError::Malformed { .. })));
    }

    #[test]
    fn refusal_names_the_java_exception() {
        let answer = "error NoNodeException KeeperErrorCode = NoNode for /a".to_owned();
        let error = Values::parse(Command::new("main", "get").word("/a"), answer).unwrap_err();
        assert_eq!(error.class(), Some("NoNodeException"));
        assert_eq!(
            error.to_string(),
            "the peer refused `main get /a`: NoNodeException: KeeperErrorCode = NoNode for /a"
        );
    }

    #[test]
    fn answers_that_are_no_answers_are_malformed() {
        for answer in ["", "okay", "ok %4", "ok %zz"] {
            let parsed = Values::parse(Command::new("main", "version"), answer.to_owned());
            assert!(
                matches!(parsed, Err(PeerError::Malformed { .. })),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn session_ids_keep_their_sign_bit() {
        let answer = "ok ffffffffffffffff".to_owned();
        let mut values = Values::parse(Command::new("main", "session"), answer).unwrap();
        assert_eq!(values.hexadecimal().unwrap(), -1);
    }
}
