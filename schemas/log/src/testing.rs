//! A small worker and catalog for the tests of both engines. They commit by compare-and-advance, as the speed layer
//! does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::{Log, LogEvent, LogOutput, NewRecord, OutputAppender, Subscription, TopicPartition};
use types::record::Record;
use types::timed_out;
use types::vector::Offset;
use types::{Error, ErrorKind};

const PATIENCE: Duration = Duration::from_secs(120);

/// The committed data: each partition's next offset and the records before it.
#[derive(Debug, Default)]
pub(super) struct CommittedRecords {
    partitions: Mutex<BTreeMap<TopicPartition, (Offset, Vec<Record>)>>,
    /// How often workers were at a partition's end.
    ends: AtomicUsize,
}

/// A worker's uncommitted records of one partition.
struct Epoch {
    start: Offset,
    end: Offset,
    records: Vec<Record>,
}

/// The events that a worker received.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) assigned: usize,
    pub(super) revoked: usize,
    pub(super) lost: usize,
    pub(super) refused_commits: usize,
    pub(super) failed: Option<Error>,
}

impl CommittedRecords {
    pub(super) fn start_of(&self, source: &TopicPartition) -> Offset {
        self.partitions.lock().unwrap().get(source).map(|(offset, _)| *offset).unwrap_or_default()
    }

    fn commit(&self, units: &mut BTreeMap<TopicPartition, Epoch>) -> bool {
        let mut partitions = self.partitions.lock().unwrap();
        let next = |source: &TopicPartition| partitions.get(source).map(|(offset, _)| *offset).unwrap_or_default();
        if units.iter().any(|(source, unit)| next(source) != unit.start) {
            return false;
        }
        for (source, unit) in units.iter_mut() {
            let committed = partitions.entry(source.clone()).or_default();
            committed.0 = unit.end;
            committed.1.append(&mut unit.records);
            unit.start = unit.end;
        }
        true
    }

    pub(super) fn ends(&self) -> usize {
        self.ends.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self) -> usize {
        self.partitions.lock().unwrap().values().map(|(_, records)| records.len()).sum()
    }

    pub(super) fn values(&self) -> Vec<Bytes> {
        let partitions = self.partitions.lock().unwrap();
        let mut values: Vec<Bytes> =
            partitions.values().flat_map(|(_, records)| records).filter_map(|record| record.value.clone()).collect();
        values.sort();
        values
    }
}

/// Works until stopped. Commits at 100 uncommitted records, at each partition's end, and before it releases partitions.
/// After a refused commit (another worker was faster) it begins a new consumer, which starts where the catalog is.
pub(super) async fn work(
    log: Arc<dyn Log>,
    subscription: Subscription,
    catalog: Arc<CommittedRecords>,
    stop: CancellationToken,
) -> Observed {
    let mut observed = Observed::default();
    while !stop.is_cancelled() && observed.failed.is_none() {
        let mut consumer = log.subscribe(subscription.clone()).await.unwrap();
        let consumer_stop = consumer.stop.clone();
        let outer_stop = stop.clone();
        tokio::spawn(async move {
            outer_stop.cancelled().await;
            consumer_stop.cancel();
        });
        let mut units = BTreeMap::new();
        while let Some(event) = consumer.events.recv().await {
            if !handle(event, &mut units, &catalog, &mut observed) {
                observed.refused_commits += 1;
                break;
            }
        }
    }
    observed
}

/// Returns false if a commit was refused.
fn handle(event: LogEvent, units: &mut BTreeMap<TopicPartition, Epoch>, catalog: &CommittedRecords, observed: &mut Observed) -> bool {
    let unit_at = |start| Epoch { start, end: start, records: Vec::new() };
    match event {
        LogEvent::Assigned { partitions, start } => {
            observed.assigned += partitions.len();
            let starts: Vec<_> = partitions.iter().map(|source| (source.clone(), catalog.start_of(source))).collect();
            units.extend(starts.iter().map(|(source, offset)| (source.clone(), unit_at(*offset))));
            start.send(Ok(starts)).ok();
        }
        LogEvent::Revoked { partitions, done } => {
            observed.revoked += partitions.len();
            let is_committed = catalog.commit(units);
            units.retain(|source, _| !partitions.contains(source));
            done.send(()).ok();
            return is_committed;
        }
        LogEvent::Lost { partitions, kept } => {
            observed.lost += partitions.len();
            units.retain(|source, _| !partitions.contains(source));
            let starts: Vec<_> = units.keys().map(|source| (source.clone(), catalog.start_of(source))).collect();
            *units = starts.iter().map(|(source, offset)| (source.clone(), unit_at(*offset))).collect();
            kept.send(Ok(starts)).ok();
        }
        LogEvent::Fetched(fetched) => {
            let unit = units.get_mut(&fetched.source).expect("records come of held partitions only");
            for record in &fetched.records {
                assert!(record.offset >= unit.end, "{}: {} came again, the position is {}", fetched.source, record.offset, unit.end);
            }
            assert!(fetched.position >= unit.end);
            unit.end = fetched.position;
            unit.records.extend(fetched.records);
            catalog.ends.fetch_add(usize::from(fetched.at_end), Ordering::Relaxed);
            let in_hand: usize = units.values().map(|unit| unit.records.len()).sum();
            if in_hand >= 100 || fetched.at_end {
                return catalog.commit(units);
            }
        }
        LogEvent::Failed(error) => observed.failed = Some(error),
    }
    true
}

pub(super) fn subscription(worker: &str, topics: &[&str]) -> Subscription {
    Subscription {
        group: "speed".into(),
        worker: worker.into(),
        topics: topics.iter().map(|topic| Arc::from(*topic)).collect(),
        queue: 4,
        max_records: 50,
        max_wait: Duration::from_millis(5),
    }
}

pub(super) fn source(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition }
}

/// Returns records with distinct keys and values, `from..to`.
pub(super) fn numbered(from: usize, to: usize) -> Vec<NewRecord> {
    let text = |number: usize| Some(Bytes::from(format!("{number:08}")));
    (from..to).map(|number| NewRecord { key: text(number), value: text(number), ..NewRecord::default() }).collect()
}

pub(super) fn values_of(from: usize, to: usize) -> Vec<Bytes> {
    numbered(from, to).into_iter().filter_map(|record| record.value).collect()
}

/// Waits until `is_so`, or panics with `what` after two minutes.
pub(super) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() >= PATIENCE {
            timed_out::fail(format!("{what} did not come about in two minutes"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What comes of `awaited`, or a panic with `what` after two minutes.
pub(super) async fn within<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, awaited).await;
    outcome.unwrap_or_else(|_| timed_out::fail(format!("{what} did not come about in two minutes")))
}

/// Measures how long this process stood still at most. Who could not say in time that it is alive is taken for dead,
/// rightly.
pub(super) struct StoodStill(Arc<AtomicU64>);

impl StoodStill {
    pub(super) fn begin() -> StoodStill {
        let longest_ms = Arc::new(AtomicU64::new(0));
        let measured = Arc::downgrade(&longest_ms);
        std::thread::spawn(move || {
            let mut last = Instant::now();
            while let Some(longest_ms) = measured.upgrade() {
                std::thread::sleep(Duration::from_millis(20));
                longest_ms.fetch_max(last.elapsed().as_millis() as u64, Ordering::Relaxed);
                last = Instant::now();
            }
        });
        StoodStill(longest_ms)
    }

    pub(super) fn longest(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// The output of a sink over partition 0 of `topic`.
pub fn output_of(topic: &str, group: &str) -> LogOutput {
    LogOutput { group: group.to_owned(), sink: "scored".into(), source: source(topic, 0), identity: "a topic".to_owned() }
}

/// The records of these events, each with its number as text.
pub fn made_of(events: std::ops::Range<i64>) -> Vec<(Offset, NewRecord)> {
    let record = |number: i64| NewRecord { value: Some(Bytes::from(number.to_string())), ..NewRecord::default() };
    events.map(|number| (Offset(number), record(number))).collect()
}

/// Two processes append the records of events 0 to 59, each after it has taken over. Events 50 and 51 get none. What an
/// owner before still sends is refused, also in one process: it would be of events that the next one has taken over.
/// Returns the first owner.
pub async fn each_record_is_appended_once(first: &dyn Log, second: &dyn Log, topic: &str, output: &LogOutput) -> Arc<dyn OutputAppender> {
    let taken = first.take_over_output(output).await.unwrap();
    assert_eq!(taken.next, None);
    let in_first = taken.appender;
    in_first.append(topic, made_of(0..10), Offset(10)).await.unwrap();
    in_first.append(topic, made_of(5..20), Offset(20)).await.unwrap();
    in_first.append(topic, Vec::new(), Offset(20)).await.unwrap();
    let unsettled = in_first.append(topic, made_of(20..22), Offset(21)).await.unwrap_err();
    assert_eq!(unsettled.kind(), ErrorKind::Internal, "{unsettled}");
    let taken = second.take_over_output(output).await.unwrap();
    assert_eq!(taken.next, Some(Offset(20)));
    let in_second = taken.appender;
    in_second.append(topic, made_of(12..40), Offset(40)).await.unwrap();
    for late in [20..40, 40..45] {
        let next = Offset(late.end);
        let refused = in_first.append(topic, made_of(late), next).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    }
    in_second.append(topic, made_of(40..50), Offset(51)).await.unwrap();
    in_second.append(topic, Vec::new(), Offset(52)).await.unwrap();
    let taken = second.take_over_output(output).await.unwrap();
    assert_eq!(taken.next, Some(Offset(52)));
    for late in [Vec::new(), made_of(52..55)] {
        let refused = in_second.append(topic, late, Offset(55)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    }
    taken.appender.append(topic, made_of(40..60), Offset(60)).await.unwrap();
    let mut found = Vec::new();
    for bounds in second.bounds(topic).await.unwrap() {
        let fetched = second.read(&source(topic, bounds.partition), bounds.begin, 1_000).await.unwrap();
        found.extend(
            fetched.records.iter().map(|record| std::str::from_utf8(record.value.as_deref().unwrap()).unwrap().parse::<i64>().unwrap()),
        );
    }
    found.sort_unstable();
    assert_eq!(found, (0..50).chain(52..60).collect::<Vec<_>>());
    // Another source, or a topic of that name that was made anew, begins for itself.
    let others = [
        LogOutput { source: source(&output.source.topic, 1), ..output.clone() },
        LogOutput { identity: "another".into(), ..output.clone() },
    ];
    for other in others {
        assert_eq!(second.take_over_output(&other).await.unwrap().next, None);
    }
    in_first
}
