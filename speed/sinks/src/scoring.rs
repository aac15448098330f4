//! The record of one event on request: computed at once and stored nowhere, or appended and awaited.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use async_trait::async_trait;
use committed::registry::LiveSink;
use datafusion::prelude::SessionContext;
use engine::events::{Decoder, EventBatchBuilder};
use engine::plan::planning_session;
use engine::sinks::SinkPlan;
use event_log::{NewRecord, TopicPartition};
use serving::{Outcome, ReadView, ScoreMeta, Scored, Scorer, ServingClock, Stored};
use tokio::sync::broadcast::error::RecvError;
use types::columns::EVENT_TIME;
use types::record::Record;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};

use crate::Sinks;
use crate::features::{Chunk, Seen};
use crate::outcomes::outcome_of;
use crate::record::Writer;
use crate::worker::{answerable, broken, joined_views, offsets_of};

/// What is kept between two questions to a sink: planning takes longer than computing. One for each question under way.
pub(crate) type Scratches = Mutex<HashMap<Arc<str>, Vec<Scratch>>>;

/// The number of each topic's partitions, and when the log was asked for it.
pub(crate) type PartitionCounts = Mutex<HashMap<Arc<str>, (usize, Instant)>>;

/// How long a number of partitions is believed.
const COUNTS_ASKED: Duration = Duration::from_secs(10);

pub(crate) struct Scratch {
    version: u32,
    decoder: Decoder,
    builder: EventBatchBuilder,
    session: SessionContext,
    seen: Seen,
}

#[async_trait]
impl Scorer for Sinks {
    async fn score(&self, read_view: &ReadView, sink: &LiveSink, event: &NewRecord) -> Result<Scored> {
        let plan = sink.plan.clone().map_err(|found| broken(sink, &found))?;
        let mut scratch = self.scratch(sink, &plan)?;
        let scored = self.score_with(&mut scratch, read_view, (sink, &plan), event).await;
        if scored.is_ok() {
            let mut kept = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|name, _| read_view.loaded.registry.sinks.iter().any(|live| live.name == *name));
            kept.entry(sink.name.clone()).or_default().push(scratch);
        }
        scored
    }

    async fn check_workers(&self, sink: &LiveSink) -> Result<()> {
        let plan = sink.plan.clone().map_err(|found| broken(sink, &found))?;
        let (topic, stream) = (&plan.stream.topic, &plan.stream.name);
        let here = self.outcomes.claimed(topic).len();
        if here > 0 && here == self.partition_count(topic).await? {
            return Ok(());
        }
        let message = format!(
            "the workers of this process have {here} of the partitions of the stream \"{stream}\", and not all: the record of an event of \
             another one would not be seen here"
        );
        let help = format!(
            "send the event to POST /v1/streams/{stream}/events and read the topic '{}', or ask the process that has all of them",
            sink.definition.topic
        );
        Err(Error::conflict(message).with("help", help))
    }

    async fn append(&self, sink: &LiveSink, event: NewRecord, within: Duration) -> Result<Stored> {
        let plan = sink.plan.clone().map_err(|found| broken(sink, &found))?;
        let stream = &plan.stream;
        // Before the append: what comes at once is not missed.
        let mut told = self.outcomes.listen();
        let places = self.log.append(&stream.topic, vec![event]).await?;
        let (partition, offset) = *places.first().ok_or_else(|| Error::internal("an append has no place"))?;
        let source = TopicPartition { topic: stream.topic.clone(), partition };
        let outcome = async {
            loop {
                match told.recv().await {
                    Ok(decided) => match decided.outcome(&sink.name, &source, offset) {
                        Some(outcome) => return Some(outcome),
                        None => continue,
                    },
                    // It may have been among those that were dropped.
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return None,
                }
            }
        };
        let outcome = tokio::time::timeout(within, outcome).await.ok().flatten();
        let (version, outcome) = outcome.map_or((None, None), |(version, outcome)| (version, Some(outcome)));
        let partition = PartitionId::new(stream.name.clone(), partition);
        Ok(Stored { partition, offset, version: version.unwrap_or(sink.version), outcome })
    }
}

impl Sinks {
    /// The number of a topic's partitions, asked of the log now and then: it grows seldom, and Kafka answers for each
    /// partition.
    async fn partition_count(&self, topic: &Arc<str>) -> Result<usize> {
        let known = self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(topic).copied();
        if let Some((count, _)) = known.filter(|(_, asked)| asked.elapsed() < COUNTS_ASKED) {
            return Ok(count);
        }
        let count = self.log.bounds(topic).await?.len();
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), (count, Instant::now()));
        Ok(count)
    }

    fn scratch(&self, sink: &LiveSink, plan: &SinkPlan) -> Result<Scratch> {
        let mut kept = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_now = |scratch: &Scratch| scratch.version == sink.version && **scratch.decoder.definition() == *plan.stream;
        while let Some(scratch) = kept.get_mut(&sink.name).and_then(Vec::pop) {
            if is_of_now(&scratch) {
                return Ok(scratch);
            }
        }
        drop(kept);
        Ok(Scratch {
            version: sink.version,
            decoder: Decoder::new(plan.stream.clone())?,
            builder: EventBatchBuilder::new(&plan.stream),
            session: planning_session(&self.functions)?,
            seen: Seen::default(),
        })
    }

    async fn score_with(
        &self,
        scratch: &mut Scratch,
        read_view: &ReadView,
        (sink, plan): (&LiveSink, &SinkPlan),
        event: &NewRecord,
    ) -> Result<Scored> {
        let registry = &read_view.loaded.registry;
        let views = joined_views(registry, [plan])?;
        let names: Vec<Arc<str>> = views.iter().map(|(name, _)| name.clone()).collect();
        let events = event_batch(scratch, event, read_view.now)?;
        let event_time = event_time_of(&events)?;
        if event_time.saturating_sub(read_view.now) > i64::try_from(self.settings.max_future.as_micros()).unwrap_or(i64::MAX) {
            let meta = ScoreMeta::new(read_view, sink, &names, read_view.now)?;
            return Ok(Scored { outcome: Outcome::DeadLetter, meta });
        }
        let t = match read_view.clock {
            ServingClock::Wall => read_view.now,
            ServingClock::Event => newest(read_view, &names)?.unwrap_or(event_time).max(event_time),
        };
        let times = answerable(vec![t], read_view, &views)?;
        scratch.seen.begin(registry, &views, &plan.stream.name, &scratch.session)?;
        let chunk = Chunk { read_view, events: &events, times: &times };
        scratch.seen.add(&chunk).await?;
        let rows = scratch.seen.rows(sink, plan, &chunk, 0)?;
        let records = plan.records(&events, &rows, &read_view.vector.to_string(), &chunk.times_array(0))?;
        let source = TopicPartition { topic: plan.stream.topic.clone(), partition: 0 };
        let writer = Writer { sink, plan, partition: &source, events: &events, offsets: offsets_of(&events)? };
        let value = writer.records(&records)?.pop().and_then(|(_, record)| record.value);
        let meta = ScoreMeta::new(read_view, sink, &names, times[0])?;
        Ok(Scored { outcome: value.map_or(Outcome::Filtered, outcome_of), meta })
    }
}

/// The event as the speed layer would have it, if it were the only one of its partition.
fn event_batch(scratch: &mut Scratch, event: &NewRecord, now: Micros) -> Result<RecordBatch> {
    let NewRecord { key, value, headers, .. } = event.clone();
    let record = Record { offset: Offset(0), timestamp: now, key, value, headers };
    let decoded = scratch.decoder.decode(record.value.as_deref()).map_err(|error| Error::input(error.to_string()))?;
    scratch.builder.append(&decoded, 0, &record)?;
    scratch.builder.finish()
}

fn event_time_of(events: &RecordBatch) -> Result<Micros> {
    let column = events.column_by_name(EVENT_TIME).and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    let times = column.ok_or_else(|| Error::internal(format!("events lack {EVENT_TIME}")))?.values();
    times.first().copied().ok_or_else(|| Error::internal("a batch of one event is empty"))
}

/// The greatest event time that the views have.
fn newest(read_view: &ReadView, views: &[Arc<str>]) -> Result<Option<Micros>> {
    let times = views.iter().map(|view| Ok(read_view.max_event_time(read_view.live(view)?))).collect::<Result<Vec<_>>>()?;
    Ok(times.into_iter().flatten().max())
}
