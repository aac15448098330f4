use super::super::tests::state_of;
use super::*;

const MINUTE: i64 = 60_000_000;

fn spans(pause_us: i64, times: &[i64]) -> Spans {
    let mut spans = Spans::new(SpanFunction::Sessions, pause_us);
    times.iter().for_each(|time| spans.add(Span { group: 0, start: *time, end: *time }));
    spans.settle();
    spans
}

/// The bytes of format 1. They are read for ever: what changes them raises the format.
const FIXTURE: &[u8] = &[
    1, 24, 2, // the format, three stretches of 8 bytes, two spans
    255, 155, 156, 57, 192, 165, 173, 85, // from 60 seconds before 1970, for 179 seconds
    193, 178, 205, 59, 0, // after 125 seconds and a microsecond, an event alone
];

#[test]
fn a_state_is_laid_out_as_it_was() {
    let of = spans(2 * MINUTE, &[-MINUTE, MINUTE, 119_000_000, 244_000_001]);
    assert_eq!(state_of(&of, 0).unwrap(), FIXTURE);
    let mut merged = Spans::new(SpanFunction::Sessions, 2 * MINUTE);
    merged.merge(FIXTURE, 0).unwrap();
    merged.settle();
    assert_eq!(merged.spans, of.spans);
    assert_eq!(super::super::state_bytes(FIXTURE), 24);
    assert_eq!(state_of(&merged, 1), None);
}

#[test]
fn a_pause_as_long_as_the_gap_is_none() {
    assert_eq!(spans(MINUTE, &[0, MINUTE, 3 * MINUTE]).spans.len(), 2);
    assert_eq!(spans(MINUTE, &[0, MINUTE + 1]).spans.len(), 2);
    assert_eq!(spans(0, &[5, 5, 6]).spans.len(), 2);
    assert_eq!(spans(1, &[i64::MIN, i64::MAX]).spans.len(), 2);
}

#[test]
fn many_events_of_one_session_take_no_room() {
    let mut spans = Spans::new(SpanFunction::Sessions, MINUTE);
    for time in 0..1_000_000 {
        spans.add(Span { group: 0, start: time, end: time });
    }
    let held = spans.held_bytes().heap;
    assert!(held < 100_000, "{held}");
}

#[test]
fn a_damaged_state_is_refused() {
    let merge = |state: &[u8]| Spans::new(SpanFunction::Sessions, MINUTE).merge(state, 0);
    for length in 0..FIXTURE.len() {
        assert!(merge(&FIXTURE[..length]).is_err(), "{length} bytes");
    }
    assert!(merge(&[FIXTURE, &[0]].concat()).is_err());
    assert!(merge(&[&[2], &FIXTURE[1..]].concat()).unwrap_err().to_string().contains("format 2"));
    assert!(merge(&[1, 8, 1, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]).is_err(), "a length past the end of time");
}
