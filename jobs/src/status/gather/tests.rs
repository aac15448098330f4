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
