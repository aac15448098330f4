//! The one task that appends: it puts all waiting appends into one transaction, so that they share one fsync, and few
//! statements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::Clock;
use super::appends::Appends;
use super::batch::{self, BatchRow};
use super::output::{self, OutputStates};
use super::placing::{self, Inserts, PartitionEnd, PartitionKey, TopicTail};
use super::store::{self, Store};
use super::transaction::{AppendTransaction, Statements};
use super::wal::WalCopier;
use crate::record::{partition_for, random_of};
use crate::{LogOutput, NewRecord};
use types::clocks::LatestTime;
use types::tiles::Micros;
use types::vector::Offset;
use types::{Error, Result, failpoint, threads};

/// How many appends may wait, and about how many records one transaction takes.
const QUEUE: usize = 256;
const MAX_GROUP_RECORDS: usize = 50_000;

/// Each record's partition and offset, in the order given.
type RecordPositions = Vec<(i32, Offset)>;

/// A handle to the writer, cheap to clone; the task ends with the last one.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    requests: mpsc::Sender<Request>,
}

#[derive(Debug)]
struct Request {
    topic: String,
    records: Vec<NewRecord>,
    /// Chooses the partition of records without key and id.
    random: u64,
    output: Option<OfOutput>,
    reply: oneshot::Sender<Result<RecordPositions>>,
}

/// Records of a sink.
#[derive(Debug)]
struct OfOutput {
    output: LogOutput,
    /// Who appends them.
    owner: Uuid,
    /// The offset of each record's event.
    offsets: Vec<Offset>,
    /// The events before it are settled with these records.
    next: Offset,
}

impl Writer {
    /// Starts the task. It counts its appends after each transaction, also after one whose outcome is not known.
    pub(super) fn start(store: Arc<Store>, clock: Clock, appends: watch::Sender<Appends>) -> Writer {
        let (requests, inbox) = mpsc::channel(QUEUE);
        threads::LOG.spawn(run(store, clock, appends, inbox));
        Writer { requests }
    }

    pub(super) async fn append(&self, topic: &str, records: Vec<NewRecord>, random: u64) -> Result<RecordPositions> {
        self.request(topic, records, random, None).await
    }

    /// Appends the records of events that are not settled yet. Those before `next` are from then on.
    ///
    /// Errors: `Conflict` if another owner took the output over.
    pub(super) async fn append_output(
        &self,
        topic: &str,
        (output, owner): (LogOutput, Uuid),
        records: Vec<(Offset, NewRecord)>,
        next: Offset,
    ) -> Result<()> {
        let (offsets, records): (Vec<Offset>, Vec<NewRecord>) = records.into_iter().unzip();
        // Records without a key are spread evenly.
        let random = offsets.first().map_or(0, |first| first.0 as u64);
        self.request(topic, records, random, Some(OfOutput { output, owner, offsets, next })).await.map(drop)
    }

    async fn request(&self, topic: &str, records: Vec<NewRecord>, random: u64, output: Option<OfOutput>) -> Result<RecordPositions> {
        let closed = || Error::unavailable("the log was closed");
        let (reply, answer) = oneshot::channel();
        let request = Request { topic: topic.to_owned(), records, random, output, reply };
        self.requests.send(request).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

async fn run(store: Arc<Store>, clock: Clock, appends: watch::Sender<Appends>, mut inbox: mpsc::Receiver<Request>) {
    let mut copier = WalCopier::start(store.clone());
    while let Some(first) = inbox.recv().await {
        let mut records = first.records.len();
        let mut group = vec![first];
        while records < MAX_GROUP_RECORDS
            && let Ok(next) = inbox.try_recv()
        {
            records += next.records.len();
            group.push(next);
        }
        let outcome = append_group(&store, &clock, &group, &mut copier).await;
        store.appends.note(&outcome);
        appends.send_modify(|appends| group.iter().for_each(|request| appends.note(&request.topic)));
        answer(group, outcome);
    }
}

/// Appends all requests in one transaction. If a request names an unknown topic, or an output that has another owner by
/// now, only that request fails.
async fn append_group(store: &Store, clock: &Clock, group: &[Request], copier: &mut WalCopier) -> Result<Vec<Result<RecordPositions>>> {
    let names: BTreeSet<&str> = group.iter().map(|request| request.topic.as_str()).collect();
    let of_outputs: Vec<&LogOutput> = group.iter().filter_map(|request| Some(&request.output.as_ref()?.output)).collect();
    let add_reads = |reads: &mut Statements| {
        placing::select_topics(reads, &names);
        OutputStates::select(reads, &of_outputs);
    };
    let (mut transaction, mut rows) = AppendTransaction::begin(store, add_reads).await?;
    let topics = placing::topics(&rows.next().unwrap_or_default())?;
    let mut outputs = OutputStates::found(&of_outputs, rows.flatten())?;
    let assigned = AssignedRecords::assign(group, &topics, &mut outputs);
    let (batches, bytes) = (assigned.by_partition.len(), assigned.bytes());
    outputs.write(transaction.statements());
    let outcomes = assigned.append(&mut transaction, clock(), &store.latest).await?;
    failpoint::hit("append.before_commit")?;
    transaction.commit().await?;
    copier.appended(batches, bytes);
    failpoint::hit("append.after_commit")?;
    Ok(outcomes)
}

/// The records of a group of requests, each assigned to its partition.
struct AssignedRecords<'g> {
    /// Of each request. Offsets are known once the records are appended.
    outcomes: Vec<Result<RecordPositions>>,
    by_partition: BTreeMap<PartitionKey, Pending<'g>>,
}

impl<'g> AssignedRecords<'g> {
    /// Advances the outputs over them.
    fn assign(group: &'g [Request], topics: &BTreeMap<String, TopicTail>, outputs: &mut OutputStates<'_>) -> AssignedRecords<'g> {
        let mut assigned = AssignedRecords { outcomes: Vec::with_capacity(group.len()), by_partition: BTreeMap::new() };
        for request in group {
            let Some(topic) = topics.get(&request.topic) else {
                assigned.outcomes.push(Err(store::no_topic(&request.topic)));
                continue;
            };
            let Some(OfOutput { output, owner, offsets, next }) = &request.output else {
                assigned.add(topic, request, 0);
                continue;
            };
            match outputs.advance(output, *owner, offsets, *next) {
                Some(settled) => assigned.add(topic, request, settled),
                None => assigned.outcomes.push(Err(output::taken_by_another(output))),
            }
        }
        assigned
    }

    /// Adds the records of the next request, without the first ones, whose events are settled.
    fn add(&mut self, topic: &TopicTail, request: &'g Request, settled: usize) {
        let index = self.outcomes.len();
        self.outcomes.push(Ok(vec![(0, Offset::ZERO); request.records.len()]));
        for (nth, record) in request.records.iter().enumerate().skip(settled) {
            let number = partition_for(record, topic.ends.len() as u32, random_of(request.random, nth));
            let pending = self.by_partition.entry((topic.id, number));
            let pending = pending.or_insert_with(|| Pending::after(topic.ends[number as usize]));
            pending.records.push(record);
            pending.indices.push((index, nth));
        }
    }

    fn bytes(&self) -> usize {
        self.by_partition.values().flat_map(|pending| &pending.records).map(|record| batch::size_of(record)).sum()
    }

    async fn append(
        mut self,
        transaction: &mut AppendTransaction,
        now: Micros,
        latest: &LatestTime,
    ) -> Result<Vec<Result<RecordPositions>>> {
        let (mut inserts, mut ends) = (Inserts::default(), Vec::with_capacity(self.by_partition.len()));
        for (partition, Pending { end: PartitionEnd { offset: first, timestamp }, records, indices }) in self.by_partition {
            let timestamp = now.max(timestamp);
            latest.note(timestamp);
            let (_, number) = partition;
            let mut end = first;
            for chunk in placing::chunks(&records) {
                let batch = BatchRow::encode(number, end, timestamp, chunk.iter().copied());
                end = batch.end();
                inserts.add(partition, batch, transaction).await?;
            }
            ends.push((partition, PartitionEnd { offset: end, timestamp }));
            for ((request, nth), offset) in indices.into_iter().zip(first..) {
                if let Ok(positions) = &mut self.outcomes[request] {
                    positions[nth] = (number, Offset(offset));
                }
            }
        }
        inserts.finish(transaction.statements());
        placing::note_ends(transaction.statements(), &ends);
        Ok(self.outcomes)
    }
}

/// The records for one partition, each with its request and its index there.
struct Pending<'a> {
    /// Where the partition ends before them.
    end: PartitionEnd,
    records: Vec<&'a NewRecord>,
    indices: Vec<(usize, usize)>,
}

impl Pending<'_> {
    fn after(end: PartitionEnd) -> Self {
        Pending { end, records: Vec::new(), indices: Vec::new() }
    }
}

/// Sends the outcomes. A caller that went away gets none, but its records are in the log.
fn answer(group: Vec<Request>, outcome: Result<Vec<Result<RecordPositions>>>) {
    match outcome {
        Ok(outcomes) => {
            for (request, outcome) in group.into_iter().zip(outcomes) {
                request.reply.send(outcome).ok();
            }
        }
        Err(error) => {
            for request in group {
                request.reply.send(Err(error.copied())).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests;
