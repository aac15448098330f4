//! One worker's sinks: which events have no record yet, chunk by chunk, and putting the records out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use async_trait::async_trait;
use committed::registry::{LiveSink, Registry};
use datafusion::prelude::SessionContext;
use engine::fresh::ViewVersion;
use engine::plan::planning_session;
use engine::sinks::SinkPlan;
use event_log::{NewRecord, Output, TopicPartition};
use futures::future::join_all;
use serving::{Node, ReadView, ServingClock};
use speed::{Accepted, Stall, WorkerSinks};
use tracing::warn;
use types::columns::{EVENT_TIME, OFFSET};
use types::tiles::Micros;
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

use crate::Sinks;
use crate::features::{Chunk, Seen};
use crate::outcomes::{Claims, Decided, PutOut};
use crate::record::Writer;

/// Events that are made together. More take more memory.
const CHUNK: usize = 2_048;
/// The same where a view is linked: each event walks over the edges that the events before it in its chunk have added.
const CHUNK_OF_WALKS: usize = 256;
/// How long to wait for a node that has not loaded yet what the worker has.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for a log that takes no records.
const PATIENCE_WITH_LOG: Duration = Duration::from_secs(5);
/// The same two, each at most this long where a sink failed before: the other streams of the worker wait meanwhile.
const PATIENCE_IN_TRIAL: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct OfWorker {
    sinks: Sinks,
    session: Option<SessionContext>,
    seen: Seen,
    /// The offset after the last event whose record is out, of the outputs that were taken over.
    taken: BTreeMap<(Arc<str>, TopicPartition), Option<Offset>>,
    made: Vec<Made>,
    /// What was decided, for those who wait for the records of their events.
    decided: Vec<Decided>,
    claims: Claims,
    is_trial: bool,
    /// The sinks that failed.
    stalls: Vec<Stall>,
}

/// The records of one sink and one partition.
struct Made {
    stream: Arc<str>,
    sink: LiveSink,
    output: Output,
    /// The records of events before it are out already.
    from: Option<Offset>,
    records: Vec<(Offset, NewRecord)>,
}

#[async_trait]
impl WorkerSinks for OfWorker {
    async fn make(&mut self, registry: &Registry, accepted: Vec<Accepted>) -> Result<()> {
        self.made.clear();
        self.decided.clear();
        self.make_all(registry, accepted).await.map_err(worth_another_try)
    }

    async fn put_out(&mut self) -> Result<()> {
        let decided = std::mem::take(&mut self.decided);
        let made: Vec<Made> = std::mem::take(&mut self.made);
        let decided: Vec<Decided> = decided.into_iter().map(|decided| with_records(decided, &made)).collect();
        let made: Vec<Made> = made.into_iter().filter(|made| !made.records.is_empty()).collect();
        // Outputs are independent of one another: the log may take them together.
        let outcomes = join_all(made.iter().map(|made| made.append(&self.sinks))).await;
        let mut first = Ok(());
        for (made, outcome) in made.into_iter().zip(outcomes) {
            let key = (made.sink.name.clone(), made.output.source.clone());
            match outcome {
                Ok(next) => drop(self.taken.insert(key, Some(next))),
                Err(error) => {
                    // What is out has to be found out anew.
                    self.taken.remove(&key);
                    self.stalls.extend(stall(&made.stream, &made.sink, &error));
                    first = first.and(Err(error.with("sink", &made.sink.name).with("topic", &made.sink.definition.topic)));
                }
            }
        }
        if first.is_ok() {
            decided.into_iter().for_each(|decided| self.sinks.outcomes.tell(decided));
        }
        first.map_err(worth_another_try)
    }

    fn take_over(&mut self, partitions: &[TopicPartition]) {
        self.claims.add(partitions);
    }

    fn take_stalls(&mut self) -> Vec<Stall> {
        std::mem::take(&mut self.stalls)
    }

    fn let_go(&mut self, partitions: &[TopicPartition]) {
        self.claims.remove(partitions);
        self.taken.retain(|(_, source), _| !partitions.contains(source));
        partitions.iter().for_each(|source| self.sinks.log.let_go_outputs(source));
    }
}

impl OfWorker {
    pub(crate) fn new(sinks: Sinks, is_trial: bool) -> OfWorker {
        OfWorker {
            claims: sinks.outcomes.claims(),
            sinks,
            session: None,
            seen: Seen::default(),
            taken: BTreeMap::new(),
            made: Vec::new(),
            decided: Vec::new(),
            is_trial,
            stalls: Vec::new(),
        }
    }

    async fn make_all(&mut self, registry: &Registry, accepted: Vec<Accepted>) -> Result<()> {
        for of_partition in accepted {
            if self.sinks.outcomes.is_heard() {
                self.decided.push(decided(&of_partition)?);
            }
            if of_partition.events.num_rows() == 0 {
                continue;
            }
            let stream = &of_partition.partition.stream;
            let of_stream = |sink: &&LiveSink| match &sink.plan {
                Ok(plan) => plan.stream.name == *stream,
                // Where it is not known which stream it reads, nothing is put out until it is mended.
                Err(_) => sink.reads.as_ref().is_none_or(|reads| reads == stream),
            };
            let sinks: Vec<LiveSink> = registry.sinks.iter().filter(of_stream).cloned().collect();
            let Some(first) = sinks.first() else { continue };
            if let Err(error) = self.make_of_partition(registry, &sinks, &of_partition).await {
                let failed = sinks.iter().find(|sink| error.fact("sink") == Some(&*sink.name)).unwrap_or(first);
                self.stalls.extend(stall(stream, failed, &error));
                return Err(error);
            }
        }
        Ok(())
    }

    async fn make_of_partition(&mut self, registry: &Registry, sinks: &[LiveSink], accepted: &Accepted) -> Result<()> {
        let (mut due, node) = (Vec::with_capacity(sinks.len()), self.node().await?);
        for sink in sinks {
            let plan = sink.plan.clone().map_err(|found| broken(sink, &found))?;
            let output = self.output_of(sink, accepted);
            let next = self.taken_over(sink, &output).await.map_err(|error| error.with("sink", &sink.name))?;
            // It has not begun, and begins once its views can be answered: a run builds them, which may take long.
            let is_waiting = next.is_none() && joined_views(registry, [&*plan])?.iter().any(|view| node.is_building(view));
            if !is_waiting {
                due.push(Due { sink: sink.clone(), plan, output, next, records: Vec::new() });
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        let views = joined_views(registry, due.iter().map(|due| &*due.plan))?;
        let read_view = self.read_view(accepted, &views).await?;
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self.session.insert(planning_session(&self.sinks.functions)?).clone(),
        };
        self.seen.begin(registry, &views, &accepted.partition.stream, &session)?;
        let times = answerable(times(&read_view, accepted)?, &read_view, &views)?;
        let position = read_view.vector.to_string();
        let chunk = chunk_of(&read_view, &views)?;
        for from in (0..accepted.events.num_rows()).step_by(chunk) {
            let rows = chunk.min(accepted.events.num_rows() - from);
            let events = accepted.events.slice(from, rows);
            let chunk = Chunk { read_view: &read_view, events: &events, times: &times[from..from + rows] };
            self.seen.add(&chunk).await?;
            for due in &mut due {
                due.make(&self.seen, &chunk, &position)?;
            }
        }
        let stream = &accepted.partition.stream;
        self.made.extend(due.into_iter().map(|due| due.made(stream.clone())));
        Ok(())
    }

    fn output_of(&self, sink: &LiveSink, accepted: &Accepted) -> Output {
        let (group, source, identity) = (self.sinks.settings.group.clone(), accepted.source.clone(), accepted.identity.clone());
        Output { group, sink: sink.name.clone(), source, identity }
    }

    /// How far an output is; takes it over if this worker has not yet.
    async fn taken_over(&mut self, sink: &LiveSink, output: &Output) -> Result<Option<Offset>> {
        let key = (sink.name.clone(), output.source.clone());
        if let Some(next) = self.taken.get(&key) {
            return Ok(*next);
        }
        let (log, topic) = (&self.sinks.log, &sink.definition.topic);
        let next = patiently("an output is not taken over yet", self.patience(PATIENCE_WITH_LOG), || async {
            log.create_topic(topic, self.sinks.settings.partitions).await?;
            log.take_output(output).await
        })
        .await?;
        self.taken.insert(key, next);
        Ok(next)
    }

    /// A read view that ends where the events begin. The node follows the worker: it may be a moment behind.
    async fn read_view(&self, accepted: &Accepted, views: &[ViewVersion]) -> Result<ReadView> {
        let node = &self.node().await?;
        let patience = self.patience(PATIENCE);
        patiently("the views of a sink cannot be read yet", patience, || node.read_view_at(&accepted.partition, accepted.start, views))
            .await
    }

    /// The node that reads the views. A process that had no sinks opens one when the first is applied.
    async fn node(&self) -> Result<Node> {
        let not_yet = || Error::unavailable("the node that reads the views of sinks is not open yet");
        let mut node = self.sinks.node.clone();
        let opened = tokio::time::timeout(self.patience(PATIENCE), node.wait_for(Option::is_some)).await.map_err(|_| not_yet())?;
        opened.map_err(|_| not_yet())?.clone().ok_or_else(not_yet)
    }

    fn patience(&self, most: Duration) -> Duration {
        if self.is_trial { most.min(PATIENCE_IN_TRIAL) } else { most }
    }
}

impl Made {
    /// Returns the offset after the last event. Tried once: after an error the outcome is not known, and the output has to
    /// be taken over again.
    async fn append(&self, sinks: &Sinks) -> Result<Offset> {
        let (began, topic) = (Instant::now(), &self.sink.definition.topic);
        sinks.log.append_output(topic, &self.output, self.records.clone()).await?;
        let name = self.sink.name.to_string();
        metrics::counter!("basestream_speed_sink_records_total", "sink" => name.clone()).increment(self.records.len() as u64);
        metrics::histogram!("basestream_speed_sink_append_seconds", "sink" => name).record(began.elapsed().as_secs_f64());
        self.records.last().map(|(offset, _)| offset.next()).ok_or_else(|| Error::internal("an append of no record"))
    }
}

/// Whatever a sink fails on (a topic that was deleted, a right that is missing, a limit), its worker begins again and says
/// so: the records of its events come once the cause is gone, and other parts of the process go on.
fn worth_another_try(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Conflict => error,
        _ => Error::unavailable("the records of a sink cannot be made or put out").caused_by(error),
    }
}

/// What was decided in a partition's micro-batch, still without records.
fn decided(accepted: &Accepted) -> Result<Decided> {
    Ok(Decided {
        source: accepted.source.clone(),
        start: accepted.start,
        end: accepted.end,
        accepted: offsets_of(&accepted.events)?.to_vec(),
        dead_letters: accepted.dead_letters.clone(),
        sinks: Vec::new(),
    })
}

fn with_records(decided: Decided, made: &[Made]) -> Decided {
    let of_partition = made.iter().filter(|made| made.output.source == decided.source);
    let put_out =
        |made: &Made| PutOut { sink: made.sink.name.clone(), version: made.sink.version, from: made.from, records: made.records.clone() };
    Decided { sinks: of_partition.map(put_out).collect(), ..decided }
}

/// A sink whose records of some events are made.
struct Due {
    sink: LiveSink,
    plan: Arc<SinkPlan>,
    output: Output,
    next: Option<Offset>,
    records: Vec<(Offset, NewRecord)>,
}

impl Due {
    fn made(self, stream: Arc<str>) -> Made {
        Made { stream, sink: self.sink, output: self.output, from: self.next, records: self.records }
    }

    /// Makes the records of the events that have none.
    fn make(&mut self, seen: &Seen, chunk: &Chunk<'_>, position: &str) -> Result<()> {
        let offsets = offsets_of(chunk.events)?;
        let first = self.next.map_or(0, |next| offsets.partition_point(|offset| *offset < next.0));
        if first == offsets.len() {
            return Ok(());
        }
        let rows = seen.rows(&self.sink, &self.plan, chunk, first)?;
        let left = chunk.after(first);
        let records = self.plan.records(&left, &rows, position, &chunk.times_array(first))?;
        for failed in &records.failed {
            let offset = offsets[first + failed.event as usize];
            warn!(sink = %self.sink.name, partition = %self.output.source, offset, reason = failed.reason, "a sink fails on an event");
        }
        metrics::counter!("basestream_speed_sink_failed_events_total", "sink" => self.sink.name.to_string())
            .increment(records.failed.len() as u64);
        let writer =
            Writer { sink: &self.sink, plan: &self.plan, partition: &self.output.source, events: &left, offsets: &offsets[first..] };
        self.records.extend(writer.records(&records)?);
        Ok(())
    }
}

/// What is reported of a failure. Where another worker has the output, this one has lost the partition.
fn stall(stream: &Arc<str>, sink: &LiveSink, error: &Error) -> Option<Stall> {
    let topic = &sink.definition.topic;
    let stall = || Stall { stream: stream.clone(), sink: sink.name.clone(), error: format!("{error} (its topic is \"{topic}\")") };
    (error.kind() != ErrorKind::Conflict).then(stall)
}

pub(crate) fn broken(sink: &LiveSink, found: &str) -> Error {
    Error::unavailable(format!("the sink \"{}\" cannot be planned any more: {found}", sink.name))
        .with("help", "change the sink or the view that it joins, and run `basestream apply`")
}

/// The versions of the views that sinks join, each once.
pub(crate) fn joined_views<'p>(registry: &Registry, plans: impl IntoIterator<Item = &'p SinkPlan>) -> Result<Vec<ViewVersion>> {
    let names: BTreeSet<&Arc<str>> = plans.into_iter().flat_map(|plan| &plan.joins).map(|join| &join.plan.view).collect();
    let version = |name: &Arc<str>| {
        let live = registry.served(name).ok_or_else(|| Error::internal("a sink joins a view that is not served").with("view", name))?;
        Ok((live.name.clone(), live.version))
    };
    names.into_iter().map(version).collect()
}

/// How many events are made together.
fn chunk_of(read_view: &ReadView, views: &[ViewVersion]) -> Result<usize> {
    for (name, _) in views {
        if read_view.view(name)?.live.plan.links().is_some() {
            return Ok(CHUNK_OF_WALKS);
        }
    }
    Ok(CHUNK)
}

/// The time for which each event's rows are read: now, or by the clock of events the greatest event time of its partition
/// up to it.
fn times(read_view: &ReadView, accepted: &Accepted) -> Result<Vec<Micros>> {
    let count = accepted.events.num_rows();
    if read_view.clock == ServingClock::Wall {
        return Ok(vec![read_view.now; count]);
    }
    let column = accepted.events.column_by_name(EVENT_TIME).and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    let column = column.ok_or_else(|| Error::internal(format!("events lack {EVENT_TIME}")))?;
    let mut newest = accepted.newest_before.unwrap_or(Micros::MIN);
    let times = column.values().iter().map(|time| {
        newest = newest.max(*time);
        newest
    });
    Ok(times.collect())
}

/// The same, but where a view's snapshot has no tiles for a time any more (it was made for a later one), the newest event time
/// that the node has: all rows of an event are of one time.
pub(crate) fn answerable(mut times: Vec<Micros>, read_view: &ReadView, views: &[ViewVersion]) -> Result<Vec<Micros>> {
    for (name, _) in views {
        let loaded = read_view.view(name)?;
        let newest = read_view.t_of(&loaded.live);
        for time in times.iter_mut().filter(|time| !loaded.keeps(**time)) {
            *time = newest.max(*time);
        }
    }
    Ok(times)
}

pub(crate) fn offsets_of(events: &RecordBatch) -> Result<&[i64]> {
    let column = events.column_by_name(OFFSET).and_then(|column| column.as_primitive_opt::<Int64Type>());
    Ok(column.ok_or_else(|| Error::internal(format!("events lack {OFFSET}")))?.values())
}

/// Tries what may not be possible yet, for a while.
async fn patiently<T, F: Future<Output = Result<T>>>(what: &str, patience: Duration, mut attempt: impl FnMut() -> F) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt().await {
            Err(error) if error.kind() == ErrorKind::Unavailable && began.elapsed() < patience => tokio::time::sleep(PAUSE).await,
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(Error::unavailable(what).caused_by(error)),
            outcome => return outcome,
        }
    }
}
