use super::super::tests::state_of;
use super::*;

fn collected() -> Events {
    Events::new(SequenceFunction::Match(Pattern::parse("sequence_match", "(?1)(?2)", 2).unwrap()), EventColumns { time: 1, conditions: 2 })
}

/// Events in no order, of three places.
fn filled() -> Events {
    let mut events = collected();
    for (time, mask, event_time, source, partition, offset) in [
        (5_000_000, 2, 5_000_000, "pay", 1, 1_000),
        (-3, 1, -3, "pay", 0, 7),
        (5_000_000, 3, 5_000_000, "auth", 1, 12),
        (5_000_300, 1, 5_000_000, "pay", 1, 1_001),
        (i64::MAX, 1, i64::MIN, "pay", 1, i64::MAX),
    ] {
        let place = events.places.number(source, partition);
        events.push(MarkedEvent { time, mask, group: 0, event_time, offset, place });
    }
    events.settle();
    events
}

/// The bytes of format 1. They are read for ever: what changes them raises the format.
const FIXTURE: &[u8] = &[
    1, 80, 3, // the format, 5 events of 16 bytes, 3 places
    4, b'a', b'u', b't', b'h', 2, 3, b'p', b'a', b'y', 0, 3, b'p', b'a', b'y', 2, // sources, partitions (signed)
    5, 1, 1, 0, 14, // -3, condition 1, pay 0, its event time, offset 7
    195, 150, 177, 2, 3, 0, 0, 24, // 5 s later, both conditions, auth 1, offset 12
    0, 2, 2, 0, 208, 15, // at once, condition 2, pay 1, offset 1000
    172, 2, 1, 2, 215, 4, 2, // 300 us later, with an event time 300 us before, the next offset
    147, 231, 206, 253, 255, 255, 255, 255, 127, 1, 2, 2, 172, 240, 255, 255, 255, 255, 255, 255, 255, 1,
];

#[test]
fn a_state_is_laid_out_as_it_was() {
    assert_eq!(state_of(&filled(), 0).unwrap(), FIXTURE);
    let mut merged = collected();
    merged.merge(FIXTURE, 0).unwrap();
    merged.settle();
    assert_eq!(state_of(&merged, 0).unwrap(), FIXTURE);
    assert_eq!(super::super::state_bytes(FIXTURE), 5 * EVENT_BYTES);
    assert_eq!(state_of(&merged, 1), None);
}

#[test]
fn the_places_of_other_groups_are_not_in_a_state() {
    let mut events = filled();
    let place = events.places.number("elsewhere", 9);
    events.push(MarkedEvent { time: 1, mask: 1, group: 1, event_time: 1, offset: 1, place });
    events.settle();
    assert_eq!(state_of(&events, 0).unwrap(), FIXTURE);
}

#[test]
fn a_damaged_state_is_refused_or_is_another() {
    for length in 0..FIXTURE.len() {
        assert!(collected().merge(&FIXTURE[..length], 0).is_err(), "{length} bytes");
    }
    let longer = [FIXTURE, &[0]].concat();
    assert!(collected().merge(&longer, 0).is_err());
    for (at, byte, expected) in
        [(0, 2, "has format 2"), (1, 81, "81 bytes"), (2, 100, "100 places"), (21, 9, "of place 9"), (4, 255, "UTF-8")]
    {
        let mut damaged = FIXTURE.to_vec();
        damaged[at] = byte;
        let error = collected().merge(&damaged, 0).unwrap_err().to_string();
        assert!(error.contains(expected), "byte {at}: {error}");
    }
    // More events than there are bytes must not be allocated.
    let many = [&[1][..], &[255, 255, 255, 255, 255, 255, 255, 255, 112], &[0]].concat();
    assert!(collected().merge(&many, 0).is_err());
}

#[test]
fn an_event_takes_some_ten_bytes() {
    let mut events = collected();
    let place = events.places.number("payments", 3);
    for second in 0..1_000i64 {
        let time = 1_772_366_400_000_000 + second * 7_300_000;
        events.push(MarkedEvent { time, mask: 1, group: 0, event_time: time, offset: 1_000_000 + second * 57, place });
    }
    let bytes = state_of(&events, 0).unwrap().len();
    assert!(bytes < 10_000, "{bytes}");
}
