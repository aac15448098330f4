//! How far the output of a sink is, and whose it is. Both are looked at in the transaction that appends the records, so
//! that each is appended once, and nothing by a process from which another one took the output over.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Decode, Executor, Row, Sqlite, Transaction, Type};
use uuid::Uuid;

use super::store::failed;
use crate::{LogOutput, TopicPartition};
use types::vector::Offset;
use types::{Error, Result};

/// The outputs that this process has taken over, each with the name under which it did.
#[derive(Debug, Default)]
pub(super) struct Owned(Mutex<HashMap<LogOutput, Uuid>>);

impl Owned {
    /// Makes this process the owner of an output. The previous owner can no longer append to it. Returns the offset
    /// after the last event whose record was appended.
    pub(super) async fn take_over(&self, mut write: Transaction<'static, Sqlite>, output: &LogOutput) -> Result<Option<Offset>> {
        let owner = Uuid::new_v4();
        let sql = "INSERT INTO output_owner VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT (group_name, sink, identity, topic, number) DO UPDATE SET owner = excluded.owner";
        of_output(sql, output).bind(owner.to_string()).execute(&mut *write).await.map_err(failed)?;
        let next = next_offset(&mut *write, output).await?;
        write.commit().await.map_err(failed)?;
        self.lock().insert(output.clone(), owner);
        Ok(next)
    }

    /// Errors: `Conflict` if this process has not taken the output over.
    pub(super) fn owner(&self, output: &LogOutput) -> Result<Uuid> {
        let known = self.lock().get(output).copied();
        known.ok_or_else(|| Error::conflict("an output was appended to that is not taken over").with("sink", &output.sink))
    }

    pub(super) fn let_go(&self, source: &TopicPartition) {
        self.lock().retain(|output, _| output.source != *source);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LogOutput, Uuid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// The error of an append to an output that another process has by now.
pub(super) fn taken_by_another(output: &LogOutput) -> Error {
    Error::conflict("another process has taken the output over").with("sink", &output.sink).with("partition", &output.source)
}
