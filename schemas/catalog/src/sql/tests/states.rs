//! What is read: every record as it was written, and all of a state as of one moment.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use types::files::{FileKind, FileRecord};
use types::vector::{Offset, PartitionId, Vector};

on_every_engine!(
    every_record_is_read_back_as_it_was_written,
    a_record_of_the_same_key_is_replaced,
    a_removed_record_is_gone,
    states_are_of_one_moment_while_commits_go_on,
    a_run_begins_on_the_state_it_pins,
    a_run_that_has_ended_does_not_begin_again,
    a_state_holds_open_runs_and_the_newest_ended_ones,
    a_state_holds_the_runs_of_the_last_minutes,
    a_state_holds_the_newest_recomputation,
    a_state_holds_the_newest_run_that_was_compared,
    a_state_holds_no_ended_run_of_a_version_that_was_retired_long_ago,
    old_runs_are_forgotten_but_for_those_that_were_compared,
    the_newest_recomputation_is_not_forgotten,
    a_failed_recomputation_does_not_hide_the_one_that_succeeded_before_it,
    of_runs_that_were_compared_the_newest_thousand_stay,
    runs_of_a_version_that_was_retired_months_ago_are_forgotten,
    ingest_remembers_its_place,
    replayed_dead_letters_are_remembered,
    a_state_read_on_top_of_a_former_one_is_the_whole_state,
    a_state_shares_the_definitions_that_no_commit_has_changed,
);

async fn every_record_is_read_back_as_it_was_written(test: &TestCatalog) {
    let definition = |kind, status| DefinitionRecord {
        kind,
        name: "näme \"x'".into(),
        version: u32::MAX,
        sql: "SELECT 'a'\n".into(),
        status,
        created_at: i64::MIN,
        since: i64::MIN,
        kept_until: None,
        rolled_back: false,
    };
    let definitions =
        vec![definition(DefinitionKind::Stream, DefinitionStatus::Retired), definition(DefinitionKind::View, DefinitionStatus::Active)];
    let full = FileRecord {
        kind: FileKind::DeadLetters,
        checkpoint: Some(Uuid::new_v4()),
        run: Some(Uuid::new_v4()),
        subject: None,
        max_event_time: Some(i64::MAX),
        marked_for_deletion: true,
        ..file("b")
    };
    let files = vec![
        file("a"),
        full,
        FileRecord { kind: FileKind::Manifest, ..file("c") },
        FileRecord { kind: FileKind::Snapshot, ..file("d") },
        FileRecord { kind: FileKind::States, ..file("e") },
    ];
    let snapshots = vec![snapshot("v", ""), snapshot("w", "payments/0:1,with/slash/7:9")];
    let full_run = RunRecord {
        status: RunStatus::Failed,
        started_at: Some(1),
        ended_at: Some(2),
        cut: Some("payments/0:5".parse().unwrap()),
        strategy: None,
        events_read: 3,
        rows_written: 4,
        bytes_written: 5,
        peak_memory_bytes: i64::MAX,
        bytes_read: 6,
        tiers: 7,
        peak_resident_bytes: 8,
        comparison: Some(comparison(2, None)),
        draft: Some(RunDraft { path: "d".into(), bytes: 9, checksum: u32::MAX, events: 10, resumed: 11, format: 1 }),
        beside: true,
        error: Some("out of memory".into()),
        ..run("v")
    };
    let bare_run = RunRecord { scheduled_for: None, ..run("w") };
    let leases = vec![
        LeaseRecord { name: "a".into(), owner: "x".into(), epoch: 5, expires_at: 9, pin: None },
        LeaseRecord { name: "b".into(), owner: "y".into(), epoch: 6, expires_at: -9, pin: Some(Vector::new()) },
    ];
    let worker = |name: &str| WorkerRecord { name: name.into(), address: "http://wörker:7".into(), epoch: 4, expires_at: i64::MAX };
    let workers = vec![worker("a"), worker("b")];
    let gaps = vec![GapRecord { partition: partition(1), start: Offset(5), end: Offset(9), reason: "expired".into(), accepted_at: 4 }];
    let mut add: Vec<Add> = definitions.iter().cloned().map(Add::Definition).collect();
    add.extend(files.iter().cloned().map(Add::File));
    add.extend(snapshots.iter().cloned().map(Add::Snapshot));
    add.extend(leases.iter().cloned().map(Add::Lease));
    add.extend(workers.iter().cloned().map(Add::Worker));
    add.extend(gaps.iter().cloned().map(Add::Gap));
    add.push(Add::Run(full_run.clone()));
    test.catalog.commit(adds(add)).await.unwrap();
    test.catalog.commit(adds(vec![Add::Run(bare_run.clone())])).await.unwrap();
    let expected = CatalogState {
        revision: 2,
        identity: test.catalog.identity().to_owned(),
        definitions: definitions.into_iter().collect(),
        files: files.into_iter().collect(),
        snapshots,
        runs: vec![bare_run, full_run],
        leases,
        workers,
        gaps,
        ..CatalogState::default()
    };
    assert_eq!(test.another().await.state().await.unwrap(), Arc::new(expected));
}

async fn a_record_of_the_same_key_is_replaced(test: &TestCatalog) {
    let (first, second) = (run("v"), run("v"));
    let older = snapshot("v", "payments/0:1");
    test.catalog.commit(adds(vec![Add::Run(first.clone()), Add::Snapshot(older)])).await.unwrap();
    test.catalog.commit(adds(vec![Add::Run(second.clone())])).await.unwrap();
    let ended = RunRecord { status: RunStatus::Succeeded, ended_at: Some(70), ..first };
    let newer = snapshot("v", "payments/0:2");
    test.catalog.commit(adds(vec![Add::Run(ended.clone()), Add::Snapshot(newer.clone())])).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert_eq!(state.runs, vec![second, ended]);
    assert_eq!(state.snapshots, vec![newer]);
}

async fn a_removed_record_is_gone(test: &TestCatalog) {
    let commit = checkpoint_of(0, 10);
    let id = commit.id;
    test.catalog.commit(commit).await.unwrap();
    test.catalog.commit(adds(vec![Add::Snapshot(snapshot("v", ""))])).await.unwrap();
    let remove = vec![Remove::Checkpoint(id), Remove::Snapshot { view: "v".into(), version: 1 }, Remove::File(format!("archive/{id}"))];
    test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert!(state.checkpoints.is_empty() && state.snapshots.is_empty() && state.files.is_empty());
    // Its ranges went with it: the same id can be stored again.
    let again = CheckpointRecord { id, ..checkpoint(vec![range(0, 10, 12)]) };
    test.catalog.commit(adds(vec![Add::Checkpoint(again)])).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().checkpoints.first().unwrap().ranges, vec![range(0, 10, 12)]);
}

/// Two partitions move together, ten offsets a commit; a state that mixes two commits would show it.
async fn states_are_of_one_moment_while_commits_go_on(test: &TestCatalog) {
    let writer = test.another().await;
    let writing = tokio::spawn(async move {
        for step in 0..60 {
            let ranges = vec![range(0, step * 10, step * 10 + 10), range(1, step * 10, step * 10 + 10)];
            writer.commit(checkpoint_commit(checkpoint(ranges), vec![file(&format!("f{step}"))], &BTreeMap::new())).await.unwrap();
        }
    });
    let (mut seen, mut last) = (0, 0);
    while !writing.is_finished() {
        let state = test.catalog.state().await.unwrap();
        let vector = state.vector();
        assert_eq!(vector.get(&partition(0)), Offset(state.revision * 10));
        assert_eq!(vector.get(&partition(1)), Offset(state.revision * 10));
        assert_eq!((state.checkpoints.len() as i64, state.files.len() as i64), (state.revision, state.revision));
        assert!(state.checkpoints.iter().all(|checkpoint| checkpoint.ranges.len() == 2));
        assert!(state.checkpoints.iter().is_sorted_by_key(|checkpoint| checkpoint.revision));
        assert!(state.revision >= last);
        seen += i64::from(state.revision > last);
        last = state.revision;
    }
    writing.await.unwrap();
    assert!(seen > 1, "the reader saw no commit go by");
}

async fn a_run_begins_on_the_state_it_pins(test: &TestCatalog) {
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    let (state, begun) = test.catalog.begin_run(run("v"), vec![]).await.unwrap();
    assert_eq!(state.last_commit.map(|(_, revision)| revision), Some(state.revision), "it is a commit as others are");
    assert_eq!(begun.status, RunStatus::Running);
    assert_eq!(begun.cut, Some("payments/0:10".parse().unwrap()));
    assert_eq!((state.vector(), state.revision), (begun.cut.clone().unwrap(), 2));
    assert_eq!(state.runs, vec![begun.clone()]);
    assert_eq!(test.catalog.state().await.unwrap(), state);
    // It is retried after a lost reply: the same run, on a newer state.
    test.catalog.commit(checkpoint_of(10, 20)).await.unwrap();
    let (state, again) = test.catalog.begin_run(begun, vec![]).await.unwrap();
    assert_eq!((state.runs.len(), again.cut), (1, Some("payments/0:20".parse().unwrap())));
}

async fn a_run_that_has_ended_does_not_begin_again(test: &TestCatalog) {
    for ended in [RunStatus::Succeeded, RunStatus::Failed, RunStatus::Dropped, RunStatus::Skipped] {
        let asked_for = run("v");
        test.catalog.commit(adds(vec![Add::Run(asked_for.clone())])).await.unwrap();
        let (_, begun) = test.catalog.begin_run(asked_for.clone(), vec![]).await.unwrap();
        let closed = RunRecord { status: ended, ..begun };
        test.catalog.commit(adds(vec![Add::Run(closed.clone())])).await.unwrap();
        // A scheduler that still has it on its list.
        assert_eq!(test.catalog.begin_run(asked_for, vec![]).await.unwrap_err().kind(), ErrorKind::Conflict);
        let state = test.catalog.state().await.unwrap();
        assert_eq!(state.runs.iter().find(|run| run.id == closed.id), Some(&closed));
    }
}

fn comparison(differences: i64, error: Option<&str>) -> Comparison {
    let first = StateDifference {
        key: "device_id=\"a\"".into(),
        column: "amount".into(),
        state: "sum(amount)".into(),
        level: "1h".into(),
        tile: "2026-01-02T03:00:00Z".into(),
        kept: "1".into(),
        recomputed: "2".into(),
    };
    Comparison { rows: 9, differences, first: vec![first], seconds: 0.25, bytes_read: 77, error: error.map(str::to_owned) }
}

/// An alarm stays until a comparison says otherwise, however many runs follow it.
async fn a_state_holds_the_newest_run_that_was_compared(test: &TestCatalog) {
    let compared = |version, comparison| RunRecord { version, status: RunStatus::Succeeded, comparison: Some(comparison), ..run("v") };
    let put = async |run: &RunRecord| test.catalog.commit(adds(vec![Add::Run(run.clone())])).await.unwrap();
    let (older, alarm, of_another) = (compared(1, comparison(0, None)), compared(1, comparison(3, None)), compared(2, comparison(0, None)));
    for run in [&older, &alarm, &of_another] {
        put(run).await;
    }
    let unknown = compared(1, comparison(0, Some("a file is damaged")));
    put(&unknown).await;
    for _ in 0..25 {
        put(&RunRecord { status: RunStatus::Succeeded, ..run("v") }).await;
    }
    let state = test.catalog.state().await.unwrap();
    let held: Vec<&RunRecord> = state.runs.iter().filter(|run| run.comparison.is_some()).collect();
    assert_eq!((state.runs.len(), held), (22, vec![&of_another, &alarm]));
}

/// However many runs follow it, a recomputation that was not finished is known: the next one goes on with it.
async fn a_state_holds_the_newest_recomputation(test: &TestCatalog) {
    let draft = RunDraft { path: "d".into(), bytes: 9, checksum: 1, events: 10, resumed: 0, format: 1 };
    let recomputed = |version, draft: Option<RunDraft>| {
        let strategy = Some(types::Strategy::Full);
        RunRecord { version, status: RunStatus::Failed, strategy, draft, ended_at: Some(1), ..run("v") }
    };
    let (older, newest, of_another) = (recomputed(1, None), recomputed(1, Some(draft)), recomputed(2, None));
    for run in [&older, &newest, &of_another] {
        test.catalog.commit(adds(vec![Add::Run(run.clone())])).await.unwrap();
    }
    let later = 1 + 2 * super::super::run::RECENT_FOR.as_micros() as i64;
    for _ in 0..11 {
        let ended = || RunRecord { status: RunStatus::Succeeded, ended_at: Some(later), ..run("v") };
        test.catalog.commit(adds((0..100).map(|_| Add::Run(ended())).collect())).await.unwrap();
    }
    let state = test.catalog.state().await.unwrap();
    let held: Vec<&RunRecord> = state.runs.iter().filter(|run| run.strategy.is_some()).collect();
    assert_eq!(held, [&of_another, &newest]);
}

async fn a_state_holds_no_ended_run_of_a_version_that_was_retired_long_ago(test: &TestCatalog) {
    let long_ago = super::super::run::RETIRED_FOR.as_micros() as i64;
    let now = 2 * long_ago;
    let retired = |version, since| DefinitionRecord { since, ..definition("v", version, DefinitionStatus::Retired) };
    let definitions = [retired(1, now - long_ago - 1), retired(2, now - long_ago), definition("v", 3, DefinitionStatus::Active)];
    test.catalog.commit(adds(definitions.map(Add::Definition).to_vec())).await.unwrap();
    let ended = |version, ended_at| {
        let strategy = Some(types::Strategy::Full);
        RunRecord { version, status: RunStatus::Succeeded, ended_at: Some(ended_at), strategy, ..run("v") }
    };
    for run in [ended(1, 1), ended(2, 2), ended(3, now), run("v")] {
        test.catalog.commit(adds(vec![Add::Run(run)])).await.unwrap();
    }
    let held = test.catalog.state().await.unwrap().runs.iter().map(|run| (run.version, run.status)).collect::<Vec<_>>();
    assert_eq!(held, [(1, RunStatus::Requested), (3, RunStatus::Succeeded), (2, RunStatus::Succeeded)]);
    assert_eq!(test.catalog.runs(None, 10).await.unwrap().len(), 4);
}

/// Of each version the newest thousand stay.
async fn old_runs_are_forgotten_but_for_those_that_were_compared(test: &TestCatalog) {
    let mut now = 0;
    let mut ended = |version| {
        now += 2 * super::super::run::RECENT_FOR.as_micros() as i64;
        RunRecord { version, status: RunStatus::Succeeded, ended_at: Some(now), ..run("v") }
    };
    let compared = RunRecord { comparison: Some(comparison(0, None)), ..ended(1) };
    let open = run("v");
    test.catalog.commit(adds(vec![Add::Run(compared.clone()), Add::Run(open.clone()), Add::Run(ended(2))])).await.unwrap();
    for _ in 0..11 {
        test.catalog.commit(adds((0..100).map(|_| Add::Run(ended(1))).collect())).await.unwrap();
    }
    let history = test.catalog.runs(None, 10_000).await.unwrap();
    assert_eq!(history.len(), 1_003);
    assert!([compared.id, open.id].iter().all(|id| history.iter().any(|run| run.id == *id)));
    let state = test.catalog.state().await.unwrap();
    let of_version = |version| state.runs.iter().filter(|run| run.version == version && run.ended_at.is_some()).count();
    assert_eq!((of_version(1), of_version(2)), (101, 1), "of one commit all are as new");
}

/// A view's first run is compared with nothing. It says from when on `full_every` counts.
async fn the_newest_recomputation_is_not_forgotten(test: &TestCatalog) {
    let ended = |strategy| RunRecord { status: RunStatus::Succeeded, ended_at: Some(1), strategy, ..run("v") };
    let [older, newest] = [ended(Some(types::Strategy::Full)), ended(Some(types::Strategy::Full))];
    for run in [&older, &newest] {
        test.catalog.commit(adds(vec![Add::Run(run.clone())])).await.unwrap();
    }
    for _ in 0..11 {
        test.catalog.commit(adds((0..100).map(|_| Add::Run(ended(None))).collect())).await.unwrap();
    }
    let history = test.catalog.runs(None, 10_000).await.unwrap();
    let recomputed: Vec<Uuid> = history.iter().filter(|run| run.strategy.is_some()).map(|run| run.id).collect();
    assert_eq!((history.len(), recomputed), (1_001, vec![newest.id]));
    assert!(test.catalog.state().await.unwrap().runs.contains(&newest));
}

/// `full_every` counts from the end of the one that succeeded.
async fn a_failed_recomputation_does_not_hide_the_one_that_succeeded_before_it(test: &TestCatalog) {
    let recomputed = |status| RunRecord { status, ended_at: Some(1), strategy: Some(types::Strategy::Full), ..run("v") };
    let [older, succeeded] = [recomputed(RunStatus::Succeeded), recomputed(RunStatus::Succeeded)];
    let [failed, newest] = [recomputed(RunStatus::Failed), recomputed(RunStatus::Failed)];
    for run in [&older, &succeeded, &failed, &newest] {
        test.catalog.commit(adds(vec![Add::Run(run.clone())])).await.unwrap();
    }
    let later = 1 + 2 * super::super::run::RECENT_FOR.as_micros() as i64;
    for _ in 0..11 {
        let ended = || RunRecord { status: RunStatus::Succeeded, ended_at: Some(later), ..run("v") };
        test.catalog.commit(adds((0..100).map(|_| Add::Run(ended())).collect())).await.unwrap();
    }
    let recomputations = |runs: &[RunRecord]| runs.iter().filter(|run| run.strategy.is_some()).map(|run| run.id).collect::<Vec<_>>();
    let expected = [newest.id, succeeded.id];
    assert_eq!(recomputations(&test.catalog.runs(None, 10_000).await.unwrap()), expected, "the history");
    assert_eq!(recomputations(&test.catalog.state().await.unwrap().runs), expected, "the state");
}

/// A recomputation that failed long before the newest one is not gone on with.
async fn of_runs_that_were_compared_the_newest_thousand_stay(test: &TestCatalog) {
    let strategy = Some(types::Strategy::Full);
    let draft = Some(RunDraft { path: "d".into(), bytes: 9, checksum: 1, events: 10, resumed: 0, format: 1 });
    let failed = RunRecord { status: RunStatus::Failed, ended_at: Some(1), strategy, draft, ..run("v") };
    test.catalog.commit(adds(vec![Add::Run(failed)])).await.unwrap();
    let compared = Some(comparison(0, None));
    let one = || RunRecord { status: RunStatus::Succeeded, ended_at: Some(1), strategy, comparison: compared.clone(), ..run("v") };
    for _ in 0..11 {
        test.catalog.commit(adds((0..100).map(|_| Add::Run(one())).collect())).await.unwrap();
    }
    let history = test.catalog.runs(None, 10_000).await.unwrap();
    assert_eq!(history.len(), 1_000);
    assert!(history.iter().all(|run| run.status == RunStatus::Succeeded));
}

async fn runs_of_a_version_that_was_retired_months_ago_are_forgotten(test: &TestCatalog) {
    let retired = |version, since| DefinitionRecord { since, ..definition("v", version, DefinitionStatus::Retired) };
    let definitions = [retired(1, 9), retired(2, 10), definition("v", 3, DefinitionStatus::Active)];
    test.catalog.commit(adds(definitions.map(Add::Definition).to_vec())).await.unwrap();
    let compared = Some(comparison(0, None));
    let ended = |version| RunRecord { version, status: RunStatus::Succeeded, ended_at: Some(1), comparison: compared.clone(), ..run("v") };
    for run in [ended(1), ended(2), ended(3), run("v")] {
        test.catalog.commit(adds(vec![Add::Run(run)])).await.unwrap();
    }
    let history = async || test.catalog.runs(None, 10).await.unwrap().iter().map(|run| (run.version, run.status)).collect::<Vec<_>>();
    let months = super::super::run::RETIRED_HISTORY.as_micros() as i64;
    let of_another = |status| DefinitionRecord { since: 10 + months, ..definition("w", 1, status) };
    test.catalog.commit(adds(vec![Add::Definition(of_another(DefinitionStatus::Active))])).await.unwrap();
    assert_eq!(history().await.len(), 4);
    test.catalog.commit(adds(vec![Add::Definition(of_another(DefinitionStatus::Retired))])).await.unwrap();
    let left = [(1, RunStatus::Requested), (3, RunStatus::Succeeded), (2, RunStatus::Succeeded)];
    assert_eq!(history().await, left);
}

async fn a_state_holds_open_runs_and_the_newest_ended_ones(test: &TestCatalog) {
    let requested = run("v");
    let mut ended = Vec::new();
    test.catalog.commit(adds(vec![Add::Run(requested.clone())])).await.unwrap();
    for _ in 0..25 {
        let one = RunRecord { status: RunStatus::Succeeded, ..run("v") };
        test.catalog.commit(adds(vec![Add::Run(one.clone())])).await.unwrap();
        ended.insert(0, one);
    }
    let state = test.catalog.state().await.unwrap();
    assert_eq!((state.runs.len(), &state.runs[..20]), (21, &ended[..20]));
    assert_eq!(state.runs[20], requested);
    assert_eq!(test.catalog.runs(Some("v"), 100).await.unwrap().len(), 26);
    assert_eq!(test.catalog.runs(None, 3).await.unwrap(), ended[..3]);
    assert!(test.catalog.runs(Some("w"), 100).await.unwrap().is_empty());
}

/// However many there are: the collector needs each to know when its snapshot was replaced.
async fn a_state_holds_the_runs_of_the_last_minutes(test: &TestCatalog) {
    let window = super::super::run::RECENT_FOR.as_micros() as i64;
    let ended = |at| RunRecord { status: RunStatus::Succeeded, ended_at: Some(at), ..run("v") };
    let newest = 100 * window;
    let ends = [newest - window - 1, newest - window].into_iter().chain((0..60).map(|step| newest - 59 + step));
    for at in ends {
        test.catalog.commit(adds(vec![Add::Run(ended(at))])).await.unwrap();
    }
    let state = test.catalog.state().await.unwrap();
    let oldest = state.runs.iter().filter_map(|run| run.ended_at).min();
    assert_eq!((state.runs.len(), oldest), (61, Some(newest - window)));
}

async fn ingest_remembers_its_place(test: &TestCatalog) {
    let record = |records_done| IngestRecord { stream: "payments".into(), fingerprint: "f".into(), records_done, updated_at: 3 };
    let remembered = async |stream: &str| test.catalog.ingest_progress_of(stream, "f").await.unwrap();
    assert!(remembered("payments").await.is_empty());
    for done in [10, 20] {
        test.catalog.commit(adds(vec![Add::Ingest(record(done))])).await.unwrap();
        assert_eq!(remembered("payments").await, [record(done)]);
    }
    assert!(remembered("other").await.is_empty());
    let more = IngestRecord { fingerprint: "f-left-out-7".into(), ..record(1) };
    let others = [
        IngestRecord { fingerprint: "g".into(), ..record(2) },
        IngestRecord { fingerprint: "F-log".into(), ..record(4) },
        IngestRecord { stream: "other".into(), ..record(3) },
    ];
    test.catalog.commit(adds(others.into_iter().chain([more.clone()]).map(Add::Ingest).collect())).await.unwrap();
    let mut found = remembered("payments").await;
    found.sort_by(|a, b| a.fingerprint.cmp(&b.fingerprint));
    assert_eq!(found, [record(20), more]);
}

async fn replayed_dead_letters_are_remembered(test: &TestCatalog) {
    let record =
        |number, start, end| ReplayedDeadLetters { partition: partition(number), start: Offset(start), end: Offset(end), replayed_at: 3 };
    let other = ReplayedDeadLetters { partition: PartitionId::new("other", 0), ..record(0, 0, 1) };
    let written = [record(1, 4, 5), record(0, 7, 9), record(0, 2, 6), record(0, 2, 3), other];
    test.catalog.commit(adds(written.into_iter().map(Add::ReplayedDeadLetters).collect())).await.unwrap();
    let found = test.catalog.replayed_dead_letters("payments").await.unwrap();
    assert_eq!(found, [record(0, 2, 6), record(0, 7, 9), record(1, 4, 5)], "the longer of two that begin alike stays");
    assert!(test.catalog.replayed_dead_letters("unknown").await.unwrap().is_empty());
}

/// One handle reads after each commit, always on top of what it read before; a fresh one reads everything.
async fn a_state_read_on_top_of_a_former_one_is_the_whole_state(test: &TestCatalog) {
    let commits = test.another().await;
    let paths = ["b", "B", "a/1", "a-1", "é", "a"];
    for step in 0..80usize {
        let path = paths[step % paths.len()];
        let mark_for_deletion = |path: &str| Commit { remove: vec![Remove::MarkForDeletion(path.into())], ..Commit::default() };
        let commit = match step % 7 {
            0 | 3 => checkpoint_of(step as i64, step as i64),
            1 => Commit { remove: vec![Remove::File(path.into())], ..Commit::default() },
            2 => mark_for_deletion(path),
            5 => {
                let oldest = commits.state().await.unwrap().checkpoints.first().map(|checkpoint| checkpoint.id);
                Commit { remove: oldest.into_iter().map(Remove::Checkpoint).collect(), ..Commit::default() }
            }
            6 => compaction_of_two(&commits.state().await.unwrap()),
            _ => {
                let status = if step % 2 == 0 { DefinitionStatus::Active } else { DefinitionStatus::Retired };
                let definition = Add::Definition(definition("v", step as u32 % 3, status));
                adds(vec![Add::File(FileRecord { bytes: step as i64, ..file(path) }), Add::Run(run("v")), definition])
            }
        };
        let commit = Commit { expect: vec![], advance: vec![], ..commit };
        if step % 20 == 19 {
            test.tamper("UPDATE removed SET removed_at = 0").await;
        }
        // A path that is marked for deletion is refused now and then; that is as well.
        let _ = commits.commit(commit).await;
        let state = test.catalog.state().await.unwrap();
        let mut session = test.catalog.engine.read().await.unwrap();
        let whole = super::super::state::read(&mut session, None).await.unwrap();
        session.rollback().await.unwrap();
        assert_eq!(state, whole, "after step {step}");
        assert!(state.files.iter().is_sorted_by_key(|file| &file.path));
        for checkpoint in state.checkpoints.iter() {
            let expected = state.files.iter().filter(|file| file.checkpoint == Some(checkpoint.id));
            assert!(state.files.of_checkpoint(checkpoint.id).eq(expected), "after step {step}");
        }
    }
    assert!(test.catalog.state().await.unwrap().checkpoints.len() > 2);
}

/// Each reader starts from a state that has commits which the copy lacks. The first reads again after one new commit to
/// the copy, the second after two, the third after three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_that_was_restored_from_a_copy_is_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("catalog.db"), folder.path().join("copy.db"));
    let url = |file: &Path| format!("sqlite://{}", file.display());
    let catalog = Catalog::open(&url(&file)).await.unwrap();
    catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    catalog.close().await;
    for suffix in ["", "-wal"] {
        let [from, to] = [&file, &copy].map(|file| format!("{}{suffix}", file.display()));
        if Path::new(&from).exists() {
            std::fs::copy(from, to).unwrap();
        }
    }
    let catalog = Catalog::open(&url(&file)).await.unwrap();
    for start in [10, 20] {
        catalog.commit(checkpoint_of(start, start + 10)).await.unwrap();
    }
    let before = catalog.state().await.unwrap();

    let restored = Catalog::open(&url(&copy)).await.unwrap();
    let reader = || Catalog { last: Arc::new(Mutex::new(Some(before.clone()))), ..restored.clone() };
    let readers = [reader(), reader(), reader()];
    assert_eq!((before.revision, restored.revision().await.unwrap()), (3, 1));
    for (step, (start, end)) in [(10, 15), (15, 18), (18, 40)].into_iter().enumerate() {
        restored.commit(checkpoint_of(start, end)).await.unwrap();
        let whole = restored.apart().state().await.unwrap();
        assert_eq!(whole.vector().get(&partition(0)), Offset(end));
        for (first, reader) in readers.iter().enumerate().take(step + 1) {
            assert_eq!(reader.state().await.unwrap(), whole, "the reader that reads from {first} on, after {step}");
        }
    }
    catalog.close().await;
    restored.close().await;
}

async fn a_state_shares_the_definitions_that_no_commit_has_changed(test: &TestCatalog) {
    let names = ["v", "w"].map(|name| Add::Definition(definition(name, 1, DefinitionStatus::Active)));
    test.catalog.commit(adds(names.to_vec())).await.unwrap();
    let before = test.catalog.state().await.unwrap();
    test.catalog.commit(adds(vec![Add::Definition(definition("w", 1, DefinitionStatus::Retired))])).await.unwrap();
    test.catalog.commit(adds(vec![Add::File(file("a"))])).await.unwrap();
    let after = test.catalog.state().await.unwrap();
    let of_state = |state: &Arc<CatalogState>, name: &str| {
        let record = state.definitions.get(DefinitionKind::View, name, 1).unwrap();
        (std::ptr::from_ref(record), record.status)
    };
    assert_eq!(of_state(&after, "v"), of_state(&before, "v"), "it was read again");
    assert_eq!(of_state(&after, "w").1, DefinitionStatus::Retired);
}

/// Of the second and the third checkpoint, so that their place in the order counts.
fn compaction_of_two(state: &CatalogState) -> Commit {
    let of: Vec<&CheckpointRecord> = state.checkpoints.iter().skip(1).take(2).collect();
    let Some(record) = compacted(Uuid::now_v7(), &of) else { return adds(Vec::new()) };
    let ids: Vec<Uuid> = of.iter().map(|checkpoint| checkpoint.id).collect();
    let files = vec![FileRecord { checkpoint: Some(record.id), ..file(&format!("archive/{}", record.id)) }];
    compaction_commit(Uuid::now_v7(), state, record, &ids, files)
}

/// `cargo test -- --ignored --nocapture ten_thousand`: prints how long a large state takes to read.
mod measured {
    use super::*;

    #[tokio::test]
    #[ignore = "prints times: `just measure`"]
    async fn a_state_of_ten_thousand_checkpoints() {
        measure("sqlite memory", TestCatalog::memory().await).await;
        measure("sqlite file", TestCatalog::file().await).await;
        if std::env::var("BASESTREAM_TEST_POSTGRES").is_ok() {
            measure("postgres", TestCatalog::postgres().await).await;
        }
    }

    async fn measure(engine: &str, test: TestCatalog) {
        let started = std::time::Instant::now();
        for batch in 0..100 {
            let mut add = Vec::new();
            for step in batch * 100..batch * 100 + 100 {
                let record = checkpoint((0..4).map(|number| range(number, step * 10, step * 10 + 10)).collect());
                add.extend((0..3).map(|n| Add::File(FileRecord { checkpoint: Some(record.id), ..file(&format!("archive/{step}/{n}")) })));
                add.push(Add::Checkpoint(record));
            }
            test.catalog.commit(adds(add)).await.unwrap();
        }
        let written = started.elapsed();
        let started = std::time::Instant::now();
        let state = test.catalog.state().await.unwrap();
        let read = started.elapsed();
        assert_eq!((state.checkpoints.len(), state.files.len()), (10_000, 30_000));
        let started = std::time::Instant::now();
        let commits = 200;
        for step in 0..commits {
            test.catalog.commit(checkpoint_of(step * 10, step * 10 + 10)).await.unwrap();
        }
        let checkpoint_time = started.elapsed() / commits as u32;
        let started = std::time::Instant::now();
        test.catalog.state().await.unwrap();
        let read_again = started.elapsed();
        println!("{engine}: written {written:?}, read {read:?}, read 200 commits later {read_again:?}, a checkpoint {checkpoint_time:?}");
        test.remove().await;
    }
}
