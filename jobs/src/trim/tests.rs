use catalog::{LeaseRecord, PartitionRecord, run_lease};

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
    let may_go = |names: &[&str], partition| trimmable(&state, &streams(names), (partition, "log"), 0).map(|offset| offset.0);
    assert_eq!(may_go(&["a"], 0), Some(99));
    assert_eq!(may_go(&["a", "b"], 0), Some(39), "the slower stream needs the rest");
    assert_eq!(may_go(&["a", "b"], 1), None, "b has read nothing of it");
    assert_eq!(may_go(&["a"], 2), None, "it was read from another log");
    assert_eq!(may_go(&["a"], 3), None);
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
    let output = event_log::Output { group: "g".into(), sink: "short".into(), source, identity: "log".into() };
    let made = |offset: i64| vec![(Offset(offset), event_log::NewRecord { value: Some("{}".into()), ..Default::default() })];
    log.take_over_output(&output).await.unwrap();
    for topic in ["short", "default", "dropped", "other"] {
        log.create_topic(topic, 1).await.unwrap();
    }
    for offset in 0..5 {
        log.append_output("short", &output, made(offset)).await.unwrap();
        log.append("default", vec![made(offset).remove(0).1]).await.unwrap();
        log.append("dropped", vec![made(offset).remove(0).1]).await.unwrap();
        log.append("other", vec![made(offset).remove(0).1]).await.unwrap();
    }
    let hours = |hours: i64| -> Clock {
        let at = chrono::Utc::now().timestamp_micros() + hours * 3_600_000_000;
        Arc::new(move || at)
    };
    let trimming = |clock| Trimming {
        catalog: catalog.clone(),
        log: log.clone(),
        group: "g".into(),
        retention: Duration::from_secs(5 * 3_600),
        clock,
    };
    assert_eq!(trimming(hours(1)).trim().await.unwrap(), 0, "the other sink of the topic keeps them for two hours");
    assert_eq!(trimming(hours(3)).trim().await.unwrap(), 5, "a sink that was dropped does not keep them for longer");
    assert_eq!(trimming(hours(4)).trim().await.unwrap(), 5, "the sink of that topic was dropped");
    assert_eq!(log.take_over_output(&output).await.unwrap(), Some(Offset(5)), "no record is made again");
    assert_eq!(trimming(hours(6)).trim().await.unwrap(), 5, "what no sink and no stream has stays");
}

#[test]
fn what_a_replay_reads_stays_while_its_lease_holds() {
    let mut state = state(&[("a", 0, 100, "log")]);
    let pin = Some([(PartitionId::new("a", 0), Offset(20))].into_iter().collect());
    let lease = |name: String| LeaseRecord { name, owner: "p".into(), epoch: 1, expires_at: 5, pin: pin.clone() };
    let may_go = |state: &CatalogState, now| trimmable(state, &["a".into()], (0, "log"), now).map(|offset| offset.0);
    state.leases.push(lease("serve/a node".into()));
    assert_eq!(may_go(&state, 4), Some(99), "a node reads no log");
    state.leases.push(lease(run_lease("v", 1)));
    assert_eq!((may_go(&state, 4), may_go(&state, 5)), (Some(19), Some(99)));
}
