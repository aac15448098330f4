use proptest::prelude::*;
use types::vector::{Offset, PartitionId, Vector};

use super::*;
use crate::{DamageRecord, DefinitionKind, DefinitionRecord, DefinitionStatus, LeaseRecord, SnapshotRecord};

const HOUR: Micros = 3_600 * 1_000_000;
const TARGET: i64 = 1 << 20;
const RULES: CompactionRules = CompactionRules { target_bytes: TARGET, after: Duration::from_secs(3_600) };

fn range(start: i64, end: i64) -> CheckpointRange {
    CheckpointRange {
        partition: PartitionId::new("s", 0),
        start: Offset(start),
        end: Offset(end),
        archived: end - start - 1,
        duplicate: 1,
        dead_lettered: 0,
        absent: 0,
        clock: Some(end),
        max_event_time: Some(end),
        complete_to: Some(end),
    }
}

fn id(number: usize) -> Uuid {
    Uuid::from_u128(number as u128)
}

fn file(path: String, kind: FileKind, checkpoint: Uuid, bytes: i64) -> FileRecord {
    FileRecord {
        path,
        kind,
        checkpoint: Some(checkpoint),
        run: None,
        subject: Some("s".into()),
        bytes,
        rows: 1,
        checksum: 0,
        min_event_time: None,
        max_event_time: None,
        marked_for_deletion: false,
    }
}

/// A state with a checkpoint of one offset at each of these times, with one archive file of this size each.
fn state(checkpoints: &[(Micros, i64)]) -> CatalogState {
    let mut state = CatalogState::default();
    for (number, (committed_at, bytes)) in checkpoints.iter().enumerate() {
        add(&mut state, number, *committed_at, *bytes);
    }
    state
}

fn add(state: &mut CatalogState, number: usize, committed_at: Micros, bytes: i64) {
    let start = number as i64;
    let revision = start + 1;
    let ranges = vec![range(start, start + 1)];
    state.checkpoints.extend([CheckpointRecord { id: id(number), worker: "w".into(), committed_at, revision, ranges }]);
    state.files.extend([file(format!("archive/s/{number:06}"), FileKind::Archive, id(number), bytes)]);
}

fn due(state: &CatalogState, now: Micros) -> Vec<Vec<Uuid>> {
    let groups = compactions(state, &StreamsRead::default(), &RULES, &BTreeSet::new(), now);
    groups.iter().map(|group| group.iter().map(|checkpoint| checkpoint.id).collect()).collect()
}

/// What the catalog's SQL does: `bytes` are those of the group's files together.
fn carry_out(state: &mut CatalogState, group: &[Uuid], number: usize) -> i64 {
    let of: Vec<&CheckpointRecord> = group.iter().filter_map(|id| state.checkpoints.get(*id)).collect();
    let record = compacted(id(number), &of).unwrap();
    let files: Vec<FileRecord> = group.iter().flat_map(|id| state.files.of_checkpoint(*id)).cloned().collect();
    let bytes = files.iter().map(|file| file.bytes).sum();
    state.checkpoints.remove(group);
    state.files.remove(files.iter().map(|file| &*file.path));
    state.checkpoints.extend([record]);
    state.files.extend([file(format!("archive/s/{number:06}"), FileKind::Archive, id(number), bytes)]);
    bytes
}

fn snapshot(cut: i64) -> SnapshotRecord {
    let cut = Vector::from_iter([(PartitionId::new("s", 0), Offset(cut))]);
    SnapshotRecord { view: "gone".into(), version: 1, run: id(0), cut, manifest: "m".into(), published_at: 0 }
}

proptest! {
    /// However sizes come, in rounds over a day: a row is written few times, and when the day is over few files are
    /// left.
    #[test]
    fn rows_are_written_few_times_and_few_files_are_left(
        sizes in prop::collection::vec(prop_oneof![4 => 1_000..5_000i64, 1 => 1_000..TARGET], 1..400),
        per_round in 1..40usize,
    ) {
        let (mut state, mut written, mut next) = (CatalogState::default(), 0, 1_000_000);
        let total: i64 = sizes.iter().sum();
        for (round, sizes) in sizes.chunks(per_round).enumerate() {
            for (at, bytes) in sizes.iter().enumerate() {
                add(&mut state, round * per_round + at, 10 * HOUR + round as Micros, *bytes);
            }
            for group in due(&state, 15 * HOUR) {
                next += 1;
                written += carry_out(&mut state, &group, next);
            }
        }
        prop_assert!(written <= 6 * total, "{written} bytes written for {total}: log4(1 MiB / 1 kB) is 5");
        let the_next_day = 26 * HOUR;
        let last = due(&state, the_next_day);
        for group in last {
            next += 1;
            carry_out(&mut state, &group, next);
        }
        prop_assert!(due(&state, the_next_day).is_empty(), "and nothing is due any more");
        prop_assert!(state.checkpoints.len() as i64 <= 2 * total / TARGET + 1);
        let whole: i64 = state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges).map(|range| range.archived + range.duplicate).sum();
        prop_assert_eq!(whole, sizes.len() as i64);
        prop_assert_eq!(state.checkpoints.iter().map(|checkpoint| checkpoint.ranges.len()).sum::<usize>(), state.checkpoints.len());
    }

    /// Groups are without holes and within one day, and their files fit into one of the target size.
    #[test]
    fn a_group_is_a_part_of_the_order_of_commits(
        mut checkpoints in prop::collection::vec((0..60 * HOUR, 1..TARGET / 2), 0..120),
        group_starts in prop::collection::btree_set(0..120usize, 0..9),
        cut in 0..200i64,
    ) {
        checkpoints.sort_unstable();
        let mut state = state(&checkpoints);
        state.snapshots.push(snapshot(cut));
        let order: Vec<Uuid> = state.checkpoints.iter().map(|checkpoint| checkpoint.id).collect();
        let group_starts: BTreeSet<Uuid> = group_starts.into_iter().map(id).collect();
        let mut seen = BTreeSet::new();
        for group in compactions(&state, &StreamsRead::default(), &RULES, &group_starts, 50 * HOUR) {
            let place = order.iter().position(|id| *id == group[0].id).unwrap();
            prop_assert!(group.len() > 1);
            prop_assert!(group.iter().map(|checkpoint| checkpoint.id).eq(order[place..place + group.len()].iter().copied()));
            prop_assert!(group.iter().all(|checkpoint| checkpoint.committed_at / DAY == group[0].committed_at / DAY));
            prop_assert!(group.iter().all(|checkpoint| checkpoint.committed_at < 49 * HOUR && checkpoint.ranges[0].end.0 <= cut));
            prop_assert!(group[1..].iter().all(|checkpoint| !group_starts.contains(&checkpoint.id)));
            let bytes: i64 = group.iter().flat_map(|checkpoint| state.files.of_checkpoint(checkpoint.id)).map(|file| file.bytes).sum();
            prop_assert!(bytes <= TARGET);
            prop_assert!(group.iter().all(|checkpoint| seen.insert(checkpoint.id)), "no checkpoint is in two groups");
        }
    }
}

#[test]
fn what_may_still_be_read_by_checkpoint_is_left_alone() {
    let eight = || state(&[(0, 1_000); 8]);
    let now = 30 * HOUR;
    assert_eq!(due(&eight(), now), [(0..8).map(id).collect::<Vec<_>>()]);

    let mut with_states = eight();
    with_states.files.extend([file("states/3".into(), FileKind::States, id(3), 1)]);
    assert_eq!(due(&with_states, now), [(0..3).map(id).collect::<Vec<_>>(), (4..8).map(id).collect()]);

    let mut superseded = eight();
    superseded.files.extend([file("archive/s/old".into(), FileKind::Superseded, id(7), 1)]);
    assert_eq!(due(&superseded, now), [(0..7).map(id).collect::<Vec<_>>()]);

    let mut damaged = eight();
    damaged.damages.push(DamageRecord { path: "archive/s/000001".into(), error: "e".into(), found_by: "f".into(), found_at: 0 });
    assert_eq!(due(&damaged, now), [(2..8).map(id).collect::<Vec<_>>()]);

    let mut pinned = eight();
    let pin = Some(snapshot(5).cut);
    pinned.leases.push(LeaseRecord { name: "serve/n".into(), owner: "n".into(), epoch: 1, expires_at: now + 1, pin });
    assert_eq!(due(&pinned, now), [(0..5).map(id).collect::<Vec<_>>()]);
    pinned.leases[0].expires_at = now;
    assert_eq!(due(&pinned, now), [(0..8).map(id).collect::<Vec<_>>()]);

    assert_eq!(due(&eight(), HOUR), [] as [Vec<Uuid>; 0], "younger than an hour");
}

/// A view that never runs, as it has no schedule or always fails, is no reason to keep what it does not read.
#[test]
fn a_view_holds_up_only_what_it_reads() {
    let mut state = state(&[(0, 1_000); 8]);
    let (name, status) = ("v".into(), DefinitionStatus::Active);
    state.definitions.extend([DefinitionRecord {
        kind: DefinitionKind::View,
        name,
        version: 1,
        sql: String::new(),
        status,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    }]);
    let of_another = CheckpointRange { partition: PartitionId::new("q", 0), archived: 0, duplicate: 5, ..range(0, 5) };
    let with_both = CheckpointRecord { ranges: vec![of_another, range(7, 8)], ..state.checkpoints.iter().next_back().unwrap().clone() };
    state.checkpoints.remove(&[id(7)]);
    state.checkpoints.extend([with_both]);
    let due = |state: &CatalogState, streams: &[&str]| {
        let streams = streams.iter().map(|stream| Arc::from(*stream)).collect();
        let reads = StreamsRead::from_iter([((Arc::from("v"), 1), streams)]);
        compactions(state, &reads, &RULES, &BTreeSet::new(), 30 * HOUR).iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(due(&state, &["s"]), [0; 0]);
    assert_eq!(due(&state, &["q"]), [7]);
    assert_eq!(due(&state, &["another"]), [8]);
    let cut = |s, q| Vector::from_iter([(PartitionId::new("s", 0), Offset(s)), (PartitionId::new("q", 0), Offset(q))]);
    state.snapshots.push(SnapshotRecord { view: "v".into(), cut: cut(3, 5), ..snapshot(0) });
    assert_eq!((due(&state, &["s"]), due(&state, &["q"])), (vec![3], vec![8]));
    state.snapshots[0].cut = cut(9, 4);
    assert_eq!((due(&state, &["s"]), due(&state, &["q"])), (vec![8], vec![7]));
    state.snapshots[0].version = 2;
    assert_eq!(due(&state, &["another"]), [7], "a retired version that is not known may read any stream");
}

/// Offsets that were accepted as lost are in no range.
/// The ledger and repairs go by single checkpoints there.
#[test]
fn checkpoints_beside_what_was_given_up_and_those_whose_events_are_gone_are_left_alone() {
    let (eight, now) = (|| state(&[(0, 1_000); 8]), 30 * HOUR);
    let ids = |numbers: std::ops::Range<usize>| numbers.map(id).collect::<Vec<_>>();
    let mut given_up = eight();
    let gap = |partition| GapRecord { partition, start: Offset(2), end: Offset(3), reason: "r".into(), accepted_at: 0 };
    given_up.gaps.push(gap(PartitionId::new("s", 0)));
    assert_eq!(due(&given_up, now), [ids(0..2), ids(4..8)]);
    given_up.gaps = vec![gap(PartitionId::new("s", 1))];
    assert_eq!(due(&given_up, now), [ids(0..8)], "those of another partition are not beside it");

    let mut gone = eight();
    gone.checkpoints.rewrite(|all| all[5].ranges[0].archived = 1);
    assert_eq!(due(&gone, now), [ids(0..8)]);
    gone.files.remove(["archive/s/000005"]);
    assert_eq!(due(&gone, now), [ids(0..5), ids(6..8)]);
}

#[test]
fn ranges_are_joined_where_one_follows_the_other() {
    let checkpoint = |number: usize, ranges: Vec<CheckpointRange>| CheckpointRecord {
        id: id(number),
        worker: format!("w{number}"),
        committed_at: number as Micros,
        revision: number as i64,
        ranges,
    };
    let other = CheckpointRange { partition: PartitionId::new("s", 1), ..range(7, 9) };
    let of = [checkpoint(1, vec![range(0, 10)]), checkpoint(2, vec![other.clone(), range(10, 14)]), checkpoint(3, vec![range(20, 25)])];
    let joined = compacted(id(9), &of.iter().collect::<Vec<_>>()).unwrap();
    let expected = vec![CheckpointRange { start: Offset(0), archived: 12, duplicate: 2, ..range(10, 14) }, range(20, 25), other];
    assert_eq!(joined, CheckpointRecord { id: id(9), ranges: expected, ..of[2].clone() });
}
