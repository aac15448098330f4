//! Makes the records of one partition's events, chunk by chunk.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use committed::registry::{LiveSink, Registry};
use engine::fresh::ViewVersion;
use engine::plan::planning_session;
use engine::sinks::SinkPlan;
use event_log::{NewRecord, OutputAppender, TopicPartition};
use serving::{ReadView, ServingClock};
use speed::Accepted;
use tracing::warn;
use types::columns::{EVENT_TIME, OFFSET, TIMESTAMP};
use types::tiles::Micros;
use types::vector::Offset;
use types::{Error, Result};

use super::{OutputBatch, PartitionEvents, SinkWorker};
use crate::features::{Chunk, FeatureReader, joined_views};
use crate::record::RecordWriter;
use crate::switches::first_due;

/// The records of this many events are made together. More take more memory.
const CHUNK: usize = 2_048;

impl SinkWorker {
    /// Makes the missing records of events, by the sinks that are not paused and that the outputs are switched to.
    pub(super) async fn make_of_partition(&mut self, registry: &Registry, part: &PartitionEvents<'_>) -> Result<()> {
        let accepted = part.accepted;
        let mut batches = Vec::with_capacity(part.sinks.len());
        for sink in part.sinks.iter().filter(|sink| sink.paused_since.is_none()) {
            // A sink that still waits for its views has not been switched to.
            let key = part.key(sink);
            let Some(taken) = self.taken.get(&key).filter(|taken| taken.is_switched_to(sink)) else { continue };
            let appender = self.appenders.get(&key).cloned();
            batches.push(OutputBatchBuilder {
                sink: sink.clone(),
                plan: sink.planned()?.clone(),
                source: accepted.source.clone(),
                appender: appender.ok_or_else(|| Error::internal("an output is not taken over"))?,
                next: taken.decided_before(),
                records: Vec::new(),
                end: accepted.end,
            });
        }
        if accepted.events.num_rows() > 0 && !batches.is_empty() {
            self.add_records(registry, accepted, &mut batches).await?;
        }
        let stream = &accepted.partition.stream;
        self.made.extend(batches.into_iter().map(|batch| batch.finish(stream.clone())));
        Ok(())
    }

    /// Adds the records of a partition's events to the batches of its sinks.
    async fn add_records(&mut self, registry: &Registry, accepted: &Accepted, batches: &mut [OutputBatchBuilder]) -> Result<()> {
        let views = joined_views(registry, batches.iter().map(|batch| &*batch.plan))?;
        let read_view = self.read_view(accepted, &views).await?;
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self.session.insert(planning_session(&self.sinks.functions)?).clone(),
        };
        self.seen.begin(registry, &views, &accepted.partition.stream, &session)?;
        let times = times(&read_view, accepted)?;
        // Each sink has its own times: it does not read later rows because of a view that another sink joins.
        let times_of = |batch: &OutputBatchBuilder| answerable(times.clone(), &read_view, &joined_views(registry, [&*batch.plan])?);
        let times = batches.iter().map(times_of).collect::<Result<Vec<_>>>()?;
        let position = read_view.vector.to_string();
        for from in (0..accepted.events.num_rows()).step_by(CHUNK) {
            let rows = CHUNK.min(accepted.events.num_rows() - from);
            let events = accepted.events.slice(from, rows);
            self.seen.add(&events).await?;
            for (batch, times) in batches.iter_mut().zip(&times) {
                let chunk = Chunk { read_view: &read_view, events: &events, times: &times[from..from + rows] };
                batch.add(&self.seen, &chunk, &position)?;
            }
        }
        Ok(())
    }
}

/// Builds the records of one sink and one partition, chunk by chunk.
struct OutputBatchBuilder {
    sink: LiveSink,
    plan: Arc<SinkPlan>,
    source: TopicPartition,
    appender: Arc<dyn OutputAppender>,
    next: Option<Offset>,
    records: Vec<(Offset, NewRecord)>,
    end: Offset,
}

impl OutputBatchBuilder {
    fn finish(self, stream: Arc<str>) -> OutputBatch {
        let OutputBatchBuilder { sink, source, appender, next, records, end, .. } = self;
        OutputBatch { stream, sink, source, appender, from: next, records, end }
    }

    /// Makes the missing records of a chunk's events.
    fn add(&mut self, seen: &FeatureReader, chunk: &Chunk<'_>, position: &str) -> Result<()> {
        let offsets = offsets_of(chunk.events)?;
        let first = first_due(self.next, offsets);
        if first == offsets.len() {
            return Ok(());
        }
        let rows = seen.rows(&self.sink, &self.plan, chunk, first)?;
        let left = chunk.after(first);
        let records = self.plan.records(&left, &rows, position, &chunk.times_array(first))?;
        for failed in &records.failed {
            let offset = offsets[first + failed.event as usize];
            warn!(sink = %self.sink.name, partition = %self.source, offset, reason = failed.reason, "a sink fails on an event");
        }
        metrics::counter!("basestream_speed_sink_failed_events_total", "sink" => self.sink.name.to_string())
            .increment(records.failed.len() as u64);
        let writer =
            RecordWriter { sink: &self.sink, plan: &self.plan, partition: &self.source, events: &left, offsets: &offsets[first..] };
        self.records.extend(writer.records(&records)?);
        Ok(())
    }
}

/// The time at which each event's rows are read: when the log received it, or by the clock of events the greatest event
/// time of its partition up to this event. A backtest computes the same.
fn times(read_view: &ReadView, accepted: &Accepted) -> Result<Vec<Micros>> {
    Ok(match read_view.clock {
        ServingClock::Wall => received_times(accepted.received_before, timestamps_of(&accepted.events)?, read_view.now),
        ServingClock::Event => running_maximum(accepted.newest_before, times_in(&accepted.events, EVENT_TIME)?).collect(),
    })
}

/// When the log received each event: the greatest record timestamp so far. It is not later than now: producers that set
/// the timestamps may have clocks that are ahead.
fn received_times(before: Option<Micros>, timestamps: &[Micros], now: Micros) -> Vec<Micros> {
    running_maximum(before, timestamps).map(|time| time.min(now)).collect()
}

/// The greatest time up to each of these. `before` is the greatest of those that came earlier.
fn running_maximum(before: Option<Micros>, times: &[Micros]) -> impl Iterator<Item = Micros> {
    times.iter().scan(before.unwrap_or(Micros::MIN), |greatest, time| {
        *greatest = (*greatest).max(*time);
        Some(*greatest)
    })
}

/// Replaces times for which a view's snapshot has no tiles any more, because it was made for a later time, by the
/// newest event time that the node has. All rows of an event are read at one time.
pub(crate) fn answerable(mut times: Vec<Micros>, read_view: &ReadView, views: &[ViewVersion]) -> Result<Vec<Micros>> {
    for view in views {
        let loaded = read_view.view(&view.name)?;
        let newest = read_view.t_of(&loaded.live);
        // Many events of a micro-batch have one time.
        for same in times.chunk_by_mut(|one, next| one == next) {
            let time = same[0];
            if !loaded.keeps(time) {
                same.fill(newest.max(time));
            }
        }
    }
    Ok(times)
}

pub(crate) fn offsets_of(events: &RecordBatch) -> Result<&[i64]> {
    let column = events.column_by_name(OFFSET).and_then(|column| column.as_primitive_opt::<Int64Type>());
    Ok(column.ok_or_else(|| Error::internal(format!("events lack {OFFSET}")))?.values())
}

/// When the log received each event.
pub(super) fn timestamps_of(events: &RecordBatch) -> Result<&[Micros]> {
    times_in(events, TIMESTAMP)
}

/// The times in a column of events.
pub(crate) fn times_in<'e>(events: &'e RecordBatch, name: &str) -> Result<&'e [Micros]> {
    let column = events.column_by_name(name).and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    Ok(column.ok_or_else(|| Error::internal(format!("events lack {name}")))?.values())
}

#[cfg(test)]
mod tests;
