//! How far the output of a sink is, and who owns it. The transaction that appends records checks both, so that each
//! record is appended once, and none by an owner from which another one has taken the output over.

use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Decode, Executor, Row, Sqlite, Type};
use uuid::Uuid;

use super::store::failed;
use crate::LogOutput;
use types::vector::Offset;
use types::{Error, Result};

/// Makes this the owner of an output.
pub(super) async fn set_owner<'c>(connection: impl Executor<'c, Database = Sqlite>, output: &LogOutput, owner: Uuid) -> Result<()> {
    let sql = "INSERT INTO output_owner VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (group_name, sink, identity, topic, number) DO UPDATE SET owner = excluded.owner";
    of_output(sql, output).bind(owner.to_string()).execute(connection).await.map(drop).map_err(failed)
}

/// Whether nobody took the output over since this owner did.
pub(super) async fn is_owned<'c>(connection: impl Executor<'c, Database = Sqlite>, output: &LogOutput, owner: Uuid) -> Result<bool> {
    let sql = "SELECT owner FROM output_owner WHERE group_name = ?1 AND sink = ?2 AND identity = ?3 AND topic = ?4 AND number = ?5";
    let found: Option<String> = value(sql, connection, output).await?;
    Ok(found.is_some_and(|found| found == owner.to_string()))
}

/// Returns the offset after the last event whose record was appended.
pub(super) async fn next_offset<'c>(connection: impl Executor<'c, Database = Sqlite>, output: &LogOutput) -> Result<Option<Offset>> {
    let sql = "SELECT next_offset FROM output WHERE group_name = ?1 AND sink = ?2 AND identity = ?3 AND topic = ?4 AND number = ?5";
    Ok(value(sql, connection, output).await?.map(Offset))
}

/// The only value of an output's row.
async fn value<'c, T>(sql: &'static str, connection: impl Executor<'c, Database = Sqlite>, output: &LogOutput) -> Result<Option<T>>
where
    T: for<'r> Decode<'r, Sqlite> + Type<Sqlite>,
{
    let row = of_output(sql, output).fetch_optional(connection).await.map_err(failed)?;
    row.map(|row| row.try_get(0)).transpose().map_err(failed)
}

/// A statement whose first five parameters are the key of an output.
fn of_output<'q>(sql: &'static str, output: &'q LogOutput) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(sql)
        .bind(&output.group)
        .bind(&*output.sink)
        .bind(&output.identity)
        .bind(&*output.source.topic)
        .bind(output.source.partition)
}

pub(super) async fn note<'c>(connection: impl Executor<'c, Database = Sqlite>, output: &LogOutput, next: Offset) -> Result<()> {
    let sql = "INSERT INTO output VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (group_name, sink, identity, topic, number) DO UPDATE SET next_offset = excluded.next_offset";
    of_output(sql, output).bind(next.0).execute(connection).await.map(drop).map_err(failed)
}

/// The error of an append to an output that has another owner by now.
pub(super) fn taken_by_another(output: &LogOutput) -> Error {
    Error::conflict("the output was taken over by another worker").with("sink", &output.sink).with("partition", &output.source)
}
