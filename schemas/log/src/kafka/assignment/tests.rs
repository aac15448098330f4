use bytes::Bytes;

use super::*;

fn source() -> TopicPartition {
    TopicPartition { topic: "events".into(), partition: 0 }
}

fn record(offset: i64) -> Record {
    Record { offset: Offset(offset), timestamp: 0, key: None, value: Some(Bytes::from_static(b"x")), headers: Vec::new() }
}

fn held_at(position: i64) -> Assignment {
    let mut held = Assignment::new(3, Duration::from_millis(5));
    held.start(source(), Offset(position));
    held
}

#[test]
fn records_wait_until_they_are_enough_or_time_is_up() {
    let (mut held, now) = (held_at(10), Instant::now());
    assert_eq!(held.push(&source(), record(10), now), Some(now + Duration::from_millis(5)));
    assert_eq!(held.due(now), []);
    assert_eq!(held.due(now + Duration::from_millis(5)), [source()]);
    held.push(&source(), record(11), now);
    assert_eq!(held.push(&source(), record(12), now), Some(now));
    assert_eq!(held.due(now), [source()]);
    let fetched = held.take(&source(), None, now).unwrap();
    assert_eq!((fetched.records.len(), fetched.position, fetched.at_end), (3, Offset(13), false));
    assert_eq!(held.next_due(), None);
}

#[test]
fn the_position_is_the_clients_where_it_stands_further_on() {
    let (mut held, now) = (held_at(10), Instant::now());
    held.push(&source(), record(10), now);
    assert_eq!(held.take(&source(), Some(Offset(14)), now).unwrap().position, Offset(14));
    assert_eq!(held.take(&source(), Some(Offset(2)), now).unwrap().position, Offset(14));
}

#[test]
fn the_end_is_reported_at_once_and_again_until_a_record_comes() {
    let (mut held, now) = (held_at(10), Instant::now());
    held.reach_end(&source(), now);
    assert_eq!(held.due(now), [source()]);
    assert!(held.take(&source(), None, now).unwrap().at_end);
    assert_eq!(held.due(now), []);
    assert_eq!(held.due(now + AT_END_EVERY), [source()]);
    held.push(&source(), record(10), now);
    assert!(!held.take(&source(), None, now).unwrap().at_end);
}

#[test]
fn a_partition_that_is_held_back_for_long_is_reported_once_until_a_record_comes() {
    let (mut held, now) = (held_at(10), Instant::now());
    let long = now + HELD_BACK_LONG;
    assert!(!held.note_held_back(&source(), true, now));
    assert!(held.note_held_back(&source(), true, long));
    assert!(!held.note_held_back(&source(), true, long));
    held.push(&source(), record(10), long);
    assert!(!held.note_held_back(&source(), true, long));
    let longer = long + HELD_BACK_LONG;
    assert!(held.note_held_back(&source(), true, longer));
    assert!(!held.note_held_back(&source(), false, longer));
    assert!(!held.note_held_back(&source(), true, longer + HELD_BACK_LONG));
}

#[test]
fn a_record_of_a_partition_that_is_not_held_is_dropped() {
    let (mut held, now) = (held_at(10), Instant::now());
    held.forget(&[source()]);
    assert_eq!(held.push(&source(), record(10), now), None);
    assert_eq!(held.take(&source(), None, now), None);
}

#[test]
fn a_partition_for_which_the_brokers_do_not_answer_is_due_after_the_others() {
    let (mut held, now) = (held_at(10), Instant::now());
    let later = TopicPartition { partition: source().partition + 1, ..source() };
    held.start(later.clone(), Offset(0));
    held.reach_end(&source(), now);
    held.reach_end(&later, now);
    assert_eq!(held.due(now), [source(), later.clone()]);
    held.note_answer(&source(), false);
    assert_eq!(held.due(now), [later.clone(), source()]);
    held.note_answer(&source(), true);
    assert_eq!(held.due(now), [source(), later]);
}
