//! Makes the record of one event on request: computed at once and stored nowhere, or appended and awaited.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use bytes::Bytes;
use committed::log_check::check_still_read;
use committed::registry::LiveSink;
use definitions::StreamDefinition;
use engine::events::{Decoder, EventBatchBuilder};
use engine::parameters::UsedParameters;
use engine::plan::planning_session;
use engine::sinks::SinkPlan;
use event_log::{NewRecord, TopicPartition};
use feed::{DecisionListener, DecisionRequest};
use futures::future::BoxFuture;
use serving::{EventOutcome, Node, ReadView, RepeatedEvent, ScoreMeta, Scored, Scorer, ServingClock, StoredEvent};
use speed::too_far_ahead;
use tokio::sync::broadcast;
use types::columns::EVENT_TIME;
use types::record::Record;
use types::tiles::{Micros, micros};
use types::vector::{Offset, PartitionId};
use types::{Error, Result};

use crate::Sinks;
use crate::elsewhere::{DecisionElsewhere, ask_elsewhere};
use crate::features::{Chunk, FeatureReader, joined_views};
use crate::outcomes::{DecidedBatch, Provenance, RecentOutcome, RecordRequest, batch_with, outcome_of};
use crate::record::RecordWriter;
use crate::scratch::Scratch;
use crate::worker::{answerable, offsets_of, times_in};

/// How long a number of partitions is used before the log is asked again.
const PARTITION_COUNT_TTL: Duration = Duration::from_secs(10);

impl Scorer for Sinks {
    fn score<'a>(&'a self, read_view: &'a ReadView, sink: &'a LiveSink, event: &'a NewRecord) -> BoxFuture<'a, Result<Scored>> {
        Box::pin(self.score_event(read_view, sink, event))
    }

    fn listen<'a>(&'a self, sink: &'a LiveSink) -> BoxFuture<'a, Result<Vec<DecisionListener>>> {
        Box::pin(self.listen_elsewhere(sink))
    }

    fn append<'a>(
        &'a self,
        sink: &'a LiveSink,
        event: NewRecord,
        elsewhere: Vec<DecisionListener>,
        within: Duration,
    ) -> BoxFuture<'a, Result<StoredEvent>> {
        Box::pin(self.append_and_wait(sink, event, elsewhere, within))
    }
}

impl Sinks {
    async fn score_event(&self, read_view: &ReadView, sink: &LiveSink, event: &NewRecord) -> Result<Scored> {
        let plan = sink.planned()?.clone();
        let mut scratch = self.scratch(sink, &plan)?;
        let scored = self.score_with(&mut scratch, read_view, (sink, &plan), event).await;
        if scored.is_ok() {
            let mut scratches = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
            scratches.retain(|name, _| read_view.loaded.registry.sinks.iter().any(|live| live.name == *name));
            scratches.entry(sink.name.clone()).or_default().push(scratch);
        }
        scored
    }

    async fn listen_elsewhere(&self, sink: &LiveSink) -> Result<Vec<DecisionListener>> {
        let plan = sink.planned()?.clone();
        let (topic, stream) = (&plan.stream.topic, &plan.stream.name);
        let mut reached = self.outcomes.assigned(topic);
        let lacking = self.lacking(topic, &reached).await?;
        if lacking.is_empty() {
            return Ok(Vec::new());
        }
        let node = self.node.borrow().clone();
        let asked = match node {
            Some(node) => node.listen_to_workers(topic, &lacking).await,
            None => Vec::new(),
        };
        let (mut listeners, mut unreached) = (Vec::new(), None);
        for listener in asked {
            match listener {
                Ok(listener) => {
                    reached.extend(&listener.partitions);
                    listeners.push(listener);
                }
                Err(error) => unreached = unreached.or(Some(error)),
            }
        }
        if self.lacking(topic, &reached).await?.is_empty() {
            return Ok(listeners);
        }
        let message = format!(
            "the workers that this process reaches have only {} of the partitions of the stream \"{stream}\": records of events in the \
             others are not seen here",
            reached.len()
        );
        let help = format!(
            "send the event to POST /v1/streams/{stream}/events and read the topic '{}', or have this process follow the workers of others \
             (speed.flight there, serving.fresh = 'stream' here)",
            sink.definition.topic
        );
        Err(match unreached {
            Some(unreached) => Error::unavailable(message).caused_by(unreached),
            None => Error::conflict(message),
        }
        .with("help", help))
    }

    /// The partitions of a topic that are not among these. A topic that is not there lacks its first one.
    async fn lacking(&self, topic: &Arc<str>, reached: &BTreeSet<i32>) -> Result<BTreeSet<i32>> {
        let count = self.partition_count(topic).await?.max(1);
        Ok((0_i32..).take(count).filter(|partition| !reached.contains(partition)).collect())
    }

    async fn append_and_wait(
        &self,
        sink: &LiveSink,
        event: NewRecord,
        elsewhere: Vec<DecisionListener>,
        within: Duration,
    ) -> Result<StoredEvent> {
        let stream = sink.planned()?.stream.clone();
        let id = id_of(&stream, &event)?;
        // The client may hang up. The task still waits for the record, so that sending the event again returns it.
        let appending = self.clone().append_event((sink.name.clone(), stream.clone()), (event, id), elsewhere);
        let mut appended = tokio::spawn(appending).await??;
        let decided = tokio::time::timeout(within, appended.wait_for_decision(&sink.name)).await.ok().flatten();
        let first = decided.as_ref().and_then(|decided| self.first_of_duplicate(sink, &appended, decided));
        let partition = PartitionId::new(stream.name.clone(), appended.source.partition);
        Ok(stored(sink, (partition, appended.offset), decided, first))
    }

    /// The event that a duplicate repeats, if it is still known and this version of the sink made its record: the
    /// caller has the right to what this version reads, and another version may have joined other views.
    fn first_of_duplicate(&self, sink: &LiveSink, appended: &AppendedEvent, decided: &Decided) -> Option<RepeatedEvent> {
        let asked = appended.asked.as_ref().filter(|_| decided.outcome == EventOutcome::Duplicate)?;
        let first = self.outcomes.first(asked, &decided.batch, appended.offset)?;
        let RecentOutcome { offset, by: Provenance { version, parameters }, outcome, .. } = first;
        if version != sink.version {
            return None;
        }
        Some(RepeatedEvent { offset, version, parameters, outcome })
    }
}

/// The id of an event. `None` if it has none, or cannot be decoded.
fn id_of(stream: &Arc<StreamDefinition>, event: &NewRecord) -> Result<Option<Arc<str>>> {
    let decoder = Decoder::new(stream.clone())?;
    let id = decoder.decode(event.value.as_deref()).ok().and_then(|event| event.id().map(|id| Arc::from(&*id)));
    Ok(id)
}

fn stored(
    sink: &LiveSink,
    (partition, offset): (PartitionId, Offset),
    decided: Option<Decided>,
    first: Option<RepeatedEvent>,
) -> StoredEvent {
    let (by, outcome) = decided.map_or((None, None), |decided| (decided.by, Some(decided.outcome)));
    let (version, parameters) = by.map_or((sink.version, UsedParameters::new()), |by| (by.version, by.parameters));
    StoredEvent { partition, offset, version, parameters, outcome, first }
}

/// What a sink made of an event.
struct Decided {
    by: Option<Provenance>,
    outcome: EventOutcome,
    /// What the decision is a part of.
    batch: Arc<DecidedBatch>,
}

/// An event in the log, and where its outcome is received.
struct AppendedEvent {
    source: TopicPartition,
    offset: Offset,
    /// `None` for an event without an id, which cannot be repeated.
    asked: Option<RecordRequest>,
    decisions: broadcast::Receiver<Arc<DecidedBatch>>,
    /// `None` if only workers of this process may have the partition.
    elsewhere: Option<DecisionElsewhere>,
}

impl AppendedEvent {
    /// Waits for what a sink makes of the event. `None` if no worker is left.
    async fn wait_for_decision(&mut self, sink: &str) -> Option<Decided> {
        let AppendedEvent { source, offset, decisions, elsewhere, .. } = self;
        let elsewhere = async move {
            match elsewhere {
                Some(elsewhere) => elsewhere.await.ok(),
                None => None,
            }
        };
        let batch = tokio::select! {
            batch = batch_with(decisions, source, *offset) => batch?,
            // If no other process decides it, the partition may still come to this one.
            Some(batch) = elsewhere => batch,
        };
        let (by, outcome) = batch.outcome(sink, source, *offset)?;
        Some(Decided { by, outcome, batch })
    }
}

impl Sinks {
    async fn append_event(
        self,
        (sink, stream): (Arc<str>, Arc<StreamDefinition>),
        (event, id): (NewRecord, Option<Arc<str>>),
        listeners: Vec<DecisionListener>,
    ) -> Result<AppendedEvent> {
        let fingerprint = self.outcomes.fingerprint(event.value.as_deref().unwrap_or_default());
        // Before the append, so that a decision that comes at once is not missed.
        let topic = stream.topic.clone();
        let (decisions, sent) = (self.outcomes.listen(&topic), self.outcomes.listen(&topic));
        let places = self.log.append(&topic, vec![event]).await?;
        let loaded = self.node.borrow().as_ref().and_then(Node::loaded);
        let known = loaded.as_ref().map(|loaded| (&*loaded.state, &*loaded.registry));
        check_still_read(&self.catalog, known, &stream).await?;
        let (partition, offset) = *places.first().ok_or_else(|| Error::internal("an append has no place"))?;
        let source = TopicPartition { topic, partition };
        let asked = id.map(|id| RecordRequest { sink: sink.clone(), source: source.clone(), id, fingerprint });
        if let Some(asked) = &asked {
            self.outcomes.keep(asked.clone(), offset, sent);
        }
        let is_here = self.outcomes.assigned(&source.topic).contains(&partition);
        let listeners = if is_here { Vec::new() } else { listeners };
        let event = DecisionRequest { sink, topic: source.topic.clone(), partition, offset };
        let elsewhere = ask_elsewhere(&self.outcomes, listeners, event);
        Ok(AppendedEvent { source, offset, asked, decisions, elsewhere })
    }

    /// The number of a topic's partitions. The log is asked only now and then: the number grows seldom, and Kafka is
    /// asked about each partition.
    async fn partition_count(&self, topic: &Arc<str>) -> Result<usize> {
        let known = self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(topic).copied();
        if let Some((count, _)) = known.filter(|(_, asked)| asked.elapsed() < PARTITION_COUNT_TTL) {
            return Ok(count);
        }
        let count = self.log.bounds(topic).await?.len();
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), (count, Instant::now()));
        Ok(count)
    }

    fn scratch(&self, sink: &LiveSink, plan: &SinkPlan) -> Result<Scratch> {
        let mut scratches = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_now = |scratch: &Scratch| scratch.version == sink.version && **scratch.decoder.definition() == *plan.stream;
        while let Some(scratch) = scratches.get_mut(&sink.name).and_then(Vec::pop) {
            if is_of_now(&scratch) {
                return Ok(scratch);
            }
        }
        drop(scratches);
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
        let names: Vec<Arc<str>> = views.iter().map(|view| view.name.clone()).collect();
        let events = event_batch(scratch, event, read_view.now)?;
        let event_time = event_time_of(&events)?;
        // The speed layer would not accept the event.
        if too_far_ahead(event_time, read_view.now, "the node's clock", micros(self.settings.max_future)).is_some() {
            let meta = ScoreMeta::new(read_view, sink, &names, read_view.now)?;
            return Ok(Scored { outcome: EventOutcome::DeadLetter, meta });
        }
        let times = answerable(vec![time_of_answer(read_view, &plan.stream.name, event_time)], read_view, &views)?;
        scratch.seen.begin(registry, &views, &plan.stream.name, &scratch.session)?;
        scratch.seen.add(&events).await?;
        let chunk = Chunk { read_view, events: &events, times: &times };
        let record = record_of_event(&scratch.seen, (sink, plan), &chunk)?;
        let meta = ScoreMeta::new(read_view, sink, &names, times[0])?;
        Ok(Scored { outcome: record.map_or(EventOutcome::Filtered, outcome_of), meta })
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

/// The time for which the views are read: by the clock of events, what an event of the stream has that is read now.
/// A worker counts the time of each partition by itself.
fn time_of_answer(read_view: &ReadView, stream: &str, event_time: Micros) -> Micros {
    match read_view.clock {
        ServingClock::Wall => read_view.now,
        ServingClock::Event => read_view.newest_event(|name| *name == *stream).map_or(event_time, |newest| newest.max(event_time)),
    }
}

/// The record of the only event of a chunk. `None` if the sink's WHERE leaves it out.
fn record_of_event(seen: &FeatureReader, (sink, plan): (&LiveSink, &SinkPlan), chunk: &Chunk<'_>) -> Result<Option<Bytes>> {
    let rows = seen.rows(sink, plan, chunk, 0)?;
    let records = plan.records(chunk.events, &rows, &chunk.read_view.vector.to_string(), &chunk.times_array(0))?;
    let source = TopicPartition { topic: plan.stream.topic.clone(), partition: 0 };
    let writer = RecordWriter { sink, plan, partition: &source, events: chunk.events, offsets: offsets_of(chunk.events)? };
    let record = writer.records(&records)?.pop();
    Ok(record.and_then(|(_, record)| record.value))
}

#[cfg(test)]
mod tests;
