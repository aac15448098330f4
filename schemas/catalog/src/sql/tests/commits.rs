//! The fence: compare-and-advance, expectations, and commits that are recognised.

use std::cell::Cell;
use std::task::Poll;
use types::files::FileRecord;
use types::vector::{Offset, Vector};

use futures::future::join_all;

use super::*;
use crate::sql::session::STATEMENTS;
use types::files::ObjectName;

on_every_engine!(
    of_concurrent_advances_exactly_one_wins,
    a_checkpoint_advances_and_is_read_back,
    a_stale_start_fails_and_changes_nothing,
    a_lost_reply_is_recognised_by_its_id,
    an_absent_partition_starts_at_zero_or_after_an_accepted_gap,
    a_position_of_another_log_is_refused,
    a_cut_that_goes_back_is_refused,
    a_name_marked_for_deletion_is_refused,
    many_files_and_checkpoints_go_in_as_many_statements_as_two,
    a_name_that_was_given_up_is_refused,
    a_run_that_was_closed_is_not_closed_again_and_does_not_publish,
    a_run_takes_over_the_files_that_it_carries_over_or_publishes_nothing,
    a_skipped_run_moves_the_published_cut,
    an_unmet_version_or_revision_is_a_conflict,
    a_decision_is_made_on_the_state_that_its_commit_follows,
    a_run_that_waits_is_requested_once,
    a_version_whose_archive_was_decoded_again_commits_no_more,
    of_a_first_checkpoint_and_a_stream_that_begins_anew_exactly_one_is_committed,
    counts_that_do_not_add_up_are_refused,
    an_advance_backwards_is_wrong_input,
    a_refused_commit_can_be_asked_again_under_its_id,
    a_commit_that_is_dropped_half_way_happened_or_not,
    a_compaction_replaces_what_it_was_planned_on,
    a_compaction_of_files_that_were_decoded_again_is_refused,
);

async fn of_concurrent_advances_exactly_one_wins(test: &TestCatalog) {
    let mut rivals = Vec::new();
    for _ in 0..6 {
        rivals.push(test.another().await);
    }
    for round in 0..5 {
        let commits = rivals.iter().map(|rival| {
            let rival = rival.clone();
            tokio::spawn(async move { rival.commit(checkpoint_of(round * 10, round * 10 + 10)).await })
        });
        let outcomes: Vec<Result<Revision>> = join_all(commits).await.into_iter().map(|joined| joined.unwrap()).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        for outcome in outcomes.into_iter().filter(|outcome| outcome.is_err()) {
            conflict(outcome);
        }
    }
    let state = test.catalog.state().await.unwrap();
    assert_eq!((state.revision, state.checkpoints.len(), state.files.len()), (5, 5, 5));
    assert_eq!(state.vector().get(&partition(0)), Offset(50));
}

async fn a_checkpoint_advances_and_is_read_back(test: &TestCatalog) {
    let record = checkpoint(vec![range(0, 0, 4), range(1, 0, 6)]);
    let identities = BTreeMap::from([(partition(0), "log-1".to_owned())]);
    let files = vec![FileRecord { checkpoint: Some(record.id), ..file("archive/a") }];
    let revision = test.catalog.commit(checkpoint_commit(record.clone(), files.clone(), &identities)).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert_eq!(state.checkpoints, Checkpoints::from_iter([CheckpointRecord { revision, ..record }]));
    assert_eq!(state.files, files.into_iter().collect());
    assert_eq!(state.vector(), "payments/0:4,payments/1:6".parse().unwrap());
    let first = &state.partitions[&partition(0)];
    assert_eq!((first.log_identity.as_str(), first.clock, first.max_event_time, first.complete_to), ("log-1", Some(4), Some(5), None));
}

async fn a_stale_start_fails_and_changes_nothing(test: &TestCatalog) {
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    let before = test.catalog.state().await.unwrap();
    // As a checkpoint, and as a bare advance whose caller expects nothing.
    let text = conflict(test.catalog.commit(checkpoint_of(5, 20)).await);
    assert!(text.contains("payments/0") && text.contains("expected offset: 5") && text.contains("found offset: 10"), "{text}");
    let bare = Commit { expect: vec![], ..checkpoint_of(5, 20) };
    conflict(test.catalog.commit(bare).await);
    assert_eq!(test.catalog.state().await.unwrap(), before);
}

async fn a_lost_reply_is_recognised_by_its_id(test: &TestCatalog) {
    let commit = checkpoint_of(0, 10);
    let first = test.catalog.commit(commit.clone()).await.unwrap();
    test.catalog.commit(checkpoint_of(10, 20)).await.unwrap();
    let before = test.catalog.state().await.unwrap();
    assert_eq!(test.another().await.commit_with_retry(commit).await.unwrap(), first);
    assert_eq!(test.catalog.state().await.unwrap(), before);
}

async fn an_absent_partition_starts_at_zero_or_after_an_accepted_gap(test: &TestCatalog) {
    let advance = |start, end| Advance {
        partition: partition(3),
        start: Offset(start),
        end: Offset(end),
        log_identity: String::new(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    let gap = |end| {
        let (start, end) = (Offset::ZERO, Offset(end));
        Add::Gap(GapRecord { partition: partition(3), start, end, reason: "expired".into(), accepted_at: 1 })
    };
    conflict(test.catalog.commit(Commit { advance: vec![advance(100, 110)], ..Commit::default() }).await);
    let wrong_gap = Commit { add: vec![gap(99)], advance: vec![advance(100, 110)], ..Commit::default() };
    conflict(test.catalog.commit(wrong_gap).await);
    assert!(test.catalog.state().await.unwrap().gaps.is_empty());
    let accepted = Commit { add: vec![gap(100)], advance: vec![advance(100, 110)], ..Commit::default() };
    test.catalog.commit(accepted).await.unwrap();
    // A gap in the middle is an advance over it.
    test.catalog.commit(Commit { advance: vec![advance(110, 120), advance(120, 120)], ..Commit::default() }).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert_eq!((state.gaps.len(), state.vector().get(&partition(3))), (1, Offset(120)));
}

async fn a_position_of_another_log_is_refused(test: &TestCatalog) {
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    let other = BTreeMap::from([(partition(0), "log-2".to_owned())]);
    let commit = checkpoint_commit(checkpoint(vec![range(0, 10, 20)]), vec![], &other);
    let text = conflict(test.catalog.commit(commit.clone()).await);
    assert!(text.contains("log-1") && text.contains("log-2"), "{text}");
    conflict(test.catalog.commit(Commit { expect: vec![], ..commit }).await);
    // A log without identity matches, and leaves the known one in place.
    let unnamed = checkpoint_commit(checkpoint(vec![range(0, 10, 20)]), vec![], &BTreeMap::new());
    test.catalog.commit(unnamed).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().partitions[&partition(0)].log_identity, "log-1");
}

async fn a_cut_that_goes_back_is_refused(test: &TestCatalog) {
    test.catalog.commit(adds(vec![Add::Snapshot(snapshot("v", "payments/0:10,payments/1:5"))])).await.unwrap();
    let not_behind = |cut: &str| expects(Expect::CutNotBehind { view: "v".into(), version: 1, cut: cut.parse().unwrap() });
    test.catalog.commit(not_behind("payments/0:10,payments/1:5,payments/2:1")).await.unwrap();
    let text = conflict(test.catalog.commit(not_behind("payments/0:99,payments/1:4")).await);
    assert!(text.contains("payments/1") && text.contains("cut: 4") && text.contains("published: 5"), "{text}");
    let unpublished = Expect::CutNotBehind { view: "v".into(), version: 2, cut: Vector::new() };
    test.catalog.commit(expects(unpublished)).await.unwrap();
}

async fn a_name_marked_for_deletion_is_refused(test: &TestCatalog) {
    test.catalog.commit(adds(vec![Add::File(file("a")), Add::File(file("b"))])).await.unwrap();
    test.catalog.commit(adds(vec![Add::File(FileRecord { bytes: 11, ..file("a") })])).await.unwrap();
    test.catalog.commit(Commit { remove: vec![Remove::MarkForDeletion("a".into())], ..Commit::default() }).await.unwrap();
    let not_marked_for_deletion =
        |paths: &[&str]| expects(Expect::NotMarkedForDeletion { paths: paths.iter().map(|path| path.to_string()).collect() });
    test.catalog.commit(not_marked_for_deletion(&["b", "unknown"])).await.unwrap();
    assert!(conflict(test.catalog.commit(not_marked_for_deletion(&["b", "a"])).await).contains("path: a"));
    conflict(test.catalog.commit(adds(vec![Add::File(file("c")), Add::File(file("a"))])).await);
    let together = Commit { remove: vec![Remove::MarkForDeletion("b".into())], add: vec![Add::File(file("b"))], ..Commit::default() };
    conflict(test.catalog.commit(together).await);
    let state = test.catalog.state().await.unwrap();
    assert_eq!(state.files, Files::from_iter([FileRecord { bytes: 11, marked_for_deletion: true, ..file("a") }, file("b")]));
    test.catalog.commit(Commit { remove: vec![Remove::File("a".into())], ..Commit::default() }).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().files, Files::from_iter([file("b")]));
}

/// The collector takes thousands at a time, and all other commits wait for it.
async fn many_files_and_checkpoints_go_in_as_many_statements_as_two(test: &TestCatalog) {
    let statements = async |count: usize| {
        let checkpoints: Vec<CheckpointRecord> = (0..count).map(|_| checkpoint(Vec::new())).collect();
        let paths: Vec<String> = checkpoints.iter().map(|checkpoint| format!("archive/{}", checkpoint.id)).collect();
        let files = paths.iter().zip(&checkpoints).map(|(path, of)| Add::File(FileRecord { checkpoint: Some(of.id), ..file(path) }));
        let damages = paths
            .iter()
            .map(|path| Add::Damage(DamageRecord { path: path.clone(), error: "x".into(), found_by: "node".into(), found_at: 3 }));
        let added = checkpoints.iter().cloned().map(Add::Checkpoint).chain(files).chain(damages).collect();
        test.catalog.commit(adds(added)).await.unwrap();
        assert_eq!(test.catalog.state().await.unwrap().damages.len(), count);
        let marked: Vec<Remove> = paths.iter().cloned().map(Remove::MarkForDeletion).collect();
        let gone: Vec<Remove> =
            paths.iter().cloned().map(Remove::File).chain(checkpoints.iter().map(|of| Remove::Checkpoint(of.id))).collect();
        let counted = async {
            test.catalog.commit(Commit { remove: marked, ..Commit::default() }).await.unwrap();
            let state = test.catalog.state().await.unwrap();
            assert!(state.damages.is_empty() && state.files.iter().filter(|file| file.marked_for_deletion).count() == count);
            test.catalog.commit(Commit { remove: gone, ..Commit::default() }).await.unwrap();
            STATEMENTS.with(Cell::get)
        };
        let counted = STATEMENTS.scope(Cell::new(0), counted).await;
        let state = test.catalog.state().await.unwrap();
        assert!(state.files.is_empty() && state.checkpoints.is_empty());
        counted
    };
    let of_two = statements(2).await;
    assert!(of_two > 0);
    assert_eq!(statements(300).await, of_two);
}

async fn an_unmet_version_or_revision_is_a_conflict(test: &TestCatalog) {
    let newest = |version| expects(Expect::NewestVersion { kind: DefinitionKind::View, name: "v".into(), version });
    let definition = |kind, version| {
        let status = DefinitionStatus::Building;
        Add::Definition(DefinitionRecord {
            kind,
            name: "v".into(),
            version,
            sql: "..".into(),
            status,
            created_at: 1,
            since: 1,
            kept_until: None,
            rolled_back: false,
        })
    };
    test.catalog.commit(newest(None)).await.unwrap();
    test.catalog.commit(adds(vec![definition(DefinitionKind::View, 2), definition(DefinitionKind::Stream, 9)])).await.unwrap();
    let revision = test.catalog.commit(newest(Some(2))).await.unwrap();
    assert!(conflict(test.catalog.commit(newest(Some(1))).await).contains("found version: 2"));
    assert!(conflict(test.catalog.commit(newest(None)).await).contains("expected version: none"));
    assert_eq!(test.catalog.revision().await.unwrap(), revision);
    let next = test.catalog.commit(expects(Expect::Revision(revision))).await.unwrap();
    assert_eq!(next, revision + 1);
    conflict(test.catalog.commit(expects(Expect::Revision(revision))).await);
}

async fn a_decision_is_made_on_the_state_that_its_commit_follows(test: &TestCatalog) {
    test.catalog.state().await.unwrap();
    let another = test.another().await;
    another.commit(checkpoint_of(0, 10)).await.unwrap();
    let before = another.state().await.unwrap();
    let decide = |state: &CatalogState| Ok((state.clone(), Some(expects(Expect::Revision(state.revision)))));
    assert_eq!(test.catalog.commit_decided(decide).await.unwrap(), *before);
    assert_eq!(test.catalog.revision().await.unwrap(), before.revision + 1);
    let nothing = |state: &CatalogState| Ok((state.revision, None));
    assert_eq!(test.catalog.commit_decided(nothing).await.unwrap(), before.revision + 1);
    let refused = |_: &CatalogState| Ok(((), Some(checkpoint_of(5, 20))));
    conflict(test.catalog.commit_decided(refused).await);
    assert_eq!(test.catalog.state().await.unwrap().revision, before.revision + 1);
}

async fn a_run_that_waits_is_requested_once(test: &TestCatalog) {
    let mut askers = Vec::new();
    for _ in 0..6 {
        askers.push(test.another().await);
    }
    let asked = askers.into_iter().map(|asker| tokio::spawn(async move { asker.request_run(&"v".into(), 1).await.unwrap() }));
    let runs: Vec<RunRecord> = join_all(asked).await.into_iter().map(|joined| joined.unwrap()).collect();
    let state = test.catalog.state().await.unwrap();
    assert_eq!(state.runs.len(), 1);
    assert!(runs.iter().all(|run| run.id == state.runs[0].id));
    assert_ne!(test.catalog.request_run(&"v".into(), 2).await.unwrap().id, state.runs[0].id);
}

async fn a_version_whose_archive_was_decoded_again_commits_no_more(test: &TestCatalog) {
    let stream = |version, status| DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: "s".into(),
        version,
        sql: "..".into(),
        status,
        created_at: 1,
        since: 1,
        kept_until: None,
        rolled_back: false,
    };
    let decoded_by = |version| expects(Expect::NotRedecoded { stream: "s".into(), version });
    test.catalog.commit(decoded_by(1)).await.unwrap();
    test.catalog.commit(adds(vec![Add::Definition(stream(1, DefinitionStatus::Active))])).await.unwrap();
    test.catalog.commit(decoded_by(1)).await.unwrap();
    let old = FileRecord { subject: Some("s".into()), ..file("old") };
    test.catalog.commit(adds(vec![Add::File(old.clone())])).await.unwrap();
    let before = test.catalog.state().await.unwrap();

    let redecoded_file = RedecodedFile { old: old.clone(), new: FileRecord { path: "new".into(), ..old } };
    let redecoded = RedecodedStream { stream: "s".into(), version: 2, files: vec![redecoded_file] };
    let mut switch = adds(vec![Add::Definition(stream(2, DefinitionStatus::Active))]);
    switch.id = Uuid::now_v7();
    add_redecoded(&mut switch, &before, &redecoded);
    test.catalog.commit(adds(vec![])).await.unwrap();
    conflict(test.catalog.commit(switch.clone()).await);
    let mut switch = Commit { expect: vec![], ..switch };
    add_redecoded(&mut switch, &test.catalog.state().await.unwrap(), &redecoded);
    test.catalog.commit(switch.clone()).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert_eq!(state.served_or_building(DefinitionKind::Stream, "s").unwrap().version, 2);
    assert_eq!(state.files.get("old").map(|file| (file.kind, file.run)), Some((FileKind::Superseded, Some(switch.id))));
    assert_eq!(state.files.get("new").map(|file| file.kind), before.files.get("old").map(|file| file.kind));
    test.catalog.commit(decoded_by(2)).await.unwrap();
    assert!(conflict(test.catalog.commit(decoded_by(1)).await).contains("a later version of the stream decides its records"));
}

async fn of_a_first_checkpoint_and_a_stream_that_begins_anew_exactly_one_is_committed(test: &TestCatalog) {
    let (one, other) = (test.another().await, test.another().await);
    for order in ["first", "anew", "both at once", "both at once"] {
        let id = PartitionId::new(format!("s{}", Uuid::new_v4().simple()).as_str(), 0);
        let version =
            |version| DefinitionRecord { kind: DefinitionKind::Stream, ..definition(&id.stream, version, DefinitionStatus::Active) };
        test.catalog.commit(adds(vec![Add::Definition(version(1))])).await.unwrap();
        let mut first = checkpoint_commit(checkpoint(vec![CheckpointRange::of_events(id.clone(), 0, 10)]), vec![], &BTreeMap::new());
        first.expect.push(Expect::NotRedecoded { stream: id.stream.clone(), version: 1 });
        let mut anew = Commit { id: Uuid::now_v7(), ..adds(vec![Add::Definition(version(2))]) };
        let restarted = RedecodedStream { stream: id.stream.clone(), version: 2, files: vec![] };
        add_redecoded(&mut anew, &test.catalog.state().await.unwrap(), &restarted);
        let (first, anew) = match order {
            "first" => {
                let first = one.commit(first).await;
                (first, other.commit(anew).await)
            }
            "anew" => {
                let anew = other.commit(anew).await;
                (one.commit(first).await, anew)
            }
            _ => tokio::join!(one.commit(first), other.commit(anew)),
        };
        let state = test.catalog.state().await.unwrap();
        assert_eq!((first.is_ok(), anew.is_ok()), (state.has_committed(&id.stream), !state.has_committed(&id.stream)), "{order}");
        assert!(order == "both at once" || (order == "first") == first.is_ok(), "{order}");
        conflict(if first.is_ok() { anew } else { first });
    }
}

async fn counts_that_do_not_add_up_are_refused(test: &TestCatalog) {
    let lossy = CheckpointRange { archived: 9, ..range(0, 0, 10) };
    let commit = checkpoint_commit(checkpoint(vec![lossy]), vec![], &BTreeMap::new());
    let error = test.catalog.commit(commit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("counted: 9"), "{error}");
    assert_eq!(test.catalog.revision().await.unwrap(), 0);
}

async fn an_advance_backwards_is_wrong_input(test: &TestCatalog) {
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    let mut commit = checkpoint_of(10, 20);
    commit.advance[0].end = Offset(9);
    assert_eq!(test.catalog.commit(commit).await.unwrap_err().kind(), ErrorKind::Input);
    assert_eq!(test.catalog.revision().await.unwrap(), 1);
}

async fn a_refused_commit_can_be_asked_again_under_its_id(test: &TestCatalog) {
    let commit = checkpoint_of(10, 20);
    // To try again for ten seconds takes about as long each time; a machine that stands still for seconds does so now
    // and then.
    let mut least = std::time::Duration::MAX;
    for _ in 0..3 {
        let started = std::time::Instant::now();
        conflict(test.catalog.commit_with_retry(commit.clone()).await);
        least = least.min(started.elapsed());
    }
    assert!(least < std::time::Duration::from_secs(5), "a conflict is not tried again");
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    assert_eq!(test.catalog.commit_with_retry(commit).await.unwrap(), 2);
}

async fn a_commit_that_is_dropped_half_way_happened_or_not(test: &TestCatalog) {
    let mut at = 0;
    let mut dropped = 0;
    for polls in 0..60 {
        let commit = checkpoint_of(at, at + 10);
        dropped += u32::from(dropped_after(polls, test.catalog.commit(commit.clone())).await.is_none());
        // Whatever became of it: asking again under its id makes it happen once.
        test.catalog.commit_with_retry(commit).await.unwrap();
        at += 10;
        let state = test.catalog.state().await.unwrap();
        assert_eq!((state.vector().get(&partition(0)), state.checkpoints.len() as i64), (Offset(at), at / 10));
        assert_eq!(state.revision, at / 10);
    }
    assert!(dropped > 0, "no commit was dropped half way");
}

/// The future's outcome, unless it takes more than this many polls: then it is dropped as it stands.
async fn dropped_after<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// An id of version 7 made at this second.
fn made_at_second(second: u64) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(second * 1_000, &[7; 10]).into_uuid()
}

async fn a_name_that_was_given_up_is_refused(test: &TestCatalog) {
    let day = ORPHAN_AGE.as_secs();
    let state = test.catalog.state().await.unwrap();
    let given_up = orphans_commit(&state, Uuid::now_v7(), (2 * day as i64) * 1_000_000).unwrap();
    test.catalog.commit(given_up).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert_eq!(state.orphaned_before, day as i64 * 1_000_000);
    // It never goes back.
    assert_eq!(orphans_commit(&state, Uuid::now_v7(), day as i64 * 1_000_000), None);
    let naming = |id: Uuid| {
        let record = CheckpointRecord { id, ..checkpoint(vec![range(0, 0, 4)]) };
        let path = ObjectName::Archive { stream: "payments".into(), checkpoint: id }.to_string();
        checkpoint_commit(record, vec![FileRecord { checkpoint: Some(id), ..file(&path) }], &BTreeMap::new())
    };
    let text = conflict(test.catalog.commit(naming(made_at_second(day - 1))).await);
    assert!(text.contains("may have deleted") && text.contains("archive/payments/"), "{text}");
    test.catalog.commit(naming(made_at_second(day))).await.unwrap();
}

async fn a_run_that_was_closed_is_not_closed_again_and_does_not_publish(test: &TestCatalog) {
    let catalog = &test.catalog;
    let lease = catalog.acquire_lease(&run_lease("v", 1), "p", std::time::Duration::from_secs(60), 0, None).await.unwrap().unwrap();
    let (_, run) = catalog.begin_run(run_of("v"), vec![]).await.unwrap();
    let state = catalog.state().await.unwrap();
    assert!(abandoned(&state, Uuid::now_v7, lease.expires_at - 1, |_| false).is_empty());
    let (closed, commit) = abandoned(&state, Uuid::now_v7, lease.expires_at, |_| false).pop().unwrap();
    assert_eq!(closed.id, run.id);
    catalog.commit(commit).await.unwrap();
    let again = failure_commit(Uuid::now_v7(), run.clone(), "p", "late".into(), 1);
    conflict(catalog.commit(again).await);
    // By a clock that went back the lease would still hold; it was taken away.
    let snapshot =
        SnapshotRecord { view: "v".into(), version: 1, run: run.id, cut: run.cut.clone().unwrap(), manifest: "m".into(), published_at: 1 };
    let text = conflict(catalog.commit(publish_commit(run.clone(), snapshot, SnapshotFiles::default(), &lease, 1)).await);
    assert!(text.contains("found holder: nobody"), "{text}");
    let stored = catalog.runs(None, 1).await.unwrap();
    assert_eq!(
        (stored[0].status, stored[0].error.as_deref()),
        (RunStatus::Failed, Some("the process that ran it died before it was done"))
    );
}

async fn a_run_takes_over_the_files_that_it_carries_over_or_publishes_nothing(test: &TestCatalog) {
    let catalog = &test.catalog;
    let lease = catalog.acquire_lease(&run_lease("v", 1), "p", std::time::Duration::from_secs(60), 0, None).await.unwrap().unwrap();
    let (_, run) = catalog.begin_run(run_of("v"), vec![]).await.unwrap();
    let named: Vec<FileRecord> = ["a", "b", "c's \"quoted\" name"].map(|path| FileRecord { run: Some(Uuid::nil()), ..file(path) }).to_vec();
    catalog.commit(adds(named.into_iter().map(Add::File).collect())).await.unwrap();
    let publish = |paths: &[&str]| {
        let (cut, manifest) = (run.cut.clone().unwrap(), "m".into());
        let snapshot = SnapshotRecord { view: "v".into(), version: 1, run: run.id, cut, manifest, published_at: 1 };
        let carried_over = paths.iter().map(|path| (*path).to_owned()).collect();
        publish_commit(run.clone(), snapshot, SnapshotFiles { written: Vec::new(), carried_over }, &lease, 1)
    };
    let text = conflict(catalog.commit(publish(&["a", "gone"])).await);
    assert!(text.contains("expected files: 2") && text.contains("found: 1"), "{text}");
    let state = catalog.state().await.unwrap();
    assert!(state.snapshots.is_empty() && state.files.len() == 3, "nothing was changed");
    assert!(state.files.iter().all(|file| file.run == Some(Uuid::nil())), "nothing was changed");
    catalog.commit(publish(&["a", "c's \"quoted\" name"])).await.unwrap();
    let state = catalog.state().await.unwrap();
    let owners: Vec<(&str, bool)> = state.files.iter().map(|file| (&*file.path, file.run == Some(run.id))).collect();
    assert_eq!(owners, [("a", true), ("b", false), ("c's \"quoted\" name", true)]);
}

async fn a_skipped_run_moves_the_published_cut(test: &TestCatalog) {
    let catalog = &test.catalog;
    let lease = catalog.acquire_lease(&run_lease("v", 1), "p", std::time::Duration::from_secs(60), 0, None).await.unwrap().unwrap();
    let (_, first) = catalog.begin_run(run_of("v"), vec![]).await.unwrap();
    let cut = first.cut.clone().unwrap();
    let published = SnapshotRecord { view: "v".into(), version: 1, run: first.id, cut, manifest: "m".into(), published_at: 1 };
    catalog.commit(publish_commit(first.clone(), published.clone(), SnapshotFiles::default(), &lease, 1)).await.unwrap();
    catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    let (_, second) = catalog.begin_run(run_of("v"), vec![]).await.unwrap();
    let skipping = skipped_commit(second.clone(), published, &lease, 2);
    catalog.commit(skipping).await.unwrap();
    let state = catalog.state().await.unwrap();
    let snapshot = state.snapshot("v", 1).unwrap();
    assert_eq!((snapshot.run, snapshot.cut.get(&partition(0))), (first.id, Offset(10)), "the same snapshot, up to the later cut");
    assert_eq!(catalog.runs(None, 1).await.unwrap()[0].status, RunStatus::Skipped);
}

fn run_of(view: &str) -> RunRecord {
    RunRecord {
        id: Uuid::now_v7(),
        view: view.into(),
        version: 1,
        status: RunStatus::Running,
        scheduled_for: None,
        attempt: 1,
        started_at: Some(0),
        ended_at: None,
        cut: None,
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
        error: None,
    }
}

/// What it takes the place of must be as it was when it was planned.
async fn a_compaction_replaces_what_it_was_planned_on(test: &TestCatalog) {
    for step in 0..3 {
        test.catalog.commit(checkpoint_of(step * 10, step * 10 + 10)).await.unwrap();
    }
    let state = test.catalog.state().await.unwrap();
    let of: Vec<&CheckpointRecord> = state.checkpoints.iter().take(2).collect();
    let ids: Vec<Uuid> = of.iter().map(|checkpoint| checkpoint.id).collect();
    let plan = || {
        let record = compacted(Uuid::now_v7(), &of).unwrap();
        let files = vec![FileRecord { checkpoint: Some(record.id), ..file(&format!("archive/{}", record.id)) }];
        compaction_commit(Uuid::now_v7(), &state, record, &ids, files)
    };
    test.catalog.commit(plan()).await.unwrap();
    let after = test.catalog.state().await.unwrap();
    let ranges: Vec<_> = after.checkpoints.iter().flat_map(|checkpoint| checkpoint.ranges.iter().map(|r| (r.start.0, r.end.0))).collect();
    assert_eq!(ranges, [(0, 20), (20, 30)], "in the order of commits");
    let kinds: Vec<FileKind> = after.files.of_checkpoint(after.checkpoints.first().unwrap().id).map(|file| file.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == FileKind::Superseded).count(), 2);
    assert_eq!(after.vector(), state.vector());

    let late = test.catalog.commit(plan()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "its checkpoints are gone: {late}");
    assert_eq!(test.catalog.state().await.unwrap(), after);
}

/// Else the events that were decoded again would be lost, and the others counted twice.
async fn a_compaction_of_files_that_were_decoded_again_is_refused(test: &TestCatalog) {
    for step in 0..2 {
        test.catalog.commit(checkpoint_of(step * 10, step * 10 + 10)).await.unwrap();
    }
    let state = test.catalog.state().await.unwrap();
    let of: Vec<&CheckpointRecord> = state.checkpoints.iter().collect();
    let ids: Vec<Uuid> = of.iter().map(|checkpoint| checkpoint.id).collect();
    let old = state.files.of_checkpoint(ids[0]).next().unwrap().clone();
    let new = FileRecord { path: "decoded again".into(), ..old.clone() };
    let superseded = FileRecord { kind: FileKind::Superseded, run: Some(Uuid::now_v7()), ..old };
    test.catalog.commit(adds(vec![Add::File(superseded), Add::File(new)])).await.unwrap();
    let record = compacted(Uuid::now_v7(), &of).unwrap();
    let refused = test.catalog.commit(compaction_commit(Uuid::now_v7(), &state, record, &ids, Vec::new())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(test.catalog.state().await.unwrap().checkpoints, state.checkpoints);
}
