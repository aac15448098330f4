//! What the collector may take, and above all what it may not.

use std::sync::Arc;
use std::time::Duration;
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};

use proptest::prelude::*;

use super::*;
use types::ErrorKind;
use types::files::ObjectName;

const DAY_US: Micros = 24 * 60 * 60 * 1_000_000;

fn view(version: u32, status: DefinitionStatus) -> DefinitionRecord {
    DefinitionRecord {
        kind: DefinitionKind::View,
        name: "v".into(),
        version,
        sql: String::new(),
        status,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    }
}

fn snapshot_file(path: &str, run: u128) -> FileRecord {
    FileRecord { run: Some(id(run)), subject: Some("v".into()), ..file(path, FileKind::Snapshot) }
}

fn states_file(path: &str, checkpoint: u128) -> FileRecord {
    FileRecord { checkpoint: Some(id(checkpoint)), ..file(path, FileKind::States) }
}

fn archive_file(path: &str, checkpoint: u128, max_event_time: Micros) -> FileRecord {
    let kind = FileKind::Archive;
    let max_event_time = Some(max_event_time);
    FileRecord { checkpoint: Some(id(checkpoint)), subject: Some("s".into()), max_event_time, ..file(path, kind) }
}

/// One active view, served from run 2 with cut 20; run 1 was before it. Checkpoints 10 to 12 end at 10, 20 and 30.
fn state() -> CatalogState {
    CatalogState {
        revision: 7,
        definitions: [view(1, DefinitionStatus::Active)].into_iter().collect(),
        checkpoints: (0..3).map(|n| checkpoint(10 + n as u128, n * 10, n * 10 + 10, NOW)).collect(),
        files: [snapshot_file("old", 1), snapshot_file("new", 2), states_file("s10", 10), states_file("s20", 11), states_file("s30", 12)]
            .into_iter()
            .collect(),
        snapshots: vec![snapshot(2, "s/0:20")],
        runs: vec![run(2, RunStatus::Succeeded, "s/0:20"), run(1, RunStatus::Succeeded, "s/0:10")],
        ..CatalogState::default()
    }
}

fn marked_for_deletion(state: &CatalogState) -> Vec<String> {
    collectable(state, &StreamsRead::default(), &BTreeMap::new(), NOW).mark_for_deletion
}

fn pinned(pin: &str, expires_at: Micros) -> CatalogState {
    CatalogState { leases: vec![lease(expires_at, Some(pin))], ..state() }
}

#[test]
fn the_superseded_snapshot_and_the_states_it_holds_are_collected() {
    assert_eq!(marked_for_deletion(&state()), ["old", "s10", "s20"]);
}

#[test]
fn an_unexpired_pin_keeps_what_stands_on_it() {
    assert_eq!(marked_for_deletion(&pinned("s/0:10", NOW + 1)), ["old", "s10"], "who reads an old state for long pins everything");
    let everything = LeaseRecord { pin: Some(Vector::new()), ..lease(NOW + 1, None) };
    assert_eq!(marked_for_deletion(&CatalogState { leases: vec![everything], ..state() }), Vec::<String>::new());
    assert_eq!(marked_for_deletion(&pinned("s/0:20", NOW + 1)), ["old", "s10", "s20"]);
    assert_eq!(marked_for_deletion(&pinned("s/0:10", NOW)), ["old", "s10", "s20"], "expired");
}

#[test]
fn a_view_that_never_runs_keeps_only_what_it_reads() {
    let mut state = state();
    state.definitions.extend([DefinitionRecord { name: "idle".into(), ..view(1, DefinitionStatus::Active) }]);
    let marked = |streams: &[&str]| {
        let streams = streams.iter().map(|stream| Arc::from(*stream)).collect();
        collectable(&state, &StreamsRead::from_iter([(("idle".into(), 1), streams)]), &BTreeMap::new(), NOW).mark_for_deletion
    };
    assert_eq!(marked(&["s"]), ["old"]);
    assert_eq!(marked(&["another"]), ["old", "s10", "s20"]);
}

/// A checkpoint that was compacted across a cut in a stream that the view does not read.
#[test]
fn what_a_view_does_not_read_may_be_on_both_sides_of_its_cut() {
    let of = |stream: &str, range: CheckpointRange| CheckpointRange { partition: PartitionId::new(stream, 0), ..range };
    let ranges = vec![of("q", range(0, 5)), range(0, 30)];
    let compacted = CheckpointRecord { ranges, ..checkpoint(1, 0, 0, NOW) };
    let after = CheckpointRecord { ranges: vec![of("q", range(5, 6))], ..checkpoint(2, 0, 0, NOW) };
    let file = FileRecord { checkpoint: Some(id(1)), subject: Some("q".into()), ..file("of q", FileKind::Archive) };
    let state = CatalogState { checkpoints: [compacted, after].into_iter().collect(), files: [file].into_iter().collect(), ..state() };
    let cut = vector("s/0:20,q/0:5");
    let after = |stream: &str| checkpoints_after(&state, &[stream.into()], &cut);
    assert_eq!(after("q").unwrap().iter().map(|checkpoint| checkpoint.id).collect::<Vec<_>>(), [id(2)]);
    assert_eq!(after("s").unwrap_err().kind(), ErrorKind::Corrupt);
    let bounds = ArchiveBounds { cut: Some(&cut), ..ArchiveBounds::default() };
    assert_eq!(archive_files(&state, &["q".into()], bounds).len(), 1);
}

#[test]
fn a_snapshot_replaced_a_moment_ago_is_kept_for_queries_that_just_began() {
    let mut state = state();
    state.snapshots[0].published_at = NOW - 1;
    assert_eq!(marked_for_deletion(&state), ["s10", "s20"]);
}

#[test]
fn a_view_that_runs_often_does_not_keep_all_its_snapshots() {
    let minutes_ago = |minutes: i64| Some(NOW - minutes * 60_000_000);
    let ended = |number, minutes| RunRecord { ended_at: minutes_ago(minutes), ..run(number, RunStatus::Succeeded, "s/0:20") };
    let mut state = state();
    state.snapshots[0].published_at = NOW - 60_000_000;
    state.runs = vec![ended(2, 1), ended(5, 6), ended(4, 11), ended(1, 16)];
    state.files = [snapshot_file("new", 2), snapshot_file("6", 5), snapshot_file("11", 4), snapshot_file("16", 1)].into_iter().collect();
    assert_eq!(marked_for_deletion(&state), ["16"], "replaced eleven minutes ago; that of eleven minutes ago was replaced six minutes ago");
    state.leases = vec![lease(NOW + 1, Some("s/0:10"))];
    assert_eq!(marked_for_deletion(&state), ["16"], "another view's snapshot, which runs seldom, is of an older cut");
    state.leases = vec![LeaseRecord { pin: Some(Vector::new()), ..lease(NOW + 1, None) }];
    assert_eq!(marked_for_deletion(&state), Vec::<String>::new(), "a reader of an old state pins everything");
}

/// The state holds the newest runs only. A run that is older was replaced by the oldest of them at the latest.
#[test]
fn a_snapshot_of_a_run_that_the_state_does_not_hold_any_more_goes_though_its_view_runs_on() {
    let ended = |number, minutes: i64| {
        let ended_at = Some(NOW - minutes * 60_000_000);
        RunRecord { ended_at, ..run(number, RunStatus::Succeeded, "s/0:20") }
    };
    let mut state = state();
    state.snapshots[0].published_at = NOW - 60_000_000;
    state.files = [snapshot_file("new", 2), snapshot_file("forgotten", 9)].into_iter().collect();
    state.leases = vec![lease(NOW + 1, Some("s/0:10"))];
    state.runs = vec![ended(2, 1), ended(5, 9)];
    assert_eq!(marked_for_deletion(&state), Vec::<String>::new(), "it may have been replaced nine minutes ago");
    state.runs = vec![ended(2, 1), ended(5, 11)];
    assert_eq!(marked_for_deletion(&state), ["forgotten"]);
    state.leases = vec![LeaseRecord { pin: Some(Vector::new()), ..lease(NOW + 1, None) }];
    assert_eq!(marked_for_deletion(&state), Vec::<String>::new());
}

#[test]
fn a_running_run_keeps_its_files_and_its_cut() {
    let mut state = state();
    state.runs.push(run(3, RunStatus::Running, "s/0:10"));
    state.files.extend([snapshot_file("half written", 3)]);
    assert_eq!(marked_for_deletion(&state), ["old", "s10"]);
}

#[test]
fn a_failed_runs_files_are_collected_at_once() {
    let mut state = pinned("s/0:10", NOW + 1);
    state.runs.push(run(3, RunStatus::Failed, "s/0:30"));
    state.files.extend([snapshot_file("failed", 3)]);
    assert_eq!(marked_for_deletion(&state), ["failed", "old", "s10"]);
}

#[test]
fn a_view_without_a_snapshot_keeps_all_states() {
    let mut state = state();
    state.definitions.extend([view(2, DefinitionStatus::Building)]);
    assert_eq!(marked_for_deletion(&state), ["old"]);
}

#[test]
fn a_retired_versions_snapshot_is_withdrawn_when_readers_are_past_it() {
    let grace = 10 * 60 * 1_000_000;
    let retired_at = |pin: Option<&str>, since: Micros| {
        let mut state = state();
        let retired = DefinitionRecord { since, ..view(1, DefinitionStatus::Retired) };
        state.definitions = [retired, view(2, DefinitionStatus::Active)].into_iter().collect();
        state.snapshots.push(SnapshotRecord { version: 2, ..snapshot(4, "s/0:30") });
        state.leases = pin.map(|pin| lease(NOW + 1, Some(pin))).into_iter().collect();
        collectable(&state, &StreamsRead::default(), &BTreeMap::new(), NOW)
    };
    let retired = |pin| retired_at(pin, NOW - grace);
    for pin in [None, Some("s/0:20"), Some("s/0:30")] {
        assert_eq!(retired_at(pin, NOW - grace + 1).withdraw, [], "a query that began before may still read it: {pin:?}");
    }
    let plan = retired(None);
    assert_eq!(
        (plan.withdraw.len(), plan.mark_for_deletion.as_slice()),
        (1, ["new", "old", "s10", "s20", "s30"].map(String::from).as_slice())
    );
    assert_eq!(retired(Some("s/0:30")).withdraw, [("v".into(), 1)]);
}

/// The cuts of other views may stay where they are for long: a view without a schedule may never run.
#[test]
fn a_retired_versions_snapshot_is_withdrawn_when_every_reader_has_read_the_catalog_since() {
    let withdrawn = |retired_at: Micros, pin: &str| {
        let mut state = pinned(pin, NOW + 1);
        let retired = DefinitionRecord { since: retired_at, ..view(1, DefinitionStatus::Retired) };
        state.definitions = [retired, view(2, DefinitionStatus::Active)].into_iter().collect();
        !collectable(&state, &StreamsRead::default(), &BTreeMap::new(), NOW).withdraw.is_empty()
    };
    let minute = 60 * 1_000_000;
    assert!(withdrawn(NOW - 10 * minute, "s/0:10"));
    assert!(!withdrawn(NOW - 9 * minute, "s/0:10"), "a query may have read the catalog just before");
    assert!(!withdrawn(NOW - 60 * minute, ""), "a pin of everything: it reads an earlier state");
}

#[test]
fn a_kept_version_keeps_its_snapshot_and_the_states_after_it() {
    let mut state = state();
    let kept = DefinitionRecord { kept_until: Some(NOW + 1), ..view(1, DefinitionStatus::Kept) };
    state.definitions = [kept, view(2, DefinitionStatus::Active)].into_iter().collect();
    state.snapshots.push(SnapshotRecord { version: 2, ..snapshot(4, "s/0:30") });
    let plan = collectable(&state, &StreamsRead::default(), &BTreeMap::new(), NOW);
    assert_eq!((plan.withdraw, plan.mark_for_deletion), (vec![], ["old", "s10", "s20"].map(String::from).to_vec()));
}

fn kept_for(days: u64) -> Retention {
    Retention { kept: Duration::from_secs(days * 24 * 60 * 60), clock_behind: Duration::ZERO }
}

#[test]
fn the_archive_is_kept_for_its_retention_and_until_it_is_published() {
    let old = NOW - 3 * DAY_US;
    let mut state = CatalogState { files: Files::default(), ..state() };
    state.checkpoints.rewrite(|all| all.iter_mut().for_each(|checkpoint| checkpoint.committed_at = old));
    state.files.extend([archive_file("old", 10, old)]);
    state.files.extend([archive_file("newest event is new", 11, NOW - DAY_US)]);
    state.files.extend([archive_file("after the cut", 12, old)]);
    state.files.extend([FileRecord { subject: Some("other".into()), ..archive_file("kept for ever", 10, old) }]);
    let retention = BTreeMap::from([("s".into(), kept_for(2))]);
    assert_eq!(collectable(&state, &StreamsRead::default(), &retention, NOW).mark_for_deletion, ["old"]);
    assert!(collectable(&state, &StreamsRead::default(), &BTreeMap::new(), NOW).is_empty());
    // Old events that came in late: their duplicates may still come.
    state.checkpoints.rewrite(|all| all[0].committed_at = NOW - DAY_US);
    assert!(collectable(&state, &StreamsRead::default(), &retention, NOW).is_empty());
}

/// With the event clock, and events of last year that are archived now: a file is kept for two days after both its
/// newest event, by that clock, and its commit.
#[test]
fn events_of_long_ago_are_not_kept_for_as_long_again() {
    let behind = 300 * DAY_US;
    let mut state = CatalogState { files: Files::default(), ..state() };
    state.checkpoints.rewrite(|all| all.iter_mut().for_each(|checkpoint| checkpoint.committed_at = NOW - 3 * DAY_US));
    state.files.extend([archive_file("old", 10, NOW - behind - 3 * DAY_US)]);
    state.files.extend([archive_file("counted still", 11, NOW - behind - DAY_US)]);
    let retention = Retention { clock_behind: Duration::from_micros(behind as u64), ..kept_for(2) };
    let retention = BTreeMap::from([("s".into(), retention)]);
    assert_eq!(collectable(&state, &StreamsRead::default(), &retention, NOW).mark_for_deletion, ["old"]);
    // Records that carry timestamps of long ago: their partition's clock tells whether duplicates may still come.
    let partition = PartitionId::new("s", 0);
    let clock = NOW - behind;
    state
        .checkpoints
        .rewrite(|all| all.iter_mut().for_each(|checkpoint| checkpoint.ranges.iter_mut().for_each(|range| range.clock = Some(clock))));
    let at = |clock| PartitionRecord {
        id: partition.clone(),
        next_offset: Offset(40),
        log_identity: "log".into(),
        clock: Some(clock),
        max_event_time: None,
        complete_to: None,
    };
    state.partitions = [(partition.clone(), at(clock + DAY_US))].into();
    assert!(collectable(&state, &StreamsRead::default(), &retention, NOW).is_empty(), "a duplicate may come");
    state.partitions = [(partition.clone(), at(clock + 3 * DAY_US))].into();
    assert_eq!(collectable(&state, &StreamsRead::default(), &retention, NOW).mark_for_deletion, ["old"]);
    state.checkpoints.rewrite(|all| all[0].committed_at = NOW - DAY_US);
    assert!(collectable(&state, &StreamsRead::default(), &retention, NOW).is_empty(), "its duplicates may still come");
}

#[test]
fn a_checkpoint_is_forgotten_after_its_last_file() {
    let retention = BTreeMap::from([("s".into(), kept_for(1))]);
    let mut state = state();
    state.checkpoints.rewrite(|all| all.iter_mut().for_each(|checkpoint| checkpoint.committed_at = NOW - 3 * DAY_US));
    state.files = [FileRecord { marked_for_deletion: true, ..states_file("s10", 10) }].into_iter().collect();
    let plan = collectable(&state, &StreamsRead::default(), &retention, NOW);
    assert_eq!(
        (plan.mark_for_deletion.as_slice(), plan.delete.as_slice(), plan.forget.as_slice()),
        (&[][..], &["s10".to_owned()][..], &[id(11)][..])
    );
    assert!(collectable(&state, &StreamsRead::default(), &BTreeMap::new(), NOW).forget.is_empty());
}

#[test]
fn a_plan_becomes_two_commits() {
    let mut state = state();
    state.files.extend([FileRecord { marked_for_deletion: true, ..snapshot_file("old", 1) }]);
    let plan = collectable(&state, &StreamsRead::default(), &BTreeMap::new(), NOW);
    let mark_for_deletion = plan.marking_commit(id(1));
    assert_eq!(mark_for_deletion.expect, vec![Expect::Revision(7)]);
    assert_eq!(mark_for_deletion.remove, vec![Remove::MarkForDeletion("s10".into()), Remove::MarkForDeletion("s20".into())]);
    assert_eq!(plan.delete_commit(id(2)).remove, vec![Remove::File("old".into())]);
    assert!(serde_json::to_string(&plan).unwrap().contains("\"mark_for_deletion\":[\"s10\",\"s20\"]"));
}

fn offsets() -> impl Strategy<Value = Vector> {
    (0..12i64, 0..12i64)
        .prop_map(|(a, b)| [(PartitionId::new("s", 0), Offset(a)), (PartitionId::new("s", 1), Offset(b))].into_iter().collect())
}

#[test]
fn files_that_no_transaction_can_name_any_more_are_orphans() {
    let made = |second: u64, salt: u8| uuid::Builder::from_unix_timestamp_millis(second * 1_000, &[salt; 10]).into_uuid();
    let archive = |id: Uuid| ObjectName::Archive { stream: "s".into(), checkpoint: id };
    let bucket = |id: Uuid| ObjectName::Bucket { view: "v".into(), version: 1, run: id, bucket: 0 };
    let (old, new, named) = (archive(made(10, 1)), archive(made(90, 2)), archive(made(10, 3)));
    let (under_way, failed, unknown) = (bucket(made(10, 4)), bucket(made(99, 5)), bucket(made(10, 6)));
    let listed = vec![old.clone(), new, named.clone(), under_way.clone(), failed.clone(), unknown.clone()];
    let of = |name: &ObjectName, status| RunRecord { id: name.run().unwrap(), ..run(0, status, "s/0:1") };
    let state = CatalogState {
        orphaned_before: 50_000_000,
        files: [file(&named.to_string(), FileKind::Archive)].into_iter().collect(),
        runs: vec![of(&under_way, RunStatus::Running), of(&failed, RunStatus::Failed)],
        ..CatalogState::default()
    };
    assert_eq!(orphans(&state, &listed), [&old, &failed, &unknown]);
}

#[test]
fn a_draft_is_kept_while_a_recomputation_may_go_on_with_it() {
    let hour = 60 * 60 * 1_000_000;
    let slice = |run: u128| ObjectName::SliceBucket { view: "v".into(), version: 1, run: id(run), slice: 0, bucket: 0 };
    let bucket = ObjectName::Bucket { view: "v".into(), version: 1, run: id(1), bucket: 0 };
    let listed = [slice(1), bucket.clone(), ObjectName::SliceBucket { view: "w".into(), version: 1, run: id(1), slice: 0, bucket: 0 }];
    let draft = RunDraft { path: "draft".into(), bytes: 1, checksum: 2, events: 3, resumed: 0, format: 1 };
    let recomputing = |number, status, draft: Option<&RunDraft>| RunRecord {
        strategy: Some(types::Strategy::Full),
        ended_at: Some(NOW - hour),
        draft: draft.cloned(),
        ..run(number, status, "s/0:1")
    };
    let failed = recomputing(1, RunStatus::Failed, Some(&draft));
    let undecided = RunRecord { strategy: None, draft: None, ..recomputing(2, RunStatus::Failed, None) };
    let added = RunRecord { strategy: Some(types::Strategy::Incremental), ..recomputing(2, RunStatus::Succeeded, None) };
    // The runs after the failed one, newest first; whether the next goes on with what it had saved, and what it keeps.
    let cases = [
        (vec![], true),
        (vec![undecided], true),
        (vec![added], true),
        (vec![RunRecord { ended_at: None, ..recomputing(2, RunStatus::Running, Some(&draft)) }], true),
        (vec![recomputing(2, RunStatus::Failed, None)], false),
        (vec![recomputing(2, RunStatus::Succeeded, Some(&draft))], false),
        (vec![recomputing(2, RunStatus::Dropped, Some(&draft))], false),
    ];
    for (later, is_kept) in cases {
        let runs: Vec<RunRecord> = later.into_iter().chain([failed.clone()]).collect();
        let state = CatalogState { runs, orphaned_before: NOW - 24 * hour, ..CatalogState::default() };
        assert_eq!(draft_to_resume(&state, "v", 1, NOW), is_kept.then_some(&draft), "{:?}", state.runs);
        assert_eq!(draft_to_resume(&state, "v", 2, NOW), None);
        let older = |run: &RunRecord| RunRecord { draft: run.draft.clone().map(|draft| RunDraft { format: 0, ..draft }), ..run.clone() };
        let of_older = CatalogState { runs: state.runs.iter().map(older).collect(), ..state.clone() };
        assert_eq!(draft_to_resume(&of_older, "v", 1, NOW), None, "its states are of another format");
        let given_up = orphans(&state, &listed);
        assert_eq!(given_up.contains(&&listed[0]), !is_kept, "{:?}", state.runs);
        assert!(given_up.contains(&&bucket) && given_up.contains(&&listed[2]), "what no draft has is given up");
        // It is taken up for 23 hours, and kept for 24.
        assert_eq!(draft_to_resume(&state, "v", 1, NOW + 22 * hour).filter(|_| state.runs[0].ended_at.is_some()), None);
        let later = CatalogState { orphaned_before: NOW, ..state };
        let is_running = later.runs[0].ended_at.is_none();
        assert_eq!(orphans(&later, &listed).contains(&&listed[0]), !(is_kept && is_running));
    }
}

#[test]
fn what_runs_left_is_looked_for_a_minute_after_they_ended_without_a_snapshot() {
    let minute = 60_000_000;
    let ended = |number, status, at| RunRecord { ended_at: Some(at), ..run(number, status, "s/0:1") };
    let runs = vec![
        ended(1, RunStatus::Failed, NOW - minute),
        ended(2, RunStatus::Failed, NOW - minute + 1),
        ended(3, RunStatus::Dropped, NOW - 9 * minute),
        ended(4, RunStatus::Succeeded, NOW - 9 * minute),
        ended(5, RunStatus::Skipped, NOW - 9 * minute),
        RunRecord { ended_at: None, ..run(6, RunStatus::Running, "s/0:1") },
    ];
    let state = CatalogState { runs, ..CatalogState::default() };
    let found = |state: &CatalogState| may_have_left_files(state, NOW).map(|run| run.id.as_u128()).collect::<Vec<u128>>();
    assert_eq!(found(&state), [1, 3]);
    // A recomputation that died after it published has left its slices.
    let full = |run| RunRecord { strategy: Some(types::Strategy::Full), ..run };
    let recomputed = full(ended(7, RunStatus::Succeeded, NOW - 9 * minute));
    let state = CatalogState { runs: [vec![recomputed], state.runs].concat(), ..state };
    assert_eq!(found(&state), [7, 1, 3]);
    let slice = ObjectName::Draft { view: "v".into(), version: 1, run: id(7), slice: 0 };
    let listed = [slice, ObjectName::Manifest { view: "v".into(), version: 1, run: id(7) }];
    assert_eq!(orphans(&state, &listed), [&listed[0]]);
    let draft = Some(RunDraft { path: "draft".into(), bytes: 1, checksum: 2, events: 3, resumed: 0, format: 1 });
    let failed = full(RunRecord { draft, ..ended(8, RunStatus::Failed, NOW - 5 * minute) });
    assert!(!has_draft(&state, "v", 1));
    let state = CatalogState { runs: [vec![failed], state.runs].concat(), ..state };
    assert_eq!((found(&state), has_draft(&state, "v", 1)), (vec![8, 7, 1, 3], true), "slices are kept, and nothing else");
    assert_eq!(orphans(&state, &listed), [&listed[0]; 0]);
}

proptest! {
    /// For any cuts and pins: every answer that can still be asked for finds each state after its cut, and its
    /// snapshot.
    #[test]
    fn no_answer_loses_a_file(
        cuts in proptest::collection::vec(proptest::option::of(offsets()), 0..4),
        pins in proptest::collection::vec((offsets(), any::<bool>()), 0..3),
        running in proptest::collection::vec(offsets(), 0..2),
    ) {
        let mut state = CatalogState::default();
        for n in 0..24i64 {
            let mut record = checkpoint(100 + n as u128, n / 2, n / 2 + 1, 0);
            record.ranges[0].partition.partition = (n % 2) as i32;
            state.checkpoints.extend([record]);
            state.files.extend([states_file(&format!("states {n}"), 100 + n as u128)]);
        }
        for (n, cut) in cuts.iter().enumerate() {
            let version = n as u32 + 1;
            state.definitions.extend([view(version, DefinitionStatus::Active)]);
            for (cut, run) in cut.iter().zip([n as u128 + 1]) {
                state.snapshots.push(SnapshotRecord { version, cut: cut.clone(), ..snapshot(run, "") });
                state.files.extend([snapshot_file(&format!("snapshot {n}"), run)]);
            }
        }
        state.leases = pins.iter().map(|(pin, live)| LeaseRecord { pin: Some(pin.clone()), ..lease(NOW + i64::from(*live), None) }).collect();
        state.runs = running.iter().map(|cut| RunRecord { cut: Some(cut.clone()), ..run(50, RunStatus::Running, "") }).collect();
        let plan = collectable(&state, &StreamsRead::default(), &BTreeMap::new(), NOW);
        let bases = cuts.iter().map(|cut| cut.clone().unwrap_or_default());
        let bases = bases.chain(pins.into_iter().filter(|(_, live)| *live).map(|(pin, _)| pin)).chain(running);
        for base in bases {
            for (n, record) in state.checkpoints.iter().enumerate() {
                let is_needed = !record.is_within(&base);
                prop_assert!(!(is_needed && plan.mark_for_deletion.contains(&format!("states {n}"))), "states {} after {}", n, base);
            }
        }
        prop_assert!(!plan.mark_for_deletion.iter().any(|path| path.starts_with("snapshot")));
        prop_assert!(plan.withdraw.is_empty());
    }
}

/// What a commit of the collector leaves of a state.
fn after(mut state: CatalogState, commit: &Commit) -> CatalogState {
    for remove in &commit.remove {
        match remove {
            Remove::MarkForDeletion(path) => {
                let named = state.files.get(path).unwrap().clone();
                state.files.extend([FileRecord { marked_for_deletion: true, ..named }]);
            }
            Remove::File(path) => state.files.remove([path.as_str()]),
            Remove::Checkpoint(id) => state.checkpoints.remove(&[*id]),
            Remove::Snapshot { view, version } => state.snapshots.retain(|of| (&of.view, of.version) != (view, *version)),
            other => panic!("{other:?}"),
        }
    }
    state
}

/// Collects until nothing is left to do. Each round does `part` of its plan.
fn collected(
    mut state: CatalogState,
    retention: &BTreeMap<Arc<str>, Retention>,
    mut part: impl FnMut(&CatalogState, CollectionPlan) -> CollectionPlan,
) -> CatalogState {
    loop {
        let plan = collectable(&state, &StreamsRead::default(), retention, NOW);
        if plan.is_empty() {
            return state;
        }
        let is_deleting = !plan.delete.is_empty();
        let part = part(&state, plan);
        assert!(!part.is_empty(), "a round does something");
        let commit = if is_deleting { part.delete_commit(id(1)) } else { part.marking_commit(id(1)) };
        state = after(state, &commit);
    }
}

fn capped(state: &CatalogState, plan: &CollectionPlan, most: usize) -> CollectionPlan {
    if plan.delete.is_empty() { plan.marks(state, most) } else { plan.deletions(most) }
}

/// How many files each snapshot of [`histories`] has.
const FILES: usize = 4;

/// Two views with up to four versions together. Of each version: whether it is live, the cut of its snapshot, and how
/// many runs it had before that, of which the state holds the last one.
fn histories() -> impl Strategy<Value = CatalogState> {
    let version = (any::<bool>(), proptest::option::of(offsets()), 0..3u128);
    proptest::collection::vec(version, 0..5).prop_map(|versions| {
        let mut state = CatalogState::default();
        for n in 0..24i64 {
            let mut record = checkpoint(100 + n as u128, n / 2, n / 2 + 1, NOW - 3 * DAY_US);
            record.ranges[0].partition.partition = (n % 2) as i32;
            state.checkpoints.extend([record]);
            state.files.extend([states_file(&format!("states {n}"), 100 + n as u128)]);
            state.files.extend([archive_file(&format!("archive {n}"), 100 + n as u128, NOW - 3 * DAY_US)]);
        }
        for (n, (is_live, cut, before)) in versions.into_iter().enumerate() {
            let (name, version): (Arc<str>, u32) = (["v", "w"][n % 2].into(), n as u32 + 1);
            let status = if is_live { DefinitionStatus::Active } else { DefinitionStatus::Retired };
            state.definitions.extend([DefinitionRecord { name: name.clone(), ..view(version, status) }]);
            let last = 1_000 + 10 * n as u128 + before;
            for number in last - before..=last {
                let is_published = number == last;
                let is_held = number + 1 >= last;
                if is_published && cut.is_none() {
                    continue;
                }
                let files = (0..FILES)
                    .map(|part| FileRecord { subject: Some(name.clone()), ..snapshot_file(&format!("{name} {number} {part}"), number) });
                state.files.extend(files);
                let ended_at = Some((number - 900) as Micros);
                let ended = RunRecord { view: name.clone(), version, ended_at, ..run(number, RunStatus::Succeeded, "") };
                state.runs.extend(is_held.then_some(ended));
            }
            let snapshot = |cut| SnapshotRecord { view: name.clone(), version, cut, ..snapshot(last, "") };
            state.snapshots.extend(cut.map(snapshot));
        }
        state
    })
}

fn pins() -> impl Strategy<Value = Vec<Vector>> {
    proptest::collection::vec(prop_oneof![offsets(), Just(Vector::new())], 0..3)
}

fn held(pins: &[Vector]) -> Vec<LeaseRecord> {
    pins.iter().map(|pin| LeaseRecord { pin: Some(pin.clone()), ..lease(NOW + 1, None) }).collect()
}

proptest! {
    #[test]
    fn rounds_of_any_size_end_where_rounds_of_the_whole_plan_end(
        state in histories(),
        pins in pins(),
        sizes in proptest::collection::vec(1..30usize, 1..5),
    ) {
        let state = CatalogState { leases: held(&pins), ..state };
        let retention = BTreeMap::from([("s".into(), kept_for(1))]);
        let mut sizes = sizes.into_iter().cycle();
        let by_parts = collected(state.clone(), &retention, |state, plan| capped(state, &plan, sizes.next().unwrap()));
        prop_assert_eq!(by_parts, collected(state, &retention, |_, plan| plan));
    }

    /// Pins come and go between the rounds.
    #[test]
    fn rounds_of_any_size_leave_what_a_pin_holds_and_each_snapshot_whole(
        state in histories(),
        rounds in proptest::collection::vec((1..30usize, pins()), 1..12),
    ) {
        let mut state = state;
        let retention = BTreeMap::from([("s".into(), kept_for(1))]);
        for (most, pins) in rounds {
            state.leases = held(&pins);
            let plan = collectable(&state, &StreamsRead::default(), &retention, NOW);
            let part = capped(&state, &plan, most);
            let is_planned = part.mark_for_deletion.iter().all(|path| plan.mark_for_deletion.contains(path));
            prop_assert!(is_planned && part.delete.iter().all(|path| plan.delete.contains(path)));
            for checkpoint in state.checkpoints.iter().filter(|checkpoint| pins.iter().any(|pin| !checkpoint.is_within(pin))) {
                let taken = |file: &FileRecord| part.mark_for_deletion.contains(&file.path);
                prop_assert!(!state.files.of_checkpoint(checkpoint.id).any(taken) && !part.forget.contains(&checkpoint.id));
            }
            let commit = if plan.delete.is_empty() { part.marking_commit(id(1)) } else { part.delete_commit(id(1)) };
            state = after(state, &commit);
            for snapshot in &state.snapshots {
                let whole = state.files.iter().filter(|file| file.run == Some(snapshot.run) && !file.marked_for_deletion);
                prop_assert_eq!(whole.count(), FILES, "{:?}", snapshot);
            }
        }
    }
}

#[test]
fn a_part_has_no_more_than_asked_for_but_a_views_snapshots_with_their_files() {
    let plan = collectable(&state(), &StreamsRead::default(), &BTreeMap::new(), NOW);
    assert_eq!((plan.marks(&state(), 2).mark_for_deletion, plan.marks(&state(), 9).len()), (vec!["old".into(), "s10".into()], 3));
    let mut state = state();
    state.definitions = [view(1, DefinitionStatus::Retired), view(2, DefinitionStatus::Active)].into_iter().collect();
    state.snapshots.push(SnapshotRecord { version: 2, ..snapshot(4, "s/0:30") });
    let plan = collectable(&state, &StreamsRead::default(), &BTreeMap::new(), NOW);
    assert_eq!((plan.len(), plan.marks(&state, 4).withdraw), (6, vec![]), "after all other files");
    let part = plan.marks(&state, 5);
    assert_eq!((part.len(), part.withdraw), (6, vec![("v".into(), 1)]));
    assert_eq!(part.mark_for_deletion, ["old", "s10", "s20", "s30", "new"]);
}

/// The file of checkpoint 11, which ends at 20, replaced at `at`.
fn superseded(at: Micros) -> FileRecord {
    let seconds = uuid::Timestamp::from_unix_time((at / 1_000_000) as u64, 0, 0, 0);
    let switch = Uuid::new_v7(seconds);
    FileRecord { run: Some(switch), kind: FileKind::Superseded, ..archive_file("was", 11, NOW) }
}

fn collects(state: &CatalogState) -> bool {
    marked_for_deletion(state).contains(&"was".to_owned())
}

#[test]
fn a_file_that_was_decoded_again_goes_when_no_reader_of_an_earlier_state_is_left() {
    let minute = 60 * 1_000_000;
    let with = |at: Micros, change: &dyn Fn(&mut CatalogState)| {
        let mut state = state();
        state.files.extend([superseded(at)]);
        change(&mut state);
        collects(&state)
    };
    assert!(with(NOW - 11 * minute, &|_| {}));
    assert!(!with(NOW - 9 * minute, &|_| {}), "a query may have read the catalog just before");
    let pinned = |pin: &'static str| move |state: &mut CatalogState| state.leases = vec![lease(NOW + 1, Some(pin))];
    assert!(!with(NOW - 60 * minute, &pinned("s/0:0")), "a pin of everything");
    assert!(!with(NOW - 60 * minute, &pinned("s/0:19")), "a node reads from within the file's checkpoint on");
    assert!(with(NOW - 60 * minute, &pinned("s/0:20")));
    let running = |since: Micros| {
        move |state: &mut CatalogState| {
            state.runs.push(RunRecord { started_at: Some(since), ..run(3, RunStatus::Running, "s/0:30") });
        }
    };
    assert!(!with(NOW - 60 * minute, &running(NOW - 61 * minute)), "a run that began before reads it");
    assert!(with(NOW - 60 * minute, &running(NOW - 5 * minute)));
}
