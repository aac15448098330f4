//! Against the real broker that `BASESTREAM_TEST_KAFKA` names (`just services up`).

use rdkafka::ClientConfig;
use rdkafka::consumer::Consumer as _;
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};

use super::*;

async fn real_log(properties: &[(&str, &str)]) -> Arc<dyn Log> {
    let url = std::env::var("BASESTREAM_TEST_KAFKA").expect("BASESTREAM_TEST_KAFKA names a broker: just services up");
    let properties = properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    crate::open(&url, &properties).await.unwrap()
}

fn addresses() -> String {
    std::env::var("BASESTREAM_TEST_KAFKA").unwrap().trim_start_matches("kafka://").to_owned()
}

fn fresh_name(what: &str) -> String {
    format!("{what}-{}", Uuid::new_v4())
}

fn in_group(worker: &str, group: &str, topics: &[&str]) -> Subscription {
    Subscription { group: group.to_owned(), ..subscription(worker, topics) }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn a_topic_is_made_once_and_known_at_once() {
    let log = real_log(&[]).await;
    let topic = fresh_name("made");
    assert_eq!(log.bounds(&topic).await.unwrap(), []);
    assert_eq!(log.identity(&topic).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(log.append(&topic, numbered(0, 1)).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(log.subscribe(subscription("a", &[&topic])).await.err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(log.create_topic(&topic, 3).await.unwrap(), 3);
    assert_eq!(log.create_topic(&topic, 5).await.unwrap(), 3);
    assert_eq!(log.append(&topic, numbered(0, 1000)).await.unwrap().len(), 1000);
    let bounds = log.bounds(&topic).await.unwrap();
    assert_eq!(bounds.iter().map(|bounds| bounds.end.0).sum::<i64>(), 1000);
    assert_eq!(log.create_topic("no/such name", 1).await.unwrap_err().kind(), ErrorKind::Input);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn the_position_passes_over_the_markers_of_transactions() {
    let log = real_log(&[]).await;
    let topic = fresh_name("transactions");
    log.create_topic(&topic, 1).await.unwrap();
    let send_transactions = {
        let topic = topic.clone();
        move || {
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", addresses()).set("transactional.id", &topic);
            let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
            producer.init_transactions(cluster::TIMEOUT).unwrap();
            for (number, is_committed) in [(0, true), (1, false), (2, true), (3, false)] {
                producer.begin_transaction().unwrap();
                let value = format!("{number:08}");
                producer.send(BaseRecord::<(), str>::to(&topic).payload(&value)).ok().unwrap();
                match is_committed {
                    true => producer.commit_transaction(cluster::TIMEOUT).unwrap(),
                    false => producer.abort_transaction(cluster::TIMEOUT).unwrap(),
                }
            }
        }
    };
    tokio::task::spawn_blocking(send_transactions).await.unwrap();

    let end = log.bounds(&topic).await.unwrap()[0].end;
    let all = log.read(&source(&topic, 0), Offset(0), 100).await.unwrap();
    assert_eq!((all.records.len(), all.position, all.at_end), (2, end, true));
    // The last offset is a marker: from there on no record is left to read.
    assert!(all.records[1].offset.next() < end);
    for from in (0..=end.0).map(Offset) {
        let left = all.records.iter().filter(|record| record.offset >= from).count();
        let fetched = log.read(&source(&topic, 0), from, 100).await.unwrap();
        assert_eq!((fetched.records.len(), fetched.position, fetched.at_end), (left, end, true), "from {from}");
    }
    let (catalog, stop) = (Arc::new(CommittedRecords::default()), CancellationToken::new());
    let worker = tokio::spawn(work(log, in_group("a", &topic, &[&topic]), catalog.clone(), stop.clone()));
    until("the end, behind the last marker", || catalog.start_of(&source(&topic, 0)) == end).await;
    stop.cancel();
    worker.await.unwrap();
    assert_eq!(catalog.count(), 2);
}

/// As when a worker takes an output over, and reads the topic of positions while others append to it. A client learns
/// that it is at the end from an empty fetch. Here none is empty: a fetch waits for 30 s, and a record comes sooner.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn a_read_ends_where_the_topic_ended_when_it_began() {
    let log = real_log(&[]).await;
    let (topic, group) = (fresh_name("out"), fresh_name("group"));
    log.create_topic(&topic, 1).await.unwrap();
    let owner = log.take_over_output(&output_of("in", &group)).await.unwrap().appender;
    owner.append(&topic, Vec::new(), Offset(1)).await.unwrap();
    let positions = source(&positions_topic(&group), 0);
    let end = log.bounds(&positions.topic).await.unwrap()[0].end;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let appending = tokio::spawn(async move {
        for next in (2..).map(Offset).take_while(|_| !stopped.is_cancelled()) {
            owner.append(&topic, Vec::new(), next).await.unwrap();
        }
    });
    let waiting = real_log(&[("fetch.wait.max.ms", "30000")]).await;
    let fetched = within("the end of the read", waiting.read(&positions, Offset(0), usize::MAX)).await.unwrap();
    assert!(!appending.is_finished(), "the topic no longer grows");
    assert!(fetched.at_end && fetched.position >= end, "{}, expected {end} or later", fetched.position);
    stop.cancel();
    appending.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn three_workers_come_and_go_without_loss_or_overlap() {
    let log = real_log(&[("heartbeat.interval.ms", "300")]).await;
    let (events, logins) = (fresh_name("events"), fresh_name("logins"));
    log.create_topic(&events, 6).await.unwrap();
    log.create_topic(&logins, 4).await.unwrap();
    let catalog = Arc::new(CommittedRecords::default());
    let mut workers = Vec::new();
    let mut sent = 0;
    for round in 0..6 {
        if round < 3 {
            let stop = CancellationToken::new();
            let subscription = in_group(&format!("w{round}"), &events, &[&events, &logins]);
            workers.push((tokio::spawn(work(log.clone(), subscription, catalog.clone(), stop.clone())), stop));
        } else {
            let (worker, stop) = workers.remove(0);
            if round < 5 {
                stop.cancel();
                let reported = worker.await.unwrap();
                assert_eq!((reported.lost, reported.refused_commits), (0, 0), "{reported:?}");
            } else {
                workers.push((worker, stop));
            }
        }
        for _ in 0..100 {
            let topic = if sent % 40 == 0 { &events } else { &logins };
            log.append(topic, numbered(sent, sent + 20)).await.unwrap();
            sent += 20;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    until("all records", || catalog.count() >= sent).await;
    for (worker, stop) in workers {
        stop.cancel();
        assert!(worker.await.unwrap().failed.is_none());
    }
    assert_eq!(catalog.values(), values_of(0, sent));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn a_start_that_expired_fails_and_names_the_range() {
    let log = real_log(&[]).await;
    let topic = fresh_name("expired");
    log.create_topic(&topic, 1).await.unwrap();
    log.append(&topic, numbered(0, 10)).await.unwrap();
    delete_before(&topic, 5).await;
    until_begin(&log, &topic, 5).await;
    let working = work(log.clone(), in_group("a", &topic, &[&topic]), Arc::default(), CancellationToken::new());
    let reported = within("the failure", working).await;
    let error = reported.failed.unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("partition: 0, offset: 0, the log has: 5..10"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn records_that_expire_under_a_consumer_fail_it_and_name_the_range() {
    let log = real_log(&[("queued.min.messages", "1"), ("fetch.message.max.bytes", "1000")]).await;
    let topic = fresh_name("outrun");
    log.create_topic(&topic, 1).await.unwrap();
    for start in (0..2000).step_by(100) {
        log.append(&topic, numbered(start, start + 100)).await.unwrap();
    }
    let mut consumer = log.subscribe(in_group("a", &topic, &[&topic])).await.unwrap();
    let Some(LogEvent::Assigned { start, .. }) = within("the assignment", consumer.events.recv()).await else { panic!("not assigned") };
    start.send(Ok(vec![(source(&topic, 0), Offset(0))])).unwrap();
    // It waits for its worker then, and the records are deleted before it asks for more.
    until("a full queue", || consumer.events.len() == consumer.events.max_capacity()).await;
    delete_before(&topic, 2000).await;
    let ended = async {
        let mut failed = None;
        while let Some(event) = consumer.events.recv().await {
            if let LogEvent::Failed(error) = event {
                failed = Some(error);
            }
        }
        failed
    };
    let error = within("the failure", ended).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("partition: 0, offset: ") && error.to_string().contains("the log has: 2000..2000"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn a_topic_keeps_its_id_until_it_is_made_anew() {
    let log = real_log(&[]).await;
    let topic = fresh_name("anew");
    assert_eq!(log.topic_id(&topic).await.unwrap_err().kind(), ErrorKind::NotFound);
    log.create_topic(&topic, 1).await.unwrap();
    assert!(!log.is_compacted(&topic).await.unwrap());
    let (identity, id) = (log.identity(&topic).await.unwrap(), log.topic_id(&topic).await.unwrap());
    assert!(!id.parse::<Uuid>().unwrap().is_nil(), "{id}");
    log.append(&topic, numbered(0, 10)).await.unwrap();
    assert_eq!(log.topic_id(&topic).await.unwrap(), id);
    make_anew(&log, &topic).await;
    assert_ne!(log.topic_id(&topic).await.unwrap(), id);
    assert_eq!(log.identity(&topic).await.unwrap(), identity);
}

/// The log has received what follows it: the partition is not complete, however long the transaction stays open.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn a_partition_that_an_open_transaction_holds_back_is_not_at_its_end() {
    let log = real_log(&[]).await;
    let topic = fresh_name("open");
    log.create_topic(&topic, 1).await.unwrap();
    log.append(&topic, numbered(0, 10)).await.unwrap();
    let name = topic.clone();
    let begin = move || {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", addresses()).set("transactional.id", &name);
        let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
        producer.init_transactions(cluster::TIMEOUT).unwrap();
        producer.begin_transaction().unwrap();
        producer.send(BaseRecord::<(), str>::to(&name).payload("open")).ok().unwrap();
        producer.flush(cluster::TIMEOUT).unwrap();
        producer
    };
    let open = tokio::task::spawn_blocking(begin).await.unwrap();
    log.append(&topic, numbered(10, 20)).await.unwrap();

    let mut consumer = log.subscribe(in_group("a", &topic, &[&topic])).await.unwrap();
    let Some(LogEvent::Assigned { start, .. }) = within("the assignment", consumer.events.recv()).await else { panic!("not assigned") };
    start.send(Ok(vec![(source(&topic, 0), Offset(0))])).unwrap();
    let mut fetches_without_records = 0;
    while fetches_without_records < 3 {
        let Some(LogEvent::Fetched(fetched)) = within("a fetch", consumer.events.recv()).await else { panic!("nothing fetched") };
        assert!(!fetched.at_end && fetched.position <= Offset(10), "{fetched:?}");
        fetches_without_records += usize::from(fetched.records.is_empty());
    }
    let transactions = log.open_transactions(&topic, &[0]).await.unwrap();
    assert_eq!(transactions.iter().map(|open| (open.partition, open.offset, open.held_back)).collect::<Vec<_>>(), [(0, Offset(10), 11)]);
    assert!(transactions[0].since > 1_600_000_000_000_000, "{transactions:?}");
    tokio::task::spawn_blocking(move || open.abort_transaction(cluster::TIMEOUT).unwrap()).await.unwrap();
    let end = async {
        loop {
            match consumer.events.recv().await {
                Some(LogEvent::Fetched(fetched)) if fetched.at_end => break fetched.position,
                Some(LogEvent::Fetched(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    // 20 records, one that was aborted, and its marker.
    assert_eq!(within("the end", end).await, Offset(22));
    assert_eq!(log.open_transactions(&topic, &[0]).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn new_partitions_are_assigned_to_who_consumes() {
    let log = real_log(&[("topic.metadata.refresh.interval.ms", "500")]).await;
    let topic = fresh_name("growing");
    log.create_topic(&topic, 1).await.unwrap();
    let (catalog, stop) = (Arc::new(CommittedRecords::default()), CancellationToken::new());
    let worker = tokio::spawn(work(log.clone(), in_group("a", &topic, &[&topic]), catalog.clone(), stop.clone()));
    log.append(&topic, numbered(0, 100)).await.unwrap();
    until("the first partition's records", || catalog.count() == 100).await;
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", addresses()).create().unwrap();
    let more = rdkafka::admin::NewPartitions::new(&topic, 3);
    admin.create_partitions([&more], &AdminOptions::new()).await.unwrap();
    let fresh = real_log(&[]).await;
    let known = async {
        // A new partition has no leader for a moment.
        while fresh.bounds(&topic).await.map_or(0, |bounds| bounds.len()) < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the new partitions", known).await;
    fresh.append(&topic, numbered(100, 400)).await.unwrap();
    until("all records", || catalog.count() == 400).await;
    stop.cancel();
    assert_eq!(worker.await.unwrap().lost, 0);
    assert!(catalog.start_of(&source(&topic, 2)) > Offset(0));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn a_worker_that_stalls_loses_its_partitions_and_hears_of_it() {
    let stall = [("max.poll.interval.ms", "6000"), ("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "300")];
    let log = real_log(&stall).await;
    let topic = fresh_name("stalled");
    log.create_topic(&topic, 2).await.unwrap();
    log.append(&topic, numbered(0, 5000)).await.unwrap();
    let mut consumer = log.subscribe(in_group("a", &topic, &[&topic])).await.unwrap();
    let Some(LogEvent::Assigned { start, .. }) = within("the assignment", consumer.events.recv()).await else { panic!("not assigned") };
    start.send(Ok(vec![(source(&topic, 0), Offset(0)), (source(&topic, 1), Offset(0))])).unwrap();
    let watcher: rdkafka::consumer::BaseConsumer = ClientConfig::new().set("bootstrap.servers", addresses()).create().unwrap();
    let has_member = || {
        let groups = watcher.fetch_group_list(Some(topic.as_str()), cluster::TIMEOUT);
        groups.map(|found| found.groups().iter().any(|group| !group.members().is_empty()))
    };
    until("a member of the group", || has_member().unwrap_or(false)).await;
    until("a group without its member", || !has_member().unwrap_or(true)).await;
    let heard = async {
        let mut lost = Vec::new();
        while let Some(event) = consumer.events.recv().await {
            match event {
                LogEvent::Lost { partitions, kept } => {
                    lost = partitions;
                    kept.send(Ok(Vec::new())).unwrap();
                }
                LogEvent::Assigned { partitions, start } => {
                    start.send(Ok(partitions.into_iter().map(|source| (source, Offset(0))).collect())).unwrap();
                    break;
                }
                LogEvent::Fetched(_) => {}
                other => panic!("{other:?}"),
            }
        }
        lost
    };
    let lost = within("another assignment", heard).await;
    assert_eq!(lost, [source(&topic, 0), source(&topic, 1)]);
    consumer.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn settings_that_the_group_refuses_fail_the_consumer() {
    let log = real_log(&[("session.timeout.ms", "100"), ("heartbeat.interval.ms", "50")]).await;
    let topic = fresh_name("refused");
    log.create_topic(&topic, 1).await.unwrap();
    let working = work(log, in_group("a", &topic, &[&topic]), Arc::default(), CancellationToken::new());
    let reported = within("the failure", working).await;
    let error = reported.failed.unwrap();
    assert!(error.kind() == ErrorKind::Input && error.to_string().contains("session timeout"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn the_group_stores_no_offsets() {
    let log = real_log(&[]).await;
    let topic = fresh_name("stored");
    log.create_topic(&topic, 1).await.unwrap();
    log.append(&topic, numbered(0, 100)).await.unwrap();
    let (catalog, stop) = (Arc::new(CommittedRecords::default()), CancellationToken::new());
    let worker = tokio::spawn(work(log, in_group("a", &topic, &[&topic]), catalog.clone(), stop.clone()));
    until("the records", || catalog.count() == 100).await;
    stop.cancel();
    worker.await.unwrap();
    let committed = tokio::task::spawn_blocking(move || {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", addresses()).set("group.id", &topic);
        let consumer: rdkafka::consumer::BaseConsumer = config.create().unwrap();
        let mut asked = rdkafka::TopicPartitionList::new();
        asked.add_partition(&topic, 0);
        consumer.committed_offsets(asked, cluster::TIMEOUT).unwrap().find_partition(&topic, 0).unwrap().offset()
    });
    assert_eq!(committed.await.unwrap(), rdkafka::Offset::Invalid);
}

async fn delete_before(topic: &str, offset: i64) {
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", addresses()).create().unwrap();
    let mut upto = rdkafka::TopicPartitionList::new();
    upto.add_partition_offset(topic, 0, rdkafka::Offset::Offset(offset)).unwrap();
    admin.delete_records(&upto, &AdminOptions::new()).await.unwrap();
}

/// Deletes a topic of one partition and creates it again, without records.
async fn make_anew(log: &Arc<dyn Log>, topic: &str) {
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", addresses()).create().unwrap();
    admin.delete_topics(&[topic], &AdminOptions::new()).await.unwrap();
    let gone = async {
        while !log.bounds(topic).await.is_ok_and(|bounds| bounds.is_empty()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the topic to be gone", gone).await;
    log.create_topic(topic, 1).await.unwrap();
}

async fn until_begin(log: &Arc<dyn Log>, topic: &str, begin: i64) {
    let begun = async {
        while log.bounds(topic).await.unwrap()[0].begin != Offset(begin) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the log's begin after what was deleted", begun).await;
}

/// The second producer of an output fences the first one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn the_record_of_an_event_is_appended_once() {
    let (first, second) = (real_log(&[]).await, real_log(&[]).await);
    let (topic, group) = (fresh_name("out"), fresh_name("group"));
    first.create_topic(&topic, 3).await.unwrap();
    let output = crate::testing::output_of("in", &group);
    let owner = crate::testing::each_record_is_appended_once(&*first, &*second, &topic, &output).await;
    let refused = owner.append(&topic, crate::testing::made_of(60..70), Offset(70)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn a_compacted_output_that_refuses_records_without_a_key_is_reported_with_what_helps() {
    let log = real_log(&[]).await;
    let (topic, group) = (fresh_name("compacted"), fresh_name("group"));
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", addresses()).create().unwrap();
    let compacted = NewTopic::new(&topic, 1, TopicReplication::Fixed(1)).set("cleanup.policy", "compact");
    admin.create_topics([&compacted], &AdminOptions::new()).await.unwrap();
    log.create_topic(&topic, 1).await.unwrap();
    assert!(log.is_compacted(&topic).await.unwrap());
    let owner = log.take_over_output(&output_of("in", &group)).await.unwrap().appender;
    let refused = owner.append(&topic, made_of(0..1), Offset(1)).await.unwrap_err();
    assert!(refused.to_string().contains("set `key`"), "{refused}");
}

/// Readers see nothing behind an open transaction. One that a killed process left is aborted by the broker in the end.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn a_position_behind_an_open_transaction_is_not_missed() {
    let (first, second) = (real_log(&[]).await, real_log(&[]).await);
    let (topic, group) = (fresh_name("out"), fresh_name("group"));
    first.create_topic(&topic, 1).await.unwrap();
    let output = crate::testing::output_of("in", &group);
    let taken = first.take_over_output(&output).await.unwrap();
    assert_eq!(taken.next, None);
    taken.appender.append(&topic, crate::testing::made_of(0..10), Offset(10)).await.unwrap();
    let (positions, id) = (format!("{group}-outputs"), group.clone());
    let leave_open = move || {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", addresses()).set("transactional.id", &id);
        config.set("message.timeout.ms", "2000").set("transaction.timeout.ms", "3000");
        let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
        producer.init_transactions(cluster::TIMEOUT).unwrap();
        producer.begin_transaction().unwrap();
        producer.send(BaseRecord::<str, str>::to(&positions).partition(0).key("dead").payload("1")).ok().unwrap();
        producer.flush(cluster::TIMEOUT).unwrap();
        // As if its process had been killed.
        std::mem::forget(producer);
    };
    tokio::task::spawn_blocking(leave_open).await.unwrap();
    taken.appender.append(&topic, crate::testing::made_of(10..20), Offset(20)).await.unwrap();
    assert_eq!(second.take_over_output(&output).await.unwrap().next, Some(Offset(20)));
}
