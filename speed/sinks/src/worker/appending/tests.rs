//! What becomes of an append whose worker has ended.

use std::path::Path;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use async_trait::async_trait;
use bytes::Bytes;
use catalog::Catalog;
use committed::registry::Registry;
use definitions::parse::parse_sink;
use engine::functions::Functions;
use event_log::{LogOutput, NewRecord, OutputAppender};
use speed::{Accepted, WorkerSinks};
use tokio::sync::watch;
use types::columns::{OFFSET, TIMESTAMP};
use types::vector::PartitionId;
use uuid::Uuid;

use super::*;
use crate::SinkSettings;
use crate::switches::OutputState;

const OUT: &str = "CREATE SINK out WITH (topic = 'out', format = 'json') AS SELECT e.id FROM events e";

async fn sinks(folder: &Path) -> Sinks {
    let log = event_log::open(&format!("file://{}", folder.join("log").display()), &BTreeMap::new()).await.unwrap();
    let settings = SinkSettings { group: "basestream".into(), partitions: 1, max_future: Duration::from_secs(60) };
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    Sinks::new(watch::channel(None).1, log, catalog, Functions::standard(), settings)
}

/// With the topic of the sink's records.
async fn sinks_with_topic(folder: &Path) -> Sinks {
    let sinks = sinks(folder).await;
    sinks.log.create_topic("out", 1).await.unwrap();
    sinks
}

/// A worker that has taken the output of a partition over and made the record of its first event.
async fn worker_with_a_record(sinks: &Sinks) -> SinkWorker {
    let made = record_of("out", sinks, 0).await;
    let mut worker = SinkWorker::new(sinks.clone(), false);
    worker.partitions_assigned(std::slice::from_ref(&made.source));
    worker.made = vec![made];
    worker
}

/// The output of a sink and a partition.
fn output_of(sink: &str, partition: i32) -> LogOutput {
    let source = TopicPartition { topic: "events".into(), partition };
    LogOutput { group: "basestream".into(), sink: sink.into(), source, identity: "log".into() }
}

/// A sink's record of the first event of a partition, whose output was taken over for it.
async fn record_of(sink: &str, sinks: &Sinks, partition: i32) -> OutputBatch {
    let output = output_of(sink, partition);
    let appender = sinks.log.take_over_output(&output).await.unwrap().appender;
    let source = output.source;
    let definition = parse_sink(OUT).unwrap();
    let sink = LiveSink {
        name: sink.into(),
        version: 1,
        definition: Arc::new(definition),
        reads: None,
        plan: Err("not planned".into()),
        paused_since: None,
    };
    let record = NewRecord { key: None, value: Some(Bytes::from_static(b"{}")), headers: Vec::new(), partition_by: None };
    OutputBatch { stream: "events".into(), sink, source, appender, from: None, records: vec![(Offset(0), record)], end: Offset(1) }
}

#[tokio::test]
async fn a_sink_that_failed_is_reported_though_its_worker_ended_before_it_heard() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks(folder.path()).await;
    let mut worker = worker_with_a_record(&sinks).await;
    worker.begin_append().await.unwrap();
    // There is no topic of that name.
    while !worker.appending.as_ref().unwrap().is_finished() {
        tokio::task::yield_now().await;
    }
    let stalls = worker.take_stalls();
    assert_eq!(stalls.iter().map(|stall| &*stall.sink).collect::<Vec<_>>(), ["out"]);
    assert!(!worker.is_appending());
}

#[tokio::test]
async fn waiting_clients_hear_of_records_that_were_on_their_way_when_their_worker_ended() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks_with_topic(folder.path()).await;
    let mut worker = worker_with_a_record(&sinks).await;
    worker.decided = vec![decided(&worker.made[0].source)];
    let mut decisions = sinks.outcomes.listen("events");
    worker.begin_append().await.unwrap();
    // The task gives them to the log, and waits.
    tokio::task::yield_now().await;
    drop(worker);
    let heard = tokio::time::timeout(Duration::from_secs(60), decisions.recv()).await.unwrap().unwrap();
    assert_eq!(heard.sinks[0].records.len(), 1);
}

#[tokio::test]
async fn the_clients_of_a_partition_hear_of_its_records_though_those_of_another_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks_with_topic(folder.path()).await;
    let mut worker = worker_with_a_record(&sinks).await;
    for sink in ["out", "another"] {
        worker.made.push(record_of(sink, &sinks, 1).await);
    }
    worker.decided = [0, 1].map(|made| decided(&worker.made[made].source)).into();
    // Another worker takes the last output over.
    record_of("another", &sinks, 1).await;
    let mut decisions = sinks.outcomes.listen("events");
    worker.begin_append().await.unwrap();
    let appended = worker.appending.take().unwrap().await.unwrap();
    assert_eq!(appended.iter().map(|appended| appended.next.is_ok()).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(decisions.try_recv().unwrap().source.partition, 0);
    assert!(decisions.try_recv().is_err());
}

/// A log that does not answer.
#[derive(Debug)]
struct Stuck;

#[async_trait]
impl OutputAppender for Stuck {
    async fn append(&self, _: &str, _: Vec<(Offset, NewRecord)>, _: Offset) -> Result<()> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn the_clients_of_a_partition_do_not_wait_for_the_records_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks_with_topic(folder.path()).await;
    let mut worker = worker_with_a_record(&sinks).await;
    worker.made.push(OutputBatch { appender: Arc::new(Stuck), ..record_of("out", &sinks, 1).await });
    worker.decided = worker.made.iter().map(|made| decided(&made.source)).collect();
    let mut decisions = sinks.outcomes.listen("events");
    worker.begin_append().await.unwrap();
    let heard = tokio::time::timeout(Duration::from_secs(60), decisions.recv()).await.unwrap().unwrap();
    assert_eq!(heard.source.partition, 0);
    assert!(worker.is_appending());
}

/// A worker that has decided the first event of a partition, which gets no record, and whose client waits.
async fn worker_without_a_record(sinks: &Sinks) -> SinkWorker {
    let mut worker = worker_with_a_record(sinks).await;
    worker.made[0].records.clear();
    worker.decided = vec![decided(&worker.made[0].source)];
    worker
}

#[tokio::test]
async fn clients_hear_of_an_event_without_a_record_once_the_log_has_noted_that_it_gets_none() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks_with_topic(folder.path()).await;
    let mut worker = worker_without_a_record(&sinks).await;
    let mut decisions = sinks.outcomes.listen("events");
    worker.begin_append().await.unwrap();
    worker.appended().await.unwrap();
    assert!(decisions.try_recv().unwrap().sinks[0].records.is_empty());
    assert_eq!(sinks.log.take_over_output(&output_of("out", 0)).await.unwrap().next, Some(Offset(1)));
    assert_eq!(sinks.log.bounds("out").await.unwrap()[0].end, Offset(0));
}

#[tokio::test]
async fn clients_hear_nothing_of_an_event_without_a_record_from_a_worker_that_has_lost_its_partition() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks_with_topic(folder.path()).await;
    let mut worker = worker_without_a_record(&sinks).await;
    let next = sinks.log.take_over_output(&output_of("out", 0)).await.unwrap().next;
    assert_eq!(next, None, "the other worker decides the event anew");
    let mut decisions = sinks.outcomes.listen("events");
    worker.begin_append().await.unwrap();
    assert_eq!(worker.appended().await.unwrap_err().kind(), types::ErrorKind::Conflict);
    assert!(decisions.try_recv().is_err());
}

/// By a later version of the stream, a dead letter behind the last record may be an event, which has a record then.
#[tokio::test]
async fn what_comes_after_the_last_record_is_settled_only_where_clients_wait() {
    for waits in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let sinks = sinks_with_topic(folder.path()).await;
        let mut worker = worker_with_a_record(&sinks).await;
        worker.made[0].end = Offset(3);
        worker.decided = waits.then(|| decided(&worker.made[0].source)).into_iter().collect();
        worker.begin_append().await.unwrap();
        worker.appended().await.unwrap();
        let settled = sinks.log.take_over_output(&output_of("out", 0)).await.unwrap().next;
        assert_eq!(settled, Some(Offset(if waits { 3 } else { 1 })));
    }
}

/// A micro-batch in which three records of a partition were decided, and no event was accepted.
fn accepted(source: &TopicPartition) -> Accepted {
    let fields = [(OFFSET, DataType::Int64), (TIMESTAMP, DataType::Timestamp(TimeUnit::Microsecond, None))];
    let schema = Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, false)).to_vec());
    Accepted {
        partition: PartitionId::new("events", source.partition),
        source: source.clone(),
        identity: "log".into(),
        start: Offset(0),
        end: Offset(3),
        dead_letters: Vec::new(),
        newest_before: None,
        received_before: None,
        ids_since: None,
        events: RecordBatch::new_empty(Arc::new(schema)),
    }
}

/// On Kafka a transaction is needed to settle what has no record.
#[tokio::test]
async fn what_has_no_record_is_settled_only_for_clients_that_wait_for_events_of_its_topic() {
    for (topic, expected) in [("another", 1), ("events", 3)] {
        let folder = tempfile::tempdir().unwrap();
        let sinks = sinks_with_topic(folder.path()).await;
        let mut worker = worker_with_a_record(&sinks).await;
        let made = OutputBatch { end: Offset(3), ..worker.made.remove(0) };
        let _client = sinks.outcomes.listen(topic);
        worker.make_records(&Registry::default(), vec![accepted(&made.source)]).await.unwrap();
        worker.made = vec![made];
        worker.begin_append().await.unwrap();
        worker.appended().await.unwrap();
        let settled = sinks.log.take_over_output(&output_of("out", 0)).await.unwrap().next;
        assert_eq!(settled, Some(Offset(expected)), "a client of {topic}");
    }
}

#[tokio::test]
async fn what_the_worker_before_has_settled_stays_settled() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks_with_topic(folder.path()).await;
    let before = sinks.log.take_over_output(&output_of("out", 0)).await.unwrap().appender;
    before.append("out", Vec::new(), Offset(5)).await.unwrap();
    let mut worker = worker_without_a_record(&sinks).await;
    let output = (Arc::from("out"), worker.made[0].source.clone());
    let unclaimed = OutputState::unclaimed(PartitionId::new("events", 0), "log".into(), Uuid::new_v4());
    worker.taken.insert(output.clone(), OutputState { next: Some(Offset(5)), ..unclaimed });
    worker.begin_append().await.unwrap();
    worker.appended().await.unwrap();
    assert_eq!(worker.taken[&output].next, Some(Offset(5)));
}

/// What was decided of the first event.
fn decided(source: &TopicPartition) -> DecidedBatch {
    DecidedBatch {
        source: source.clone(),
        identity: "log".into(),
        start: Offset(0),
        end: Offset(1),
        accepted: vec![0],
        timestamps: vec![0],
        ids_since: None,
        dead_letters: Vec::new(),
        sinks: Vec::new(),
    }
}

#[tokio::test]
async fn nothing_is_appended_for_a_worker_from_which_another_one_of_its_process_took_over() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks_with_topic(folder.path()).await;
    let mut worker = worker_with_a_record(&sinks).await;
    let mut successor = worker_with_a_record(&sinks).await;
    worker.begin_append().await.unwrap();
    let next = worker.appending.take().unwrap().await.unwrap().remove(0).next;
    assert_eq!(next.map_err(|error| error.kind()), Err(types::ErrorKind::Conflict));
    assert_eq!(sinks.log.bounds("out").await.unwrap()[0].end, Offset(0));
    successor.begin_append().await.unwrap();
    successor.appended().await.unwrap();
    assert_eq!(sinks.log.bounds("out").await.unwrap()[0].end, Offset(1));
}
