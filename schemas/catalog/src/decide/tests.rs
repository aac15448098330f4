use std::collections::BTreeMap;
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};

use uuid::Uuid;

use super::*;
use crate::*;

mod collecting;

const NOW: Micros = 1_000_000_000_000;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn vector(text: &str) -> Vector {
    text.parse().unwrap()
}

fn range(start: i64, end: i64) -> CheckpointRange {
    CheckpointRange {
        clock: Some(1),
        max_event_time: Some(2),
        complete_to: Some(3),
        ..CheckpointRange::of_events(PartitionId::new("s", 0), start, end)
    }
}

fn checkpoint(number: u128, start: i64, end: i64, committed_at: Micros) -> CheckpointRecord {
    CheckpointRecord::new(id(number), "w", committed_at, vec![range(start, end)])
}

fn file(path: &str, kind: FileKind) -> FileRecord {
    FileRecord {
        path: path.into(),
        kind,
        checkpoint: None,
        run: None,
        subject: None,
        bytes: 1,
        rows: 1,
        checksum: 0,
        min_event_time: None,
        max_event_time: None,
        marked_for_deletion: false,
    }
}

fn run(number: u128, status: RunStatus, cut: &str) -> RunRecord {
    RunRecord {
        id: id(number),
        view: "v".into(),
        version: 1,
        status,
        scheduled_for: None,
        attempt: 1,
        started_at: None,
        ended_at: None,
        cut: Some(vector(cut)),
        strategy: None,
        events_read: 0,
        rows_written: 0,
        bytes_written: 0,
        peak_memory_bytes: 0,
        bytes_read: 0,
        tiers: 0,
        peak_resident_bytes: 0,
        comparison: None,
        draft: None,
        beside: false,
        error: Some("of an earlier attempt".into()),
    }
}

fn snapshot(run: u128, cut: &str) -> SnapshotRecord {
    SnapshotRecord { view: "v".into(), version: 1, run: id(run), cut: vector(cut), manifest: "m".into(), published_at: 0 }
}

fn lease(expires_at: Micros, pin: Option<&str>) -> LeaseRecord {
    LeaseRecord { name: "run/v".into(), owner: "me".into(), epoch: 4, expires_at, pin: pin.map(vector) }
}

#[test]
fn a_checkpoint_expects_the_start_and_the_log_of_every_range() {
    let mut record = checkpoint(1, 5, 9, NOW);
    record.ranges.push(CheckpointRange { partition: PartitionId::new("s", 1), ..range(0, 2) });
    let files = vec![file("a", FileKind::Archive), file("b", FileKind::States)];
    let identities = BTreeMap::from([(PartitionId::new("s", 0), "log".to_owned())]);
    let commit = checkpoint_commit(record.clone(), files.clone(), &identities);
    assert_eq!(commit.id, record.id);
    assert_eq!(
        commit.expect,
        vec![
            Expect::NextOffset { partition: PartitionId::new("s", 0), offset: Offset(5) },
            Expect::NextOffset { partition: PartitionId::new("s", 1), offset: Offset(0) },
            Expect::LogIdentity { partition: PartitionId::new("s", 0), identity: "log".into() },
            Expect::NotMarkedForDeletion { paths: vec!["a".into(), "b".into()] },
        ]
    );
    assert_eq!(commit.add, vec![Add::Checkpoint(record), Add::File(files[0].clone()), Add::File(files[1].clone())]);
    let moves: Vec<_> = commit.advance.iter().map(|a| (a.start.0, a.end.0, a.log_identity.as_str(), a.clock)).collect();
    assert_eq!(moves, [(5, 9, "log", Some(1)), (0, 2, "", Some(1))]);
}

#[test]
fn the_ledger_names_the_range_that_does_not_add_up() {
    let mut record = checkpoint(1, 5, 9, NOW);
    record.ranges.push(CheckpointRange { archived: 1, duplicate: 2, dead_lettered: 3, absent: 4, ..range(0, 10) });
    assert_eq!(ledger_difference(&record), None);
    record.ranges[1].absent = i64::MAX;
    assert_eq!(ledger_difference(&record), Some((&record.ranges[1], i64::MAX)));
}

fn written(files: &[FileRecord]) -> SnapshotFiles {
    SnapshotFiles { written: files.to_vec(), carried_over: Vec::new() }
}

#[test]
fn a_publication_ends_its_run_and_is_the_same_commit_each_time() {
    let run = run(1, RunStatus::Running, "s/0:10");
    let files = vec![file("a", FileKind::Snapshot)];
    let commit = publish_commit(run.clone(), snapshot(1, "s/0:10"), written(&files), &lease(NOW + 1, None), NOW);
    assert_eq!(
        commit.expect,
        vec![
            Expect::Lease { name: "run/v".into(), owner: "me".into(), epoch: 4, now: NOW },
            Expect::CutNotBehind { view: "v".into(), version: 1, cut: vector("s/0:10") },
            Expect::NotMarkedForDeletion { paths: vec!["a".into()] },
        ]
    );
    let ended = RunRecord { status: RunStatus::Succeeded, ended_at: Some(NOW), error: None, ..run.clone() };
    assert_eq!(commit.add, vec![Add::File(files[0].clone()), Add::Snapshot(snapshot(1, "s/0:10")), Add::Run(ended)]);
    let of_two = SnapshotFiles { written: files.clone(), carried_over: vec!["b".into()] };
    let adding = publish_commit(run.clone(), snapshot(1, "s/0:10"), of_two, &lease(NOW + 1, None), NOW);
    assert_eq!(adding.add[..2], [Add::File(files[0].clone()), Add::TakeOver { run: run.id, paths: vec!["b".into()] }]);
    let again = publish_commit(run.clone(), snapshot(1, "s/0:10"), written(&files), &lease(NOW + 9, None), NOW + 5);
    assert!(again.id == commit.id && !commit.id.is_nil() && commit.id != run.id);
}
