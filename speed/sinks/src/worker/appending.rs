//! Appends the records of a micro-batch to the log, on a task of its own: the worker goes on with the next micro-batch
//! meanwhile.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;

use committed::registry::LiveSink;
use event_log::TopicPartition;
use futures::future::join_all;
use types::Result;
use types::vector::Offset;

use super::stalls::stall;
use super::{OutputBatch, OutputKey, SinkWorker};
use crate::Sinks;
use crate::outcomes::{DecidedBatch, Provenance, SinkRecords};

/// What came of the append of one sink's and one partition's records.
pub(super) struct AppendedBatch {
    output: OutputKey,
    stream: Arc<str>,
    sink: LiveSink,
    /// The events before it are settled.
    next: Result<Offset>,
}

impl SinkWorker {
    /// Begins to append the records that were made, once those before them are out. Where clients wait, the log also
    /// notes that the events behind the last record are settled: a verdict such as `filtered` that nothing in the log
    /// holds could become another one after a crash, because the next worker may decide by another version. Where none
    /// waits, the next worker may decide them anew: it may read a dead letter as an event, which then has its record.
    pub(super) async fn begin_append_of_made(&mut self) -> Result<()> {
        self.finish_append().await?;
        let decided = std::mem::take(&mut self.decided);
        let made: Vec<OutputBatch> = std::mem::take(&mut self.made);
        let decided: Vec<DecidedBatch> = decided.into_iter().map(|decided| with_records(decided, &made)).collect();
        let is_asked = |made: &OutputBatch| decided.iter().any(|decided| decided.source == made.source);
        let to_append = |made: OutputBatch| if is_asked(&made) { Some(made) } else { made.up_to_its_last_record() };
        let made: Vec<OutputBatch> = made.into_iter().filter_map(to_append).collect();
        if !made.is_empty() || !decided.is_empty() {
            let append = append_all(self.sinks.clone(), made, decided);
            self.appending = Some(tokio::spawn(append));
        }
        Ok(())
    }

    /// Waits for the append that is under way.
    pub(super) async fn finish_append(&mut self) -> Result<()> {
        let Some(appending) = &mut self.appending else { return Ok(()) };
        // It stays until its outcome is known: this future may be dropped before.
        let outcome = appending.await;
        self.appending = None;
        let mut first = Ok(());
        let appended = match outcome {
            Err(panicked) if panicked.is_panic() => resume_unwind(panicked.into_panic()),
            outcome => outcome?,
        };
        for AppendedBatch { output, stream, sink, next } in appended {
            match next {
                Ok(next) => {
                    if let Some(taken) = self.taken.get_mut(&output) {
                        // The worker before may have settled more than this one has decided by now.
                        taken.next = taken.next.max(Some(next));
                    }
                }
                Err(error) => {
                    // It is not known any more what is out: the output has to be taken over again.
                    self.retain_outputs(|key| *key != output);
                    self.stalls.extend(stall(&stream, &sink, &error));
                    first = first.and(Err(error.with("sink", &sink.name).with("topic", &sink.definition.topic)));
                }
            }
        }
        first
    }
}

/// Outputs are independent of each other: the log may take them together.
async fn append_all(sinks: Sinks, made: Vec<OutputBatch>, decided: Vec<DecidedBatch>) -> Vec<AppendedBatch> {
    let mut by_partition: BTreeMap<TopicPartition, (Vec<OutputBatch>, Vec<DecidedBatch>)> = BTreeMap::new();
    for made in made {
        by_partition.entry(made.source.clone()).or_default().0.push(made);
    }
    for decided in decided {
        by_partition.entry(decided.source.clone()).or_default().1.push(decided);
    }
    let append = |(made, decided)| append_of_partition(&sinks, made, decided);
    join_all(by_partition.into_values().map(append)).await.into_iter().flatten().collect()
}

/// Waiting clients hear of what was decided about a partition's events as soon as all sinks have settled these in the
/// log, even if those of other partitions are not settled, or the worker has ended meanwhile.
async fn append_of_partition(sinks: &Sinks, made: Vec<OutputBatch>, decided: Vec<DecidedBatch>) -> Vec<AppendedBatch> {
    let appended = join_all(made.into_iter().map(OutputBatch::append)).await;
    if appended.iter().all(|appended| appended.next.is_ok()) {
        decided.into_iter().for_each(|decided| sinks.outcomes.publish(decided));
    }
    appended
}

impl OutputBatch {
    /// `None` if it has no record.
    fn up_to_its_last_record(self) -> Option<Self> {
        let end = self.records.last()?.0.next();
        Some(Self { end, ..self })
    }

    async fn append(mut self) -> AppendedBatch {
        let next = self.append_once().await.map(|()| self.end);
        AppendedBatch { output: (self.sink.name.clone(), self.source), stream: self.stream, sink: self.sink, next }
    }

    /// Appends the records, which it gives away. It is tried once: after an error the outcome is not known, and the
    /// output has to be taken over again.
    async fn append_once(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.records);
        let count = records.len() as u64;
        let (began, topic) = (Instant::now(), &self.sink.definition.topic);
        self.appender.append(topic, records, self.end).await?;
        let name = self.sink.name.to_string();
        metrics::counter!("basestream_speed_sink_records_total", "sink" => name.clone()).increment(count);
        metrics::histogram!("basestream_speed_sink_append_seconds", "sink" => name).record(began.elapsed().as_secs_f64());
        Ok(())
    }
}

/// A decision with the records that were made of it.
fn with_records(decided: DecidedBatch, made: &[OutputBatch]) -> DecidedBatch {
    let of_partition = made.iter().filter(|made| made.source == decided.source);
    let put_out = |made: &OutputBatch| {
        let parameters = made.sink.plan.as_ref().map(|plan| plan.parameters.clone()).unwrap_or_default();
        let by = Provenance { version: made.sink.version, parameters };
        SinkRecords { sink: made.sink.name.clone(), by, from: made.from, records: made.records.clone() }
    };
    DecidedBatch { sinks: of_partition.map(put_out).collect(), ..decided }
}

#[cfg(test)]
mod tests;
