//! Replays, and views with `strategy = 'stream'`: states that come from the log and from segments alone.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use basestream_tests::gate::{Gate, Way};
use basestream_tests::{now, until};
use batch::{ReplayFrom, ReplayRequest, RunMode, RunRequest, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, RunStatus, run_lease};
use futures::TryStreamExt;
use serving::ServingClock;
use storage::{ObjectStorage, read_bucket};
use types::ErrorKind;
use types::Strategy::{Full, Replay, Stream as ByStream};
use types::files::{FileKind, FileRecord};
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

use crate::site::{DAY, STREAM, Site, WITH_X};
use crate::table;

const COUNTS: &str =
    "CREATE VIEW counts WITH (windows = '30d') AS SELECT k, count(*) AS n, array_agg(id ORDER BY id) AS ids FROM s GROUP BY k";
const BY_STREAM: &str =
    "CREATE VIEW by_stream WITH (windows = '30d', strategy = 'stream') AS SELECT k, count(*) AS n, max(id) AS id FROM s GROUP BY k";
const LINKS: &str = "CREATE VIEW links WITH (windows = '30d') AS \
    SELECT a.k, count(DISTINCT b.id) AS n FROM s a JOIN s b ON a.k = b.k WHERE a.id <> b.id GROUP BY a.k";

impl Site {
    /// Three checkpoints of two workers; some events occur in two of them.
    async fn with_history() -> Site {
        let site = Site::with(&[("counts", COUNTS), ("by_stream", BY_STREAM), ("links", LINKS)]).await;
        site.append_by("one", &[1, 2, 3, 4, 2]).await;
        site.append_by("two", &[5, 1, 6, 7]).await;
        site.append_by("one", &[7, 8, 3, 9, 10]).await;
        site
    }

    /// The state rows of a view's snapshot, which has one tier.
    async fn base(&self, view: &str) -> Vec<RecordBatch> {
        let manifest = self.manifest(view).await;
        assert!(manifest.deltas.is_empty());
        let mut rows = Vec::new();
        for file in &manifest.base.files {
            rows.extend(read_bucket(&self.harness.storage, file).await.unwrap().try_collect::<Vec<_>>().await.unwrap());
        }
        rows
    }

    /// Deletes these files from the storage, behind the catalog's back.
    async fn lose(&self, kinds: &[FileKind]) {
        let state = self.harness.catalog.state().await.unwrap();
        for kind in kinds {
            for file in state.readable(*kind) {
                self.harness.storage.delete(&file.path).await.unwrap();
            }
        }
    }

    /// Deletes the archive and the states of the checkpoints after a vector.
    async fn lose_after(&self, vector: &Vector) {
        let state = self.harness.catalog.state().await.unwrap();
        for checkpoint in state.checkpoints.iter().filter(|checkpoint| !checkpoint.is_within(vector)) {
            let is_lost = |file: &&FileRecord| [FileKind::Archive, FileKind::States].contains(&file.kind);
            for file in state.files.of_checkpoint(checkpoint.id).filter(is_lost) {
                self.harness.storage.delete(&file.path).await.unwrap();
            }
        }
    }

    async fn redefine(&self, kind: DefinitionKind, name: &str, version: u32, sql: &str) {
        let of = |version: u32, sql: &str, status| {
            Add::Definition(DefinitionRecord {
                kind,
                name: name.into(),
                version,
                sql: sql.into(),
                status,
                created_at: now(),
                since: now(),
                kept_until: None,
                rolled_back: false,
            })
        };
        let before = self.harness.catalog.state().await.unwrap().served_or_building(kind, name).unwrap().clone();
        let add = vec![
            Add::Definition(DefinitionRecord { status: DefinitionStatus::Retired, ..before }),
            of(version, sql, DefinitionStatus::Active),
        ];
        self.harness.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_makes_the_states_that_a_recomputation_makes() {
    let site = Site::with_history().await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    site.harness.collect().await.unwrap();
    site.append_by("two", &[11, 4, 12]).await;
    let t = RunTime::At(now());
    for view in ["counts", "links"] {
        let full = site.harness.recompute(view, t).await.unwrap();
        let (expected, rows) = (site.base(view).await, site.manifest(view).await.joined.map(|joined| joined.rows));
        for from in [ReplayFrom::Log, ReplayFrom::Archive] {
            let replayed = site.harness.replay(view, t, from).await.unwrap();
            assert_eq!((replayed.strategy, replayed.events_read), (Some(Replay), full.events_read), "{view} from {from:?}");
            assert_eq!(site.base(view).await, expected, "{view} from {from:?}");
            assert_eq!(site.manifest(view).await.joined.map(|joined| joined.rows), rows);
        }
        site.assert_proven(view).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compacted_checkpoints_are_replayed_as_one() {
    let site = Site::with_history().await;
    for view in ["counts", "by_stream", "links"] {
        site.harness.batch(view, RunTime::At(now())).await.unwrap();
    }
    site.harness.collect().await.unwrap();
    assert_eq!(site.harness.compact().await.unwrap().checkpoints, 3);
    let expected = {
        site.harness.recompute("counts", RunTime::At(now())).await.unwrap();
        site.base("counts").await
    };
    for from in [ReplayFrom::Log, ReplayFrom::Archive] {
        site.harness.replay("counts", RunTime::At(now()), from).await.unwrap();
        assert_eq!(site.base("counts").await, expected, "from {from:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_stream_view_needs_no_archive() {
    let site = Site::with_history().await;
    let t = RunTime::At(now());
    site.lose(&[FileKind::Archive]).await;
    let run = site.harness.batch("by_stream", t).await.unwrap();
    assert_eq!((run.status, run.strategy, run.events_read), (RunStatus::Succeeded, Some(ByStream), 10));
    let from_segments = site.base("by_stream").await;
    site.lose(&[FileKind::States]).await;
    // Nothing but the log is left. The dedup window reaches back to its beginning.
    let replayed = site.harness.replay("by_stream", t, ReplayFrom::Log).await.unwrap();
    assert_eq!(replayed.events_read, 10);
    assert_eq!(site.base("by_stream").await, from_segments);
    let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
    assert_eq!(table(&node, "by_stream").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_segments_of_a_stream_view_lack_comes_from_the_log() {
    let site = Site::with_history().await;
    site.harness.batch("by_stream", RunTime::At(now())).await.unwrap();
    let before = site.harness.catalog.state().await.unwrap().vector();
    site.append_by("two", &[11, 4, 12]).await;
    // Those before are in the snapshot. The ids of the dedup window are read from their archive.
    site.lose_after(&before).await;
    let run = site.harness.batch("by_stream", RunTime::At(now())).await.unwrap();
    assert_eq!((run.status, run.strategy, run.events_read), (RunStatus::Succeeded, Some(ByStream), 2));
    let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
    assert_eq!(table(&node, "by_stream"), ["0 6 e012", "1 6 e011"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_run_of_a_stream_view_reads_the_archive_if_it_is_asked_for() {
    let site = Site::with_history().await;
    let run = site.harness.batch("by_stream", RunTime::At(now())).await.unwrap();
    let full = site.harness.recompute("by_stream", RunTime::At(now())).await.unwrap();
    assert_eq!((run.strategy, full.strategy), (Some(ByStream), Some(Full)));
    assert_eq!(run.events_read, full.events_read);
    let comparison = full.comparison.unwrap();
    assert!(comparison.rows > 0 && comparison.differences == 0 && comparison.error.is_none(), "{comparison:?}");
    site.assert_proven("by_stream").await;
}

/// A stream's column that is added without a backfill is NULL in earlier events, however they are read.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_reads_a_record_by_the_version_that_its_archive_has() {
    let site = Site::with_history().await;
    site.redefine(Stream, "s", 2, WITH_X).await;
    site.append_by("one", &[21, 22]).await;
    site.redefine(View, "counts", 2, "CREATE VIEW counts AS SELECT k, count(*) AS n, sum(x) AS x FROM s GROUP BY k").await;
    let mut rows = Vec::new();
    for from in [ReplayFrom::Log, ReplayFrom::Archive] {
        site.harness.replay("counts", RunTime::At(now()), from).await.unwrap();
        let node = site.harness.node(ServingClock::Wall, None).await.unwrap();
        rows.push(table(&node, "counts"));
    }
    assert_eq!(rows[0], rows[1]);
    assert!(rows[0].iter().all(|row| row.ends_with(" 21") || row.ends_with(" 22")), "{:?}", rows[0]);
}

/// What it is still to read may pass its retention while it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_pins_what_it_reads_until_it_ends() {
    let site = Site::with_history().await;
    let gate = Gate::before(site.harness.storage.object_store(), "snapshots/", Way::Held);
    let mut batch = site.harness.batch_layer(256 << 20);
    batch.storage = ObjectStorage::over(gate.clone()).unwrap();
    let request = RunRequest {
        mode: RunMode::Replay(ReplayRequest { from: ReplayFrom::Archive, events_a_second: None }),
        compare: false,
        ..RunRequest::new("counts", RunTime::At(now()))
    };
    let running = tokio::spawn(async move { batch.run(request, Arc::new(now), &|_| {}).await });
    let pinned = async || {
        let state = site.harness.catalog.state().await.unwrap();
        state.leases.iter().find(|lease| lease.name == run_lease("counts", 1)).map(|lease| lease.pin.clone())
    };
    until("the replay to begin", async || pinned().await.is_some()).await;
    let pin = pinned().await.unwrap().unwrap();
    let begin = [0, 1].map(|partition| (PartitionId::new("s", partition), Offset(0)));
    assert_eq!(pin, begin.into_iter().collect());
    gate.set(Way::Fine);
    running.await.unwrap().unwrap();
    assert_eq!(pinned().await, None);
}

/// Otherwise a replay would count other events than the checkpoints do.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_what_was_committed_is_refused_and_nothing_changes() {
    let site = Site::with_history().await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    let before = site.manifest("counts").await;
    // As if other settings had decided the records: without the window, a repeated id is an event.
    let state = site.harness.catalog.state().await.unwrap();
    let record = state.served_or_building(Stream, "s").unwrap();
    let sql = STREAM.replace("dedup_within = '10d'", "dedup_within = '1ms'");
    let changed = DefinitionRecord { sql, ..record.clone() };
    let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Definition(changed)], ..Commit::default() };
    site.harness.catalog.commit(commit).await.unwrap();
    let error = site.harness.replay("counts", RunTime::At(now()), ReplayFrom::Log).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    for part in ["range: s/", "duplicate", "--from archive"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(site.manifest("counts").await, before);
    site.harness.replay("counts", RunTime::At(now()), ReplayFrom::Archive).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_lacks_what_is_needed_is_refused_with_the_way_out() {
    let site = Site::with_history().await;
    let trimming = jobs::trim::Trimming {
        catalog: site.harness.catalog.clone(),
        log: site.harness.log.clone(),
        group: "basestream".into(),
        retention: Duration::ZERO,
        clock: std::sync::Arc::new(|| now() + DAY),
    };
    assert!(trimming.trim().await.unwrap() > 0);
    site.lose(&[FileKind::States]).await;
    for outcome in [
        site.harness.replay("by_stream", RunTime::At(now()), ReplayFrom::Log).await,
        site.harness.batch("by_stream", RunTime::At(now())).await,
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        for part in ["range: s/", "basestream replay VIEW --from archive"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
    let run = site.harness.replay("by_stream", RunTime::At(now()), ReplayFrom::Archive).await.unwrap();
    assert_eq!((run.strategy, run.events_read), (Some(Replay), 10));
    site.assert_proven("by_stream").await;
    // Later runs need neither.
    site.append_by("one", &[13]).await;
    assert_eq!(site.harness.batch("by_stream", RunTime::At(now())).await.unwrap().strategy, Some(ByStream));
}
