use bytes::Bytes;

use super::*;

fn partition(number: i32) -> TopicPartition {
    TopicPartition { topic: "in".into(), partition: number }
}

fn record(value: &'static str) -> NewRecord {
    NewRecord { key: None, value: Some(Bytes::from_static(value.as_bytes())), headers: Vec::new(), partition_by: None }
}

#[test]
fn an_event_is_told_by_what_was_decided_and_put_out() {
    let scored = PutOut {
        sink: "scored".into(),
        version: 3,
        from: Some(Offset(12)),
        records: vec![(Offset(12), record("{\"k\":1}")), (Offset(15), record("{\"_error\":\"division by zero\"}"))],
    };
    let decided = Decided {
        source: partition(1),
        start: Offset(10),
        end: Offset(17),
        accepted: vec![10, 12, 14, 15],
        dead_letters: vec![Offset(11)],
        sinks: vec![scored],
    };
    let outcome = |offset: i64| decided.outcome("scored", &partition(1), Offset(offset));
    assert_eq!(outcome(9), None);
    assert_eq!(outcome(10), Some((None, Outcome::Unknown)));
    assert_eq!(outcome(11), Some((None, Outcome::DeadLetter)));
    assert_eq!(outcome(12), Some((Some(3), Outcome::Scored(Bytes::from_static(b"{\"k\":1}")))));
    assert_eq!(outcome(13), Some((None, Outcome::Duplicate)));
    assert_eq!(outcome(14), Some((Some(3), Outcome::Filtered)));
    assert!(matches!(outcome(15), Some((Some(3), Outcome::Failed(_)))));
    assert_eq!(outcome(17), None);
    assert_eq!(decided.outcome("scored", &partition(0), Offset(12)), None);
    assert_eq!(decided.outcome("another", &partition(1), Offset(12)), Some((None, Outcome::Unknown)));
}

#[test]
fn a_partition_is_given_up_by_its_owner_alone() {
    let outcomes = Outcomes::default();
    let (first, second) = (outcomes.claims(), outcomes.claims());
    first.add(&[partition(0), partition(1)]);
    second.add(&[partition(1)]);
    assert_eq!(outcomes.claimed("in"), BTreeSet::from([0, 1]));
    first.remove(&[partition(1)]);
    assert_eq!(outcomes.claimed("in"), BTreeSet::from([0, 1]));
    drop(first);
    assert_eq!(outcomes.claimed("in"), BTreeSet::from([1]));
    second.remove(&[partition(1)]);
    assert!(outcomes.claimed("in").is_empty());
}
