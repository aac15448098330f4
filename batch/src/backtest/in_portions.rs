//! Scores events where the states of all keys do not fit into memory.
//!
//! ```text
//! archive -- sort --> file of events --+-- states of one portion of the keys --> files of rows, by number of event
//!                                      |   (again for each portion)                       |
//!                                      +-- events -------------------------------- merge --> scored rows
//! ```
//!
//! The row that an event sees depends only on the states of its key, so the portions do not affect it.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use types::{Error, Result};

use super::BacktestProgress;
use super::batch_file::{BatchFile, BatchFileWriter, FileBatches};
use super::chosen::Chosen;
use super::context::BacktestContext;
use super::pass::EventPass;
use super::portion::{Portion, PortionError};
use super::scored_keys::ScoredKeys;
use super::scoring::Scoring;
use crate::history::{MergedEvents, SeenStates};

/// Each portion has a file for each view that a sink joins, and all of them are read at the same time.
const MOST_BUCKETS: u32 = 64;
/// The column with the number of the scored event that sees a row.
const NUMBER: &str = "__number";

/// Scores the events that `scoring` has not scored yet.
///
/// Errors: `Unavailable` if the states of the linked views need more than the memory limit, or if a portion of the keys
/// that cannot be divided further does.
pub(super) async fn score_in_portions(context: &BacktestContext<'_>, scoring: &mut Scoring<'_>) -> Result<()> {
    let events = SortedEvents::sort(context).await?;
    let mut rows = rows_in_portions(context, &events, scoring.events).await?;
    let (mut merged, mut read, mut number) = (events.of_sink(context)?, 0, 0);
    loop {
        let chunk = merged.next().await?;
        if chunk.times.is_empty() {
            return Ok(());
        }
        for part in &chunk.parts {
            let chosen = Chosen::in_range(context.backtest, part, number)?;
            number += chosen.count() as u64;
            let chosen = chosen.starting_at(scoring.events);
            if chosen.count() > 0 {
                let numbers = chosen.first..chosen.first + chosen.count() as u64;
                let rows = rows.iter_mut().map(|rows| rows.take(&numbers)).collect::<Result<Vec<_>>>()?;
                scoring.score(&chosen, &rows)?;
            }
        }
        read += chunk.times.len() as u64;
        (context.on_progress)(BacktestProgress::Scoring(read));
    }
}

/// Computes the rows of each joined view that the events from this number on see.
async fn rows_in_portions(context: &BacktestContext<'_>, events: &SortedEvents, first: u64) -> Result<Vec<RowsInOrder>> {
    let mut rows: Vec<RowsInOrder> = context.plans.joins().map(|_| RowsInOrder::default()).collect();
    let mut buckets = 2;
    // The last one is the next one.
    let mut pending = vec![Portion::Bucket { bucket: 1, buckets }, Portion::Bucket { bucket: 0, buckets }];
    if context.plans.views()?.values().any(|live| Portion::Linked.has_view(live)) {
        pending.push(Portion::Linked);
    }
    let mut done = 0;
    while let Some(portion) = pending.pop() {
        let parts = done + pending.len() as u64 + 1;
        let progress = move |events| BacktestProgress::ReadingPart { part: done + 1, parts, events };
        match rows_of_portion(context, events, (portion, first), &progress).await {
            Ok(files) => {
                for (rows, file) in rows.iter_mut().zip(files) {
                    rows.parts.extend(file.map(|file| RowsOfPortion::open(&file)).transpose()?);
                }
                done += 1;
            }
            Err(PortionError::Exceeds(_)) if portion != Portion::Linked && buckets < MOST_BUCKETS => {
                pending.push(portion);
                pending = pending.into_iter().flat_map(halves).collect();
                buckets *= 2;
            }
            Err(PortionError::Exceeds(error) | PortionError::Failed(error)) => return Err(error),
        }
    }
    Ok(rows)
}

/// Returns the two buckets to which the keys of a bucket are divided if there are twice as many.
fn halves(portion: Portion) -> Vec<Portion> {
    let Portion::Bucket { bucket, buckets } = portion else { return vec![portion] };
    [bucket + buckets, bucket].map(|bucket| Portion::Bucket { bucket, buckets: 2 * buckets }).to_vec()
}

/// Computes the rows of a portion. Returns a file for each join, if any event asks for a row of it.
async fn rows_of_portion(
    context: &BacktestContext<'_>,
    events: &SortedEvents,
    (portion, first): (Portion, u64),
    progress: &(dyn Fn(u64) -> BacktestProgress + Sync),
) -> Result<Vec<Option<BatchFile>>, PortionError> {
    let keys = ScoredKeys::find(context, portion, events.of_stream(&context.plans.stream().name)?, first).await?;
    let mut files: Vec<Option<BatchFileWriter>> = context.plans.joins().map(|_| None).collect();
    let mut on_chosen = |chosen: &Chosen, seen: &SeenStates| {
        for ((planned, join), file) in context.plans.joins().zip(&mut files) {
            if !portion.has_view(planned.joined(join)?) {
                continue;
            }
            let asking = chosen.asking((planned, join), portion)?;
            if !asking.events.is_empty() {
                let numbers = asking.events.iter().map(|event| chosen.first + u64::from(*event)).collect();
                let rows = with_numbers(numbers, &chosen.rows((planned, join), &asking, seen)?)?;
                let file = match file {
                    Some(file) => file,
                    None => file.insert(BatchFileWriter::create(&context.folder, &rows.schema())?),
                };
                file.write(&rows)?;
            }
        }
        Ok(())
    };
    EventPass { portion, keys, first, progress }.run(context, events.merged()?, &mut on_chosen).await?;
    Ok(files.into_iter().map(|file| file.map(BatchFileWriter::finish).transpose()).collect::<Result<_>>()?)
}

fn with_numbers(numbers: Vec<u64>, rows: &RecordBatch) -> Result<RecordBatch> {
    let number = Arc::new(Field::new(NUMBER, DataType::UInt64, false));
    let schema = Schema::new([number].into_iter().chain(rows.schema_ref().fields().iter().cloned()).collect::<Vec<_>>());
    let numbers: ArrayRef = Arc::new(UInt64Array::from(numbers));
    Ok(RecordBatch::try_new(Arc::new(schema), [numbers].into_iter().chain(rows.columns().iter().cloned()).collect())?)
}

/// The events of all streams, in files.
struct SortedEvents {
    /// The column that each is sorted by.
    by: &'static str,
    streams: Vec<(Arc<str>, BatchFile)>,
}

impl SortedEvents {
    async fn sort(context: &BacktestContext<'_>) -> Result<SortedEvents> {
        let (mut streams, mut read) = (Vec::new(), 0);
        for stream in context.plans.streams() {
            let mut events = context.sorted(stream).await?;
            let mut file = BatchFileWriter::create(&context.folder, &events.schema())?;
            while let Some(batch) = events.try_next().await? {
                file.write(&batch)?;
                read += batch.num_rows() as u64;
                (context.on_progress)(BacktestProgress::Sorting(read));
            }
            streams.push((stream.name.clone(), file.finish()?));
        }
        Ok(SortedEvents { by: context.backtest.event_order().by, streams })
    }

    fn merged(&self) -> Result<MergedEvents> {
        let streams = self.streams.iter().map(|(name, file)| Ok((name.clone(), stream_of(file)?)));
        Ok(MergedEvents::new(self.by, streams.collect::<Result<_>>()?))
    }

    /// The events of the sink's stream alone, in chunks.
    fn of_sink(&self, context: &BacktestContext<'_>) -> Result<MergedEvents> {
        let name = &context.plans.stream().name;
        Ok(MergedEvents::new(self.by, vec![(name.clone(), self.of_stream(name)?)]))
    }

    fn of_stream(&self, name: &str) -> Result<SendableRecordBatchStream> {
        let (_, file) =
            self.streams.iter().find(|(stream, _)| **stream == *name).ok_or_else(|| Error::internal("a stream is not sorted"))?;
        stream_of(file)
    }
}

fn stream_of(file: &BatchFile) -> Result<SendableRecordBatchStream> {
    let batches = file.read()?;
    let schema = batches.schema();
    let batches = futures::stream::iter(batches).map_err(DataFusionError::from);
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

/// The rows of one view, of all portions, in the order of the events.
#[derive(Default)]
struct RowsInOrder {
    parts: Vec<RowsOfPortion>,
}

/// The rows of one view that one portion has, in the order of the events.
struct RowsOfPortion {
    batches: FileBatches,
    /// The rows of the last batch that are not taken yet.
    rest: Option<RecordBatch>,
}

impl RowsInOrder {
    /// Takes the rows that the events with these numbers see. These events follow those of the previous call.
    fn take(&mut self, numbers: &Range<u64>) -> Result<RecordBatch> {
        let mut found = Vec::new();
        for part in &mut self.parts {
            part.take_before(numbers.end, &mut found)?;
        }
        let mut places = vec![None; (numbers.end - numbers.start) as usize];
        for (batch, rows) in found.iter().enumerate() {
            for (row, number) in numbers_of(rows).iter().enumerate() {
                places[(number - numbers.start) as usize] = Some((batch, row));
            }
        }
        let places = places.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| Error::internal("an event has no row of a view"))?;
        let rows = interleave_record_batch(&found.iter().collect::<Vec<_>>(), &places)?;
        Ok(rows.project(&(1..rows.num_columns()).collect::<Vec<_>>())?)
    }
}

impl RowsOfPortion {
    fn open(file: &BatchFile) -> Result<RowsOfPortion> {
        Ok(RowsOfPortion { batches: file.read()?, rest: None })
    }

    /// Takes the rows of the events before this number.
    fn take_before(&mut self, end: u64, found: &mut Vec<RecordBatch>) -> Result<()> {
        loop {
            let next = match self.rest.take() {
                Some(rest) => Some(rest),
                None => self.batches.next().transpose()?,
            };
            let Some(rows) = next else { return Ok(()) };
            let count = numbers_of(&rows).partition_point(|number| *number < end);
            if count > 0 {
                found.push(rows.slice(0, count));
            }
            if count < rows.num_rows() {
                self.rest = Some(rows.slice(count, rows.num_rows() - count));
                return Ok(());
            }
        }
    }
}

fn numbers_of(rows: &RecordBatch) -> &[u64] {
    rows.column(0).as_primitive::<UInt64Type>().values()
}
