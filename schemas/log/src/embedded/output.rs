//! How far the output of a sink is, and who owns it. The transaction that appends records checks both, so that each
//! record is appended once, and none by an owner from which another one has taken the output over.

use std::collections::HashMap;

use sqlx::query::Query;
use sqlx::query_builder::Separated;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Executor, QueryBuilder, Sqlite, SqliteConnection};
use uuid::Uuid;

use super::placing::ROWS_AT_ONCE;
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

/// Returns the offset after the last event whose record was appended to an output that has an owner.
pub(super) async fn next_offset(connection: &mut SqliteConnection, output: &LogOutput) -> Result<Option<Offset>> {
    let states = OutputStates::read(connection, &[output]).await?;
    Ok(states.by_output.get(output).and_then(|state| state.next))
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
    /// The offset after the last event whose record was appended.
    next: Option<Offset>,
    has_moved: bool,
}

impl<'o> OutputStates<'o> {
    pub(super) async fn read(connection: &mut SqliteConnection, outputs: &[&'o LogOutput]) -> Result<OutputStates<'o>> {
        let mut by_output = HashMap::with_capacity(outputs.len());
        for outputs in outputs.chunks(ROWS_AT_ONCE) {
            let mut sql = QueryBuilder::<Sqlite>::new("WITH asked (nth, group_name, sink, identity, topic, number) AS (");
            sql.push_values(outputs.iter().enumerate(), |mut row, (nth, output)| {
                row.push_bind(nth as i64);
                push_key(&mut row, output);
            });
            // For each that is asked for, the keys of both tables are looked up.
            sql.push(
                ") SELECT nth, owner, next_offset FROM asked CROSS JOIN output_owner USING (group_name, sink, identity, topic, number)
                LEFT JOIN output USING (group_name, sink, identity, topic, number)",
            );
            let rows: Vec<(i64, String, Option<i64>)> = sql.build_query_as().fetch_all(&mut *connection).await.map_err(failed)?;
            let state = |(nth, owner, next): (i64, String, Option<i64>)| {
                (outputs[nth as usize], OutputState { owner, next: next.map(Offset), has_moved: false })
            };
            by_output.extend(rows.into_iter().map(state));
        }
        Ok(OutputStates { by_output })
    }

    /// Advances an output over the events at these offsets, and returns how many of their records are in the topic
    /// already; `None` if the output is another's by now.
    pub(super) fn advance(&mut self, output: &LogOutput, owner: Uuid, offsets: &[Offset]) -> Option<usize> {
        let state = self.by_output.get_mut(output).filter(|state| state.owner == owner.to_string())?;
        let appended = state.next.map_or(0, |next| offsets.partition_point(|offset| *offset < next));
        if let Some(last) = offsets[appended..].last() {
            state.next = Some(last.next());
            state.has_moved = true;
        }
        Some(appended)
    }

    /// Writes how far the outputs are that were advanced.
    pub(super) async fn write(&self, connection: &mut SqliteConnection) -> Result<()> {
        let moved: Vec<(&LogOutput, i64)> = self
            .by_output
            .iter()
            .filter(|(_, state)| state.has_moved)
            .filter_map(|(output, state)| Some((*output, state.next?.0)))
            .collect();
        for moved in moved.chunks(ROWS_AT_ONCE) {
            let mut sql = QueryBuilder::<Sqlite>::new("INSERT INTO output (group_name, sink, identity, topic, number, next_offset) ");
            sql.push_values(moved, |mut row, (output, next)| {
                push_key(&mut row, output);
                row.push_bind(*next);
            });
            sql.push(" ON CONFLICT (group_name, sink, identity, topic, number) DO UPDATE SET next_offset = excluded.next_offset");
            sql.build().execute(&mut *connection).await.map_err(failed)?;
        }
        Ok(())
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
