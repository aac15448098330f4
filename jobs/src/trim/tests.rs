use catalog::{CheckpointRange, CheckpointRecord, LeaseRecord, PartitionRecord, run_lease};
use uuid::Uuid;

use super::*;

fn state(read: &[(&str, i32, i64, &str)]) -> CatalogState {
    let record = |(stream, partition, next, identity): &(&str, i32, i64, &str)| PartitionRecord {
        id: PartitionId::new(*stream, *partition),
        next_offset: Offset(*next),
        log_identity: (*identity).to_owned(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    let partitions = read.iter().map(record).map(|record| (record.id.clone(), record)).collect();
    CatalogState { partitions, ..CatalogState::default() }
}

#[test]
fn what_every_stream_has_committed_may_go_but_for_the_last_record() {
    let state = state(&[("a", 0, 100, "log"), ("b", 0, 40, "log"), ("a", 1, 7, "log"), ("a", 2, 9, "other")]);
    let streams = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>();
    let may_go =
        |names: &[&str], partition| trimmable(&state, &streams(names), partition, "log", &BTreeMap::new(), 0).map(|offset| offset.0);
    assert_eq!(may_go(&["a"], 0), Some(99));
    assert_eq!(may_go(&["a", "b"], 0), Some(39), "the slower stream needs the rest");
    assert_eq!(may_go(&["a", "b"], 1), None, "b has read nothing of it");
    assert_eq!(may_go(&["a"], 2), None, "it was read from another log");
    assert_eq!(may_go(&["a"], 3), None);
}

/// Keeps records for five hours.
fn trimming(catalog: &Catalog, log: &Arc<dyn Log>, clock: Clock) -> Trimming {
    let retention = Duration::from_hours(5);
    Trimming { catalog: catalog.clone(), log: log.clone(), group: "g".into(), retention, clock }
}

/// A clock that stands `hours` after now.
fn hours(ahead: i64) -> Clock {
    let at = chrono::Utc::now().timestamp_micros() + ahead * 3_600_000_000;
    Arc::new(move || at)
}

#[tokio::test]
async fn what_is_committed_late_stays_as_long_as_what_is_committed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &BTreeMap::new()).await.unwrap();
    log.create_topic("s", 1).await.unwrap();
    for _ in 0..10 {
        log.append("s", vec![event_log::NewRecord { value: Some("{}".into()), ..Default::default() }]).await.unwrap();
    }
    let stream = catalog::Add::Definition(catalog::DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: "s".into(),
        version: 1,
        sql: "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL) WITH (event_time = 'ts')".to_owned(),
        status: catalog::DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    });
    catalog.commit(catalog::Commit { id: Uuid::now_v7(), add: vec![stream], ..Default::default() }).await.unwrap();
    assert_eq!(trimming(&catalog, &log, hours(100)).trim().await.unwrap(), 0, "nothing is committed");
    // No worker ran for four hours.
    let partition = PartitionId::new("s", 0);
    let range = CheckpointRange::of_events(partition.clone(), 0, 10);
    let checkpoint = CheckpointRecord::new(Uuid::now_v7(), "w", hours(4)(), vec![range]);
    let identities = BTreeMap::from([(partition, log.identity("s").await.unwrap())]);
    catalog.commit(catalog::checkpoint_commit(checkpoint, Vec::new(), &identities)).await.unwrap();
    assert_eq!(trimming(&catalog, &log, hours(8)).trim().await.unwrap(), 0, "appended eight hours ago, committed four hours ago");
    assert_eq!(trimming(&catalog, &log, hours(10)).trim().await.unwrap(), 9, "the last one identifies the log");
}

/// The workers of the group would go on, and their leases with them.
#[tokio::test]
async fn the_group_of_these_workers_is_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &BTreeMap::new()).await.unwrap();
    let trimming = trimming(&catalog, &log, hours(0));
    assert_eq!(trimming.forget_group("g").await.unwrap_err().kind(), ErrorKind::Input);
    assert_eq!(trimming.forget_group("other").await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Nobody reads the topic of a dropped stream any more, and one may be defined again over it.
#[tokio::test]
async fn what_a_dropped_stream_committed_goes_and_what_it_did_not_read_stays() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &BTreeMap::new()).await.unwrap();
    let stream = |name: &str, topic: &str, status| {
        catalog::Add::Definition(catalog::DefinitionRecord {
            kind: DefinitionKind::Stream,
            name: name.into(),
            version: 1,
            sql: format!("CREATE STREAM {name} (ts TIMESTAMPTZ NOT NULL) WITH (topic = '{topic}', event_time = 'ts')"),
            status,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        })
    };
    let (live, retired) = (catalog::DefinitionStatus::Active, catalog::DefinitionStatus::Retired);
    let add = vec![stream("alone", "one", retired), stream("moved", "both", retired), stream("new", "both", live)];
    catalog.commit(catalog::Commit { id: Uuid::now_v7(), add, ..Default::default() }).await.unwrap();
    let mut identities = BTreeMap::new();
    for (topic, streams) in [("one", &["alone"][..]), ("both", &["moved", "new"])] {
        log.create_topic(topic, 1).await.unwrap();
        for _ in 0..10 {
            log.append(topic, vec![event_log::NewRecord { value: Some("{}".into()), ..Default::default() }]).await.unwrap();
        }
        let identity = log.identity(topic).await.unwrap();
        identities.extend(streams.iter().map(|stream| (PartitionId::new(*stream, 0), identity.clone())));
    }
    let ranges =
        [("alone", 7), ("moved", 3), ("new", 5)].map(|(stream, end)| CheckpointRange::of_events(PartitionId::new(stream, 0), 0, end));
    let checkpoint = CheckpointRecord::new(Uuid::now_v7(), "w", hours(0)(), ranges.to_vec());
    catalog.commit(catalog::checkpoint_commit(checkpoint, Vec::new(), &identities)).await.unwrap();
    assert_eq!(trimming(&catalog, &log, hours(4)).trim().await.unwrap(), 0);
    assert_eq!(trimming(&catalog, &log, hours(6)).trim().await.unwrap(), 6 + 4, "up to the last record that each has committed");
    let begin = async |topic: &str| log.bounds(topic).await.unwrap()[0].begin.0;
    assert_eq!((begin("one").await, begin("both").await), (6, 4), "the live stream of a topic decides");
}

/// Nothing of a stream is committed in a topic that it leaves, so that no commit says when its records may go.
#[tokio::test]
async fn what_is_in_a_topic_that_its_stream_has_left_goes_unless_another_one_has_the_topic() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &BTreeMap::new()).await.unwrap();
    let (active, before) = (catalog::DefinitionStatus::Active, catalog::DefinitionStatus::Redecoded);
    let stream = |name: &str, version: u32, topic: &str, status| catalog::DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: name.into(),
        version,
        sql: format!("CREATE STREAM {name} (ts TIMESTAMPTZ NOT NULL) WITH (topic = '{topic}', event_time = 'ts')"),
        status,
        created_at: hours(2 * i64::from(version - 1))(),
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let sink = catalog::DefinitionRecord {
        kind: DefinitionKind::Sink,
        sql: "CREATE SINK out WITH (topic = 'of_sink', retention = '100d') AS SELECT * FROM a".to_owned(),
        ..stream("out", 1, "", active)
    };
    let of_streams = [
        stream("a", 1, "left", before),
        stream("a", 2, "one", active),
        stream("b", 1, "taken", before),
        stream("b", 2, "two", active),
        stream("c", 1, "taken", active),
        stream("d", 1, "of_sink", before),
        stream("d", 2, "three", active),
        stream("e", 1, "of_removed", before),
        stream("e", 2, "four", active),
        stream("f", 1, "of_removed", catalog::DefinitionStatus::Retired),
    ];
    let add = of_streams.into_iter().chain([sink]).map(catalog::Add::Definition).collect();
    catalog.commit(catalog::Commit { id: Uuid::now_v7(), add, ..Default::default() }).await.unwrap();
    for topic in ["left", "one", "taken", "of_sink", "of_removed"] {
        log.create_topic(topic, 1).await.unwrap();
        for _ in 0..10 {
            log.append(topic, vec![event_log::NewRecord { value: Some("{}".into()), ..Default::default() }]).await.unwrap();
        }
    }
    assert_eq!(trimming(&catalog, &log, hours(6)).trim().await.unwrap(), 0, "appended six hours ago, left four hours ago");
    assert_eq!(trimming(&catalog, &log, hours(8)).trim().await.unwrap(), 10);
    assert_eq!(log.bounds("left").await.unwrap()[0].begin, Offset(10));
}

#[tokio::test]
async fn what_is_in_a_topic_that_gets_a_stream_while_it_is_trimmed_stays() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &BTreeMap::new()).await.unwrap();
    let define = async |name: &str, version: u32, topic: &str, status| {
        let record = catalog::DefinitionRecord {
            kind: DefinitionKind::Stream,
            name: name.into(),
            version,
            sql: format!("CREATE STREAM {name} (ts TIMESTAMPTZ NOT NULL) WITH (topic = '{topic}', event_time = 'ts')"),
            status,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        };
        let add = vec![catalog::Add::Definition(record)];
        catalog.commit(catalog::Commit { id: Uuid::now_v7(), add, ..Default::default() }).await.unwrap();
    };
    define("a", 1, "left", catalog::DefinitionStatus::Redecoded).await;
    define("a", 2, "one", catalog::DefinitionStatus::Active).await;
    for topic in ["left", "one"] {
        log.create_topic(topic, 1).await.unwrap();
    }
    log.append("left", vec![event_log::NewRecord { value: Some("{}".into()), ..Default::default() }]).await.unwrap();
    let trimming = trimming(&catalog, &log, hours(6));
    let state = catalog.state().await.unwrap();
    let old = trimming.old_records(&state).await.unwrap();
    assert_eq!(trimming.would_trim(&state).await.unwrap(), 1);
    define("b", 1, "left", catalog::DefinitionStatus::Active).await;
    assert_eq!(trimming.trim_records(old).await.unwrap(), 0, "it is a stream's again");
    assert_eq!(log.bounds("left").await.unwrap()[0].begin, Offset(0));
}

#[test]
fn what_was_committed_recently_stays_however_old_its_records_are() {
    let mut state = state(&[("a", 0, 100, "log"), ("a", 1, 50, "log"), ("b", 0, 100, "log")]);
    let checkpoint = |id: u128, committed_at, ranges: &[(&str, i32, i64, i64)]| {
        let range = |(stream, partition, start, end): &(&str, i32, i64, i64)| {
            CheckpointRange::of_events(PartitionId::new(*stream, *partition), *start, *end)
        };
        CheckpointRecord::new(Uuid::from_u128(id), "w", committed_at, ranges.iter().map(range).collect())
    };
    // Those of two workers: the offsets of a partition ascend, the times need not.
    let checkpoints = [
        checkpoint(1, 10, &[("a", 0, 0, 40), ("b", 0, 0, 30)]),
        checkpoint(2, 30, &[("a", 0, 40, 70), ("a", 1, 0, 50)]),
        checkpoint(3, 20, &[("a", 0, 70, 100), ("b", 0, 30, 100)]),
    ];
    state.checkpoints = checkpoints.into_iter().collect();
    let may_go = |names: &[&str], partition, since| {
        let streams: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
        trimmable(&state, &streams, partition, "log", &committed_since(&state, since), 40).map(|offset| offset.0)
    };
    assert_eq!(may_go(&["a"], 0, 31), Some(99), "all was committed long enough ago");
    assert_eq!((may_go(&["a"], 0, 30), may_go(&["a"], 0, 11)), (Some(39), Some(39)));
    assert_eq!((may_go(&["a"], 1, 30), may_go(&["a"], 1, 31)), (Some(-1), Some(49)));
    assert_eq!((may_go(&["a", "b"], 0, 21), may_go(&["a", "b"], 0, 20)), (Some(39), Some(29)), "of either stream");
    assert_eq!(may_go(&["a"], 0, 10), Some(-1), "nothing");
}

/// A log, its catalog, and a sink whose records are of a topic that no stream reads.
#[tokio::test]
async fn old_records_of_a_sink_go_and_its_outputs_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let of_status = |status: catalog::DefinitionStatus, name: &str, sql: &str| {
        catalog::Add::Definition(catalog::DefinitionRecord {
            kind: DefinitionKind::Sink,
            name: name.into(),
            version: 1,
            sql: sql.to_owned(),
            status,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        })
    };
    let definition = |name: &str, sql: &str| of_status(catalog::DefinitionStatus::Active, name, sql);
    let dropped = |name: &str, sql: &str| of_status(catalog::DefinitionStatus::Retired, name, sql);
    let add = vec![
        dropped("dropped", "CREATE SINK dropped WITH (topic = 'dropped', retention = '4h') AS SELECT * FROM s"),
        dropped("longer", "CREATE SINK longer WITH (topic = 'short', retention = '100d') AS SELECT * FROM s"),
        definition("short", "CREATE SINK short WITH (topic = 'short', retention = '1h') AS SELECT * FROM s"),
        definition("default", "CREATE SINK default WITH (topic = 'default') AS SELECT * FROM s"),
        definition("shared", "CREATE SINK shared WITH (topic = 'short', retention = '2h') AS SELECT * FROM s"),
        definition("not_yet", "CREATE SINK not_yet WITH (topic = 'not_yet') AS SELECT * FROM s"),
    ];
    catalog.commit(catalog::Commit { id: uuid::Uuid::now_v7(), add, ..Default::default() }).await.unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &BTreeMap::new()).await.unwrap();
    let source = TopicPartition { topic: "in".into(), partition: 0 };
    let output = event_log::LogOutput { group: "g".into(), sink: "short".into(), source, identity: "log".into() };
    let made = |offset: i64| vec![(Offset(offset), event_log::NewRecord { value: Some("{}".into()), ..Default::default() })];
    let owner = log.take_over_output(&output).await.unwrap().appender;
    for topic in ["short", "default", "dropped", "other"] {
        log.create_topic(topic, 1).await.unwrap();
    }
    for offset in 0..5 {
        owner.append("short", made(offset), Offset(offset + 1)).await.unwrap();
        log.append("default", vec![made(offset).remove(0).1]).await.unwrap();
        log.append("dropped", vec![made(offset).remove(0).1]).await.unwrap();
        log.append("other", vec![made(offset).remove(0).1]).await.unwrap();
    }
    let trimming = |clock| trimming(&catalog, &log, clock);
    let sink = parse_sink("CREATE SINK short WITH (topic = 'short', retention = '1h') AS SELECT * FROM s").unwrap();
    let reader = crate::outputs::OutputReader::of_sink(&*log, &sink);
    assert_eq!(reader.deleted().await.unwrap(), None);
    assert_eq!(trimming(hours(1)).trim().await.unwrap(), 0, "the other sink of the topic keeps them for two hours");
    assert_eq!(trimming(hours(3)).trim().await.unwrap(), 5, "a sink that was dropped does not keep them for longer");
    let deleted = reader.deleted().await.unwrap().unwrap();
    assert!(deleted.starts_with("the topic \"short\" begins at offset 5 of partition 0: "), "{deleted}");
    assert_eq!(trimming(hours(4)).trim().await.unwrap(), 5, "the sink of that topic was dropped");
    assert_eq!(log.take_over_output(&output).await.unwrap().next, Some(Offset(5)), "no record is made again");
    assert_eq!(trimming(hours(6)).trim().await.unwrap(), 5, "what no sink and no stream has stays");
}

/// A replay of dead letters died. The next one reads the log from where it began, whenever that is.
#[test]
fn what_a_replay_of_dead_letters_may_have_appended_stays_until_the_next_one() {
    let mut state = state(&[("a", 0, 100, "log"), ("b", 0, 100, "log")]);
    let may_go = |state: &CatalogState, streams: &[&str]| {
        let streams: Vec<Arc<str>> = streams.iter().map(|stream| Arc::from(*stream)).collect();
        trimmable(state, &streams, 0, "log", &BTreeMap::new(), 9).map(|offset| offset.0)
    };
    let pin = Some([(PartitionId::new("a", 0), Offset(20))].into_iter().collect());
    state.leases.push(LeaseRecord { name: "replay/a".into(), owner: "p".into(), epoch: 1, expires_at: 5, pin });
    assert_eq!((may_go(&state, &["a"]), may_go(&state, &["a", "b"])), (Some(19), Some(19)));
    assert_eq!(may_go(&state, &["b"]), Some(99), "of another topic");
    state.leases.clear();
    assert_eq!(may_go(&state, &["a"]), Some(99), "it is done");
}

#[test]
fn what_a_replay_reads_stays_while_its_lease_holds() {
    let mut state = state(&[("a", 0, 100, "log")]);
    let pin = Some([(PartitionId::new("a", 0), Offset(20))].into_iter().collect());
    let lease = |name: String| LeaseRecord { name, owner: "p".into(), epoch: 1, expires_at: 5, pin: pin.clone() };
    let may_go = |state: &CatalogState, now| trimmable(state, &["a".into()], 0, "log", &BTreeMap::new(), now).map(|offset| offset.0);
    state.leases.push(lease("serve/a node".into()));
    assert_eq!(may_go(&state, 4), Some(99), "a node reads no log");
    state.leases.push(lease(run_lease("v", 1)));
    assert_eq!((may_go(&state, 4), may_go(&state, 5)), (Some(19), Some(99)));
}
