//! The whole way, over embedded services: records in the log, a worker, runs, and a stream that changes.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use catalog::DefinitionStatus::{self, Active, Building, Redecoded, Retired};
use catalog::RunStatus;
use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use event_log::NewRecord;
use serde_json::{Value, json};
use serving::WantedViews;
use storage::{ArchiveVersions, archive_facts};
use tokio_util::sync::CancellationToken;
use types::files::FileKind;

use super::*;
use crate::apply::{ApplyOptions, Changes, Wanted};
use crate::check::check_definitions;
use crate::ingest::{IngestOptions, Input};
use crate::installation::{Installation, now};
use crate::repair::{RepairOptions, repair};
use crate::served::NodeServed;
use crate::verify::{Verifier, verify_log, verify_view};

const STREAM: &str = "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount BIGINT)
    WITH (topic = 'payments', format = 'json', event_time = 'ts', id = 'id', dedup_within = '1d', key = 'device')";
const COUNTS: &str = "CREATE VIEW counts AS SELECT device, count(*) AS n FROM pay GROUP BY device";
const SUMS: &str = "CREATE VIEW sums AS SELECT device, sum(amount) AS amount FROM pay WHERE amount IS NOT NULL GROUP BY device";
const BY_COUNTRY: &str = "CREATE VIEW by_country AS SELECT country, count(*) AS n FROM pay GROUP BY country";

struct Bench {
    folder: tempfile::TempDir,
    installation: Installation,
    sent: std::sync::atomic::AtomicUsize,
}

impl Bench {
    async fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let installation = open(folder.path()).await;
        Bench { folder, installation, sent: Default::default() }
    }

    async fn apply(&self, texts: &[&str], options: ApplyOptions) -> Result<Changes> {
        let sources: Vec<(Option<std::path::PathBuf>, String)> = texts.iter().map(|text| (None, (*text).to_owned())).collect();
        let (definitions, problems) = definitions::parse::parse_definitions(&sources);
        problems.into_result().unwrap();
        let checked = check_definitions(definitions, &self.installation.functions, now()).await;
        checked.diagnostics.clone().into_result()?;
        let wanted = Wanted::Definitions { definitions: &checked.definitions, staging: &checked.staging };
        self.installation.apply_with(wanted, options, &|_| {}).await
    }

    async fn define(&self, texts: &[&str]) -> Changes {
        let changes = self.apply(texts, ApplyOptions::default()).await.unwrap();
        changes.misfits().unwrap();
        changes
    }

    /// Appends a record of each device, with these members.
    async fn append(&self, members: &[(&str, Value)]) {
        for (device, more) in members {
            let number = self.sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut record = json!({"id": format!("e{number}"), "ts": "2026-03-01T10:00:00Z", "device": device});
            record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let value = Some(Bytes::from(record.to_string()));
            let record = NewRecord { key: Some(Bytes::from(device.to_string())), value, headers: vec![], partition_by: None };
            self.installation.log.create_topic("payments", 2).await.unwrap();
            self.installation.log.append("payments", vec![record]).await.unwrap();
        }
    }

    /// Lets a worker read the log to its end.
    async fn work(&self) {
        let stop = CancellationToken::new();
        let speed = self.installation.speed("worker", None);
        let token = stop.clone();
        let task = tokio::spawn(async move { speed.run(token).await });
        self.committed().await;
        stop.cancel();
        task.await.unwrap().unwrap();
    }

    async fn committed(&self) {
        for _ in 0..4_800 {
            tokio::time::sleep(Duration::from_millis(25)).await;
            let ends: i64 = self.installation.log.bounds("payments").await.unwrap().iter().map(|bounds| bounds.end.0).sum();
            let state = self.installation.catalog.state().await.unwrap();
            if state.vector().iter().map(|(_, offset)| offset.0).sum::<i64>() == ends {
                return;
            }
        }
        panic!("the log was not read to its end");
    }

    /// The rows of a query, as a node that begins now answers them.
    async fn query(&self, sql: &str) -> Vec<String> {
        let node = self.installation.node_of(WantedViews::All).await.unwrap();
        let rows = node.query(sql, Vec::new()).await.unwrap().collect().await.unwrap();
        let mut lines = Vec::new();
        for batch in &rows {
            let options = arrow::util::display::FormatOptions::default().with_null("NULL");
            let columns: Vec<_> = batch
                .columns()
                .iter()
                .map(|column| arrow::util::display::ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
                .collect();
            for row in 0..batch.num_rows() {
                lines.push(columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" "));
            }
        }
        lines.sort();
        lines
    }

    /// Compares the views with plain SQL over the archive, and the archive with the log.
    async fn verified(&self, views: &[&str]) {
        let Installation { catalog, storage, functions, log, .. } = self.installation.clone();
        let verifier = Verifier { catalog, storage, functions, memory_limit: 64 << 20, temp_dir: None };
        let node = self.installation.node_of(WantedViews::All).await.unwrap();
        for view in views {
            let report = verify_view(&verifier, view, &NodeServed(node.clone()), now()).await.unwrap();
            assert!(report.is_equal(), "{view}: {report:?}");
        }
        let reports = verify_log(&verifier, &*log, &[], now()).await.unwrap();
        assert!(!reports.is_empty(), "the log has no partition");
        for report in reports {
            assert!(report.is_equal(), "{report:?}");
        }
    }

    async fn versions(&self, name: &str) -> Vec<(u32, DefinitionStatus)> {
        let state = self.installation.catalog.state().await.unwrap();
        state.definitions.iter().filter(|record| &*record.name == name).map(|record| (record.version, record.status)).collect()
    }

    async fn files(&self, kind: FileKind) -> usize {
        self.installation.catalog.state().await.unwrap().readable(kind).count()
    }
}

async fn open(folder: &Path) -> Installation {
    let text = "[log]\npartitions = 2\n[speed]\ncheckpoint_interval = '50ms'\n";
    let settings = Settings::parse(text, &folder.join("basestream.toml"), &Variables::default()).unwrap();
    Installation::open(&settings, Functions::standard()).await.unwrap()
}

fn archive_only(options: ApplyOptions) -> (Wanted<'static>, ApplyOptions) {
    (Wanted::Archive { stream: "pay" }, options)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_added_column_is_filled_and_views_that_do_not_read_it_stay() {
    let bench = Bench::new().await;
    bench.define(&[STREAM, COUNTS, SUMS]).await;
    bench.append(&[("a", json!({"amount": 1, "country": "de"})), ("b", json!({"amount": 2})), ("a", json!({"country": "fr"}))]).await;
    bench.work().await;
    bench.append(&[("c", json!({"amount": 4, "country": "de"}))]).await;
    bench.work().await;
    bench.installation.run_view("counts", &|_| {}).await.unwrap();
    let files = bench.files(FileKind::Archive).await;
    assert!(files >= 2);

    let wider = STREAM.replace("amount BIGINT", "amount BIGINT, country TEXT");
    let changes = bench.define(&[&wider, COUNTS, SUMS, BY_COUNTRY]).await;
    let [survey] = &*changes.backfills else { panic!("{changes:?}") };
    assert_eq!((survey.files, survey.events, survey.without_raw), (files, 4, 0));
    assert_eq!(survey.columns, [ChangedColumn { column: "country".into(), change: "added".into() }]);
    assert_eq!(bench.versions("pay").await, [(1, Redecoded), (2, Active)]);
    assert_eq!((bench.versions("counts").await, bench.versions("sums").await), (vec![(1, Active)], vec![(1, Active)]));
    assert_eq!((bench.files(FileKind::Archive).await, bench.files(FileKind::Superseded).await), (files, files));

    assert_eq!(bench.query("SELECT device, country FROM pay").await, ["a de", "a fr", "b NULL", "c de"]);
    assert_eq!(bench.query("SELECT * FROM by_country").await, ["NULL 1", "de 2", "fr 1"]);
    assert_eq!(bench.query("SELECT * FROM counts").await, ["a 2", "b 1", "c 1"]);
    // Late additions are decoded by the new version, and counted by the old states and the new ones.
    bench.append(&[("b", json!({"amount": 8, "country": "fr"}))]).await;
    bench.work().await;
    assert_eq!(bench.query("SELECT * FROM by_country").await, ["NULL 1", "de 2", "fr 2"]);
    assert_eq!(bench.query("SELECT * FROM sums").await, ["a 1", "b 10", "c 4"]);
    bench.verified(&["counts", "sums", "by_country"]).await;
    // A run of a view that stayed adds to the snapshot from before the switch.
    for view in ["counts", "by_country"] {
        bench.installation.run_view(view, &|_| {}).await.unwrap();
    }
    bench.verified(&["counts", "by_country"]).await;
    assert!(bench.define(&[&wider, COUNTS, SUMS, BY_COUNTRY]).await.is_empty(true), "a repeat changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_type_and_path_are_read_for_all_events_and_give_their_readers_a_new_version() {
    let bench = Bench::new().await;
    bench.define(&[STREAM, COUNTS, SUMS]).await;
    bench.append(&[("a", json!({"amount": 1, "total": "1.50"})), ("b", json!({"amount": 2, "total": 2}))]).await;
    bench.work().await;
    bench.installation.run_view("sums", &|_| {}).await.unwrap();
    bench.append(&[("a", json!({"amount": 5, "total": 0.25}))]).await;
    bench.work().await;
    assert_eq!(bench.query("SELECT * FROM sums").await, ["a 6", "b 2"]);

    let corrected = STREAM.replace("amount BIGINT", "amount DECIMAL(18,2) OPTIONS (path = '$.total')");
    let changes = bench.define(&[&corrected, COUNTS, SUMS]).await;
    let what = serde_json::to_value(&changes).unwrap();
    let expected = json!([{"column": "amount", "change": "type BIGINT -> DECIMAL(18,2), path $.amount -> $.total"}]);
    assert_eq!(what["backfills"][0]["columns"], expected);
    let sums = what["changes"].as_array().unwrap().iter().find(|change| change["name"] == "sums").unwrap();
    let reported = json!({"kind": "view", "name": "sums", "change": "rebuilt", "from": 1, "version": 2, "built_beside": false, "columns": ["pay.amount"]});
    assert_eq!(sums, &reported);
    assert_eq!(bench.versions("counts").await, [(1, Active)]);
    assert_eq!(bench.versions("sums").await, [(1, Retired), (2, Active)]);
    assert_eq!(bench.query("SELECT * FROM sums").await, ["a 1.75", "b 2.00"]);
    let runs = bench.installation.catalog.state().await.unwrap().runs.clone();
    assert!(runs.iter().any(|run| &*run.view == "sums" && run.version == 2 && run.status == RunStatus::Requested));

    bench.append(&[("b", json!({"amount": 9, "total": "10.00"})), ("c", json!({"total": "0.01"}))]).await;
    bench.work().await;
    assert_eq!(bench.query("SELECT * FROM sums").await, ["a 1.75", "b 12.00", "c 0.01"]);
    bench.verified(&["counts", "sums"]).await;
    bench.installation.run_view("sums", &|_| {}).await.unwrap();
    bench.verified(&["counts", "sums"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_do_not_fit_are_listed_and_nothing_changes_unless_they_become_null() {
    let bench = Bench::new().await;
    let text = STREAM.replace("amount BIGINT", "amount TEXT");
    let sums = SUMS.replace("sum(amount)", "max(amount)");
    bench.define(&[&text, &sums]).await;
    // Files that fit come first: more than are decoded at once.
    for number in 0..=FILES_AT_ONCE {
        bench.append(&[("a", json!({"amount": number.to_string()}))]).await;
        bench.work().await;
    }
    bench.append(&[("b", json!({"amount": "many"})), ("c", json!({"amount": "3"}))]).await;
    bench.work().await;
    let before = bench.installation.catalog.state().await.unwrap();
    let stored = stored_files(bench.folder.path());

    // Two columns that the record does not fit.
    let changed = STREAM.replace("amount BIGINT", "amount BIGINT, cents BIGINT OPTIONS (path = '$.amount')");
    let changes = bench.apply(&[&changed, &sums], ApplyOptions::default()).await.unwrap();
    let misfits = changes.backfills[0].misfits.clone().unwrap();
    assert_eq!((misfits.count, misfits.first.len()), (1, 1));
    assert!(misfits.first[0].reason.contains("found \"many\", expected BIGINT"), "{misfits:?}");
    assert!(changes.misfits().unwrap_err().message().contains("1 archived record of \"pay\" does not fit version 2"));
    let after = bench.installation.catalog.state().await.unwrap();
    assert_eq!((&after.definitions, &after.files), (&before.definitions, &before.files));
    assert_eq!(stored_files(bench.folder.path()), stored, "no file is left behind");

    let options = ApplyOptions { null_misfits: true, ..ApplyOptions::default() };
    bench.apply(&[&changed, &sums], options).await.unwrap().misfits().unwrap();
    assert_eq!(bench.query("SELECT device, amount FROM pay").await, ["a 0", "a 1", "a 2", "a 3", "a 4", "b NULL", "c 3"]);
    bench.verified(&["sums"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_left_empty_is_filled_later_and_its_readers_are_rebuilt() {
    let bench = Bench::new().await;
    bench.define(&[STREAM, COUNTS]).await;
    bench.append(&[("a", json!({"country": "de"})), ("b", json!({"country": "de"}))]).await;
    bench.work().await;
    let wider = STREAM.replace("amount BIGINT", "amount BIGINT, country TEXT");
    let later = ApplyOptions { no_backfill: true, ..ApplyOptions::default() };
    bench.apply(&[&wider, COUNTS, BY_COUNTRY], later).await.unwrap();
    bench.append(&[("c", json!({"country": "de"}))]).await;
    bench.work().await;
    bench.installation.run_view("by_country", &|_| {}).await.unwrap();
    assert_eq!(bench.query("SELECT * FROM by_country").await, ["NULL 2", "de 1"]);
    let typed = wider.replace("amount BIGINT", "amount TEXT");
    assert!(bench.apply(&[&typed, COUNTS, BY_COUNTRY], later).await.unwrap_err().message().contains("type BIGINT -> TEXT"));

    let (wanted, dry) = archive_only(ApplyOptions { dry_run: true, ..ApplyOptions::default() });
    let listed = bench.installation.apply_with(wanted, dry, &|_| {}).await.unwrap();
    assert_eq!((listed.backfills[0].events, listed.backfills[0].misfits.clone()), (2, None));
    assert_eq!(bench.query("SELECT * FROM by_country").await, ["NULL 2", "de 1"]);
    let (wanted, options) = archive_only(ApplyOptions::default());
    bench.installation.apply_with(wanted, options, &|_| {}).await.unwrap();
    assert_eq!(bench.versions("pay").await, [(1, Redecoded), (2, Active)]);
    assert_eq!(bench.versions("by_country").await, [(1, Retired), (2, Active)]);
    assert_eq!(bench.versions("counts").await, [(1, Active)]);
    assert_eq!(bench.query("SELECT * FROM by_country").await, ["de 3"]);
    bench.verified(&["counts", "by_country"]).await;
    let again = bench.installation.apply_with(wanted, options, &|_| {}).await.unwrap();
    assert!(again.is_empty(true) && again.backfills.is_empty(), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_being_built_that_reads_the_column_is_built_again_beside_the_served_one() {
    let bench = Bench::new().await;
    bench.define(&[STREAM, COUNTS]).await;
    bench.append(&[("a", json!({"amount": 3, "total": 4}))]).await;
    bench.work().await;
    let second = COUNTS.replace("count(*)", "sum(amount)");
    bench.define(&[STREAM, &second]).await;
    bench.define(&[&STREAM.replace("amount BIGINT", "amount BIGINT OPTIONS (path = '$.total')"), &second]).await;
    assert_eq!(bench.versions("counts").await, [(1, Active), (2, Retired), (3, Building)]);
    assert_eq!(bench.query("SELECT * FROM counts").await, ["a 1"]);
    bench.installation.run_view("counts", &|_| {}).await.unwrap();
    assert_eq!(bench.query("SELECT * FROM counts").await, ["a 4"]);
    bench.verified(&["counts"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_raw_records_are_counted_and_stay_null() {
    let bench = Bench::new().await;
    let bare = STREAM.replace("key = 'device')", "key = 'device', keep_raw = false)");
    bench.define(&[&bare]).await;
    bench.append(&[("a", json!({"country": "de"})), ("b", json!({"amount": 2}))]).await;
    bench.work().await;
    bench.define(&[STREAM]).await;
    bench.append(&[("c", json!({"country": "fr"}))]).await;
    bench.work().await;
    let wider = STREAM.replace("amount BIGINT", "amount BIGINT, country TEXT");
    let changes = bench.define(&[&wider]).await;
    assert_eq!((changes.backfills[0].events, changes.backfills[0].without_raw), (1, 2));
    assert_eq!(bench.query("SELECT device, country FROM pay").await, ["a NULL", "b NULL", "c fr"]);

    let typed = wider.replace("amount BIGINT", "amount TEXT");
    let refused = bench.apply(&[&typed], ApplyOptions::default()).await.unwrap();
    assert!(refused.misfits().unwrap_err().message().contains("keep_raw = false"), "{refused:?}");
    let strict = wider.replace("country TEXT", "country TEXT NOT NULL");
    assert!(bench.apply(&[&strict], ApplyOptions::default()).await.unwrap().misfits().is_err(), "it is NULL in some");
}

/// A worker that decodes by the version before commits until the switch, and not after it.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_in_while_a_worker_runs_is_decoded_by_one_version() {
    let bench = Bench::new().await;
    bench.define(&[STREAM, COUNTS, SUMS]).await;
    let stop = CancellationToken::new();
    let (speed, token) = (bench.installation.speed("worker", None), stop.clone());
    let worker = tokio::spawn(async move { speed.run(token).await });
    let mut expected = 0;
    let corrected = STREAM.replace("amount BIGINT", "amount BIGINT OPTIONS (path = '$.total')");
    for round in 0..30i64 {
        bench.append(&[("a", json!({"amount": 1, "total": 100 + round})), ("b", json!({"amount": 1, "total": 0}))]).await;
        expected += 100 + round;
        if round == 12 {
            bench.define(&[&corrected, COUNTS, SUMS]).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bench.committed().await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    assert_eq!(bench.query("SELECT * FROM sums").await, [format!("a {expected}"), "b 0".to_owned()]);
    assert_eq!(bench.query("SELECT * FROM counts").await, ["a 30", "b 30"]);
    bench.verified(&["counts", "sums"]).await;
    bench.installation.run_view("sums", &|_| {}).await.unwrap();
    bench.verified(&["sums"]).await;
}

/// The topic was misspelt, and the key left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_reads_a_stream_that_begins_anew_from_the_beginning_of_its_topic() {
    let bench = Bench::new().await;
    let wrong = STREAM.replace("topic = 'payments'", "topic = 'paymnets'").replace(", key = 'device'", "");
    bench.append(&[("a", json!({})), ("a", json!({})), ("b", json!({}))]).await;
    bench.define(&[&wrong, COUNTS]).await;
    let stop = CancellationToken::new();
    let (speed, token) = (bench.installation.speed("worker", None), stop.clone());
    let worker = tokio::spawn(async move { speed.run(token).await });
    let changes = bench.define(&[STREAM, COUNTS]).await;
    assert!(changes.backfills.is_empty(), "{changes:?}");
    bench.committed().await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    assert_eq!(bench.query("SELECT device, n FROM counts ORDER BY device").await, ["a 2", "b 1"]);
    bench.verified(&["counts"]).await;
    let refused = bench.apply(&[&wrong, COUNTS], ApplyOptions::default()).await.unwrap_err();
    assert!(refused.message().contains("topic would change from payments to paymnets"), "{refused}");
}

/// It is not in the topic that is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_stream_begins_anew_in_another_topic_meanwhile_is_not_said_to_be_appended() {
    let bench = Bench::new().await;
    let wrong = STREAM.replace("topic = 'payments'", "topic = 'paymnets'");
    bench.define(&[&wrong]).await;
    let path = bench.folder.path().join("pay.jsonl");
    std::fs::write(&path, "{\"id\":\"a\",\"ts\":\"2026-03-01T10:00:00Z\"}\n").unwrap();
    let (input, options) = (Input::File(path), IngestOptions::default());
    let runtime = tokio::runtime::Handle::current();
    let begin_anew = |_| {
        tokio::task::block_in_place(|| runtime.block_on(bench.define(&[STREAM])));
    };
    let error = bench.installation.ingest("pay", &input, &options, begin_anew).await.unwrap_err();
    assert!(error.message().contains("was defined anew while the file was appended"), "{error}");
    let again = IngestOptions { again: true, ..options };
    assert_eq!(bench.installation.ingest("pay", &input, &again, |_| {}).await.unwrap().records, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_decoded_again_and_is_lost_is_repaired_as_it_was() {
    let bench = Bench::new().await;
    bench.define(&[STREAM, SUMS]).await;
    // By the new version the second record would be an event; it was decided, and stays a dead letter.
    bench.append(&[("a", json!({"amount": 1, "total": "1.5"})), ("a", json!({"amount": "x", "total": "2.5"}))]).await;
    bench.work().await;
    bench.define(&[&STREAM.replace("amount BIGINT", "amount DECIMAL(9,1) OPTIONS (path = '$.total')"), SUMS]).await;
    assert_eq!(bench.query("SELECT * FROM sums").await, ["a 1.5"]);
    let state = bench.installation.catalog.state().await.unwrap();
    let file = state.readable(FileKind::Archive).next().unwrap().clone();
    bench.installation.storage.delete(&file.path).await.unwrap();
    let report = repair(&bench.installation, &RepairOptions::default(), &|_| {}).await.unwrap();
    assert!(report.is_whole() && report.steps.len() == 1, "{report:?}");
    let state = bench.installation.catalog.state().await.unwrap();
    let repaired = state.readable(FileKind::Archive).next().unwrap();
    let facts = archive_facts(&bench.installation.storage, repaired).await.unwrap();
    assert_eq!(facts.versions, ArchiveVersions { decoded_by: 2, decided_by: 1 });
    assert_eq!(bench.query("SELECT * FROM sums").await, ["a 1.5"]);
    bench.verified(&["sums"]).await;
}

/// The names of all stored objects.
fn stored_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "parquet" || extension == "states") => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}
