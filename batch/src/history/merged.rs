//! The events of several streams in one order, chunk by chunk.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use types::Result;
use types::tiles::Micros;

use super::times::micros;

/// Events that are evaluated together.
pub(crate) const CHUNK: usize = 2_048;

/// Streams of events, each sorted by the same column of times.
pub(crate) struct MergedEvents {
    by: &'static str,
    streams: Vec<OneStream>,
}

struct OneStream {
    name: Arc<str>,
    events: SendableRecordBatchStream,
    batch: Option<RecordBatch>,
    /// The first event of the batch that has not passed.
    from: usize,
}

/// Consecutive events.
#[derive(Debug)]
pub(crate) struct MergedChunk {
    pub(crate) parts: Vec<StreamEvents>,
    /// The times of all events in order: of the event with the place 0, 1, ..
    pub(crate) times: Vec<Micros>,
    /// The time of the first event after them. `None`: they are the last ones.
    pub(crate) next: Option<Micros>,
}

/// The events of one stream in a chunk.
#[derive(Debug)]
pub(crate) struct StreamEvents {
    pub(crate) stream: Arc<str>,
    pub(crate) events: RecordBatch,
    /// The place of each event among all events of the chunk, ascending.
    pub(crate) places: Vec<u32>,
}

impl MergedEvents {
    /// `by`: the column that the streams are sorted by.
    pub(crate) fn new(by: &'static str, streams: Vec<(Arc<str>, SendableRecordBatchStream)>) -> Self {
        let streams = streams.into_iter().map(|(name, events)| OneStream { name, events, batch: None, from: 0 }).collect();
        Self { by, streams }
    }

    /// Returns the next events: at most [`CHUNK`] of each stream, and none that is later than an event which is left
    /// for the next chunk. Of events with the same time, those of the first stream come first. An empty chunk is the
    /// end.
    pub(crate) async fn next(&mut self) -> Result<MergedChunk> {
        let mut last: Option<(Micros, usize)> = None;
        for (index, stream) in self.streams.iter_mut().enumerate() {
            stream.fill().await?;
            let last_of_stream = stream.times(self.by)?.last().map(|time| (*time, index));
            last = [last, last_of_stream].into_iter().flatten().min();
        }
        let (mut parts, mut in_order) = (Vec::new(), Vec::new());
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let times = stream.times(self.by)?;
            let count = last.map_or(0, |last| times.partition_point(|time| (*time, index) <= last));
            in_order.extend(times[..count].iter().enumerate().map(|(event, time)| (*time, parts.len(), event)));
            parts.extend(stream.take(count));
        }
        in_order.sort_unstable();
        for (place, (_, part, _)) in in_order.iter().enumerate() {
            // The events of one part are in order.
            parts[*part].places.push(place as u32);
        }
        let mut next = None;
        for stream in &mut self.streams {
            stream.fill().await?;
            next = [next, stream.times(self.by)?.first().copied()].into_iter().flatten().min();
        }
        Ok(MergedChunk { parts, times: in_order.into_iter().map(|(time, ..)| time).collect(), next })
    }
}

impl OneStream {
    /// Makes sure that there is an event, unless none is left.
    async fn fill(&mut self) -> Result<()> {
        while self.batch.as_ref().is_none_or(|batch| self.from == batch.num_rows()) {
            let Some(batch) = self.events.try_next().await? else {
                self.batch = None;
                return Ok(());
            };
            (self.batch, self.from) = (Some(batch), 0);
        }
        Ok(())
    }

    /// Returns the times of the next events.
    fn times(&self, by: &str) -> Result<&[Micros]> {
        let Some(batch) = &self.batch else { return Ok(&[]) };
        let times = &micros(batch, by)?[self.from..];
        Ok(&times[..times.len().min(CHUNK)])
    }

    fn take(&mut self, count: usize) -> Option<StreamEvents> {
        let batch = self.batch.as_ref().filter(|_| count > 0)?;
        let events = batch.slice(self.from, count);
        self.from += count;
        Some(StreamEvents { stream: self.name.clone(), events, places: Vec::with_capacity(count) })
    }
}

#[cfg(test)]
mod tests;
