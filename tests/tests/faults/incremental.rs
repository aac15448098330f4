//! Incremental runs: what they read and leave, and when a run has to recompute all the same.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use basestream_tests::{Harness, now};
use batch::{FileTotals, ReplayFrom, ReplayRequest, RunMode, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::{Add, Commit, Comparison, DamageRecord, GapRecord, RunStatus, SnapshotRecord};
use engine::fresh::ViewVersion;
use futures::TryStreamExt;
use jobs::status::problems::{Facts, Fault, problems};
use serving::ServingClock;
use storage::{BucketWriter, Manifest, Tier, read_bucket, read_manifest, write_manifest};
use types::Strategy::{Full, Incremental};
use types::files::ObjectName;
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

use crate::table;

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const QUIET: &str = "CREATE STREAM q (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const COUNTS: &str = "CREATE VIEW counts WITH (windows = '1h') AS SELECT k, count(*) AS n FROM s GROUP BY k";
const OF_QUIET: &str = "CREATE VIEW of_quiet AS SELECT k, count(*) AS n FROM q GROUP BY k";
const DAY: i64 = 86_400_000_000;

struct Site {
    harness: Harness,
}

impl Site {
    async fn new() -> Site {
        crate::show_logs();
        let harness = Harness::new().await.unwrap();
        let definitions = [(Stream, "s", STREAM), (Stream, "q", QUIET), (View, "counts", COUNTS), (View, "of_quiet", OF_QUIET)];
        harness.define(&definitions).await.unwrap();
        for topic in ["s", "q"] {
            harness.log.create_topic(topic, 2).await.unwrap();
        }
        Site { harness }
    }

    /// Appends events of this moment and commits them.
    async fn append(&self, topic: &str, keys: &[&str]) {
        let ts = engine::events::format_timestamp(now());
        let records = keys.iter().map(|k| (Some((*k).to_owned()), format!(r#"{{"ts":"{ts}","k":"{k}"}}"#)));
        self.harness.append(topic, 2, records.collect()).await.unwrap();
        let worker = self.harness.worker("one", Duration::from_millis(20), None);
        self.harness.committed(topic, topic).await.unwrap();
        worker.finish().await.unwrap();
    }

    async fn manifest(&self, view: &str) -> Manifest {
        let state = self.harness.catalog.state().await.unwrap();
        let path = &state.snapshot(view, 1).unwrap().manifest;
        read_manifest(&self.harness.storage, state.files.get(path).unwrap()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_reads_what_is_new_and_leaves_the_other_files_alone() {
    let site = Site::new().await;
    site.append("s", &["a", "b", "a"]).await;
    let first = site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    assert_eq!((first.strategy, first.events_read), (Some(Full), 3));
    let base = site.manifest("counts").await.base;
    let mut expected = vec!["a 2", "b 1"];
    let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
    assert_eq!(table(&node, "counts"), expected);
    for (keys, after) in [(vec!["c"], vec!["a 2", "b 1", "c 1"]), (vec!["a", "c"], vec!["a 3", "b 1", "c 2"])] {
        site.append("s", &keys).await;
        let run = site.harness.batch("counts", RunTime::At(now())).await.unwrap();
        assert_eq!((run.strategy, run.events_read), (Some(Incremental), keys.len() as i64));
        node.refresh().await.unwrap();
        expected = after;
        assert_eq!(table(&node, "counts"), expected);
    }
    let manifest = site.manifest("counts").await;
    assert_eq!(manifest.events, 6);
    let state = site.harness.catalog.state().await.unwrap();
    assert!(manifest.state_files().all(|file| state.files.get(&file.path).unwrap().run == Some(manifest.run)), "all belong to it");

    let skipped = site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    assert_eq!((skipped.status, skipped.rows_written), (RunStatus::Skipped, 0));
    assert_eq!(site.manifest("counts").await, manifest);
    let full = site.harness.recompute("counts", RunTime::At(now())).await.unwrap();
    assert_eq!((full.strategy, full.events_read), (Some(Full), 6));
    let recomputed = site.manifest("counts").await;
    assert!(recomputed.deltas.is_empty() && recomputed.base != base);
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "counts"), expected);
}

/// Otherwise files of busy streams would be kept for the sake of a snapshot that does not need them.
#[tokio::test(flavor = "multi_thread")]
async fn the_cut_of_a_view_over_a_quiet_stream_goes_on() {
    let site = Site::new().await;
    site.append("q", &["a"]).await;
    site.harness.batch("of_quiet", RunTime::At(now())).await.unwrap();
    let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
    site.append("s", &["a", "b", "c", "d"]).await;
    let skipped = site.harness.batch("of_quiet", RunTime::At(now())).await.unwrap();
    assert_eq!(skipped.status, RunStatus::Skipped);
    let state = site.harness.catalog.state().await.unwrap();
    let published = state.snapshot("of_quiet", 1).unwrap();
    assert_eq!(published.cut, state.vector());
    node.refresh().await.unwrap();
    assert_eq!(node.read_view().unwrap().view("of_quiet").unwrap().cut, published.cut, "and with it what the node pins");
    assert_eq!(table(&node, "of_quiet"), ["a 1"]);
    site.append("q", &["a"]).await;
    let run = site.harness.batch("of_quiet", RunTime::At(now())).await.unwrap();
    assert_eq!((run.strategy, run.events_read), (Some(Incremental), 1));
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "of_quiet"), ["a 2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_clock_that_was_ahead_is_recomputed() {
    let site = Site::new().await;
    site.append("s", &["a"]).await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    site.append("s", &["b"]).await;
    site.harness.batch("counts", RunTime::At(now() + 400 * DAY)).await.unwrap();
    let healed = site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    assert_eq!((healed.status, healed.strategy), (RunStatus::Succeeded, Some(Full)), "though nothing is new");
    let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
    let read_view = node.read_view().unwrap();
    assert!(read_view.view("counts").unwrap().keeps(now()), "answers come from its tiles again");
    assert_eq!(table(&node, "counts"), ["a 1", "b 1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_were_given_up_make_one_run_recompute() {
    let site = Site::new().await;
    site.append("s", &["a", "b"]).await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    let read = site.harness.catalog.state().await.unwrap().vector();
    let partition: PartitionId = read.iter().find(|(id, end)| &*id.stream == "s" && *end > Offset::ZERO).unwrap().0.clone();
    let gap = GapRecord { partition, start: Offset(0), end: Offset(1), reason: "lost".into(), accepted_at: 0 };
    let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Gap(gap)], ..Commit::default() };
    site.harness.catalog.commit(commit).await.unwrap();
    let mut strategies = Vec::new();
    for key in ["c", "d"] {
        site.append("s", &[key]).await;
        strategies.push(site.harness.batch("counts", RunTime::At(now())).await.unwrap().strategy);
    }
    assert_eq!(strategies, [Some(Full), Some(Incremental)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_goes_though_nothing_is_new() {
    let site = Site::new().await;
    site.append("s", &["a", "b"]).await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    assert!(site.manifest("counts").await.rows > 0);
    let run = site.harness.batch("counts", RunTime::At(now() + DAY)).await.unwrap();
    assert_eq!((run.status, run.strategy), (RunStatus::Succeeded, Some(Incremental)));
    assert_eq!(site.manifest("counts").await.rows, 0);
    let again = site.harness.batch("counts", RunTime::At(now() + DAY)).await.unwrap();
    assert_eq!(again.status, RunStatus::Skipped);
}

/// Otherwise a base would keep what has expired until all of it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_view_is_pruned_each_third_of_its_window_until_it_is_empty() {
    let site = Site::new().await;
    site.append("s", &["a", "b"]).await;
    let (t, minute) = (now(), 60_000_000);
    site.harness.batch("counts", RunTime::At(t)).await.unwrap();
    let status_after = async |minutes: i64| site.harness.batch("counts", RunTime::At(t + minutes * minute)).await.unwrap().status;
    let (done, skipped) = (RunStatus::Succeeded, RunStatus::Skipped);
    // Its tiles are of up to an hour, so what it keeps is of one to two hours.
    for (minutes, expected) in [(10, skipped), (41, done), (50, skipped), (200, done), (400, skipped)] {
        assert_eq!(status_after(minutes).await, expected, "after {minutes} minutes");
    }
    assert_eq!(site.manifest("counts").await.rows, 0);
}

const LINKS: &str = "CREATE VIEW links WITH (windows = '1h') AS SELECT a.k, count(*) AS n FROM s a JOIN q b ON a.k = b.k GROUP BY a.k";

/// A site with a linked view whose join has a row.
async fn with_links() -> Site {
    let site = Site::new().await;
    site.harness.define(&[(View, "links", LINKS)]).await.unwrap();
    site.append("s", &["a"]).await;
    site.append("q", &["a"]).await;
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_of_a_join_is_written_again_though_nothing_is_new() {
    let site = with_links().await;
    let t = now();
    site.harness.batch("links", RunTime::At(t)).await.unwrap();
    let before = site.manifest("links").await.joined.unwrap();
    let path = before.files[0].path.clone();
    let damage = DamageRecord { path, error: "damaged".into(), found_by: "test".into(), found_at: t };
    let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Damage(damage)], ..Commit::default() };
    site.harness.catalog.commit(commit).await.unwrap();
    let run = site.harness.batch("links", RunTime::At(t)).await.unwrap();
    assert_eq!(run.status, RunStatus::Succeeded);
    let after = site.manifest("links").await.joined.unwrap();
    assert_eq!(after.rows, before.rows);
    assert_ne!(after.files[0].path, before.files[0].path);
}

/// The tiers lack the edges that only an earlier join would count.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_join_does_not_go_back_with_a_clock_that_is_a_little_behind() {
    let site = with_links().await;
    let ahead = now() + 300_000_000;
    site.harness.batch("links", RunTime::At(ahead)).await.unwrap();
    site.append("s", &["a"]).await;
    let run = site.harness.batch("links", RunTime::At(ahead - 300_000_000)).await.unwrap();
    assert_eq!((run.status, run.strategy), (RunStatus::Succeeded, Some(Incremental)));
    assert_eq!(site.manifest("links").await.joined.unwrap().t, ahead);
}

impl Site {
    /// Makes a manifest the published one, as a defect would have: all checksums are right.
    async fn publish(&self, manifest: Manifest, files: Vec<types::files::FileRecord>) {
        let manifest = Manifest { run: Uuid::now_v7(), ..manifest };
        let file = write_manifest(&self.harness.storage, &manifest).await.unwrap();
        let state = self.harness.catalog.state().await.unwrap();
        let before = state.snapshot(&manifest.view, 1).unwrap().clone();
        let snapshot = SnapshotRecord { run: manifest.run, manifest: file.path.clone(), ..before };
        let add = files.into_iter().chain([file]).map(Add::File).chain([Add::Snapshot(snapshot)]).collect();
        self.harness.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    }

    async fn recompute(&self, view: &str) -> Comparison {
        self.harness.recompute(view, RunTime::At(now())).await.unwrap().comparison.expect("it is compared")
    }

    async fn differences_in_status(&self) -> Vec<String> {
        let state = self.harness.catalog.state().await.unwrap();
        let facts = Facts { now: now(), state: (*state).clone(), ..Facts::default() };
        problems(&facts).into_iter().filter(|problem| problem.fault == Fault::StatesDiffer).map(|problem| problem.what).collect()
    }
}

/// A snapshot of three tiers, and a checkpoint after its cut.
async fn with_tiers() -> Site {
    let site = Site::new().await;
    site.append("s", &["a", "b", "a", "d", "e", "f", "g", "h", "i"]).await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    for keys in [["a", "c"], ["a", "b"]] {
        site.append("s", &keys).await;
        site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    }
    assert!(!site.manifest("counts").await.deltas.is_empty());
    site.append("s", &["c", "z"]).await;
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recomputation_gives_the_states_that_incremental_runs_kept() {
    let site = with_tiers().await;
    let comparison = site.recompute("counts").await;
    assert_eq!((comparison.found(), comparison.first.len(), comparison.error.as_ref()), (Some(0), 0, None));
    assert!(comparison.rows > 12 && comparison.bytes_read > 0, "{comparison:?}");
    assert_eq!(site.differences_in_status().await, Vec::<String>::new());
    let run = &site.harness.catalog.runs(Some("counts"), 1).await.unwrap()[0];
    assert_eq!((run.comparison.as_ref(), run.tiers), (Some(&comparison), 1));
    assert!(run.bytes_read > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_what_a_comparison_reads() {
    let site = with_tiers().await;
    let planned = async |mode, compare| {
        let batch = site.harness.batch_layer(256 << 20);
        batch.plan("counts", RunTime::At(now()), (mode, compare), now()).await.unwrap().compared
    };
    let replay = RunMode::Replay(ReplayRequest { from: ReplayFrom::Archive, events_a_second: None });
    let compared = planned(RunMode::Full, true).await;
    assert_eq!(planned(replay, true).await, compared);
    for (mode, compare) in [(RunMode::Full, false), (replay, false), (RunMode::ByStrategy, true)] {
        assert_eq!(planned(mode, compare).await, FileTotals::default(), "{mode:?}");
    }
    let read = site.recompute("counts").await.bytes_read;
    assert_eq!(compared.bytes + site.manifest("counts").await.base.bytes(), read, "beside the new snapshot");
    let files = compared.files;
    assert!(files > 2, "those of the tiers, and the states since the cut: {files}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delta_that_was_left_out_is_found_and_the_archive_wins() {
    let site = with_tiers().await;
    let before = site.manifest("counts").await;
    site.publish(Manifest { deltas: vec![], ..before }, vec![]).await;
    let comparison = site.recompute("counts").await;
    assert!(comparison.differences > 0);
    let keys: Vec<&str> = comparison.first.iter().map(|difference| &*difference.key).collect();
    assert!(keys.contains(&"k=a") && !keys.contains(&"k=d"), "{comparison:?}");
    let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
    assert_eq!(table(&node, "counts")[..3], ["a 4", "b 2", "c 2"], "the archive wins");
    let reported = site.differences_in_status().await;
    assert!(reported[0].starts_with("counts (version 1): the recomputation of ") && reported[0].contains("k="), "{reported:?}");
    // Another run says nothing about it; one that compares again does.
    site.append("s", &["a"]).await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    assert_eq!(site.differences_in_status().await, reported);
    assert_eq!(site.recompute("counts").await.found(), Some(0));
    assert_eq!(site.differences_in_status().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_finds_a_delta_that_was_left_out() {
    let site = with_tiers().await;
    let before = site.manifest("counts").await;
    site.publish(Manifest { deltas: vec![], ..before }, vec![]).await;
    let replayed = site.harness.replay("counts", RunTime::At(now()), ReplayFrom::Archive).await.unwrap();
    let comparison = replayed.comparison.expect("it is compared");
    let keys: Vec<&str> = comparison.first.iter().map(|difference| &*difference.key).collect();
    assert!(keys.contains(&"k=a") && !keys.contains(&"k=d"), "{comparison:?}");
    let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
    assert_eq!(table(&node, "counts")[..3], ["a 4", "b 2", "c 2"], "what was replayed is served");
    assert_eq!(site.differences_in_status().await.len(), 1);
    for from in [ReplayFrom::Log, ReplayFrom::Archive] {
        let again = site.harness.replay("counts", RunTime::At(now()), from).await.unwrap();
        assert_eq!(again.comparison.and_then(|comparison| comparison.found()), Some(0), "from {from:?}");
    }
    assert_eq!(site.differences_in_status().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_was_changed_is_found_with_its_key_and_column() {
    let site = with_tiers().await;
    let mut manifest = site.manifest("counts").await;
    let delta: &mut Tier = manifest.deltas.last_mut().unwrap();
    let file = delta.files.first_mut().unwrap();
    let batches: Vec<RecordBatch> = read_bucket(&site.harness.storage, file).await.unwrap().try_collect().await.unwrap();
    let name = ObjectName::Bucket { view: "counts".into(), version: 1, run: Uuid::now_v7(), bucket: file.bucket };
    let mut writer = BucketWriter::begin(&site.harness.storage, name, file.bucket, batches[0].schema(), vec![]).await.unwrap();
    for batch in &batches {
        // After the key, level and tile: the number of events.
        let mut columns = batch.columns().to_vec();
        let counts = columns[3].as_primitive::<Int64Type>();
        columns[3] = Arc::new(counts.iter().map(|count| count.map(|count| count + 70)).collect::<Int64Array>()) as ArrayRef;
        writer.push(&RecordBatch::try_new(batch.schema(), columns).unwrap()).await.unwrap();
    }
    let (changed, record) = writer.finish().await.unwrap();
    *file = changed;
    site.publish(manifest, vec![record]).await;
    let comparison = site.recompute("counts").await;
    let [first, ..] = &comparison.first[..] else { panic!("{comparison:?}") };
    assert_eq!((&*first.column, &*first.state), ("n_1h", "__events"));
    assert!(["k=a", "k=b", "k=c"].contains(&&*first.key), "{first:?}");
    let number = |text: &str| text.parse::<i64>().unwrap();
    assert_eq!(number(&first.kept), number(&first.recomputed) + 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_that_cannot_be_made_is_recorded_and_its_run_published() {
    let site = with_tiers().await;
    let path = site.manifest("counts").await.base.files[0].path.clone();
    std::fs::write(site.harness.path().join("storage").join(&path), "damaged").unwrap();
    let comparison = site.recompute("counts").await;
    assert_eq!((comparison.found(), comparison.rows), (None, 0));
    assert!(comparison.error.as_ref().is_some_and(|error| error.contains(&path)), "{comparison:?}");
    let state = site.harness.catalog.state().await.unwrap();
    assert_eq!(state.damages.iter().map(|damage| &damage.path).collect::<Vec<_>>(), [&path]);
    let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
    assert_eq!(table(&node, "counts")[..3], ["a 4", "b 2", "c 2"]);
}

/// Its snapshot was made for a later time: it lacks tiles that the recomputation has.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_nothing_can_be_added_to_is_not_compared() {
    let site = Site::new().await;
    site.append("s", &["a"]).await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    site.append("s", &["b"]).await;
    site.harness.batch("counts", RunTime::At(now() + 400 * DAY)).await.unwrap();
    assert_eq!(site.harness.recompute("counts", RunTime::At(now())).await.unwrap().comparison, None);
}

/// Compared for the edges of both sides, and for what is left out of old ones.
#[tokio::test(flavor = "multi_thread")]
async fn the_edges_of_a_linked_view_are_compared() {
    let site = with_links().await;
    let t = now();
    site.harness.batch("links", RunTime::At(t)).await.unwrap();
    site.append("s", &["a", "b"]).await;
    site.harness.batch("links", RunTime::At(t)).await.unwrap();
    site.append("q", &["b"]).await;
    assert_eq!(site.recompute("links").await.found(), Some(0));
    let manifest = site.manifest("links").await;
    site.append("s", &["c"]).await;
    site.harness.batch("links", RunTime::At(now())).await.unwrap();
    let with_delta = site.manifest("links").await;
    site.publish(Manifest { base: manifest.base, deltas: vec![], ..with_delta }, vec![]).await;
    let comparison = site.recompute("links").await;
    assert!(comparison.differences > 0 && comparison.first[0].key.contains('c'), "{comparison:?}");
}

/// They are for the next run, which goes by what is published.
#[tokio::test(flavor = "multi_thread")]
async fn copies_of_edges_are_kept_once_they_are_published_and_while_their_version_lives() {
    let harness = Harness::new().await.unwrap();
    let stream = |name: &str| {
        format!(
            "CREATE STREAM {name} (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, u TEXT, d TEXT) \
             WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1d', key = 'u')"
        )
    };
    let links = "CREATE VIEW links AS SELECT a.d, count(DISTINCT b.d) AS n FROM a JOIN b ON a.u = b.u GROUP BY a.d";
    let counts = "CREATE VIEW counts AS SELECT u, count(*) AS n FROM a GROUP BY u";
    let (a, b) = (stream("a"), stream("b"));
    harness.define(&[(Stream, "a", &a), (Stream, "b", &b), (View, "links", links), (View, "counts", counts)]).await.unwrap();
    for name in ["a", "b"] {
        harness.log.create_topic(name, 1).await.unwrap();
        let event = format!(r#"{{"id":"{name}","ts":"2026-03-01T10:00:00Z","u":"u","d":"{name}"}}"#);
        harness.append(name, 1, vec![(Some("u".to_owned()), event)]).await.unwrap();
    }
    harness.commit_at_once("one", &[("a", "a"), ("b", "b")]).await.unwrap();

    let is_late = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let clock: types::tiles::Clock = {
        let is_late = is_late.clone();
        Arc::new(move || now() + if is_late.load(std::sync::atomic::Ordering::SeqCst) { 3_600_000_000 } else { 0 })
    };
    let t = RunTime::At(now());
    let request = batch::RunRequest::new("links", t);
    let late = |_: i64| is_late.store(true, std::sync::atomic::Ordering::SeqCst);
    let lost = harness.batch_layer(256 << 20).run(request, clock, &late).await.unwrap_err();
    assert_eq!(lost.kind(), types::ErrorKind::Conflict, "its lease has expired: {lost}");
    assert!(harness.copies.versions().is_empty());
    tokio::time::sleep(Duration::from_millis(50)).await;
    harness.batch("links", t).await.unwrap();
    assert_eq!(harness.copies.versions(), [ViewVersion::new("links", 1)]);
    crate::put(&harness, vec![crate::record(View, "links", 1, links, catalog::DefinitionStatus::Retired)]).await;
    harness.batch("counts", t).await.unwrap();
    assert!(harness.copies.versions().is_empty());
}
