//! Makes the record of one event on request: computed at once and stored nowhere, or appended and awaited.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use committed::registry::LiveSink;
use engine::events::{Decoder, EventBatchBuilder};
use engine::parameters::UsedParameters;
use engine::plan::planning_session;
use engine::sinks::SinkPlan;
use event_log::{NewRecord, TopicPartition};
use futures::future::BoxFuture;
use serving::{First, Outcome, ReadView, ScoreMeta, Scored, Scorer, ServingClock, Stored};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use types::columns::EVENT_TIME;
use types::record::Record;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};

use crate::Sinks;
use crate::features::{Chunk, FeatureReader};
use crate::kept::Scratch;
use crate::outcomes::{DecidedBatch, Provenance, RecentOutcome, RecordRequest, outcome_of};
use crate::record::RecordWriter;
use crate::worker::{answerable, joined_views, offsets_of, times_in};

/// How long a number of partitions is used before the log is asked again.
const COUNTS_ASKED: Duration = Duration::from_secs(10);

impl Scorer for Sinks {
    fn score<'a>(&'a self, read_view: &'a ReadView, sink: &'a LiveSink, event: &'a NewRecord) -> BoxFuture<'a, Result<Scored>> {
        Box::pin(self.score_event(read_view, sink, event))
    }

    fn check_workers<'a>(&'a self, sink: &'a LiveSink) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.check_partitions(sink))
    }

    fn append<'a>(&'a self, sink: &'a LiveSink, event: NewRecord, within: Duration) -> BoxFuture<'a, Result<Stored>> {
        Box::pin(self.append_and_wait(sink, event, within))
    }
}

impl Sinks {
    async fn score_event(&self, read_view: &ReadView, sink: &LiveSink, event: &NewRecord) -> Result<Scored> {
        let plan = sink.planned()?.clone();
        let mut scratch = self.scratch(sink, &plan)?;
        let scored = self.score_with(&mut scratch, read_view, (sink, &plan), event).await;
        if scored.is_ok() {
            let mut kept = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|name, _| read_view.loaded.registry.sinks.iter().any(|live| live.name == *name));
            kept.entry(sink.name.clone()).or_default().push(scratch);
        }
        scored
    }

    async fn check_partitions(&self, sink: &LiveSink) -> Result<()> {
        let plan = sink.planned()?.clone();
        let (topic, stream) = (&plan.stream.topic, &plan.stream.name);
        let here = self.outcomes.assigned(topic).len();
        if here > 0 && here == self.partition_count(topic).await? {
            return Ok(());
        }
        let message = format!(
            "the workers of this process have only {here} of the partitions of the stream \"{stream}\": records of events in the others \
             are not seen here"
        );
        let help = format!(
            "send the event to POST /v1/streams/{stream}/events and read the topic '{}', or ask the process that has all of them",
            sink.definition.topic
        );
        Err(Error::conflict(message).with("help", help))
    }

    async fn append_and_wait(&self, sink: &LiveSink, event: NewRecord, within: Duration) -> Result<Stored> {
        let stream = sink.planned()?.stream.clone();
        let decoder = Decoder::new(stream.clone())?;
        let id = decoder.decode(event.value.as_deref()).ok().and_then(|event| event.id().map(|id| Arc::from(&*id)));
        // The client may hang up. The task still waits for the record, so that sending the event again returns it.
        let appending = self.clone().append_event((sink.name.clone(), stream.topic.clone()), event, id);
        let AppendedEvent { source, offset, asked, mut decisions } = tokio::spawn(appending).await??;
        let deciding = decided_outcome(&mut decisions, &sink.name, (&source, offset));
        let found = tokio::time::timeout(within, deciding).await.ok().flatten();
        let repeated = found.as_ref().filter(|(_, outcome, _)| *outcome == Outcome::Duplicate).zip(asked.as_ref());
        let first = repeated.and_then(|((.., decided), asked)| self.outcomes.first(asked, decided, offset));
        // The caller has the right to what this version reads. Another version may have joined other views.
        let first = first.filter(|first| first.by.version == sink.version);
        let first = first.map(|RecentOutcome { offset, by: Provenance { version, parameters }, outcome, .. }| First {
            offset,
            version,
            parameters,
            outcome,
        });
        let (by, outcome) = found.map_or((None, None), |(by, outcome, _)| (by, Some(outcome)));
        let (version, parameters) = by.map_or((sink.version, UsedParameters::new()), |by| (by.version, by.parameters));
        let partition = PartitionId::new(stream.name.clone(), source.partition);
        Ok(Stored { partition, offset, version, parameters, outcome, first })
    }
}

/// Waits for what a sink makes of the event at this place; `None` if no worker is left. Also returns the batch that the
/// decision is a part of.
async fn decided_outcome(
    decisions: &mut broadcast::Receiver<Arc<DecidedBatch>>,
    sink: &str,
    (source, offset): (&TopicPartition, Offset),
) -> Option<(Option<Provenance>, Outcome, Arc<DecidedBatch>)> {
    loop {
        match decisions.recv().await {
            Ok(decided) => {
                if let Some((by, outcome)) = decided.outcome(sink, source, offset) {
                    return Some((by, outcome, decided));
                }
            }
            // The decision may have been among those that were dropped.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

/// An event in the log, and where its outcome is received.
struct AppendedEvent {
    source: TopicPartition,
    offset: Offset,
    /// `None` for an event without an id, which cannot be repeated.
    asked: Option<RecordRequest>,
    decisions: broadcast::Receiver<Arc<DecidedBatch>>,
}

impl Sinks {
    async fn append_event(self, (sink, topic): (Arc<str>, Arc<str>), event: NewRecord, id: Option<Arc<str>>) -> Result<AppendedEvent> {
        let fingerprint = self.outcomes.fingerprint(event.value.as_deref().unwrap_or_default());
        // Before the append, so that a decision that comes at once is not missed.
        let (decisions, sent) = (self.outcomes.listen(), self.outcomes.listen());
        let places = self.log.append(&topic, vec![event]).await?;
        let (partition, offset) = *places.first().ok_or_else(|| Error::internal("an append has no place"))?;
        let source = TopicPartition { topic, partition };
        let asked = id.map(|id| RecordRequest { sink, source: source.clone(), id, fingerprint });
        if let Some(asked) = &asked {
            self.outcomes.keep(asked.clone(), offset, sent);
        }
        Ok(AppendedEvent { source, offset, asked, decisions })
    }

    /// The number of a topic's partitions. The log is asked only now and then: the number grows seldom, and Kafka is
    /// asked about each partition.
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
            seen: FeatureReader::default(),
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
        scratch.seen.add(&events).await?;
        let chunk = Chunk { read_view, events: &events, times: &times };
        let rows = scratch.seen.rows(sink, plan, &chunk, 0)?;
        let records = plan.records(&events, &rows, &read_view.vector.to_string(), &chunk.times_array(0))?;
        let source = TopicPartition { topic: plan.stream.topic.clone(), partition: 0 };
        let writer = RecordWriter { sink, plan, partition: &source, events: &events, offsets: offsets_of(&events)? };
        let value = writer.records(&records)?.pop().and_then(|(_, record)| record.value);
        let meta = ScoreMeta::new(read_view, sink, &names, times[0])?;
        Ok(Scored { outcome: value.map_or(Outcome::Filtered, outcome_of), meta })
    }
}

/// The event as the speed layer would decode it if it were the only one of its partition.
fn event_batch(scratch: &mut Scratch, event: &NewRecord, now: Micros) -> Result<RecordBatch> {
    let NewRecord { key, value, headers, .. } = event.clone();
    let record = Record { offset: Offset(0), timestamp: now, key, value, headers };
    let decoded = scratch.decoder.decode(record.value.as_deref()).map_err(|error| Error::input(error.to_string()))?;
    scratch.builder.append(&decoded, 0, &record)?;
    scratch.builder.finish()
}

fn event_time_of(events: &RecordBatch) -> Result<Micros> {
    let times = times_in(events, EVENT_TIME)?;
    times.first().copied().ok_or_else(|| Error::internal("a batch of one event is empty"))
}

/// The greatest event time that the views have.
fn newest(read_view: &ReadView, views: &[Arc<str>]) -> Result<Option<Micros>> {
    let times = views.iter().map(|view| Ok(read_view.max_event_time(read_view.live(view)?))).collect::<Result<Vec<_>>>()?;
    Ok(times.into_iter().flatten().max())
}
