use event_log::NewRecord;

use super::*;
use crate::outcomes::SinkRecords;

fn source() -> TopicPartition {
    TopicPartition { topic: "in".into(), partition: 0 }
}

fn asked(id: &str) -> RecordRequest {
    RecordRequest { sink: "scored".into(), source: source(), id: id.into(), fingerprint: 7 }
}

fn by() -> Provenance {
    Provenance { version: 2, parameters: [("most".into(), 1)].into() }
}

/// The event of each offset in a range has a record that names it, at a timestamp of ten times the offset. Ids are held
/// for 100.
fn decided(start: i64, end: i64) -> DecidedBatch {
    let row = |offset: i64| Bytes::from(format!("{{\"offset\":{offset}}}"));
    decided_with(start, end, row)
}

fn decided_with(start: i64, end: i64, row: impl Fn(i64) -> Bytes) -> DecidedBatch {
    let record = |offset: i64| NewRecord { key: None, value: Some(row(offset)), headers: Vec::new(), partition_by: None };
    let put_out = SinkRecords {
        sink: "scored".into(),
        by: by(),
        from: None,
        records: (start..end).map(|offset| (Offset(offset), record(offset))).collect(),
    };
    DecidedBatch {
        source: source(),
        identity: "log".into(),
        start: Offset(start),
        end: Offset(end),
        accepted: (start..end).collect(),
        timestamps: (start..end).map(|offset| offset * 10).collect(),
        ids_since: Some(end * 10 - 100),
        dead_letters: Vec::new(),
        sinks: vec![put_out],
    }
}

/// A micro-batch that ends with one duplicate.
fn duplicate(offset: i64) -> DecidedBatch {
    DecidedBatch { accepted: Vec::new(), timestamps: Vec::new(), sinks: Vec::new(), ..decided(offset, offset + 1) }
}

fn row_of(recent: &RecentOutcomes, id: &str, repeats: &DecidedBatch) -> Option<(i64, String)> {
    let first = recent.first(&asked(id), repeats, Offset(repeats.end.0 - 1))?;
    assert_eq!(first.by, by());
    Some((first.offset.0, String::from_utf8(first.outcome.row()?.to_vec()).unwrap()))
}

#[test]
fn an_event_that_is_sent_again_gets_the_record_of_the_first() {
    let now = Instant::now();
    let mut recent = RecentOutcomes::default();
    recent.wait(asked("a"), Offset(3), now);
    recent.wait(asked("b"), Offset(7), now);
    recent.note(&decided(2, 5), now);
    assert!(recent.is_waiting(&source()), "the other one is not decided yet");
    assert_eq!(row_of(&recent, "a", &duplicate(6)), Some((3, "{\"offset\":3}".to_owned())));
    assert_eq!((row_of(&recent, "b", &duplicate(6)), row_of(&recent, "c", &duplicate(6))), (None, None));
    // The repeat itself was waited for, too: it changes nothing.
    recent.wait(asked("a"), Offset(6), now);
    recent.note(&duplicate(6), now);
    assert_eq!(row_of(&recent, "a", &duplicate(8)), Some((3, "{\"offset\":3}".to_owned())));
    // Of another sink nothing was asked; and another event has this id.
    for other in [RecordRequest { sink: "other".into(), ..asked("a") }, RecordRequest { fingerprint: 8, ..asked("a") }] {
        assert_eq!(recent.first(&other, &duplicate(6), Offset(6)), None);
    }
}

#[test]
fn only_an_event_whose_id_was_held_since_is_the_first() {
    let now = Instant::now();
    let mut recent = RecentOutcomes::default();
    recent.wait(asked("a"), Offset(3), now);
    recent.note(&decided(2, 5), now);
    // At the end of these the clock is 130 and 140: ids are held since 30 and 40.
    assert!(row_of(&recent, "a", &duplicate(12)).is_some());
    assert_eq!(row_of(&recent, "a", &duplicate(13)), None);
    assert_eq!(row_of(&recent, "a", &DecidedBatch { ids_since: None, ..duplicate(6) }), None);
    assert_eq!(row_of(&recent, "a", &DecidedBatch { identity: "another".into(), ..duplicate(6) }), None);
    assert_eq!(row_of(&recent, "a", &duplicate(2)), None, "what came before it");
    // Accepted again, it is the later one.
    recent.wait(asked("a"), Offset(20), now);
    recent.note(&decided(20, 21), now);
    assert_eq!(row_of(&recent, "a", &duplicate(25)), Some((20, "{\"offset\":20}".to_owned())));
}

#[test]
fn what_was_not_seen_is_not_kept() {
    let now = Instant::now();
    let mut recent = RecentOutcomes::default();
    recent.wait(asked("before"), Offset(1), now);
    recent.wait(asked("out earlier"), Offset(3), now);
    recent.wait(asked("long ago"), Offset(9), now);
    let mut some = decided(2, 5);
    some.sinks[0].from = Some(Offset(4));
    recent.note(&some, now);
    recent.note(&decided(8, 10), now + WAITS);
    for id in ["before", "out earlier", "long ago"] {
        assert_eq!(row_of(&recent, id, &duplicate(11)), None, "{id}");
    }
    assert!(!recent.is_waiting(&source()));
}

#[test]
fn no_more_is_kept_than_so_many_events_and_bytes() {
    let now = Instant::now();
    let mut recent = RecentOutcomes::default();
    let count = MOST as i64 + 10;
    let all = DecidedBatch { ids_since: Some(0), ..duplicate(count) };
    for offset in 0..count {
        recent.wait(asked(&offset.to_string()), Offset(offset), now);
        recent.note(&decided(offset, offset + 1), now);
    }
    assert_eq!((recent.known.len(), recent.order.len()), (MOST, MOST));
    assert!(row_of(&recent, "9", &all).is_none() && row_of(&recent, "10", &all).is_some());

    for offset in [count, count + 1, count + 2] {
        recent.wait(asked(&offset.to_string()), Offset(offset), now);
        recent.note(&decided_with(offset, offset + 1, |_| Bytes::from(vec![b' '; MOST_BYTES / 2])), now);
    }
    assert!(recent.bytes <= MOST_BYTES && recent.known.len() == 1, "{} of {}", recent.bytes, recent.known.len());
    recent.wait(asked(&"x".repeat(MAX_ID_BYTES + 1)), Offset(count + 3), now);
    assert!(!recent.is_waiting(&source()));
    for offset in 0..=2 * count {
        recent.wait(asked("waits"), Offset(offset), now);
    }
    assert_eq!(recent.waiting.len(), MOST);
}
