//! How far the output of a sink is. It is noted in the transaction that appends the records, so that each is appended once.

use sqlx::{Executor, Sqlite};

use super::store::failed;
use crate::Output;
use types::Result;
use types::vector::Offset;

/// Returns the offset after the last event whose record was appended.
pub(super) async fn next_offset<'c>(connection: impl Executor<'c, Database = Sqlite>, output: &Output) -> Result<Option<Offset>> {
    let sql = "SELECT next_offset FROM output WHERE group_name = ?1 AND sink = ?2 AND identity = ?3 AND topic = ?4 AND number = ?5";
    let found: Option<(i64,)> = sqlx::query_as(sql)
        .bind(&output.group)
        .bind(&*output.sink)
        .bind(&output.identity)
        .bind(&*output.source.topic)
        .bind(output.source.partition)
        .fetch_optional(connection)
        .await
        .map_err(failed)?;
    Ok(found.map(|(next,)| Offset(next)))
}

pub(super) async fn note<'c>(connection: impl Executor<'c, Database = Sqlite>, output: &Output, next: Offset) -> Result<()> {
    let sql = "INSERT INTO output VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (group_name, sink, identity, topic, number) DO UPDATE SET next_offset = excluded.next_offset";
    sqlx::query(sql)
        .bind(&output.group)
        .bind(&*output.sink)
        .bind(&output.identity)
        .bind(&*output.source.topic)
        .bind(output.source.partition)
        .bind(next.0)
        .execute(connection)
        .await
        .map(drop)
        .map_err(failed)
}
