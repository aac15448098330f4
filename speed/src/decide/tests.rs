use std::sync::Arc;

use bytes::Bytes;
use definitions::parse::parse_stream;
use proptest::prelude::*;
use types::vector::Offset;

use super::*;

fn decoder(dedup_within: &str) -> Decoder {
    let sql = format!(
        "CREATE STREAM s (id TEXT, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us')) WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '{dedup_within}')"
    );
    Decoder::new(Arc::new(parse_stream(&sql).unwrap())).unwrap()
}

fn space() -> IdSpace {
    IdSpace::new(DedupSettings { memory_bytes: 64 << 20, folder: "/nonexistent".into() })
}

fn record(offset: i64, timestamp: Micros, id: u8, event_time: Micros) -> Record {
    let value = Bytes::from(format!("{{\"id\":\"{id}\",\"ts\":{event_time}}}"));
    Record { offset: Offset(offset), timestamp, key: None, value: Some(value), headers: vec![] }
}

/// The definition of a duplicate, word by word, in quadratic time.
fn plain(records: &[Record], ids: &[u8], within: Micros) -> Vec<bool> {
    let (mut accepted, mut clock): (Vec<(u8, Micros)>, Micros) = (Vec::new(), Micros::MIN);
    records
        .iter()
        .zip(ids)
        .map(|(record, id)| {
            clock = clock.max(record.timestamp);
            let duplicate = accepted.iter().any(|(other, at)| other == id && clock - at <= within);
            if !duplicate {
                accepted.push((*id, record.timestamp));
            }
            duplicate
        })
        .collect()
}

proptest! {
    #[test]
    fn a_duplicate_is_what_the_definition_says(rows in prop::collection::vec((0u8..6, 0i64..4_000_000), 1..120), within_s in 1i64..3) {
        let records: Vec<Record> = rows.iter().enumerate().map(|(i, (id, at))| record(i as i64, *at, *id, 0)).collect();
        let ids: Vec<u8> = rows.iter().map(|(id, _)| *id).collect();
        let decoder = decoder(&format!("{within_s}s"));
        let mut decider = Decider::new(None, None, Duration::from_secs(600), decoder.definition().dedup_within, &space());
        let found: Vec<bool> = records.iter().map(|r| matches!(decider.decide(&decoder, r).unwrap(), Decision::Duplicate)).collect();
        prop_assert_eq!(found, plain(&records, &ids, within_s * 1_000_000));
    }

    /// So a duplicate repeats the accepted record of its id that has this timestamp or a later one, if there is one.
    #[test]
    fn an_id_that_is_held_since_then_was_not_accepted_again(rows in prop::collection::vec((0u8..6, 0i64..4_000_000), 1..120)) {
        let decoder = decoder("1s");
        let mut decider = Decider::new(None, None, Duration::from_secs(600), decoder.definition().dedup_within, &space());
        prop_assert_eq!(decider.ids_since(), None);
        let mut accepted: Vec<(u8, Micros)> = Vec::new();
        for (offset, (id, at)) in rows.iter().enumerate() {
            if matches!(decider.decide(&decoder, &record(offset as i64, *at, *id, 0)).unwrap(), Decision::Accept(_)) {
                accepted.push((*id, *at));
            }
            let since = decider.ids_since().unwrap();
            for (place, (id, _)) in accepted.iter().enumerate().filter(|(_, (_, at))| *at >= since) {
                prop_assert!(accepted[place + 1..].iter().all(|(later, _)| later != id), "{} since {}: {:?}", id, since, accepted);
            }
        }
    }

    #[test]
    fn a_new_owner_that_rereads_the_accepted_ids_decides_alike(rows in prop::collection::vec((0u8..6, 0i64..4_000_000), 2..80), split in 0usize..80) {
        let records: Vec<Record> = rows.iter().enumerate().map(|(i, (id, at))| record(i as i64, *at, *id, 0)).collect();
        let split = split % records.len();
        let decoder = decoder("1s");
        let within = decoder.definition().dedup_within;
        let mut one = Decider::new(None, None, Duration::from_secs(600), within, &space());
        let mut accepted = Vec::new();
        for (record, (id, _)) in records[..split].iter().zip(&rows) {
            if matches!(one.decide(&decoder, record).unwrap(), Decision::Accept(_)) {
                accepted.push((id.to_string(), record.timestamp));
            }
        }
        let mut other = Decider::new(one.clock(), one.max_event_time(), Duration::from_secs(600), within, &space());
        for (id, timestamp) in &accepted {
            other.remember(id, *timestamp).unwrap();
        }
        for record in &records[split..] {
            prop_assert_eq!(
                matches!(one.decide(&decoder, record).unwrap(), Decision::Accept(_)),
                matches!(other.decide(&decoder, record).unwrap(), Decision::Accept(_))
            );
        }
    }
}

#[test]
fn an_event_past_max_future_is_a_dead_letter_and_does_not_move_the_event_clock() {
    let decoder = decoder("1s");
    let mut decider = Decider::new(None, None, Duration::from_secs(10), None, &space());
    assert!(matches!(decider.decide(&decoder, &record(0, 1_000_000, 1, 11_000_000)).unwrap(), Decision::Accept(_)));
    assert!(matches!(decider.decide(&decoder, &record(1, 1_000_000, 2, 11_000_001)).unwrap(), Decision::DeadLetter(_)));
    assert_eq!(decider.max_event_time(), Some(11_000_000));
}

#[test]
fn only_accepted_events_are_received_and_a_new_owner_begins_at_the_clock() {
    let decoder = decoder("1s");
    let mut decider = Decider::new(None, None, Duration::from_secs(10), decoder.definition().dedup_within, &space());
    let mut received = Vec::new();
    // Accepted, accepted with an earlier timestamp, a duplicate, and a dead letter.
    let records = [record(0, 3_000_000, 1, 0), record(1, 2_000_000, 2, 0), record(2, 3_500_000, 1, 0), record(3, 9_000_000, 3, 99_000_000)];
    for record in &records {
        decider.decide(&decoder, record).unwrap();
        received.push(decider.max_received());
    }
    assert_eq!(received, [Some(3_000_000); 4]);
    assert_eq!(decider.clock(), Some(9_000_000));
    let next = Decider::new(decider.clock(), decider.max_event_time(), Duration::from_secs(10), None, &space());
    assert_eq!(next.max_received(), Some(9_000_000));
}

#[test]
fn the_reason_of_an_event_past_max_future_has_its_time_the_clock_and_the_setting() {
    let decoder = decoder("1s");
    let mut decider = Decider::new(None, None, Duration::from_secs(10), None, &space());
    let late = record(0, 1_000_000, 1, 1_798_761_600_000_000);
    let decision = decider.decide(&decoder, &late).unwrap();
    let expected = "event time: found 2027-01-01T00:00:00Z with the partition's clock at 1970-01-01T00:00:01Z, \
        expected at most 10s after the clock (speed.max_future)";
    assert!(matches!(&decision, Decision::DeadLetter(reason) if reason == expected), "{decision:?}");
}

#[test]
fn remembered_ids_are_bounded_by_the_window() {
    let decoder = decoder("1s");
    let mut decider = Decider::new(None, None, Duration::from_secs(10), Some(Duration::from_secs(1)), &space());
    for i in 0..100_000i64 {
        let value = Bytes::from(format!("{{\"id\":\"{i}\",\"ts\":0}}"));
        let record = Record { offset: Offset(i), timestamp: i * 1_000, key: None, value: Some(value), headers: vec![] };
        assert!(matches!(decider.decide(&decoder, &record).unwrap(), Decision::Accept(_)));
    }
    // They leave a quarter of the window at a time.
    assert!(decider.id_count() <= 1_252, "{}", decider.id_count());
}
