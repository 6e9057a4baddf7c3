//! What the messages of an answer are.
//!
//! Most of them have no type: what they are depends on those before.
//!
//! | awaited | is followed by |
//! |---|---|
//! | `Login` | `OK`, `ERR`: the end; `AuthSwitchRequest`, `AuthMoreData` |
//! | `First` | `OK`, `ERR`: the end, or `First` again if a procedure has more results |
//! | | `PrepareOK`: `Definitions` |
//! | | `ColumnCount`: `Columns`, or at once what comes after them |
//! | `Columns` | so many `ColumnDefinition`: `ColumnsEnd`, which newer clients do without |
//! | `ColumnsEnd` | `EOF`: `Rows` |
//! | `Rows` | `Row`; `EOF`, `ERR`: the end, or `First` |
//! | `Definitions` | `ColumnDefinition`, `EOF`, until the next request |
//! | `Nothing` | news, which nobody has asked for |

use super::scan::{HEADER_BYTES, PACKET_BYTES_MAX};

/// There is another result.
const MORE_RESULTS: u16 = 0x0008;
/// Rows are fetched by other requests.
const CURSOR: u16 = 0x0040;

const OK: u8 = 0x00;
const LOCAL_INFILE: u8 = 0xFB;
const EOF: u8 = 0xFE;
const ERR: u8 = 0xFF;
/// The end of rows, as it was before it became an `OK` by another number.
const EOF_BYTES: usize = 5;

/// What the client has said of itself that changes the answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    /// No `EOF` after columns, and an `OK` at the end of rows.
    pub(super) has_no_eof: bool,
    /// Columns that it knows are left out.
    pub(super) knows_columns: bool,
}

/// What the next message of an answer can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Awaited {
    #[default]
    Nothing,
    Login,
    First,
    Columns(u64),
    ColumnsEnd,
    Rows,
    Definitions,
}

/// A message of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) name: &'static str,
    /// The code and the SQLSTATE of an error.
    pub(super) error: Option<(u16, &'a [u8])>,
    /// What the server calls a statement that it has prepared.
    pub(super) prepared: Option<u32>,
}

impl<'a> Part<'a> {
    fn named(name: &'static str) -> Self {
        Self {
            name,
            error: None,
            prepared: None,
        }
    }

    fn error(body: &'a [u8]) -> Self {
        let code = body.get(1..).and_then(|it| it.first_chunk());
        let state = body.get(3..).and_then(|it| it.strip_prefix(b"#"));
        let state = state.and_then(|it| it.get(..5)).unwrap_or_default();
        Self {
            error: Some((code.map_or(0, |it| u16::from_le_bytes(*it)), state)),
            ..Self::named("ERR")
        }
    }
}

impl Awaited {
    /// Names the next message of the answer to a request that prepares a statement, or another one.
    pub(super) fn next<'a>(
        &mut self,
        message: &'a [u8],
        prepares: bool,
        client: Client,
    ) -> Part<'a> {
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        let first = body.first().copied();
        if first == Some(ERR) && !matches!(self, Self::Columns(_)) {
            *self = Self::Nothing;
            return Part::error(body);
        }
        let (name, next) = match (*self, first) {
            (Self::Login, Some(OK)) => ("OK", Self::Nothing),
            (Self::Login, Some(EOF)) => ("AuthSwitchRequest", Self::Login),
            (Self::Login, _) => ("AuthMoreData", Self::Login),
            (Self::First, Some(OK)) if prepares => {
                *self = Self::Definitions;
                let prepared = body.get(1..).and_then(|it| it.first_chunk());
                return Part {
                    prepared: prepared.map(|it| u32::from_le_bytes(*it)),
                    ..Part::named("PrepareOK")
                };
            }
            (Self::First, Some(OK)) => ("OK", Self::after(body)),
            (Self::First, Some(EOF)) => ("EOF", Self::after(body)),
            (Self::First, Some(LOCAL_INFILE)) => ("LocalInfile", Self::First),
            (Self::First, _) => ("ColumnCount", Self::columns(body, client)),
            (Self::Columns(left), _) if left > 1 => ("ColumnDefinition", Self::Columns(left - 1)),
            (Self::Columns(_), _) => ("ColumnDefinition", Self::after_columns(client)),
            (Self::ColumnsEnd, Some(EOF)) => match status(body) & CURSOR {
                0 => ("EOF", Self::Rows),
                _ => ("EOF", Self::Nothing),
            },
            (Self::Rows, Some(EOF)) if message.len() <= PACKET_BYTES_MAX => {
                ("EOF", Self::after(body))
            }
            (Self::Definitions, Some(EOF)) if body.len() == EOF_BYTES => ("EOF", *self),
            (Self::Definitions, _) => ("ColumnDefinition", *self),
            (Self::ColumnsEnd | Self::Rows, _) => ("Row", Self::Rows),
            (Self::Nothing, _) => ("Unknown", Self::Nothing),
        };
        *self = next;
        Part::named(name)
    }

    fn after(body: &[u8]) -> Self {
        match status(body) & MORE_RESULTS {
            0 => Self::Nothing,
            _ => Self::First,
        }
    }

    fn columns(body: &[u8], client: Client) -> Self {
        let (count, rest) = number(body).unwrap_or_default();
        let are_left_out = client.knows_columns && rest.first() == Some(&0);
        match count {
            0 => Self::after_columns(client),
            _ if are_left_out => Self::after_columns(client),
            count => Self::Columns(count),
        }
    }

    fn after_columns(client: Client) -> Self {
        match client.has_no_eof {
            true => Self::Rows,
            false => Self::ColumnsEnd,
        }
    }
}

/// The server's status in an `OK` or `EOF`.
fn status(body: &[u8]) -> u16 {
    let status = match body.len() {
        EOF_BYTES => body.get(3..),
        _ => {
            let rows = number(body.get(1..).unwrap_or_default());
            let id = rows.and_then(|(_, rest)| number(rest));
            id.map(|(_, rest)| rest)
        }
    };
    let status = status.and_then(|it| it.first_chunk());
    status.map_or(0, |it| u16::from_le_bytes(*it))
}

/// A number of one to nine bytes, and what comes after it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let length = match first {
        0xFC => 2,
        0xFD => 3,
        0xFE => 8,
        _ => return Some((u64::from(*first), rest)),
    };
    let (digits, rest) = rest.split_at_checked(length)?;
    let number = digits.iter().rev();
    Some((number.fold(0, |sum, it| sum << 8 | u64::from(*it)), rest))
}
