use super::*;

const AT: Micros = 100;

/// Two partitions: what is known of each, where the log ends, and how far it is read.
fn two_partitions_complete_to(known: [Option<Option<Micros>>; 2], ends: [i64; 2], read: [i64; 2]) -> Option<Micros> {
    let id = |partition: usize| PartitionId::new("s", partition as i32);
    let known = known.into_iter().enumerate().filter_map(|(partition, known)| Some((id(partition), known?))).collect();
    let by_partition = ends.into_iter().enumerate().map(|(partition, end)| (id(partition), Offset(end))).collect();
    let read: Vector = read.into_iter().enumerate().map(|(partition, next)| (id(partition), Offset(next))).collect();
    complete_to(known, &PartitionEnds { at: AT, by_partition }, &read)
}

#[test]
fn a_partition_that_was_never_committed_is_waited_for() {
    // One of them has a backlog of which nothing is read, or not all.
    assert_eq!(two_partitions_complete_to([Some(Some(90)), None], [5, 7], [5, 0]), None);
    assert_eq!(two_partitions_complete_to([Some(Some(90)), None], [5, 7], [5, 6]), None);
    assert_eq!(two_partitions_complete_to([Some(Some(90)), None], [5, 7], [5, 7]), Some(90));
    // Once it is known, what the log said does not count any more.
    assert_eq!(two_partitions_complete_to([Some(Some(190)), Some(Some(180))], [5, 7], [5, 6]), Some(180));
}

#[test]
fn a_partition_without_records_is_complete_when_the_log_was_asked() {
    assert_eq!(two_partitions_complete_to([Some(Some(90)), None], [5, 0], [5, 0]), Some(90));
    assert_eq!(two_partitions_complete_to([Some(Some(190)), None], [5, 0], [5, 0]), Some(AT));
    // Committed, as offsets that the log does not have, before anything of it was read.
    assert_eq!(two_partitions_complete_to([Some(Some(190)), Some(None)], [5, 7], [5, 7]), Some(AT));
    assert_eq!(two_partitions_complete_to([Some(Some(190)), Some(None)], [5, 8], [5, 7]), None);
}

#[test]
fn nothing_is_known_of_a_topic_without_partitions() {
    assert_eq!(complete_to(BTreeMap::new(), &PartitionEnds { at: AT, by_partition: BTreeMap::new() }, &Vector::new()), None);
}
