//! Backtests: what a sink says of archived events, each with the rows of views as it saw them when it came.
//!
//! ```text
//! archive -- sort (order) --> events one after another --+-- states of events before (seen) --> rows of views
//!                                                        +---------------------------------------- SELECT --> scored rows
//! ```
//!
//! The events pass once, in the order in which they became known, and are never asked for one by one. The sort spills.
//! The states of the views' keys are held in memory, under the limit of the batch layer: a backtest that needs more ends
//! with an error.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array, new_null_array};
use arrow::compute::{concat, take, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimestampMicrosecondType};
use catalog::CatalogState;
use committed::registry::{LiveSink, Registry};
use definitions::Features;
use engine::plan::{Answering, planning_session};
use engine::sinks::{Records, SinkPlan};
use futures::TryStreamExt;
use types::columns::{EVENT_TIME, OFFSET, PARTITION};
use types::sql_types::timestamp_type;
use types::tiles::Micros;
use types::{Error, Result};

use crate::layer::Batch;
use crate::memory::PeakPool;
use crate::session::open_session;

mod order;
mod seen;

use order::{CLOCK, NEWEST};
use seen::SeenStates;

/// Events that are evaluated together.
const CHUNK: usize = 2_048;

/// What counts as known when an event is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// What had arrived: in an event's own partition the offsets before its own, in the others what the log received
    /// before it.
    Log,
    /// What is dated before, whenever it arrived.
    Event,
}

/// For which time the windows of an event's rows are read, with [`Known::Log`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacktestClock {
    /// When the log received the event.
    Wall,
    /// The greatest event time of the event's partition up to it.
    Event,
}

/// A sink over a range of event times.
#[derive(Debug)]
pub struct Backtest<'a> {
    pub registry: &'a Registry,
    pub sink: &'a LiveSink,
    /// The first event time that is scored.
    pub from: Micros,
    /// The first event time that is not.
    pub to: Micros,
    pub known: Known,
    pub clock: BacktestClock,
}

/// Where a scored event is, beside the columns of the sink.
const PLACE: [(&str, &str); 3] = [("_partition", PARTITION), ("_offset", OFFSET), ("_event_time", EVENT_TIME)];
/// Why the SELECT failed on an event, whose other columns are NULL.
const ERROR: &str = "_error";

/// Called with scored rows.
pub type OnRows<'a> = dyn FnMut(&RecordBatch) -> Result<()> + Send + 'a;

impl Backtest<'_> {
    /// The columns of scored rows: those of the sink, then `_partition`, `_offset`, `_event_time` and `_error`.
    pub fn output(&self) -> Result<SchemaRef> {
        Ok(output(&*self.plan()?))
    }

    fn plan(&self) -> Result<Arc<SinkPlan>> {
        self.sink.plan.clone().map_err(|found| Error::input(format!("the sink \"{}\" cannot be planned: {found}", self.sink.name)))
    }

    /// Refuses views whose rows do not follow from one pass over the events of the sink's stream.
    fn check(&self, plan: &SinkPlan) -> Result<()> {
        for join in &plan.joins {
            let view = &join.plan.view;
            if !matches!(join.plan.answering, Answering::Grouped(_)) {
                return Err(Error::input(format!("the view \"{view}\" links events to one another, which a backtest does not follow"))
                    .with("expected", "a sink over views with GROUP BY alone"));
            }
            if let Some(other) = join.plan.streams.iter().find(|stream| stream.name != plan.stream.name) {
                return Err(Error::input(format!("the view \"{view}\" reads the stream \"{}\" too", other.name))
                    .with("expected", format!("views over \"{}\", the stream of the sink, alone", plan.stream.name)));
            }
        }
        Ok(())
    }

    /// The time for which each event's rows are read.
    fn times<'e>(&self, events: &'e RecordBatch) -> Result<&'e [Micros]> {
        micros(
            events,
            match (self.known, self.clock) {
                (Known::Event, _) => EVENT_TIME,
                (Known::Log, BacktestClock::Event) => NEWEST,
                (Known::Log, BacktestClock::Wall) => CLOCK,
            },
        )
    }
}

impl Batch {
    /// Scores the events of a range, in the order in which they became known. Returns how many have a row. `on_read` is
    /// called with the number of events that have passed.
    ///
    /// Errors: `Input` for a sink that joins linked views or views over other streams; `Unavailable` if the states of its
    /// views need more than the memory limit.
    pub async fn backtest(
        &self,
        state: &CatalogState,
        backtest: &Backtest<'_>,
        on_rows: &mut OnRows<'_>,
        on_read: &(dyn Fn(u64) + Sync),
    ) -> Result<u64> {
        let plan = backtest.plan()?;
        backtest.check(&plan)?;
        let pool = Arc::new(PeakPool::new(self.settings.memory_limit_bytes));
        let session = open_session(&self.settings, &self.storage, &self.functions, pool.clone())?;
        let before = (backtest.known == Known::Event).then_some(backtest.to);
        let mut events = order::ordered(&session, (&self.storage, state), &plan.stream, backtest.known, before).await?;
        let position = state.vector().to_string();
        let mut seen = SeenStates::new(backtest.registry, &plan, &planning_session(&self.functions)?, pool)?;
        let (mut read, mut scored) = (0, 0);
        while let Some(batch) = events.try_next().await? {
            for from in (0..batch.num_rows()).step_by(CHUNK) {
                let chunk = batch.slice(from, CHUNK.min(batch.num_rows() - from));
                seen.add(&chunk).await?;
                let rows = score(backtest, &plan, &seen, &chunk, &position)?;
                scored += rows.num_rows() as u64;
                if rows.num_rows() > 0 {
                    on_rows(&rows)?;
                }
                read += chunk.num_rows() as u64;
                on_read(read);
            }
        }
        Ok(scored)
    }
}

/// The rows of those events of a chunk that are in the range.
fn score(backtest: &Backtest<'_>, plan: &SinkPlan, seen: &SeenStates, chunk: &RecordBatch, position: &str) -> Result<RecordBatch> {
    let range = backtest.from..backtest.to;
    let in_range = micros(chunk, EVENT_TIME)?.iter().enumerate().filter(|(_, time)| range.contains(*time));
    let chosen: Vec<u32> = in_range.map(|(event, _)| event as u32).collect();
    if chosen.is_empty() {
        return Ok(RecordBatch::new_empty(output(plan)));
    }
    let itself = u32::from(backtest.sink.definition.features == Features::Inclusive);
    let counted: Vec<u32> = chosen.iter().map(|event| event + itself).collect();
    let all_times = backtest.times(chunk)?;
    let times: Vec<Micros> = chosen.iter().map(|event| all_times[*event as usize]).collect();
    let events = take_record_batch(chunk, &UInt32Array::from(chosen))?;
    let rows = plan.joins.iter().map(|join| seen.rows(join, &plan.stream, &events, &times, &counted)).collect::<Result<Vec<_>>>()?;
    let as_of: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"));
    placed(plan, &events, &plan.records(&events, &rows, position, &as_of)?)
}

/// The rows of events with their places, those on which the SELECT failed among them, in the order of the events.
fn placed(plan: &SinkPlan, events: &RecordBatch, records: &Records) -> Result<RecordBatch> {
    let failed = records.failed.iter().map(|failed| failed.event);
    let of_events: Vec<u32> = records.events.iter().copied().chain(failed).collect();
    let mut order: Vec<u32> = (0..of_events.len() as u32).collect();
    order.sort_unstable_by_key(|row| of_events[*row as usize]);
    let order = UInt32Array::from(order);
    let of_events = UInt32Array::from(of_events);
    let missing = records.failed.len();
    let mut columns = Vec::with_capacity(plan.output.fields().len() + PLACE.len() + 1);
    for column in records.rows.columns() {
        let nothing = new_null_array(column.data_type(), missing);
        columns.push(take(&concat(&[column, &nothing])?, &order, None)?);
    }
    for (_, name) in PLACE {
        let column = events.column_by_name(name).ok_or_else(|| Error::internal(format!("events lack {name}")))?;
        columns.push(take(&take(column, &of_events, None)?, &order, None)?);
    }
    let reasons = std::iter::repeat_n(None, records.events.len()).chain(records.failed.iter().map(|failed| Some(&*failed.reason)));
    columns.push(take(&StringArray::from_iter(reasons), &order, None)?);
    Ok(RecordBatch::try_new(output(plan), columns)?)
}

/// The columns of a sink, NULL where its SELECT fails, and the places of its events.
fn output(plan: &SinkPlan) -> SchemaRef {
    let own = plan.output.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let types = [DataType::Int32, DataType::Int64, timestamp_type()];
    let place = PLACE.iter().zip(types).map(|((name, _), data_type)| Field::new(*name, data_type, false));
    Arc::new(Schema::new(own.chain(place).chain([Field::new(ERROR, DataType::Utf8, true)]).collect::<Vec<_>>()))
}

fn micros<'e>(events: &'e RecordBatch, name: &str) -> Result<&'e [Micros]> {
    let column = events.column_by_name(name).and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    Ok(column.ok_or_else(|| Error::internal(format!("events lack {name}")))?.values())
}
