use std::collections::BTreeMap;
use std::future::{pending, ready};

use bytes::Bytes;
use futures::FutureExt;

use super::*;
use crate::outcomes::RecordRequest;

fn source() -> TopicPartition {
    TopicPartition { topic: "in".into(), partition: 1 }
}

fn request(offset: i64) -> DecisionRequest {
    DecisionRequest { sink: "scored".into(), topic: "in".into(), partition: 1, offset: Offset(offset) }
}

/// A duplicate, a dead letter, and events of which a record is out already, that are scored, and that are left out.
fn decided() -> DecidedBatch {
    let record = |value: &'static str| NewRecord { value: Some(Bytes::from_static(value.as_bytes())), ..NewRecord::default() };
    let scored = SinkRecords {
        sink: "scored".into(),
        by: Provenance { version: 3, parameters: BTreeMap::from([("most".into(), 2)]) },
        from: Some(Offset(12)),
        records: vec![(Offset(12), record("{\"k\":1.50}")), (Offset(15), record("{\"_error\":\"division by zero\"}"))],
    };
    DecidedBatch {
        source: source(),
        identity: "log".into(),
        start: Offset(10),
        end: Offset(17),
        accepted: vec![10, 12, 14, 15],
        timestamps: vec![1, 2, 3, 4],
        ids_since: Some(0),
        dead_letters: vec![Offset(11)],
        sinks: vec![scored],
    }
}

#[test]
fn another_process_says_of_an_event_what_its_own_requests_hear() {
    let decided = decided();
    for offset in 10..17 {
        for sink in ["scored", "another"] {
            let asked = DecisionRequest { sink: sink.into(), ..request(offset) };
            let there = batch_of(&asked, decision_of(&decided, sink, Offset(offset)));
            let outcome = |batch: &DecidedBatch| batch.outcome(sink, &source(), Offset(offset));
            assert_eq!(outcome(&there), outcome(&decided), "{sink}, {offset}");
        }
    }
}

/// The answers about two events of a partition come in any order.
#[test]
fn an_event_is_known_when_it_is_sent_again_whichever_process_decided_it() {
    let outcomes = Outcomes::default();
    let asked = |id: &str| RecordRequest { sink: "scored".into(), source: source(), id: id.into(), fingerprint: 7 };
    for (id, offset) in [("first", 12), ("second", 14)] {
        outcomes.keep(asked(id), Offset(offset), outcomes.listen("in"));
    }
    let elsewhere = |offset: i64| batch_of(&request(offset), decision_of(&decided(), "scored", Offset(offset)));
    for offset in [14, 12] {
        outcomes.note_events(&elsewhere(offset));
    }
    for (id, offset) in [("first", 12), ("second", 14)] {
        let first = outcomes.first(&asked(id), &elsewhere(16), Offset(16));
        assert_eq!(first.map(|first| first.offset), Some(Offset(offset)), "{id}");
    }
}

#[test]
fn events_whose_clients_wait_no_longer_are_asked_about_up_to_a_limit() {
    let unanswered = Semaphore::new(1);
    let (decide, decided) = oneshot::channel::<i32>();
    let mut first = pin!(while_asked(async { decided.await.ok() }, ready(()), &unanswered));
    assert_eq!(first.as_mut().now_or_never(), None);
    let another = while_asked(pending::<Option<i32>>(), ready(()), &unanswered);
    assert_eq!(another.now_or_never(), Some(None), "there is one already");
    let of_waiting_client = while_asked(ready(Some(2)), pending(), &unanswered);
    assert_eq!(of_waiting_client.now_or_never(), Some(Some(2)));
    decide.send(1).unwrap();
    assert_eq!(first.now_or_never(), Some(Some(1)));
    assert_eq!(unanswered.available_permits(), 1);
}
