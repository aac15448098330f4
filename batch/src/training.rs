//! Training data: the columns of views for rows that have keys and a time, each as of its time.
//!
//! ```text
//! spine (rows with keys, time, labels) -- sort by time --+
//! archive, by stream -- sort by time --> chunks ---------+--> states so far --> columns of views --sort by row--> rows
//! ```
//!
//! Rows and events pass once, in the order of time. Both sorts of rows spill, and so do those of events. The keys of
//! the rows and the states of these keys are held in memory, under the limit of the batch layer; of linked views, all
//! edges are held, because a walk from a key may lead to any of them.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use catalog::CatalogState;
use committed::registry::{LiveView, Registry};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::plan::{ColumnKind, planning_session};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use types::tiles::Micros;
use types::{Error, Result};

use crate::external_sort::sorted;
use crate::history::{
    Archived, CHUNK, Known, MergedChunk, MergedEvents, Order, PLACE, SeenStates, WantedRows, each_once, first_arrival, ordered,
};
use crate::layer::Batch;
use crate::memory::PeakPool;
use crate::session::open_session;

mod spine;

pub use spine::{Spine, SpineRows};

use spine::{SpineCursor, SpineFacts, SpineTimes};

/// The columns of views that rows ask for.
#[derive(Debug)]
pub struct Training {
    views: Vec<ViewColumns>,
    /// Whether an event with the very time of a row is left out.
    pub exclusive: bool,
    pub known: Known,
}

#[derive(Debug)]
struct ViewColumns {
    live: LiveView,
    /// The columns that are not keys: indices into the plan's columns.
    wanted: Vec<usize>,
}

/// The result for a spine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trained {
    pub rows: u64,
    /// With [`Known::Log`]: the first arrival of each stream that the views read.
    pub arrivals: Vec<FirstArrival>,
}

/// When the log received the first event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstArrival {
    pub stream: Arc<str>,
    /// `None`: the archive has no event of it.
    pub first: Option<Micros>,
    /// The number of rows before it, in which no event of the stream counts.
    pub rows_before: u64,
}

/// Called with the rows, in the order of the spine.
pub type OnTrainingRows<'a> = dyn FnMut(&RecordBatch) -> Result<()> + Send + 'a;

const HELP: &str = "the states of the spine's keys are held in memory: raise the limit, or split the spine by keys";
/// Batches of answered rows that wait to be sorted.
const WAITING: usize = 2;

impl Training {
    /// Errors: `NotFound` for a view that is not served; `Input` for one that is named twice.
    pub fn new(registry: &Registry, views: &[String], exclusive: bool, known: Known) -> Result<Training> {
        let mut asked: Vec<ViewColumns> = Vec::new();
        for name in views {
            let live = registry.served(name).ok_or_else(|| registry.no_view(name))?;
            if asked.iter().any(|known| known.live.name == live.name) {
                return Err(Error::input(format!("the view \"{name}\" is named twice")));
            }
            let is_wanted = |column: &usize| !matches!(live.plan.columns[*column].kind, ColumnKind::Key(_));
            let wanted = (0..live.plan.columns.len()).filter(is_wanted).collect();
            asked.push(ViewColumns { live: live.clone(), wanted });
        }
        Ok(Training { views: asked, exclusive, known })
    }

    /// Returns the views, in the order in which they were named.
    pub fn views(&self) -> impl Iterator<Item = &LiveView> {
        self.views.iter().map(|view| &view.live)
    }

    /// The columns of the rows: those of the spine, then those of each view that are not keys. If two of them would
    /// have the same name, the name of the view is put in front.
    ///
    /// Errors: `Input` if that name is taken too.
    pub fn output(&self, spine: &Spine) -> Result<SchemaRef> {
        let own = spine.own().fields();
        let columns = || self.views.iter().flat_map(|view| view.wanted.iter().map(move |column| (view, *column)));
        let name_of = |(view, column): (&ViewColumns, usize)| view.live.plan.columns[column].field.name().clone();
        let mut fields: Vec<Arc<Field>> = own.iter().cloned().collect();
        for (view, column) in columns() {
            let name = name_of((view, column));
            let is_own = own.iter().any(|field| *field.name() == name);
            let is_free = !is_own && columns().filter(|of| name_of(*of) == name).count() == 1;
            let name = if is_free { name } else { format!("{}_{name}", view.live.name) };
            if fields.iter().any(|field| *field.name() == name) {
                return Err(Error::input(format!("two columns would be named \"{name}\""))
                    .with("help", "rename the spine's column, or ask for one of the views in a run of its own"));
            }
            let field = &view.live.plan.columns[column].field;
            fields.push(Arc::new(Field::new(name, field.data_type().clone(), true)));
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    /// The streams that the views read, each once.
    fn streams(&self) -> Vec<&Arc<StreamDefinition>> {
        each_once(self.views().flat_map(|view| &view.plan.streams))
    }

    /// Whether a row with this time counts an event with that time.
    fn counts(&self, event: Micros, row: Micros) -> bool {
        if self.exclusive { event < row } else { event <= row }
    }

    /// Whether a row counts no event that is still to come, where the first one has this time.
    fn is_complete(&self, row: Micros, next: Option<Micros>) -> bool {
        next.is_none_or(|next| !self.counts(next, row))
    }
}

impl Batch {
    /// Answers the rows of a spine, in their order. `on_read` is called with the number of events that have passed.
    ///
    /// Errors: those of the spine; `Unavailable` if the states of the rows' keys need more than the memory limit.
    pub async fn training(
        &self,
        state: &CatalogState,
        training: &Training,
        spine: Spine,
        on_rows: &mut OnTrainingRows<'_>,
        on_read: &(dyn Fn(u64) + Sync),
    ) -> Result<Trained> {
        let output = training.output(&spine)?;
        let pool = Arc::new(PeakPool::new(self.settings.memory_limit_bytes));
        let session = open_session(&self.settings, &self.storage, &self.functions, pool.clone())?;
        let memory: Arc<dyn MemoryPool> = pool;
        let (mut rows, facts) = spine::by_time(spine, training, &memory, session.task_ctx())?;
        // The sort has read all rows when the first one is there.
        rows.fill().await?;
        let facts = spine::read(facts)?;
        let arrivals = self.arrivals(state, training, &session).await?;
        let events = self.events(state, training, facts.times, &session).await?;
        let mut seen = SeenStates::new(&memory, HELP);
        let planning = planning_session(&self.functions)?;
        let SpineFacts { rows: asked, keys, reserved: _keys_are_held, .. } = facts;
        for (view, keys) in training.views.iter().zip(keys) {
            seen.add_view(&view.live, &view.live.streams(), keys, &planning)?;
        }
        let (send, receive) = mpsc::channel(WAITING);
        let numbered = numbered(&output);
        let answered = answer(training, &numbered, (events, rows, seen), arrivals, send, on_read);
        let written = write(&numbered, receive, session.task_ctx(), on_rows);
        let (arrivals, count) = tokio::try_join!(answered, written)?;
        match count == asked {
            true => Ok(Trained { rows: count, arrivals }),
            false => Err(Error::internal(format!("{count} rows were answered, and the spine has {asked}"))),
        }
    }

    /// Returns the first arrival of each stream, with [`Known::Log`]. No rows are counted yet.
    async fn arrivals(&self, state: &CatalogState, training: &Training, session: &SessionContext) -> Result<Vec<FirstArrival>> {
        let mut arrivals = Vec::new();
        if training.known == Known::Event {
            return Ok(arrivals);
        }
        let archived = Archived { storage: &self.storage, state };
        for definition in training.streams() {
            let first = first_arrival(session, archived, definition).await?;
            arrivals.push(FirstArrival { stream: definition.name.clone(), first, rows_before: 0 });
        }
        Ok(arrivals)
    }

    /// The events that can count in one of the rows, in the order of time.
    async fn events(
        &self,
        state: &CatalogState,
        training: &Training,
        times: Option<SpineTimes>,
        session: &SessionContext,
    ) -> Result<MergedEvents> {
        let order = match training.known {
            Known::Event => Order::Dated,
            Known::Log => Order::DatedAndArrived,
        };
        let archived = Archived { storage: &self.storage, state };
        let mut streams: Vec<(Arc<str>, SendableRecordBatchStream)> = Vec::new();
        let Some(SpineTimes { first, last }) = times else { return Ok(MergedEvents::new(PLACE, streams)) };
        for definition in training.streams() {
            let reading = || training.views().filter(|view| view.plan.reads(&definition.name));
            // `None`, from a view without windows, is the least.
            let oldest = reading().map(|view| view.plan.oldest_kept(first)).min().flatten();
            let events = ordered(session, archived, definition, order, oldest..Some(last.saturating_add(1))).await?;
            streams.push((definition.name.clone(), events));
        }
        Ok(MergedEvents::new(PLACE, streams))
    }
}

/// Answers rows as the events pass, and counts the rows before the first event of a stream.
async fn answer(
    training: &Training,
    output: &SchemaRef,
    (mut events, mut rows, mut seen): (MergedEvents, SpineCursor, SeenStates),
    mut arrivals: Vec<FirstArrival>,
    send: mpsc::Sender<RecordBatch>,
    on_read: &(dyn Fn(u64) + Sync),
) -> Result<Vec<FirstArrival>> {
    let mut read = 0;
    while let Some(since) = rows.first_time().await? {
        let chunk = events.next().await?;
        seen.add(&chunk.parts, Some(since)).await?;
        seen.reserve()?;
        while let Some(asked) = rows.take_while(CHUNK, |row| training.is_complete(row, chunk.next)).await? {
            for arrival in &mut arrivals {
                let is_before = |row: &&Micros| arrival.first.is_none_or(|first| !training.counts(first, **row));
                arrival.rows_before += asked.times.iter().filter(is_before).count() as u64;
            }
            let answered = answered(training, output, &seen, &chunk, &asked)?;
            if send.send(answered).await.is_err() {
                // What takes the rows has failed, and says why.
                return Ok(arrivals);
            }
        }
        read += chunk.times.len() as u64;
        on_read(read);
    }
    Ok(arrivals)
}

/// Rows of the spine, with the columns of the views and the number of each row.
fn answered(
    training: &Training,
    output: &SchemaRef,
    seen: &SeenStates,
    chunk: &MergedChunk,
    asked: &spine::SpineBatch,
) -> Result<RecordBatch> {
    let counted: Vec<u32> =
        asked.times.iter().map(|row| chunk.times.partition_point(|event| training.counts(*event, *row)) as u32).collect();
    let has_key = BooleanArray::from(vec![true; asked.times.len()]);
    let mut columns: Vec<ArrayRef> = asked.own.clone();
    for (view, keys) in training.views.iter().zip(&asked.keys) {
        let of_view = WantedRows { keys, has_key: &has_key, times: &asked.times, counted: &counted };
        columns.extend(seen.rows(&view.live.view_version(), of_view, &view.wanted)?.columns().iter().cloned());
    }
    columns.push(Arc::new(UInt64Array::from(asked.numbers.clone())));
    Ok(RecordBatch::try_new(output.clone(), columns)?)
}

/// Puts answered rows into the order of the spine, and passes them on.
async fn write(
    numbered: &SchemaRef,
    receive: mpsc::Receiver<RecordBatch>,
    context: Arc<TaskContext>,
    on_rows: &mut OnTrainingRows<'_>,
) -> Result<u64> {
    let received = futures::stream::unfold(receive, |mut receive| async move { receive.recv().await.map(|rows| (Ok(rows), receive)) });
    let rows = Box::pin(RecordBatchStreamAdapter::new(numbered.clone(), received.boxed()));
    let number = numbered.fields().len() - 1;
    let mut in_order = sorted(rows, [number], context)?;
    let own: Vec<usize> = (0..number).collect();
    let mut count = 0;
    while let Some(rows) = in_order.try_next().await? {
        count += rows.num_rows() as u64;
        on_rows(&rows.project(&own)?)?;
    }
    Ok(count)
}

/// The output with the number of each row.
fn numbered(output: &SchemaRef) -> SchemaRef {
    let number = Arc::new(Field::new(spine::NUMBER, DataType::UInt64, false));
    Arc::new(Schema::new(output.fields().iter().cloned().chain([number]).collect::<Vec<_>>()))
}
