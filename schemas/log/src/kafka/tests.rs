use bytes::Bytes;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::LogEvent;
use crate::testing::{CommittedRecords, StoodStill, made_of, numbered, output_of, source, subscription, until, values_of, within, work};
use types::ErrorKind;

mod broker;

type Brokers = MockCluster<'static, DefaultProducerContext>;

fn brokers(topics: &[(&str, i32)]) -> (Brokers, Arc<KafkaLog>) {
    let brokers = MockCluster::new(1).unwrap();
    for (topic, partitions) in topics {
        brokers.create_topic(topic, *partitions, 1).unwrap();
    }
    let log = KafkaLog::open(&brokers.bootstrap_servers(), &quick()).unwrap();
    (brokers, Arc::new(log))
}

/// librdkafka's broker ends a rebalance when the session timeout is nearly over.
fn quick() -> BTreeMap<String, String> {
    let quick = [("session.timeout.ms", "2500"), ("heartbeat.interval.ms", "200")];
    quick.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_fetched_has_the_time_of_the_clock() {
    let (brokers, log) = brokers(&[("events", 1)]);
    log.append("events", numbered(0, 1)).await.unwrap();
    let log = KafkaLog::open_with_clock(&brokers.bootstrap_servers(), &quick(), Arc::new(|| 7)).unwrap();
    assert_eq!(log.read(&source("events", 0), Offset(0), 10).await.unwrap().fetched_at, 7);
    let mut consumer = log.subscribe(subscription("a", &["events"])).await.unwrap();
    match within("its partition", consumer.events.recv()).await {
        Some(LogEvent::Assigned { start, .. }) => start.send(Ok(vec![(source("events", 0), Offset(0))])).unwrap(),
        other => panic!("{other:?}"),
    }
    match within("its record", consumer.events.recv()).await {
        Some(LogEvent::Fetched(fetched)) => assert_eq!(fetched.fetched_at, 7),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_number_of_partitions_is_remembered_until_it_has_to_be_asked_for_again() {
    let (mut counts, began) = (KnownPartitions::default(), Instant::now());
    counts.insert("old", 3, began);
    assert_eq!((counts.get("old", began + PARTITIONS_KNOWN / 2), counts.get("old", began + PARTITIONS_KNOWN)), (Some(3), None));
    counts.insert("new", 4, began + PARTITIONS_KNOWN);
    assert_eq!((counts.0.len(), counts.get("new", began + PARTITIONS_KNOWN)), (1, Some(4)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_is_read_back() {
    let (_brokers, log) = brokers(&[("events", 2)]);
    assert_eq!(log.create_topic("events", 7).await.unwrap(), 2);
    let records = vec![
        NewRecord { key: Some("k".into()), value: Some("v".into()), headers: vec![("h".into(), "x".into())], partition_by: None },
        NewRecord { key: Some("k".into()), value: None, headers: vec![], partition_by: None },
        NewRecord { key: None, value: Some(Bytes::new()), headers: vec![], partition_by: Some("k".into()) },
    ];
    let places = log.append("events", records.clone()).await.unwrap();
    let partition = places[0].0;
    assert_eq!(places, [(partition, Offset(0)), (partition, Offset(1)), (partition, Offset(2))]);
    let fetched = log.read(&source("events", partition), Offset(0), 10).await.unwrap();
    assert_eq!((fetched.position, fetched.at_end), (Offset(3), true));
    for (read, appended) in fetched.records.iter().zip(&records) {
        assert_eq!((&read.key, &read.value, &read.headers), (&appended.key, &appended.value, &appended.headers));
        assert!(read.timestamp > 1_600_000_000_000_000);
    }
    let some = log.read(&source("events", partition), Offset(1), 1).await.unwrap();
    assert_eq!((some.records[0].offset, some.position, some.at_end), (Offset(1), Offset(2), false));
    let bounds = log.bounds("events").await.unwrap();
    assert_eq!(bounds[partition as usize], PartitionBounds { partition, begin: Offset(0), end: Offset(3) });
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_and_offsets_that_are_not_there_are_named() {
    let (_brokers, log) = brokers(&[("events", 1)]);
    assert!(log.identity("events").await.unwrap().ends_with("/events"));
    assert_eq!(log.identity("events").await.unwrap(), log.identity("events").await.unwrap());
    let error = log.read(&source("events", 0), Offset(4), 1).await.unwrap_err();
    assert!(error.to_string().contains("topic: events, partition: 0, offset: 4, the log has: 0..0"), "{error}");
    assert_eq!(log.read(&source("events", 9), Offset(0), 1).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_counted_without_asking_for_their_bounds() {
    let (brokers, log) = brokers(&[("events", 3)]);
    assert_eq!(log.bounds("events").await.unwrap().len(), 3);
    brokers.request_errors(RDKafkaApiKey::ListOffsets, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART; 12]);
    assert_eq!(log.partition_count("events").await.unwrap(), Some(3));
    assert!(log.bounds("events").await.is_err(), "bounds are refused");
}

/// The records need more room than there is, so the owner still sends when the brokers refuse its producer:
/// librdkafka's broker does not fence one producer for another, and is made to say so.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_learns_while_it_sends_that_the_output_was_taken_over_has_a_conflict() {
    let (brokers, _) = brokers(&[("out", 1), ("g-outputs", 1)]);
    let little_room = BTreeMap::from([("queue.buffering.max.messages".to_owned(), "10".to_owned())]);
    let log = KafkaLog::open(&brokers.bootstrap_servers(), &little_room).unwrap();
    let owner = log.take_over_output(&output_of("in", "g")).await.unwrap().appender;
    brokers.request_errors(RDKafkaApiKey::AddPartitionsToTxn, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH]);
    let refused = owner.append("out", made_of(0..100), Offset(100)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(log.bounds("out").await.unwrap()[0].end, Offset(0));
}

/// Two clusters stand for one topic before and after it was made anew: its name is the same, its offsets reach as far.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_anew_that_grew_past_the_committed_offset_is_noticed_by_its_record() {
    let ((_one, before), (_other, after)) = (brokers(&[("events", 1)]), brokers(&[("events", 1)]));
    before.append("events", numbered(0, 20)).await.unwrap();
    after.append("events", numbered(100, 140)).await.unwrap();
    let source = source("events", 0);
    let last = before.read(&source, Offset(19), 1).await.unwrap().records.remove(0);
    let mark = crate::mark_of(&types::vector::PartitionId::new("events", 0), &last);
    let of = async |log: &KafkaLog| {
        let bounds = log.bounds("events").await.unwrap().remove(0);
        crate::check_mark(log, &source, &mark, &bounds).await
    };
    of(&before).await.unwrap();
    let error = of(&after).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Input && error.to_string().contains("partition: events/0, offset: 19"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_share_the_partitions_and_hand_over_without_loss_or_overlap() {
    let stood_still = StoodStill::begin();
    let (_brokers, log) = brokers(&[("events", 4), ("logins", 4)]);
    let topics = ["events", "logins"];
    let catalog = Arc::new(CommittedRecords::default());
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());

    let a = tokio::spawn(work(log.clone(), subscription("a", &topics), catalog.clone(), stop_a.clone()));
    log.append("events", numbered(0, 500)).await.unwrap();
    log.append("logins", numbered(500, 600)).await.unwrap();
    until("the first worker's records", || catalog.count() == 600).await;
    let b = tokio::spawn(work(log.clone(), subscription("b", &topics), catalog.clone(), stop_b.clone()));
    for start in (600..3000).step_by(10) {
        log.append(topics[start / 10 % 2], numbered(start, start + 10)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("both workers' records", || catalog.count() == 3000).await;
    stop_a.cancel();
    let a = a.await.unwrap();
    log.append("events", numbered(3000, 3250)).await.unwrap();
    log.append("logins", numbered(3250, 3500)).await.unwrap();
    until("the second worker's records", || catalog.count() == 3500).await;
    stop_b.cancel();
    let b = b.await.unwrap();

    assert_eq!(catalog.values(), values_of(0, 3500));
    assert!(a.failed.is_none() && b.failed.is_none(), "{a:?} {b:?}");
    // A member that is silent for longer loses its partitions, rightly.
    if stood_still.longest() < Duration::from_secs(1) {
        assert_eq!((a.lost, a.refused_commits, b.lost, b.refused_commits), (0, 0, 0, 0), "{a:?} {b:?}");
        assert_eq!((a.assigned, b.assigned), (a.revoked, b.revoked), "{a:?} {b:?}");
        assert!(a.assigned >= 8 && b.assigned == 8, "{a:?} {b:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_at_its_end_says_so_and_again() {
    let (_brokers, log) = brokers(&[("events", 2), ("logins", 2)]);
    log.append("events", numbered(0, 10)).await.unwrap();
    let (catalog, stop) = (Arc::new(CommittedRecords::default()), CancellationToken::new());
    let worker = tokio::spawn(work(log, subscription("a", &["events", "logins"]), catalog.clone(), stop.clone()));
    until("the records", || catalog.count() == 10).await;
    until("each partition's end, four times", || catalog.ends() >= 16).await;
    stop.cancel();
    worker.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_outside_the_log_fails_and_names_the_range() {
    let (_brokers, log) = brokers(&[("events", 1)]);
    log.append("events", numbered(0, 3)).await.unwrap();
    let mut consumer = log.subscribe(subscription("a", &["events"])).await.unwrap();
    let Some(LogEvent::Assigned { start, .. }) = within("the assignment", consumer.events.recv()).await else { panic!("not assigned") };
    start.send(Ok(vec![(source("events", 0), Offset(10))])).unwrap();
    let Some(LogEvent::Failed(error)) = within("the failure", consumer.events.recv()).await else { panic!("did not fail") };
    assert!(error.to_string().contains("topic: events, partition: 0, offset: 10, the log has: 0..3"), "{error}");
    assert!(consumer.events.recv().await.is_none());
}

/// It asks for the end of each partition, which none answers: a stop waits neither for all of them nor asks again.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_stops_within_seconds_while_the_brokers_are_away() {
    let stood_still = StoodStill::begin();
    let (brokers, log) = brokers(&[("events", 12)]);
    let (catalog, stop) = (Arc::new(CommittedRecords::default()), CancellationToken::new());
    let worker = tokio::spawn(work(log, subscription("a", &["events"]), catalog.clone(), stop.clone()));
    until("each partition's end", || catalog.ends() >= 24).await;
    drop(brokers);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    stop.cancel();
    let observed = within("the stop", worker).await.unwrap();
    assert!(observed.failed.is_none(), "{observed:?}");
    if stood_still.longest() < Duration::from_secs(1) {
        assert!(began.elapsed() < cluster::TIMEOUT, "it took {:?}", began.elapsed());
    }
}

#[test]
fn a_record_that_the_brokers_refuse_is_reported_with_what_helps() {
    for (code, help) in [(RDKafkaErrorCode::InvalidRecord, "set `key`"), (RDKafkaErrorCode::MessageSizeTooLarge, "max.message.bytes")] {
        let error = KafkaError::MessageProduction(code);
        let refused = client::failed("appending to the log", error, "broker:9092", &client::Reasons::default());
        assert!(refused.fact("help").is_some_and(|said| said.contains(help)), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_of_kafka_itself_are_refused() {
    let (_brokers, log) = brokers(&[("__consumer_offsets", 1)]);
    for topic in ["__consumer_offsets", "__transaction_state"] {
        let refused = log.create_topic(topic, 1).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Input && refused.to_string().contains(topic), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_not_there_are_unavailable_and_named() {
    let log = KafkaLog::open("127.0.0.1:9", &BTreeMap::new()).unwrap();
    let error = log.bounds("events").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("127.0.0.1:9"), "{error}");
}
