use bytes::Bytes;

use super::*;

fn partition(number: i32) -> TopicPartition {
    TopicPartition { topic: "in".into(), partition: number }
}

fn record(value: &'static str) -> NewRecord {
    NewRecord { key: None, value: Some(Bytes::from_static(value.as_bytes())), headers: Vec::new(), partition_by: None }
}

#[test]
fn an_event_is_reported_by_what_was_decided_and_put_out() {
    let by = Provenance { version: 3, parameters: [("most".into(), 2)].into() };
    let scored = SinkRecords {
        sink: "scored".into(),
        by: by.clone(),
        from: Some(Offset(12)),
        records: vec![(Offset(12), record("{\"k\":1}")), (Offset(15), record("{\"_error\":\"division by zero\"}"))],
    };
    let decided = DecidedBatch {
        source: partition(1),
        identity: "log".into(),
        start: Offset(10),
        end: Offset(17),
        accepted: vec![10, 12, 14, 15],
        timestamps: vec![0, 0, 0, 0],
        ids_since: Some(0),
        dead_letters: vec![Offset(11), Offset(16)],
        sinks: vec![scored],
    };
    let outcome = |offset: i64| decided.outcome("scored", &partition(1), Offset(offset));
    assert_eq!(outcome(9), None);
    assert_eq!(outcome(10), Some((None, EventOutcome::Unknown)));
    // The worker before may have taken it for an event, and put its record out.
    assert_eq!(outcome(11), Some((None, EventOutcome::Unknown)));
    assert_eq!(outcome(12), Some((Some(by.clone()), EventOutcome::Scored(Bytes::from_static(b"{\"k\":1}")))));
    assert_eq!(outcome(13), Some((None, EventOutcome::Duplicate)));
    assert_eq!(outcome(14), Some((Some(by.clone()), EventOutcome::Filtered)));
    assert!(matches!(outcome(15), Some((Some(_), EventOutcome::Failed(_)))));
    assert_eq!(outcome(16), Some((None, EventOutcome::DeadLetter)));
    assert_eq!(outcome(17), None);
    assert_eq!(decided.outcome("scored", &partition(0), Offset(12)), None);
    // A sink that has not begun, or is paused.
    for offset in [11, 12, 13] {
        assert_eq!(decided.outcome("another", &partition(1), Offset(offset)), Some((None, EventOutcome::Unknown)));
    }
}

#[test]
fn a_partition_is_given_up_by_its_owner_alone() {
    let outcomes = Outcomes::default();
    let (first, second) = (outcomes.for_worker(), outcomes.for_worker());
    first.add(&[partition(0), partition(1)]);
    second.add(&[partition(1)]);
    assert_eq!(outcomes.assigned("in"), BTreeSet::from([0, 1]));
    first.remove(&[partition(1)]);
    assert_eq!(outcomes.assigned("in"), BTreeSet::from([0, 1]));
    drop(first);
    assert_eq!(outcomes.assigned("in"), BTreeSet::from([1]));
    second.remove(&[partition(1)]);
    assert!(outcomes.assigned("in").is_empty());
}

/// A repeat gets the record of the first event, whether that was decided before or after its request registered, or
/// after the request gave up.
#[test]
fn a_repeat_gets_the_record_of_the_first_event() {
    let outcomes = Outcomes::default();
    let scored = |offset: i64, value| {
        let by = Provenance { version: 1, parameters: UsedParameters::new() };
        DecidedBatch {
            source: partition(0),
            identity: "log".into(),
            start: Offset(offset),
            end: Offset(offset + 1),
            accepted: vec![offset],
            timestamps: vec![offset],
            ids_since: Some(0),
            dead_letters: Vec::new(),
            sinks: vec![SinkRecords { sink: "scored".into(), by, from: None, records: vec![(Offset(offset), record(value))] }],
        }
    };
    let asked = |id: &str| RecordRequest { sink: "scored".into(), source: partition(0), id: id.into(), fingerprint: 7 };
    let sent = outcomes.listen("in");
    outcomes.publish(scored(0, "{\"k\":0}"));
    outcomes.keep(asked("a"), Offset(0), sent);
    assert!(!outcomes.has_listeners(&partition(0)));
    outcomes.keep(asked("b"), Offset(1), outcomes.listen("in"));
    assert!(outcomes.has_listeners(&partition(0)), "what becomes of it has to be seen");
    outcomes.publish(scored(1, "{\"k\":1}"));
    assert!(!outcomes.has_listeners(&partition(0)));
    let repeat = DecidedBatch { accepted: Vec::new(), timestamps: Vec::new(), sinks: Vec::new(), ..scored(5, "{}") };
    for (id, row) in [("a", "{\"k\":0}"), ("b", "{\"k\":1}")] {
        let first = outcomes.first(&asked(id), &repeat, Offset(5)).unwrap();
        assert_eq!(first.outcome, EventOutcome::Scored(Bytes::from_static(row.as_bytes())));
    }
}

#[test]
fn a_client_concerns_the_topic_it_listens_to_and_later_the_partition_of_its_event() {
    let outcomes = Outcomes::default();
    let other = TopicPartition { topic: "other".into(), partition: 0 };
    let concerned = || [partition(0), partition(1), other.clone()].map(|source| outcomes.has_listeners(&source));
    assert_eq!(concerned(), [false, false, false]);
    let sent = outcomes.listen("in");
    assert_eq!(concerned(), [true, true, false]);
    outcomes.keep(RecordRequest { sink: "scored".into(), source: partition(1), id: "a".into(), fingerprint: 7 }, Offset(0), sent);
    assert_eq!(concerned(), [false, true, false]);
    let of_other = outcomes.listen("other");
    assert_eq!(concerned(), [false, true, true]);
    drop(of_other);
    assert_eq!(concerned(), [false, true, false]);
}
