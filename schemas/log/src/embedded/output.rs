//! How far the output of a sink is, and who owns it. The transaction that appends records checks both, so that each
//! record is appended once, and none by an owner from which another one has taken the output over.

use std::collections::HashMap;

use sqlx::query::Query;
use sqlx::query_builder::Separated;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Executor, FromRow, Row, Sqlite, SqliteConnection};
use uuid::Uuid;

use super::store::failed;
use super::transaction::{ROWS_AT_ONCE, Statements};
use crate::LogOutput;
use types::vector::Offset;
use types::{Error, Result};

/// Makes this the owner of an output.
pub(super) async fn set_owner<'c>(connection: impl Executor<'c, Database = Sqlite>, output: &LogOutput, owner: Uuid) -> Result<()> {
    let sql = "INSERT INTO output_owner VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (group_name, sink, identity, topic, number) DO UPDATE SET owner = excluded.owner";
    of_output(sql, output).bind(owner.to_string()).execute(connection).await.map(drop).map_err(failed)
}

/// Returns the offset before which the events are settled.
pub(super) async fn next_offset(connection: &mut SqliteConnection, output: &LogOutput) -> Result<Option<Offset>> {
    let sql = "SELECT next_offset FROM output WHERE group_name = ?1 AND sink = ?2 AND identity = ?3 AND topic = ?4 AND number = ?5";
    let row = of_output(sql, output).fetch_optional(connection).await.map_err(failed)?;
    row.map(|row| row.try_get(0).map(Offset)).transpose().map_err(failed)
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

/// The outputs to which a transaction appends, those that have an owner.
#[derive(Debug)]
pub(super) struct OutputStates<'o> {
    by_output: HashMap<&'o LogOutput, OutputState>,
}

#[derive(Debug)]
struct OutputState {
    owner: String,
    /// The events before it are settled.
    next: Option<Offset>,
    has_moved: bool,
}

impl<'o> OutputStates<'o> {
    /// Adds the statements that read these outputs.
    pub(super) fn select(statements: &mut Statements, outputs: &[&LogOutput]) {
        for (chunk, outputs) in outputs.chunks(ROWS_AT_ONCE).enumerate() {
            let sql = statements.next();
            sql.push("WITH asked (nth, group_name, sink, identity, topic, number) AS (");
            sql.push_values(outputs.iter().enumerate(), |mut row, (nth, output)| {
                row.push_bind((chunk * ROWS_AT_ONCE + nth) as i64);
                push_key(&mut row, output);
            });
            // For each that is asked for, the keys of both tables are looked up.
            sql.push(
                ") SELECT nth, owner, next_offset FROM asked CROSS JOIN output_owner USING (group_name, sink, identity, topic, number)
                LEFT JOIN output USING (group_name, sink, identity, topic, number)",
            );
        }
    }

    /// Returns those of the outputs that have an owner, from the rows that were read.
    pub(super) fn found(outputs: &[&'o LogOutput], rows: impl Iterator<Item = SqliteRow>) -> Result<OutputStates<'o>> {
        let mut by_output = HashMap::with_capacity(outputs.len());
        for row in rows {
            let (nth, owner, next): (i64, String, Option<i64>) = FromRow::from_row(&row).map_err(failed)?;
            by_output.insert(outputs[nth as usize], OutputState { owner, next: next.map(Offset), has_moved: false });
        }
        Ok(OutputStates { by_output })
    }

    /// Advances an output to `next`, over the events at these offsets, and returns how many of these are settled
    /// already; `None` if the output is another's by now.
    pub(super) fn advance(&mut self, output: &LogOutput, owner: Uuid, offsets: &[Offset], next: Offset) -> Option<usize> {
        let state = self.by_output.get_mut(output).filter(|state| state.owner == owner.to_string())?;
        let settled = state.next.map_or(0, |settled| offsets.partition_point(|offset| *offset < settled));
        if state.next < Some(next) {
            state.next = Some(next);
            state.has_moved = true;
        }
        Some(settled)
    }

    /// Adds the statements that write how far the outputs are that were advanced.
    pub(super) fn write(&self, statements: &mut Statements) {
        let moved: Vec<(&LogOutput, i64)> = self
            .by_output
            .iter()
            .filter(|(_, state)| state.has_moved)
            .filter_map(|(output, state)| Some((*output, state.next?.0)))
            .collect();
        for moved in moved.chunks(ROWS_AT_ONCE) {
            let sql = statements.next();
            sql.push("INSERT INTO output (group_name, sink, identity, topic, number, next_offset) ");
            sql.push_values(moved, |mut row, (output, next)| {
                push_key(&mut row, output);
                row.push_bind(*next);
            });
            sql.push(" ON CONFLICT (group_name, sink, identity, topic, number) DO UPDATE SET next_offset = excluded.next_offset");
        }
    }
}

/// The key of an output, in the order in which all statements name it.
fn push_key(row: &mut Separated<'_, Sqlite, &'static str>, output: &LogOutput) {
    row.push_bind(&output.group).push_bind(&*output.sink).push_bind(&output.identity);
    row.push_bind(&*output.source.topic).push_bind(output.source.partition);
}

/// The error of an append to an output that has another owner by now.
pub(super) fn taken_by_another(output: &LogOutput) -> Error {
    Error::conflict("the output was taken over by another worker").with("sink", &output.sink).with("partition", &output.source)
}
