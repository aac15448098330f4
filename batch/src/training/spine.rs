//! The rows of a spine: read once, sorted by time, and taken as far as they can be answered.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimestampMicrosecondType, UInt64Type};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use engine::states::KeyCodec;
use futures::TryStreamExt;
use types::sql_types::timestamp_type;
use types::tiles::Micros;
use types::{Error, Result};

use super::{HELP, Training};
use crate::external_sort::sorted;
use crate::history::WantedKeys;

/// The number of a row in the spine.
pub(super) const NUMBER: &str = "__row";

/// Rows as they are read.
pub type SpineRows = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// The rows for which views are asked. Each batch has the spine's own columns, then the keys of each view, in the order
/// of the views and of their keys and with the keys' types, then the time
/// ([`timestamp_type`](types::sql_types::timestamp_type)). Keys and times are not NULL.
pub struct Spine {
    own: SchemaRef,
    rows: SpineRows,
}

impl Spine {
    /// `own`: the spine's own columns.
    pub fn new(own: SchemaRef, rows: SpineRows) -> Spine {
        Spine { own, rows }
    }

    pub fn own(&self) -> &SchemaRef {
        &self.own
    }
}

impl std::fmt::Debug for Spine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spine").field("own", &self.own).finish_non_exhaustive()
    }
}

/// The least and the greatest time of a spine's rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpineTimes {
    pub(super) first: Micros,
    pub(super) last: Micros,
}

/// Facts about a spine that are known once it is read.
#[derive(Debug)]
pub(super) struct SpineFacts {
    pub(super) rows: u64,
    /// `None` without rows.
    pub(super) times: Option<SpineTimes>,
    /// The keys of each view; `None` for a linked view, because a walk from a key may lead to any edge.
    pub(super) keys: Vec<Option<WantedKeys>>,
    codecs: Vec<Arc<KeyCodec>>,
    pub(super) reserved: MemoryReservation,
}

/// Collects the facts while the rows are read.
pub(super) type SharedFacts = Arc<Mutex<Option<SpineFacts>>>;

/// Takes the facts of rows that have been read.
pub(super) fn read(facts: SharedFacts) -> Result<SpineFacts> {
    let read = facts.lock().unwrap_or_else(PoisonError::into_inner).take();
    read.ok_or_else(|| Error::internal("the facts of a spine are taken twice"))
}

/// Reads the rows and sorts them by time, each with its number.
pub(super) fn by_time(
    spine: Spine,
    training: &Training,
    memory: &Arc<dyn MemoryPool>,
    context: Arc<TaskContext>,
) -> Result<(SpineCursor, SharedFacts)> {
    let mut fields: Vec<Arc<Field>> = spine.own.fields().iter().cloned().collect();
    let keys = training.views().flat_map(|view| view.plan.answer_keys());
    fields.extend(keys.map(|key| Arc::new(Field::new(format!("__{}", key.name()), key.data_type().clone(), false))));
    let time = fields.len();
    fields.push(Arc::new(time_field()));
    fields.push(Arc::new(Field::new(NUMBER, DataType::UInt64, false)));
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let codecs: Vec<Arc<KeyCodec>> = training.views().map(|view| view.codec.clone()).collect();
    let facts = SpineFacts {
        rows: 0,
        times: None,
        keys: training.views().map(|view| view.plan.links().is_none().then(WantedKeys::default)).collect(),
        codecs,
        reserved: MemoryConsumer::new("keys of a spine").register(memory),
    };
    let of_rows = Layout::new(training, spine.own.fields().len());
    let layout = of_rows.clone();
    let facts = Arc::new(Mutex::new(Some(facts)));
    let mut stream = RecordBatchReceiverStream::builder(schema.clone(), 2);
    let (send, noted) = (stream.tx(), facts.clone());
    stream.spawn_blocking(move || {
        for rows in spine.rows {
            let rows = with_numbers(&schema, &rows.map_err(DataFusionError::from)?, &noted, &layout)?;
            if send.blocking_send(Ok(rows)).is_err() {
                // No more rows are wanted.
                return Ok(());
            }
        }
        Ok(())
    });
    Ok((SpineCursor { rows: sorted(stream.build(), [time, time + 1], context)?, layout: of_rows, batch: None, from: 0 }, facts))
}

/// The type of a row's time.
fn time_field() -> Field {
    Field::new("__t", timestamp_type(), false)
}

/// Adds the numbers, and notes the facts.
fn with_numbers(schema: &SchemaRef, rows: &RecordBatch, facts: &Mutex<Option<SpineFacts>>, layout: &Layout) -> Result<RecordBatch> {
    let mut facts = facts.lock().unwrap_or_else(PoisonError::into_inner);
    let facts = facts.as_mut().ok_or_else(|| Error::internal("a spine is read after its facts are taken"))?;
    let first = facts.rows;
    facts.note(rows, layout)?;
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(UInt64Array::from_iter_values(first..facts.rows)));
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

impl SpineFacts {
    fn note(&mut self, rows: &RecordBatch, layout: &Layout) -> Result<()> {
        self.rows += rows.num_rows() as u64;
        for time in times(rows.column(layout.time()))? {
            let SpineTimes { first, last } = self.times.unwrap_or(SpineTimes { first: *time, last: *time });
            self.times = Some(SpineTimes { first: first.min(*time), last: last.max(*time) });
        }
        let mut added = 0;
        for (view, codec) in self.codecs.iter().enumerate() {
            let Some(keys) = &mut self.keys[view] else { continue };
            for key in codec.encode(&rows.columns()[layout.keys(view)], rows.num_rows())?.iter().flatten() {
                added += keys.add(key);
            }
        }
        self.reserved.try_grow(added).map_err(|error| {
            Error::unavailable("the keys of the spine need more than the memory limit leaves")
                .with("setting", "batch.memory_limit")
                .with("help", HELP)
                .caused_by(Error::from(error))
        })
    }
}

/// The places of the columns in a batch.
#[derive(Debug, Clone)]
struct Layout {
    own: usize,
    /// How many keys each view has.
    keys: Vec<usize>,
}

impl Layout {
    fn new(training: &Training, own: usize) -> Layout {
        Layout { own, keys: training.views().map(|view| view.plan.answer_keys().len()).collect() }
    }

    fn keys(&self, view: usize) -> std::ops::Range<usize> {
        let from = self.own + self.keys[..view].iter().sum::<usize>();
        from..from + self.keys[view]
    }

    fn time(&self) -> usize {
        self.own + self.keys.iter().sum::<usize>()
    }
}

/// Rows of the spine that are answered together.
#[derive(Debug)]
pub(super) struct SpineBatch {
    pub(super) own: Vec<ArrayRef>,
    /// The keys of each view.
    pub(super) keys: Vec<Vec<ArrayRef>>,
    pub(super) times: Vec<Micros>,
    pub(super) numbers: Vec<u64>,
}

/// Rows that are sorted by time, and how far they are answered.
pub(super) struct SpineCursor {
    rows: SendableRecordBatchStream,
    layout: Layout,
    batch: Option<RecordBatch>,
    from: usize,
}

impl SpineCursor {
    /// Makes sure that there is a row, unless none is left.
    pub(super) async fn fill(&mut self) -> Result<()> {
        while self.batch.as_ref().is_none_or(|batch| self.from == batch.num_rows()) {
            let Some(batch) = self.rows.try_next().await? else {
                self.batch = None;
                return Ok(());
            };
            (self.batch, self.from) = (Some(batch), 0);
        }
        Ok(())
    }

    /// The time of the next row.
    pub(super) async fn first_time(&mut self) -> Result<Option<Micros>> {
        self.fill().await?;
        let Some(batch) = &self.batch else { return Ok(None) };
        Ok(Some(times(batch.column(self.layout.time()))?[self.from]))
    }

    /// Takes the next rows, as long as `is_taken` holds for their times, at most `limit`.
    pub(super) async fn take_while(&mut self, limit: usize, is_taken: impl Fn(Micros) -> bool) -> Result<Option<SpineBatch>> {
        self.fill().await?;
        let Some(batch) = &self.batch else { return Ok(None) };
        let times = &times(batch.column(self.layout.time()))?[self.from..];
        let times = &times[..times.len().min(limit)];
        let count = times.partition_point(|time| is_taken(*time));
        if count == 0 {
            return Ok(None);
        }
        let rows = batch.slice(self.from, count);
        let taken = SpineBatch {
            own: rows.columns()[..self.layout.own].to_vec(),
            keys: (0..self.layout.keys.len()).map(|view| rows.columns()[self.layout.keys(view)].to_vec()).collect(),
            times: times[..count].to_vec(),
            numbers: rows.column(self.layout.time() + 1).as_primitive::<UInt64Type>().values().to_vec(),
        };
        self.from += count;
        Ok(Some(taken))
    }
}

fn times(column: &ArrayRef) -> Result<&[Micros]> {
    let times = column.as_primitive_opt::<TimestampMicrosecondType>().filter(|times| times.null_count() == 0);
    Ok(times.ok_or_else(|| Error::internal("the rows of a spine have no times"))?.values())
}
