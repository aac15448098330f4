use catalog::PartitionRecord;

use super::*;

fn id(stream: &str, partition: i32) -> PartitionId {
    PartitionId::new(stream, partition)
}

fn bounds(partition: i32, begin: i64, end: i64) -> PartitionBounds {
    PartitionBounds { partition, begin: Offset(begin), end: Offset(end) }
}

fn place(position: i64, end: Option<i64>, complete_to: Option<Micros>) -> PartitionPosition {
    PartitionPosition { position: Offset(position), end: end.map(Offset), complete_to, topic: "in".into(), defined_at: 5 }
}

fn named_ages(counted: &mut AllCounted, places: &[(PartitionId, PartitionPosition)], now: Micros) -> Vec<(String, Micros)> {
    let views = BTreeMap::from([("of_both".into(), vec!["a".into(), "b".into()]), ("of_b".into(), vec!["b".into()])]);
    let ages = ages(&PartitionPositions(places.iter().cloned().collect()), &views, counted, now);
    ages.into_iter().map(|(view, age)| (view.to_string(), age)).collect()
}

fn named(ages: &[(&str, Micros)]) -> Vec<(String, Micros)> {
    ages.iter().map(|(view, age)| ((*view).to_owned(), *age)).collect()
}

#[test]
fn a_partitions_lag_is_what_the_log_has_after_its_committed_position() {
    let record = |partition: i32, next: i64| PartitionRecord {
        id: id("a", partition),
        next_offset: Offset(next),
        clock: None,
        max_event_time: None,
        complete_to: None,
        log_identity: "log".into(),
    };
    let partitions = [record(0, 40), record(1, 60)].into_iter().map(|record| (record.id.clone(), record)).collect();
    let state = CatalogState { partitions, ..CatalogState::default() };
    // Partition 1 is past the log's end, and partition 2 was never read and lost its first records.
    let ends = Ends::from([("a".into(), vec![bounds(0, 10, 100), bounds(1, 0, 50), bounds(2, 7, 20)])]);
    let expected = BTreeMap::from([(id("a", 0), 60), (id("a", 1), 0), (id("a", 2), 13)]);
    assert_eq!(lags(&state, &ends), expected);
}

#[test]
fn an_answer_is_as_old_as_the_oldest_partition_of_its_streams() {
    let places = [
        (id("a", 0), place(1, Some(9), Some(700))),
        (id("b", 0), place(1, Some(9), Some(900))),
        (id("b", 1), place(1, Some(9), Some(950))),
    ];
    assert_eq!(named_ages(&mut AllCounted::default(), &places, 1_000), named(&[("of_b", 100), ("of_both", 300)]));
}

#[test]
fn answers_that_count_all_records_do_not_become_older_while_none_arrives() {
    let mut counted = AllCounted::default();
    let at_end = |end| [(id("b", 0), place(9, Some(end), Some(100)))];
    assert_eq!(named_ages(&mut counted, &at_end(9), 1_000), named(&[("of_b", 0), ("of_both", 0)]));
    assert_eq!(named_ages(&mut counted, &at_end(9), 9_000), named(&[("of_b", 0), ("of_both", 0)]));
    // A record arrives: what counts is how long it may have waited, and not how long none came before it.
    assert_eq!(named_ages(&mut counted, &at_end(10), 9_400), named(&[("of_b", 400), ("of_both", 400)]));
    // The log does not say where it ends.
    let unknown = [(id("b", 0), place(9, None, Some(100)))];
    assert_eq!(named_ages(&mut counted, &unknown, 9_700), named(&[("of_b", 700), ("of_both", 700)]));
}

#[test]
fn a_stream_that_no_view_reads_any_more_is_forgotten() {
    let (mut counted, unread, topic) = (AllCounted::default(), id("c", 0), Arc::from("in"));
    counted.complete_to((&unread, &topic), None, true, 500);
    named_ages(&mut counted, &[], 1_000);
    assert_eq!(counted.complete_to((&unread, &topic), None, false, 1_000), None);
}

#[test]
fn answers_of_a_stream_that_nobody_has_read_are_as_old_as_its_definition() {
    let unread = [(id("b", 0), place(0, Some(3), None))];
    assert_eq!(named_ages(&mut AllCounted::default(), &unread, 1_000), named(&[("of_b", 995), ("of_both", 995)]));
    assert_eq!(named_ages(&mut AllCounted::default(), &[], 1_000), named(&[]));
}
