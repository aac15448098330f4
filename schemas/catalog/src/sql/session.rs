//! One open transaction on either engine. All tables consist of TEXT and BIGINT columns, so two kinds of value are
//! enough and the same SQL (`$1` placeholders) runs on both.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use futures::TryStreamExt;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{Decode, Row as _, Transaction, Type};
use uuid::Uuid;

use super::slow;
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

/// A transaction. If dropped without [`Session::commit`], it changes nothing.
pub(super) enum Session {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

/// A value bound to a placeholder.
pub(super) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
}

/// A row of a result; columns are read by name.
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// `values![a, b]`: the values of a statement's placeholders, in order.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::sql::session::Value::from($value)),*] };
}
pub(super) use values;

/// A statement whose result may be long, on either engine. A row of it has many records, as a JSON array of arrays of
/// values, because a long result costs by the row: SQLite's rows come one by one from a thread of their own.
pub(super) struct Packed {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// `packed!("columns", "FROM ..", "table", "revision")`: the records with a revision after `$1`, in at most 512 rows.
/// In SQLite each row has the records of one range of revisions, found by the table's index: what a row takes is all
/// that is held of the result. (GROUP BY would sort all of it first.)
macro_rules! packed {
    ($columns:literal, $from:literal, $table:literal, $revision:literal) => {
        $crate::sql::session::Packed {
            sqlite: concat!(
                "WITH RECURSIVE
                    bounds (low, high) AS (SELECT $1, (SELECT MAX(",
                $revision,
                ") FROM ",
                $table,
                ")),
                    span (low, width, parts) AS (SELECT low, high - low, MIN(high - low, 512) FROM bounds),
                    part (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM part, span WHERE number + 1 < parts)
                SELECT (SELECT json_group_array(json_array(",
                $columns,
                ")) ",
                $from,
                " WHERE ",
                $revision,
                " > low + width * number / parts AND ",
                $revision,
                " <= low + width * (number + 1) / parts) AS packed FROM part, span"
            ),
            postgres: concat!(
                "SELECT CAST(json_agg(json_build_array(",
                $columns,
                ")) AS TEXT) AS packed ",
                $from,
                " WHERE ",
                $revision,
                " > $1 GROUP BY ",
                $revision,
                " % 512"
            ),
        }
    };
}
pub(super) use packed;

macro_rules! query {
    ($engine:ty, $sql:expr, $values:expr) => {{
        let mut query = sqlx::query::<$engine>($sql);
        for value in $values {
            query = match value {
                Value::Integer(integer) => query.bind(integer),
                Value::Text(text) => query.bind(text),
            };
        }
        query
    }};
}

#[cfg(test)]
tokio::task_local! {
    /// How many statements a test's task has run.
    pub(super) static STATEMENTS: std::cell::Cell<usize>;
}

fn count_statement() {
    #[cfg(test)]
    let _ = STATEMENTS.try_with(|count| count.set(count.get() + 1));
}

impl Session {
    /// Runs one statement and returns how many rows it affected.
    pub(super) async fn execute(&mut self, sql: &'static str, values: Vec<Value>) -> Result<u64> {
        count_statement();
        let began = Instant::now();
        let executed = match self {
            Session::Sqlite(tx) => query!(Sqlite, sql, values).execute(&mut **tx).await.map(|done| done.rows_affected()),
            Session::Postgres(tx) => query!(Postgres, sql, values).execute(&mut **tx).await.map(|done| done.rows_affected()),
        };
        slow::note(sql, began);
        executed.map_err(failed)
    }

    /// Runs a text of several statements.
    pub(super) async fn script(&mut self, sql: &'static str) -> Result<()> {
        match self {
            Session::Sqlite(tx) => sqlx::raw_sql(sql).execute(&mut **tx).await.map(drop),
            Session::Postgres(tx) => sqlx::raw_sql(sql).execute(&mut **tx).await.map(drop),
        }
        .map_err(failed)
    }

    pub(super) async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Row>> {
        count_statement();
        let began = Instant::now();
        let rows = match self {
            Session::Sqlite(tx) => {
                query!(Sqlite, sql, values).fetch_all(&mut **tx).await.map(|rows| rows.into_iter().map(Row::Sqlite).collect())
            }
            Session::Postgres(tx) => {
                query!(Postgres, sql, values).fetch_all(&mut **tx).await.map(|rows| rows.into_iter().map(Row::Postgres).collect())
            }
        };
        slow::note(sql, began);
        rows.map_err(failed)
    }

    /// Hands over each record as it is read: what a long result takes is what the caller keeps of it.
    pub(super) async fn each<T: DeserializeOwned>(
        &mut self,
        packed: &Packed,
        values: Vec<Value>,
        mut take: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let mut unpack = |row: Row| {
            let records: Vec<T> =
                serde_json::from_str(&row.text("packed")?).map_err(|error| Error::corrupt(UNREADABLE).caused_by(error))?;
            records.into_iter().try_for_each(&mut take)
        };
        match self {
            Session::Sqlite(tx) => {
                let mut rows = query!(Sqlite, packed.sqlite, values).fetch(&mut **tx);
                while let Some(row) = rows.try_next().await.map_err(failed)? {
                    unpack(Row::Sqlite(row))?;
                }
            }
            Session::Postgres(tx) => {
                let mut rows = query!(Postgres, packed.postgres, values).fetch(&mut **tx);
                while let Some(row) = rows.try_next().await.map_err(failed)? {
                    unpack(Row::Postgres(row))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the first row of the result.
    pub(super) async fn row(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Option<Row>> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    pub(super) async fn commit(self) -> Result<()> {
        let began = Instant::now();
        let committed = match self {
            Session::Sqlite(tx) => tx.commit().await,
            Session::Postgres(tx) => tx.commit().await,
        };
        slow::note("COMMIT", began);
        committed.map_err(failed)
    }

    pub(super) async fn rollback(self) -> Result<()> {
        match self {
            Session::Sqlite(tx) => tx.rollback().await,
            Session::Postgres(tx) => tx.rollback().await,
        }
        .map_err(failed)
    }

    /// Commits on success, and rolls back on an error.
    pub(super) async fn finish<T>(self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => self.commit().await.map(|()| value),
            Err(error) => {
                // The error that matters is the first one; an unfinished transaction changes nothing either way.
                if let Err(failure) = self.rollback().await {
                    tracing::debug!(error = %failure, "a catalog transaction was not rolled back in order");
                }
                Err(error)
            }
        }
    }
}

impl Row {
    pub(super) fn integer(&self, column: &'static str) -> Result<i64> {
        self.get(column)
    }

    pub(super) fn integer_or_null(&self, column: &'static str) -> Result<Option<i64>> {
        self.get(column)
    }

    pub(super) fn text(&self, column: &'static str) -> Result<String> {
        self.get(column)
    }

    pub(super) fn text_or_null(&self, column: &'static str) -> Result<Option<String>> {
        self.get(column)
    }

    /// Reads an integer of a narrower type.
    pub(super) fn number<T: TryFrom<i64>>(&self, column: &'static str) -> Result<T> {
        let found = self.integer(column)?;
        T::try_from(found).map_err(|_| unreadable(column, &found))
    }

    pub(super) fn flag(&self, column: &'static str) -> Result<bool> {
        Ok(self.integer(column)? != 0)
    }

    pub(super) fn parse<T: FromStr>(&self, column: &'static str) -> Result<T> {
        let found = self.text(column)?;
        found.parse().map_err(|_| unreadable(column, &found))
    }

    pub(super) fn parse_or_null<T: FromStr>(&self, column: &'static str) -> Result<Option<T>> {
        let Some(found) = self.text_or_null(column)? else { return Ok(None) };
        found.parse().map(Some).map_err(|_| unreadable(column, &found))
    }

    /// Reads a word that stands for one of the `known` values.
    pub(super) fn word<T: Copy>(&self, column: &'static str, known: &[(T, &'static str)]) -> Result<T> {
        value_of(column, &self.text(column)?, known)
    }

    fn get<T>(&self, column: &'static str) -> Result<T>
    where
        T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            Row::Sqlite(row) => row.try_get(column),
            Row::Postgres(row) => row.try_get(column),
        }
        .map_err(|error| failed(error).with("column", column))
    }
}

/// Names that many rows repeat, each kept once.
#[derive(Default)]
pub(super) struct SharedNames(HashSet<Arc<str>>);

impl SharedNames {
    pub(super) fn share(&mut self, name: String) -> Arc<str> {
        if let Some(known) = self.0.get(name.as_str()) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.0.insert(name.clone());
        name
    }
}

/// Returns the word that stands for `value` in a column; [`Row::word`] reads it back with the same list.
pub(super) fn word_of<T: PartialEq>(value: &T, known: &[(T, &'static str)]) -> Result<&'static str> {
    known.iter().find(|(one, _)| one == value).map(|(_, word)| *word).ok_or_else(|| Error::internal("a catalog value has no word"))
}

/// Returns the value that a word in a column stands for.
pub(super) fn value_of<T: Copy>(column: &'static str, found: &str, known: &[(T, &'static str)]) -> Result<T> {
    known.iter().find(|(_, word)| *word == found).map(|(value, _)| *value).ok_or_else(|| unreadable(column, &found))
}

fn unreadable(column: &'static str, found: &dyn fmt::Display) -> Error {
    Error::corrupt(UNREADABLE).with("column", column).with("found", found)
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Integer(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Value::Integer(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Value::Integer(Some(value.into()))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Value::Integer(Some(value.into()))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Integer(Some(value.into()))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(Some(value.to_owned()))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Value::Text(value.map(str::to_owned))
    }
}

impl From<Uuid> for Value {
    fn from(value: Uuid) -> Self {
        Value::Text(Some(value.to_string()))
    }
}

impl From<Option<Uuid>> for Value {
    fn from(value: Option<Uuid>) -> Self {
        Value::Text(value.map(|uuid| uuid.to_string()))
    }
}

impl From<&Vector> for Value {
    fn from(value: &Vector) -> Self {
        Value::Text(Some(value.to_string()))
    }
}

impl From<Option<&Vector>> for Value {
    fn from(value: Option<&Vector>) -> Self {
        Value::Text(value.map(Vector::to_string))
    }
}

/// What errors about a file say that SQLite cannot read as a catalog.
pub const FILE_DAMAGED: &str = "the catalog's file is damaged";
const REFUSED: &str = "the catalog's database refused or did not answer";
const UNREADABLE: &str = "the catalog holds a value that this version does not read";

/// Converts the failure of a first connection: a login that is refused, or an unknown database, is a wrong setting.
pub(super) fn failed_to_open(error: sqlx::Error) -> Error {
    let code = error.as_database_error().and_then(|error| error.code());
    match code.is_some_and(|code| code.starts_with("28") || code.starts_with("3D")) {
        true => Error::input(REFUSED).caused_by(error),
        false => failed(error),
    }
}

/// Converts a failure of the engine by what the caller can do about it. Only `Unavailable` is worth a retry.
pub(super) fn failed(error: sqlx::Error) -> Error {
    let mut message = REFUSED;
    let kind = match &error {
        sqlx::Error::Database(database) => match database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
            Some(postgres) => kind_of_sqlstate(postgres.code()),
            None => {
                let kind = kind_of_sqlite(database.code().and_then(|code| code.parse().ok()).unwrap_or(0));
                message = if kind == ErrorKind::Corrupt { FILE_DAMAGED } else { REFUSED };
                kind
            }
        },
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut => ErrorKind::Unavailable,
        // A connection that broke in the middle of a message, or whose thread ended.
        sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => ErrorKind::Unavailable,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => ErrorKind::Corrupt,
        sqlx::Error::Configuration(_) => ErrorKind::Input,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, message).caused_by(error)
}

/// By SQLSTATE class, see appendix A of PostgreSQL's manual.
pub(super) fn kind_of_sqlstate(code: &str) -> ErrorKind {
    match code {
        // Lock not available, read-only after a failover.
        "55P03" | "25006" | "25P03" => ErrorKind::Unavailable,
        "42501" => ErrorKind::Input,
        "23505" => ErrorKind::Conflict,
        _ => match code.get(..2).unwrap_or_default() {
            // Connection, rollback (deadlock, serialization), resources, operator, system.
            "08" | "40" | "53" | "57" | "58" => ErrorKind::Unavailable,
            // Authorization, unknown database. Both were right once, or the catalog would not be open: a password is
            // being changed, a database restored.
            "28" | "3D" => ErrorKind::Unavailable,
            "XX" => ErrorKind::Corrupt,
            _ => ErrorKind::Internal,
        },
    }
}

/// By SQLite's primary result code, the low byte of the extended one.
pub(super) fn kind_of_sqlite(code: i32) -> ErrorKind {
    match code & 0xff {
        // BUSY, LOCKED, INTERRUPT, IOERR, FULL, CANTOPEN.
        5 | 6 | 9 | 10 | 13 | 14 => ErrorKind::Unavailable,
        // PERM, READONLY, AUTH.
        3 | 8 | 23 => ErrorKind::Input,
        // CORRUPT, NOTADB.
        11 | 26 => ErrorKind::Corrupt,
        _ => ErrorKind::Internal,
    }
}
