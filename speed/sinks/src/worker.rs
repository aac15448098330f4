//! The sinks of one worker, micro-batch by micro-batch: it takes outputs over (`taking_over`), records switches
//! (`switching`), makes records (`making`), and then has the log append them (`appending`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::SinkClaim;
use committed::registry::{LiveSink, Registry};
use datafusion::prelude::SessionContext;
use engine::fresh::ViewVersion;
use event_log::{LogOutput, NewRecord, OutputAppender, TopicPartition};
use futures::FutureExt;
use futures::future::BoxFuture;
use serving::{Node, ReadView};
use speed::{Accepted, EventSinks, Stall, WorkerSinks};
use tokio::task::JoinHandle;
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

use crate::Sinks;
use crate::features::FeatureReader;
use crate::outcomes::{AssignedPartitions, DecidedBatch};
use crate::switches::OutputState;

mod appending;
mod making;
mod stalls;
mod switching;
mod taking_over;

use appending::AppendedBatch;
use making::timestamps_of;
pub(crate) use making::{answerable, offsets_of, times_in};
use stalls::stall;

/// How long to wait for a node that has not loaded the worker's events yet.
const NODE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for a log that does not take records.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);
/// After a sink has failed, each of these two timeouts is at most this long, because the worker's other streams wait
/// meanwhile.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

impl EventSinks for Sinks {
    fn for_worker(&self, is_trial: bool) -> Box<dyn WorkerSinks> {
        Box::new(SinkWorker::new(self.clone(), is_trial))
    }
}

/// The sinks of one worker. Each of them has an output for each of the worker's partitions.
struct SinkWorker {
    sinks: Sinks,
    session: Option<SessionContext>,
    seen: FeatureReader,
    /// The outputs that were taken over, and those that are still to be claimed.
    taken: BTreeMap<OutputKey, OutputState>,
    unclaimed: BTreeMap<OutputKey, OutputState>,
    /// The right to append to each output, until another worker takes it over.
    appenders: BTreeMap<OutputKey, Arc<dyn OutputAppender>>,
    made: Vec<OutputBatch>,
    /// What was decided, for clients that wait for the records of their events.
    decided: Vec<DecidedBatch>,
    /// The append of the micro-batch before. It goes on if the worker ends: what has reached the log cannot be taken
    /// back, and the log refuses the rest once another worker has taken the output over.
    appending: Option<JoinHandle<Vec<AppendedBatch>>>,
    assigned: AssignedPartitions,
    is_trial: bool,
    /// The sinks that failed.
    stalls: Vec<Stall>,
}

/// A sink and a partition that it reads.
type OutputKey = (Arc<str>, TopicPartition);

/// The accepted events of one partition, and the sinks over its stream.
struct PartitionEvents<'a> {
    accepted: &'a Accepted,
    sinks: Vec<LiveSink>,
}

/// The records of one sink and one partition.
struct OutputBatch {
    stream: Arc<str>,
    sink: LiveSink,
    source: TopicPartition,
    appender: Arc<dyn OutputAppender>,
    /// Events before this offset were settled earlier.
    from: Option<Offset>,
    records: Vec<(Offset, NewRecord)>,
    /// Events before this offset are settled once it is appended.
    end: Offset,
}

impl WorkerSinks for SinkWorker {
    fn partitions_assigned(&mut self, partitions: &[TopicPartition]) {
        self.assigned.add(partitions);
    }

    fn make_records<'a>(&'a mut self, registry: &'a Registry, accepted: Vec<Accepted>) -> BoxFuture<'a, Result<()>> {
        self.made.clear();
        self.decided.clear();
        Box::pin(async move { self.make_all(registry, accepted).await.map_err(as_retryable) })
    }

    fn begin_append(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.begin_append_of_made().await.map_err(as_retryable) })
    }

    fn is_appending(&self) -> bool {
        self.appending.is_some()
    }

    fn appended(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.finish_append().await.map_err(as_retryable) })
    }

    fn output_claims(&self) -> Vec<SinkClaim> {
        self.taken.iter().map(|((sink, _), taken)| taken.claimed(sink)).collect()
    }

    fn switch_definitions<'a>(
        &'a mut self,
        registry: &'a Registry,
        positions: &'a [(TopicPartition, Offset)],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.switch_to(registry, positions).await.map_err(as_retryable) })
    }

    fn partitions_revoked(&mut self, partitions: &[TopicPartition]) {
        self.assigned.remove(partitions);
        self.retain_outputs(|(_, source)| !partitions.contains(source));
    }

    fn take_stalls(&mut self) -> Vec<Stall> {
        // The worker may have ended for another reason before it heard of an append that failed.
        let _ = self.finish_append().now_or_never();
        std::mem::take(&mut self.stalls)
    }
}

impl SinkWorker {
    fn new(sinks: Sinks, is_trial: bool) -> SinkWorker {
        SinkWorker {
            assigned: sinks.outcomes.for_worker(),
            sinks,
            session: None,
            seen: FeatureReader::default(),
            taken: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            appenders: BTreeMap::new(),
            made: Vec::new(),
            decided: Vec::new(),
            appending: None,
            is_trial,
            stalls: Vec::new(),
        }
    }

    /// Keeps only these outputs. What the log holds for the others is freed.
    fn retain_outputs(&mut self, is_kept: impl Fn(&OutputKey) -> bool) {
        self.taken.retain(|key, _| is_kept(key));
        self.unclaimed.retain(|key, _| is_kept(key));
        self.appenders.retain(|key, _| is_kept(key));
    }

    async fn switch_to(&mut self, registry: &Registry, positions: &[(TopicPartition, Offset)]) -> Result<()> {
        self.retain_outputs(|(name, _)| registry.sinks.iter().any(|sink| sink.name == *name));
        let mut switches = Vec::new();
        for (key, taken) in &self.taken {
            let sink = registry.sinks.iter().find(|sink| sink.name == key.0);
            let position = positions.iter().find(|(source, _)| *source == key.1);
            let Some((sink, (_, position))) = sink.zip(position) else { continue };
            switches.extend(taken.switch_at_once(sink, *position).map(|switch| (key.clone(), switch)));
        }
        self.record_switches(registry, switches).await
    }

    async fn make_all(&mut self, registry: &Registry, accepted: Vec<Accepted>) -> Result<()> {
        let mut parts = Vec::new();
        for of_partition in &accepted {
            let is_asked = self.sinks.outcomes.has_listeners(&of_partition.source);
            if is_asked {
                self.decided.push(decided_batch(of_partition)?);
            }
            let sinks = sinks_over(registry, &of_partition.partition.stream);
            // The log notes first what clients hear, also where no event is accepted.
            if (is_asked || of_partition.events.num_rows() > 0) && !sinks.is_empty() {
                parts.push(PartitionEvents { accepted: of_partition, sinks });
            }
        }
        for part in &parts {
            let prepared = self.prepare(part).await;
            self.note_failure(part, prepared)?;
        }
        if !self.unclaimed.is_empty() {
            self.claim().await?;
            for part in &parts {
                let taken = self.take_over_outputs(part).await;
                self.note_failure(part, taken)?;
            }
            self.read_switches(registry, &parts).await?;
        }
        self.switch_all(registry, &parts).await?;
        for part in &parts {
            let made = self.make_of_partition(registry, part).await;
            self.note_failure(part, made)?;
        }
        Ok(())
    }

    /// Notes the sink that failed: the one that the error names, or else the first.
    fn note_failure(&mut self, part: &PartitionEvents<'_>, outcome: Result<()>) -> Result<()> {
        outcome.inspect_err(|error| {
            let named = part.sinks.iter().find(|sink| error.fact("sink") == Some(&*sink.name));
            if let Some(failed) = named.or_else(|| part.sinks.first()) {
                self.stalls.extend(stall(&part.accepted.partition.stream, failed, error));
            }
        })
    }

    /// A read view that ends where the events begin. The node follows the worker, and may be a moment behind.
    async fn read_view(&self, accepted: &Accepted, views: &[ViewVersion]) -> Result<ReadView> {
        let node = &self.node().await?;
        let timeout = self.timeout(NODE_TIMEOUT);
        retry_until("the views of a sink cannot be read yet", timeout, || node.read_view_at(&accepted.partition, accepted.start, views))
            .await
    }

    /// The node that reads the views. A process that had no sinks opens one when the first is applied.
    async fn node(&self) -> Result<Node> {
        let not_yet = || Error::unavailable("the node that reads the views of sinks is not open yet");
        let mut node = self.sinks.node.clone();
        let opened = tokio::time::timeout(self.timeout(NODE_TIMEOUT), node.wait_for(Option::is_some)).await.map_err(|_| not_yet())?;
        opened.map_err(|_| not_yet())?.clone().ok_or_else(not_yet)
    }

    async fn retry_with_log<T, F: Future<Output = Result<T>>>(&self, attempt: impl FnMut() -> F) -> Result<T> {
        retry_until("an output is not taken over yet", self.timeout(LOG_TIMEOUT), attempt).await
    }

    fn timeout(&self, most: Duration) -> Duration {
        if self.is_trial { most.min(TRIAL_TIMEOUT) } else { most }
    }
}

impl PartitionEvents<'_> {
    fn key(&self, sink: &LiveSink) -> OutputKey {
        (sink.name.clone(), self.accepted.source.clone())
    }

    fn output(&self, sinks: &Sinks, sink: &LiveSink) -> LogOutput {
        let (source, identity) = (self.accepted.source.clone(), self.accepted.identity.clone());
        LogOutput { group: sinks.settings.group.clone(), sink: sink.name.clone(), source, identity }
    }
}

/// Whatever a sink fails on (a deleted topic, a missing right, a limit), its worker reports it and begins again. The
/// records of its events come once the cause is gone, and other parts of the process continue.
fn as_retryable(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Conflict => error,
        _ => Error::unavailable("the records of a sink cannot be made or put out").caused_by(error),
    }
}

/// The sinks that read a stream.
fn sinks_over(registry: &Registry, stream: &Arc<str>) -> Vec<LiveSink> {
    let of_stream = |sink: &&LiveSink| match &sink.plan {
        Ok(plan) => plan.stream.name == *stream,
        // If it is not known which stream it reads, nothing is put out until the sink is fixed.
        Err(_) => sink.reads.as_ref().is_none_or(|reads| reads == stream),
    };
    registry.sinks.iter().filter(of_stream).cloned().collect()
}

/// What was decided in a partition's micro-batch, without the records yet.
fn decided_batch(accepted: &Accepted) -> Result<DecidedBatch> {
    Ok(DecidedBatch {
        source: accepted.source.clone(),
        identity: accepted.identity.clone(),
        start: accepted.start,
        end: accepted.end,
        accepted: offsets_of(&accepted.events)?.to_vec(),
        timestamps: timestamps_of(&accepted.events)?.to_vec(),
        ids_since: accepted.ids_since,
        dead_letters: accepted.dead_letters.clone(),
        sinks: Vec::new(),
    })
}

/// Retries what may not be possible yet, until it is or the time is up.
async fn retry_until<T, F: Future<Output = Result<T>>>(what: &str, timeout: Duration, mut attempt: impl FnMut() -> F) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt().await {
            Err(error) if error.kind() == ErrorKind::Unavailable && began.elapsed() < timeout => tokio::time::sleep(RETRY_INTERVAL).await,
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(Error::unavailable(what).caused_by(error)),
            outcome => return outcome,
        }
    }
}
