use catalog::{CheckpointRange, CheckpointRecord, DefinitionRecord, RunRecord, RunStatus, SnapshotRecord};
use definitions::settings::Variables;
use engine::functions::Functions;
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

use super::*;

const DAY_US: Micros = 86_400_000_000;
const NOW: Micros = 20_000 * DAY_US;

fn file(name: ObjectName, bytes: i64, days_ago: i64) -> FileRecord {
    let time = NOW - days_ago * DAY_US;
    let event_times = types::files::EventTimeBounds { min: time, max: time };
    name.record(types::files::StoredObject { bytes, checksum: 0 }, bytes / 10, Some(event_times))
}

/// One checkpoint a file: an archive file of `bytes`, as old as said, and the checkpoint that wrote it.
fn state(windows: &str, archive: &[(i64, i64)]) -> CatalogState {
    let pay =
        "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (event_time = 'ts', id = 'id', dedup_within = '1m')";
    let totals = format!("CREATE VIEW totals{windows} AS SELECT k, count(*) AS n FROM pay GROUP BY k");
    let (partition, end) = (PartitionId::new("pay", 0), archive.len() as i64);
    let checkpoint = |at: usize, days_ago: i64| CheckpointRecord {
        id: Uuid::from_u128(at as u128 + 1),
        worker: "w".into(),
        committed_at: NOW - days_ago * DAY_US,
        revision: 1,
        ranges: vec![CheckpointRange::of_events(partition.clone(), at as i64, at as i64 + 1)],
    };
    let run = Uuid::from_u128(99);
    let archived = archive.iter().enumerate().map(|(at, (bytes, days_ago))| {
        file(ObjectName::Archive { stream: "pay".into(), checkpoint: Uuid::from_u128(at as u128 + 1) }, *bytes, *days_ago)
    });
    let bucket = file(ObjectName::Bucket { view: "totals".into(), version: 1, run, bucket: 0 }, 70, 0);
    let manifest = file(ObjectName::Manifest { view: "totals".into(), version: 1, run }, 30, 0);
    let gone = FileRecord { marked_for_deletion: true, ..file(ObjectName::States { checkpoint: Uuid::from_u128(1) }, 5, 0) };
    CatalogState {
        revision: 7,
        definitions: [
            DefinitionRecord::first(DefinitionKind::Stream, "pay", pay),
            DefinitionRecord::first(DefinitionKind::View, "totals", &totals),
        ]
        .into_iter()
        .collect(),
        checkpoints: archive.iter().enumerate().map(|(at, (_, days_ago))| checkpoint(at, *days_ago)).collect(),
        files: archived.chain([bucket, manifest, gone]).collect(),
        snapshots: vec![SnapshotRecord {
            view: "totals".into(),
            version: 1,
            run,
            cut: Vector::from_iter([(partition.clone(), Offset(end))]),
            manifest: String::new(),
            published_at: NOW - DAY_US,
        }],
        ..CatalogState::default()
    }
}

async fn report(state: &CatalogState) -> StorageReport {
    let registry = Registry::load(state, &Functions::standard()).await.unwrap();
    storage_report(state, &registry, NOW, false).unwrap()
}

#[tokio::test]
async fn files_are_counted_by_stream_view_and_kind() {
    let report = report(&state("", &[(1000, 2), (500, 1)])).await;
    assert_eq!(report.total, Usage { files: 5, bytes: 1605, rows: 157 });
    assert_eq!(report.streams[0].archive, Usage { files: 2, bytes: 1500, rows: 150 });
    assert_eq!(report.streams[0].oldest_event.as_deref(), Some("2024-10-02T00:00:00Z"));
    assert_eq!(report.streams[0].status, DefinitionStatus::Active);
    assert_eq!((&*report.views[0].view, report.views[0].snapshots), ("totals", Usage { files: 2, bytes: 100, rows: 7 }));
    assert_eq!(report.to_be_deleted, Usage { files: 1, bytes: 5, rows: 0 });
    assert_eq!(report.segments, Usage::default(), "what is to be deleted is counted once");
    let text = report.text();
    let totals = text.lines().find(|line| line.starts_with("totals")).unwrap();
    assert!(totals.contains("  served  "), "the word of `status` and `view list`: {text}");
}

#[tokio::test]
async fn the_archive_is_shown_by_the_age_of_its_events() {
    let report = report(&state("", &[(1000, 400), (300, 30), (100, 20), (10, 7), (1, -1)])).await;
    let ages: Vec<(Option<&str>, u64, i64)> =
        report.streams[0].by_age.iter().map(|age| (age.up_to.as_deref(), age.usage.files, age.usage.bytes)).collect();
    assert_eq!(ages, [(Some("7d"), 2, 11), (Some("30d"), 2, 400), (None, 1, 1000)]);
    let text = report.text();
    assert!(text.contains("up to 30d") && text.contains("older"), "{text}");
    let json = serde_json::to_value(&report.streams[0].by_age).unwrap();
    assert_eq!(json[2], serde_json::json!({"up_to": null, "files": 1, "bytes": 1000, "rows": 100}));
}

#[tokio::test]
async fn what_dropping_a_kept_version_frees_is_named() {
    let mut state = state("", &[(1000, 2)]);
    assert!(!report(&state).await.text().contains("view drop"));
    state.definitions.rewrite(|all| all[1].status = DefinitionStatus::Kept);
    let text = report(&state).await.text();
    assert!(text.contains("basestream view drop totals@1 would free 100 B"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_are_listed_with_what_deletes_them() {
    const HOUR_US: Micros = 3_600_000_000;
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::parse("", &folder.path().join("basestream.toml"), &Variables::default()).unwrap();
    let installation = Installation::open(&settings, Functions::standard()).await.unwrap();
    let recomputed = |view: &str, status, ended_at: Option<Micros>| RunRecord {
        status,
        ended_at,
        strategy: Some(types::Strategy::Full),
        draft: Some(catalog::RunDraft { path: "draft".into(), bytes: 1, checksum: 2, events: 3, resumed: 0, format: 1 }),
        ..RunRecord::requested(view.into(), 1)
    };
    let now = now();
    let runs = [
        recomputed("failed", RunStatus::Failed, Some(now)),
        recomputed("old", RunStatus::Failed, Some(now - 25 * HOUR_US)),
        recomputed("published", RunStatus::Succeeded, Some(now)),
        recomputed("retired", RunStatus::Failed, Some(now)),
        recomputed("running", RunStatus::Running, None),
    ];
    for run in &runs {
        let (view, version, run) = (run.view.clone(), 1, run.id);
        let slice = ObjectName::SliceBucket { view: view.clone(), version, run, slice: 0, bucket: 0 };
        // A recomputation that went on with an earlier one has slices of both.
        let earlier = ObjectName::Draft { view: view.clone(), version, run: Uuid::now_v7(), slice: 0 };
        for (name, bytes) in [(slice, 2000), (earlier, 48), (ObjectName::Bucket { view, version, run, bucket: 0 }, 9)] {
            installation.storage.put_new(&name, vec![0u8; bytes].into()).await.unwrap();
        }
    }
    let definitions: Vec<DefinitionRecord> = runs
        .iter()
        .map(|run| DefinitionRecord {
            status: if &*run.view == "retired" { DefinitionStatus::Retired } else { DefinitionStatus::Active },
            ..DefinitionRecord::first(DefinitionKind::View, &run.view, "")
        })
        .collect();
    let state = CatalogState { runs: runs.to_vec(), definitions: definitions.into_iter().collect(), ..CatalogState::default() };
    let slices = stored_slices(&installation.storage, &state, now).await.unwrap();
    let found: Vec<(&str, SlicesStatus, u64, u64)> =
        slices.iter().map(|slices| (&*slices.view, slices.status, slices.files, slices.bytes)).collect();
    let (running, resumable, obsolete) = (SlicesStatus::Running, SlicesStatus::Resumable, SlicesStatus::Obsolete);
    let expected = [("failed", resumable), ("old", obsolete), ("published", obsolete), ("retired", obsolete), ("running", running)];
    assert_eq!(found, expected.map(|(view, status)| (view, status, 2, 2048)));
    let deadline = format_timestamp(now + 24 * HOUR_US);
    assert_eq!(slices[0].kept_until.as_deref(), Some(&*deadline));
    let json = serde_json::json!({"view": "running", "version": 1, "status": "running", "files": 2, "bytes": 2048, "kept_until": null});
    assert_eq!(serde_json::to_value(&slices[4]).unwrap(), json);

    let report = StorageReport { slices, ..report(&CatalogState::default()).await };
    assert_eq!(report.total, Usage::default(), "the catalog names none of them");
    let text = report.text();
    let shown = |beginning: &str| text.lines().find(|line| line.starts_with(beginning)).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(shown("failed").split_whitespace().collect::<Vec<_>>().join(" "), "failed 1 ended early 2 2.00 KiB");
    assert_eq!(shown("object storage in all").split_whitespace().skip(4).collect::<Vec<_>>().join(" "), "10 10.00 KiB");
    let resumed =
        format!("goes on with 2.00 KiB of slices, and deletes them once it publishes; if none does, they are deleted after {deadline}");
    assert!(shown("the next recomputation of failed@1").ends_with(&resumed), "{text}");
    assert!(text.contains("a recomputation of running@1 is running: it deletes the 2.00 KiB of its slices once it publishes"), "{text}");
    assert!(text.contains("no recomputation of old@1 goes on with 2.00 KiB of its slices: the collector deletes them"), "{text}");

    let add = runs.iter().filter(|run| &*run.view == "running").map(|run| catalog::Add::Run(run.clone())).collect();
    installation.catalog.commit(catalog::Commit { id: Uuid::now_v7(), add, ..catalog::Commit::default() }).await.unwrap();
    let reported = installation.storage_report().await.unwrap();
    assert_eq!((reported.slices.len(), reported.slices[0].status), (1, running));
}

#[tokio::test]
async fn a_bound_that_is_less_than_what_is_served_is_named() {
    let mut report = report(&state("", &[(1000, 2)])).await;
    assert_eq!(report.served_bytes, 70);
    for (most, is_named) in [(None, false), (Some(70), false), (Some(69), true)] {
        report.cache_bytes = most;
        let text = report.text();
        assert_eq!(text.contains("serving.cache_bytes is 69B, and a node has local copies of the 70 B"), is_named, "{text}");
    }
}

#[tokio::test]
async fn a_bound_frees_the_copies_of_kept_versions_that_do_not_fit() {
    let mut state = state("", &[(1000, 2)]);
    assert!(!report(&state).await.text().contains("serving.cache_bytes"));
    state.definitions.rewrite(|all| all[1].status = DefinitionStatus::Kept);
    let mut report = report(&state).await;
    assert_eq!((report.served_bytes, report.kept_bytes, report.cache_would_free), (0, 70, 70));
    assert!(report.text().contains("\nserving.cache_bytes would free up to about 70 B in each node"), "{}", report.text());
    report.cache_bytes = Some(1);
    assert!(report.text().contains("\na smaller serving.cache_bytes would free"), "{}", report.text());
    let would_free = |most| cache_would_free(100, 50, Some(most));
    assert_eq!([would_free(1_000), would_free(120), would_free(100), would_free(10)], [50, 20, 0, 0]);
}

#[tokio::test]
async fn a_shorter_retention_frees_what_the_collector_would_delete_then() {
    let report = report(&state(" WITH (windows = '7d')", &[(1000, 400), (100, 100), (10, 40), (1, 2)])).await;
    let freed: Vec<(&str, i64)> = report.streams[0].would_free.iter().map(|freed| (&*freed.retention, freed.bytes)).collect();
    assert_eq!(freed, [("30d", 1110), ("90d", 1100), ("365d", 1000)], "7d is shorter than the view's window and its hop");
    assert!(report.text().contains("retention = '90d' for pay would free 1.07 KiB now"), "{}", report.text());
}

#[tokio::test]
async fn a_dropped_stream_is_listed_while_files_of_it_are_left() {
    let dropped = async |sql: fn(&str) -> String, archive: &[(i64, i64)]| {
        let mut state = state(" WITH (windows = '7d')", archive);
        state.definitions.rewrite(|all| {
            for record in all.iter_mut() {
                record.status = DefinitionStatus::Retired;
            }
            let stream = all.iter_mut().find(|record| record.kind == DefinitionKind::Stream).unwrap();
            stream.sql = sql(&stream.sql);
        });
        report(&state).await
    };
    let for_ever = dropped(str::to_owned, &[(1000, 40)]).await;
    let [stream] = &for_ever.streams[..] else { panic!("one stream: {:?}", for_ever.streams) };
    assert_eq!((stream.status, stream.archive.bytes, &stream.retention), (DefinitionStatus::Retired, 1000, &None));
    assert_eq!(stream.would_free, [], "nothing can be set where nothing is defined");
    let text = for_ever.text();
    let line = text.lines().find(|line| line.starts_with("pay")).unwrap();
    assert!(line.contains("  retired  archive  "), "{text}");
    assert!(text.contains("pay is retired and had no retention, so its 1000 B are kept for ever: to free them, define it again"), "{text}");
    let retained = dropped(|sql| sql.replace("event_time", "retention = '10d', event_time"), &[(1000, 4)]).await;
    assert_eq!(retained.streams[0].retention.as_deref(), Some("10d"));
    assert!(!retained.text().contains("for ever"), "{}", retained.text());
    assert_eq!(dropped(str::to_owned, &[]).await.streams, [], "nothing is left of it");
}

#[tokio::test]
async fn no_retention_is_proposed_where_a_view_counts_for_ever() {
    assert_eq!(report(&state("", &[(1000, 400)])).await.streams[0].would_free, []);
}

#[tokio::test]
async fn a_shorter_retention_of_the_log_frees_what_would_be_trimmed() {
    let folder = tempfile::tempdir().unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &BTreeMap::new()).await.unwrap();
    for topic in ["out", "other"] {
        log.create_topic(topic, 1).await.unwrap();
        for _ in 0..4 {
            log.append(topic, vec![event_log::NewRecord { value: Some("{}".into()), ..Default::default() }]).await.unwrap();
        }
    }
    let two_hours_later = now() + 2 * 3_600_000_000;
    let trimming = crate::trim::Trimming {
        catalog: catalog::Catalog::open("sqlite::memory:").await.unwrap(),
        log: log.clone(),
        group: "g".into(),
        retention: std::time::Duration::from_hours(24),
        clock: Arc::new(move || two_hours_later),
    };
    let sink = DefinitionRecord::first(DefinitionKind::Sink, "out", "CREATE SINK out WITH (topic = 'out') AS SELECT * FROM pay");
    let freed =
        log_would_free(&trimming, &CatalogState { definitions: [sink].into_iter().collect(), ..CatalogState::default() }).await.unwrap();
    let half = log.size().await.unwrap().bytes / 2;
    let shown: Vec<(&str, u64, u64)> = freed.iter().map(|freed| (&*freed.retention, freed.records, freed.bytes)).collect();
    assert_eq!(shown, [("1h", 4, half), ("6h", 0, 0)]);
    let mut report = report(&state("", &[(1000, 2)])).await;
    report.log_would_free = freed;
    let text = report.text();
    assert!(text.contains("log.retention = '1h' would free about ") && !text.contains("6h"), "{text}");
}

#[test]
fn local_files_are_found_by_their_urls() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a b.db");
    std::fs::write(&name, [0; 10]).unwrap();
    std::fs::write(folder.path().join("a b.db-wal"), [0; 5]).unwrap();
    let url = Url::from_file_path(&name).unwrap();
    assert_eq!(path_of(url.as_str()).map(|path| bytes_of_database(&path)), Some(15));
    assert_eq!(bytes_below(folder.path()), 15);
    assert_eq!(path_of("kafka://localhost:9092"), None);
}
