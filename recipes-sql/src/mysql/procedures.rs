//! Calls of procedures.

use mysql_async::prelude::{FromValue, Queryable as _, StatementLike};
use mysql_async::{Conn, Error, Params, Row, Statement, Value as Parameter};
use recipes_keeper::{CallError, Caller};

/// A procedure with so many parameters, ready to be called.
pub(super) async fn prepare(
    connection: &mut Conn,
    prefix: &str,
    procedure: &str,
    parameters: usize,
) -> Result<Statement, Error> {
    let marks = vec!["?"; parameters].join(", ");
    let call = format!("CALL {prefix}{procedure}({marks})");
    connection.prep(call).await
}

/// The parameters by which procedures know a session.
pub(super) fn of_session(caller: &Caller) -> Vec<Parameter> {
    vec![
        Parameter::Int(caller.id),
        text(&caller.secret),
        Parameter::UInt(caller.connection),
    ]
}

pub(super) fn text(text: &str) -> Parameter {
    Parameter::Bytes(text.as_bytes().to_vec())
}

/// Calls a procedure. Returns its first row, if it has selected one, once all has been committed.
pub(super) async fn first(
    connection: &mut Conn,
    statement: impl StatementLike,
    parameters: Vec<Parameter>,
) -> Result<Option<Row>, Error> {
    let parameters = Params::Positional(parameters);
    let mut result = connection.exec_iter(statement, parameters).await?;
    let row = result.next().await?;
    // Rows come before the commit is known.
    result.drop_result().await?;
    Ok(row)
}

/// Calls a procedure that selects several times. Returns all rows, once all has been committed.
pub(super) async fn rows(
    connection: &mut Conn,
    statement: &Statement,
    parameters: Vec<Parameter>,
) -> Result<Vec<Row>, Error> {
    let parameters = Params::Positional(parameters);
    let mut result = connection.exec_iter(statement, parameters).await?;
    let mut rows = Vec::new();
    // Each is of another statement.
    while !result.is_empty() {
        rows.append(&mut result.collect().await?);
    }
    // Rows come before the commit is known.
    result.drop_result().await?;
    Ok(rows)
}

/// The columns of a row, one after the other.
pub(super) struct Columns {
    row: Row,
    at: usize,
}

impl Columns {
    pub(super) fn of(row: Option<Row>) -> Result<Self, CallError> {
        match row {
            Some(row) => Ok(Self { row, at: 0 }),
            None => Err(CallError::unexpected("no row")),
        }
    }

    fn next<T: FromValue>(&mut self) -> Result<T, CallError> {
        let value = self.row.take_opt(self.at);
        self.at += 1;
        match value {
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) => Err(CallError::unexpected("another type of column")),
            None => Err(CallError::unexpected("too few columns")),
        }
    }

    pub(super) fn number(&mut self) -> Result<i64, CallError> {
        self.next()
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, CallError> {
        let bytes: Option<Vec<u8>> = self.next()?;
        Ok(bytes.unwrap_or_default())
    }
}
