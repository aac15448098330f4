use super::*;

#[test]
fn a_partition_that_was_committed_a_moment_ago_is_not_asked_how_long_its_records_wait() {
    let now = 1_767_333_600_000_000;
    let partition = |complete_to: Option<Micros>| PartitionRecord {
        id: PartitionId::new("pay", 0),
        next_offset: Offset(100),
        log_identity: "log-1".into(),
        clock: None,
        max_event_time: None,
        complete_to,
    };
    let seconds_ago = |seconds: i64| moves(&partition(Some(now - seconds * 1_000_000)), now);
    assert!(seconds_ago(0) && seconds_ago(29) && seconds_ago(-29));
    assert!(!seconds_ago(31), "a record may have been waiting since then");
    assert!(!seconds_ago(-31), "the log's clock is ahead");
    assert!(!moves(&partition(None), now));
}

#[test]
fn a_group_holds_the_log_back_where_none_of_its_workers_runs_and_a_topic_of_ours_is_read() {
    let stream = catalog::DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: "pay".into(),
        version: 1,
        sql: "CREATE STREAM pay (ts TIMESTAMPTZ NOT NULL) WITH (topic = 'payments', event_time = 'ts')".into(),
        status: catalog::DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let state = CatalogState { definitions: [stream].into_iter().collect(), ..CatalogState::default() };
    let group = |name: &str, topics: &[&str], is_active| {
        let topics = topics.iter().map(|topic| Arc::from(*topic)).collect();
        ReaderGroup { name: name.to_owned(), topics, is_active }
    };
    let groups = vec![
        group("before", &["payments", "theirs"], false),
        group("elsewhere", &["theirs"], false),
        group("beside", &["payments"], true),
        group("own", &["payments"], false),
    ];
    assert_eq!(idle_groups(groups, "own", &state), [group("before", &["payments"], false)]);
}
