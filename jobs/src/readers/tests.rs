use catalog::CheckpointRange;
use uuid::Uuid;

use super::*;

const INTERVAL: Duration = Duration::from_secs(10);
const SECOND: Micros = 1_000_000;

fn state(checkpoints: &[(&str, i64, &[i32])]) -> CatalogState {
    let range = |partition: &i32| CheckpointRange::of_events(PartitionId::new("pay", *partition), 0, 1);
    let record = |(revision, (worker, seconds, partitions)): (usize, &(&str, i64, &[i32]))| CheckpointRecord {
        id: Uuid::now_v7(),
        worker: (*worker).to_owned(),
        committed_at: seconds * SECOND,
        revision: revision as i64,
        ranges: partitions.iter().map(range).collect(),
    };
    CatalogState { checkpoints: checkpoints.iter().enumerate().map(record).collect(), ..CatalogState::default() }
}

#[test]
fn workers_are_counted_by_their_process_and_partitions_by_their_newest_checkpoint() {
    let state = state(&[
        ("1-aaaaaaaa", 5, &[0, 1, 2, 3]),
        ("1-aaaaaaaa", 95, &[0, 1, 2]),
        ("1-aaaaaaaa-1", 96, &[2]),
        ("2-12345678", 98, &[1, 3]),
        ("2-12345678-11", 98, &[4]),
    ]);
    let reader = |process: &str, workers, partitions| SpeedProcess { process: process.into(), workers, partitions };
    assert_eq!(readers(&state, INTERVAL, 100 * SECOND), [reader("1-aaaaaaaa", 2, 2), reader("2-12345678", 2, 3)]);
    assert!(readers(&state, INTERVAL, 200 * SECOND).is_empty(), "who committed nothing of late is not known to read");
}

#[test]
fn what_this_process_reads_is_not_read_elsewhere_nor_what_another_read_before() {
    let state = state(&[("1-aaaaaaaa", 80, &[0, 1]), ("2-bbbbbbbb-3", 95, &[1]), ("1-aaaaaaaa-1", 96, &[0, 2])]);
    let elsewhere = |workers: &[&str], begun| {
        let workers: Vec<String> = workers.iter().map(|worker| (*worker).to_owned()).collect();
        read_elsewhere(&state, &workers, INTERVAL, begun * SECOND, 100 * SECOND)
    };
    assert_eq!(elsewhere(&["1-aaaaaaaa"], 0), 1);
    assert_eq!(elsewhere(&["2-bbbbbbbb"], 0), 2);
    assert_eq!(elsewhere(&["3-cccccccc", "1-aaaaaaaa"], 0), 1, "one process that is followed does not hide another");
    assert_eq!(elsewhere(&["3-cccccccc", "1-aaaaaaaa", "2-bbbbbbbb"], 0), 0);
    assert_eq!(elsewhere(&["3-cccccccc"], 97), 0, "a process that has just ended is not another reader");
}
