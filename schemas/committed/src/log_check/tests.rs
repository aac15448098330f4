use types::ErrorKind;
use types::vector::PartitionId;

use super::*;

fn known(partition: i32, next_offset: i64, log_identity: &str) -> PartitionRecord {
    PartitionRecord {
        id: PartitionId::new("payments", partition),
        next_offset: Offset(next_offset),
        log_identity: log_identity.to_owned(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    }
}

fn state_of(known: &[PartitionRecord]) -> CatalogState {
    let partitions = known.iter().map(|known| (known.id.clone(), known.clone())).collect();
    CatalogState { partitions, ..CatalogState::default() }
}

/// What a topic with one partition that ends here is refused for.
fn refused(known: &[PartitionRecord], identity: &str, ends: &[(i32, i64)]) -> Option<String> {
    let state = state_of(known);
    let ends: Vec<(i32, Offset)> = ends.iter().map(|(partition, end)| (*partition, Offset(*end))).collect();
    check_topic(&state, "payments", identity, &ends).err().map(|error| error.to_string())
}

#[test]
fn a_log_with_the_committed_records_is_taken() {
    assert_eq!(refused(&[known(0, 10, "log")], "log", &[(0, 10)]), None);
    assert_eq!(refused(&[known(0, 10, "")], "log", &[(0, 12), (1, 3)]), None, "of an earlier release, or of a gap alone");
    assert_eq!(refused(&[known(0, 0, "log")], "log", &[]), None, "nothing of it is committed");
    assert_eq!(refused(&[known(0, 10, "log"), known(1, 5, "")], "log", &[(0, 10)]), None, "one was committed from no log");
    assert_eq!(refused(&[], "log", &[]), None);
}

#[test]
fn a_log_with_other_records_or_fewer_is_refused() {
    let other = refused(&[known(0, 10, "log")], "another", &[(0, 20)]).unwrap();
    assert!(other.contains("not the one that the catalog knows") && other.contains("another"), "{other}");
    let shorter = refused(&[known(0, 10, "log")], "log", &[(0, 9)]).unwrap();
    assert!(shorter.contains("shorter than the catalog expects") && shorter.contains("payments/0"), "{shorter}");
    let lacks = refused(&[known(0, 10, "log"), known(1, 5, "log")], "log", &[(0, 10)]).unwrap();
    assert!(lacks.contains("lacks a partition of which records are committed") && lacks.contains("payments/1"), "{lacks}");
    assert!(refused(&[known(0, 10, "log")], "", &[]).is_some(), "the topic was deleted");
    assert!(refused(&[known(0, 10, "")], "", &[]).is_some(), "it was deleted, and the catalog does not know its identity");
}

#[test]
fn a_topic_that_was_read_and_is_gone_is_not_created_anew() {
    let stream = parse::parse_stream("CREATE STREAM payments (ts TIMESTAMPTZ NOT NULL) WITH (topic = 'pay', event_time = 'ts')").unwrap();
    let read = [known(0, 10, "log"), known(1, 5, "log")];
    let refused = |known: &[PartitionRecord], partitions| check_not_gone(&state_of(known), &stream, partitions).err();
    let gone = refused(&read, 0).unwrap();
    assert_eq!(gone.kind(), ErrorKind::Input, "{gone}");
    assert!(gone.to_string().contains("the topic is gone") && gone.to_string().contains("topic: pay"), "{gone}");
    let narrower = refused(&read, 1).unwrap().to_string();
    assert!(narrower.contains("fewer partitions") && narrower.contains("partition: payments/1, committed: 5"), "{narrower}");
    assert!(refused(&read, 2).is_none() && refused(&read, 3).is_none());
    assert!(refused(&[], 0).is_none(), "it was never read");
    assert!(refused(&read[..1], 1).is_none());
}
