//! Damage of each kind of file, in each way, for each reader. Every read is compared with its checksum. Damaged files
//! are named or rebuilt, never merged, and `repair` restores them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use basestream_tests::{Harness, now};
use batch::RunTime;
use catalog::CatalogState;
use catalog::DefinitionKind::{Stream, View};
use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use jobs::Installation;
use jobs::repair::{RepairOptions, RepairReport, repair};
use jobs::verify::{Verifier, verify_log, verify_view};
use storage::check_file;
use tokio_util::sync::CancellationToken;
use types::files::{FileKind, FileRecord};
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10d', key = 'k')";
const COUNTS: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n, sum(x) AS x, max(ts) AS newest FROM s GROUP BY k";
const EARLIER: &str = "2026-03-01T10:00:30Z";

fn event(id: usize, k: &str) -> (Option<String>, String) {
    let ts = format!("2026-03-01T10:{:02}:{:02}Z", id / 60, id % 60);
    (Some(k.into()), format!(r#"{{"id":"e{id}","ts":"{ts}","k":"{k}","x":{id}}}"#))
}

/// An installation with four checkpoints with duplicates and dead letters: the first two in a snapshot, and compacted.
async fn prepared() -> tempfile::TempDir {
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM), (View, "counts", COUNTS)]).await.unwrap();
    for round in 0..4 {
        let mut events: Vec<_> = (round * 40..round * 40 + 40).map(|id| event(id, ["a", "b", "c"][id % 3])).collect();
        events.push(event(round, ["a", "b", "c"][round % 3]));
        events.push((Some("b".into()), "{broken".into()));
        harness.append("s", 2, events).await.unwrap();
        harness.commit_at_once("one", &[("s", "s")]).await.unwrap();
        if round == 1 {
            harness.batch("counts", RunTime::EventClock).await.unwrap();
            harness.collect().await.unwrap();
            assert_eq!(harness.compact().await.unwrap().checkpoints, 2);
        }
    }
    let state = harness.catalog.state().await.unwrap();
    assert_eq!(state.checkpoints.len(), 3, "one checkpoint a round, and two of them are one");
    harness.catalog.close().await;
    harness.folder
}

/// An installation in a copy of a folder.
struct Copy {
    folder: tempfile::TempDir,
    installation: Installation,
}

impl Copy {
    async fn make(original: &Path) -> Copy {
        let folder = tempfile::tempdir().unwrap();
        for database in ["catalog.db", "log/log.db"] {
            copy_database(&original.join(database), &folder.path().join(database)).await;
        }
        copy_all(&original.join("storage"), &folder.path().join("storage"));
        let url = |name: &str| format!("\"file://{}\"", folder.path().join(name).display());
        let text = format!(
            "[storage]\nurl = {}\n[catalog]\nurl = \"sqlite://{}\"\n[log]\nurl = {}\n[serving]\nclock = \"event\"\n",
            url("storage"),
            folder.path().join("catalog.db").display(),
            url("log")
        );
        let settings = Settings::parse(&text, &folder.path().join("basestream.toml"), &Variables::default()).unwrap();
        let installation = Installation::open(&settings, Functions::standard()).await.unwrap();
        Copy { folder, installation }
    }

    async fn state(&self) -> Arc<CatalogState> {
        self.installation.catalog.state().await.unwrap()
    }

    fn path(&self, file: &FileRecord) -> PathBuf {
        self.folder.path().join("storage").join(&file.path)
    }

    /// Damages the file, and checks that the damage is detected.
    async fn damage(&self, file: &FileRecord, way: Way) {
        way.apply(&self.path(file));
        let error = check_file(&self.installation.storage, file, |_| {}).await.expect_err("the damage is there");
        named(&error, file);
    }

    async fn repair(&self, accept_gap: bool) -> RepairReport {
        let options = RepairOptions { accept_gap, ..RepairOptions::default() };
        repair(&self.installation, &options, &|_| {}).await.unwrap()
    }

    /// Runs one round of the scheduler.
    async fn schedule(&self) {
        self.installation.scheduler().round(&mut None, &CancellationToken::new()).await.unwrap();
    }

    async fn answers(&self) -> Answers {
        let node = match self.installation.node(None).await {
            Ok(node) => node,
            Err(error) => panic!("a node opens whatever is damaged: {error}"),
        };
        let mut degraded = false;
        let mut rows = BTreeMap::new();
        for (name, sql) in QUERIES {
            let answer = match node.query(&sql.replace("EARLIER", EARLIER), Vec::new()).await {
                Ok(response) => {
                    degraded |= response.meta.degraded;
                    response.collect().await.map(|batches| lines(&batches))
                }
                Err(error) => Err(error),
            };
            rows.insert(name, answer);
        }
        Answers { rows, degraded }
    }

    fn verifier(&self) -> Verifier {
        Verifier {
            catalog: self.installation.catalog.clone(),
            storage: self.installation.storage.clone(),
            functions: Functions::standard(),
            memory_limit: 64 << 20,
            temp_dir: None,
        }
    }

    /// Served equals plain SQL, the archive accounts for the log, the ledger balances, no file is damaged.
    async fn assert_whole(&self, about: &str) {
        let state = self.state().await;
        for file in state.files.iter().filter(|file| !file.marked_for_deletion) {
            check_file(&self.installation.storage, file, |_| {}).await.unwrap_or_else(|error| panic!("{about}: {error}"));
        }
        let node = self.installation.node(None).await.unwrap();
        let report = verify_view(&self.verifier(), "counts", &jobs::served::NodeServed(node), now()).await.unwrap();
        assert!(report.is_equal(), "{about}: {report:?}");
        let lines = jobs::ledger::partitions(&self.installation.storage, &state, &Vector::new()).await.unwrap();
        let reports = verify_log(&self.verifier(), &*self.installation.log, &[], now()).await.unwrap();
        assert!(!lines.is_empty() && !reports.is_empty(), "{about}: nothing is committed");
        for line in lines {
            assert_eq!(line.mismatch, None, "{about}: {line:?}");
        }
        for report in reports {
            assert!(report.is_equal(), "{about}: {report:?}");
        }
    }
}

struct Answers {
    rows: BTreeMap<&'static str, Result<Vec<String>>>,
    degraded: bool,
}

/// Queries that read in every way: from layers, from the archive, and the events themselves.
const QUERIES: [(&str, &str); 4] = [
    ("scan", "SELECT * FROM counts"),
    ("lookup", "SELECT * FROM counts WHERE k = 'b'"),
    ("archive", "SET as_of = 'EARLIER'; SELECT * FROM counts"),
    ("events", "SELECT *, __event_time, __source, __partition, __offset, __timestamp, __key, __value, __headers FROM s"),
];

#[derive(Debug, Clone, Copy)]
enum Way {
    Missing,
    Empty,
    Half,
    LastByteGone,
    Longer,
    /// A wrong byte, at this many thousandths of the file's length.
    Flipped(usize),
}

impl Way {
    fn all() -> Vec<Way> {
        let flips = std::env::var("BASESTREAM_DAMAGE_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(5usize);
        let flipped = (0..flips).map(|i| Way::Flipped(i * 999 / flips.saturating_sub(1).max(1)));
        [Way::Missing, Way::Empty, Way::Half, Way::LastByteGone, Way::Longer].into_iter().chain(flipped).collect()
    }

    fn apply(self, path: &Path) {
        let mut content = std::fs::read(path).unwrap();
        match self {
            Way::Missing => return std::fs::remove_file(path).unwrap(),
            Way::Empty => content.clear(),
            Way::Half => content.truncate(content.len() / 2),
            Way::LastByteGone => content.truncate(content.len() - 1),
            Way::Longer => content.push(b'x'),
            Way::Flipped(thousandths) => {
                let at = content.len() * thousandths / 1000;
                content[at] ^= 0x20;
            }
        }
        std::fs::write(path, content).unwrap();
    }
}

/// Copies a database's content while others may have it open: its side files may appear and vanish during a plain copy.
async fn copy_database(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{}", from.display())).await.unwrap();
    sqlx::query("VACUUM INTO ?1").bind(to.display().to_string()).execute(&pool).await.unwrap();
    pool.close().await;
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target)
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn named(error: &Error, file: &FileRecord) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(&file.path), "the error names {}: {error}", file.path);
}

fn lines(batches: &[arrow::array::RecordBatch]) -> Vec<String> {
    let mut lines: Vec<String> = batches.iter().flat_map(crate::lines_of).collect();
    lines.sort();
    lines
}

/// The first and the last file of each kind.
fn victims(state: &CatalogState) -> Vec<FileRecord> {
    let of = |kind: FileKind| -> Vec<FileRecord> {
        state.files.iter().filter(|file| file.kind == kind && !file.marked_for_deletion).cloned().collect()
    };
    let mut victims = Vec::new();
    for kind in [FileKind::Archive, FileKind::DeadLetters, FileKind::States, FileKind::Snapshot, FileKind::Manifest] {
        let files = of(kind);
        assert!(!files.is_empty(), "the installation has files of the kind {kind:?}");
        victims.extend(files.first().cloned());
        victims.extend(files.last().filter(|_| files.len() > 1).cloned());
    }
    victims
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_damaged_in_every_way_is_named_or_rebuilt_by_every_reader_and_repaired() {
    crate::show_logs();
    let original = prepared().await;
    let whole = Copy::make(original.path()).await;
    whole.assert_whole("before").await;
    let expected: BTreeMap<&str, Vec<String>> = whole.answers().await.rows.into_iter().map(|(name, rows)| (name, rows.unwrap())).collect();
    let (mut rebuilt, mut refused) = (0, 0);
    for file in victims(&*whole.state().await) {
        for way in Way::all() {
            let about = format!("{way:?} of {}", file.path);
            let copy = Copy::make(original.path()).await;
            copy.damage(&file, way).await;

            let answers = copy.answers().await;
            for (name, answer) in &answers.rows {
                match answer {
                    Ok(rows) => assert_eq!(rows, &expected[name], "{about}: {name}"),
                    Err(error) => {
                        assert!(file.kind == FileKind::Archive, "{about}: {name} is answered: {error}");
                        named(error, &file);
                        refused += 1;
                    }
                }
            }
            // A bucket with an extra byte still has all of its own bytes.
            let is_read_whole = !(file.kind == FileKind::Snapshot && matches!(way, Way::Longer));
            let degraded = matches!(file.kind, FileKind::Snapshot | FileKind::Manifest) && is_read_whole;
            assert_eq!(answers.degraded, degraded, "{about}: degraded");
            the_other_readers(&copy, &file, &about).await;

            // The scheduler alone restores states and snapshots; a repair restores the archive.
            copy.schedule().await;
            let state = copy.state().await;
            let is_named = state.files.iter().any(|named| named.path == file.path && !named.marked_for_deletion);
            if file.kind == FileKind::States && state.damages.iter().any(|damage| damage.path == file.path) {
                panic!("{about}: the states object is still damaged");
            }
            rebuilt += usize::from(!is_named);
            let report = copy.repair(false).await;
            assert!(report.is_whole(), "{about}: {report:?}");
            copy.schedule().await;
            let left: Vec<_> = copy.repair(false).await.steps.into_iter().filter(|outcome| !outcome.step.action.is_harmless()).collect();
            assert!(left.is_empty(), "{about}: {left:?}");
            let after = copy.answers().await;
            assert!(!after.degraded, "{about}");
            for (name, answer) in after.rows {
                assert_eq!(answer.unwrap(), expected[name], "{about}: {name} after the repair");
            }
            if matches!(way, Way::Missing | Way::Flipped(0)) {
                let state = copy.state().await;
                let superseded = |file: &FileRecord| file.run.is_some_and(|run| state.snapshots.iter().all(|snapshot| snapshot.run != run));
                if !superseded(&file) {
                    copy.assert_whole(&about).await;
                }
            }
        }
    }
    assert!(rebuilt > 0 && refused > 0, "{rebuilt} rebuilt by the scheduler, {refused} answers refused");
}

/// Checks the other readers: batch run, ledger, verification of the log, and a new worker that rereads ids.
async fn the_other_readers(copy: &Copy, file: &FileRecord, about: &str) {
    let is_ours = |error: &Error| {
        assert!(matches!(file.kind, FileKind::Archive | FileKind::DeadLetters), "{about}: {error}");
        named(error, file);
    };
    let state = copy.state().await;
    match jobs::ledger::partitions(&copy.installation.storage, &state, &Vector::new()).await {
        Ok(lines) => assert!(lines.iter().all(|line| line.mismatch.is_none()), "{about}: {lines:?}"),
        Err(error) => is_ours(&error),
    }
    match verify_log(&copy.verifier(), &*copy.installation.log, &[], now()).await {
        Ok(reports) => assert!(reports.iter().all(|report| report.is_equal()), "{about}: {reports:?}"),
        Err(error) => is_ours(&error),
    }
    if file.kind == FileKind::Archive {
        if let Err(error) = copy.installation.run_view("counts", &|_| {}).await {
            is_ours(&error);
        }
        let stop = CancellationToken::new();
        let speed = copy.installation.speed("reader", None);
        let worker = tokio::spawn({
            let stop = stop.clone();
            async move { speed.run(stop).await }
        });
        tokio::time::sleep(Duration::from_millis(150)).await;
        stop.cancel();
        if let Err(error) = worker.await.unwrap() {
            is_ours(&error);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuilt_states_are_read_in_the_damaged_ones_place() {
    crate::show_logs();
    let original = prepared().await;
    let copy = Copy::make(original.path()).await;
    let state = copy.state().await;
    let newest = state.checkpoints.last().unwrap().id;
    let of = |kind: FileKind| state.files.iter().find(|file| file.kind == kind && file.checkpoint == Some(newest)).unwrap().clone();
    copy.damage(&of(FileKind::States), Way::Half).await;
    let before = copy.answers().await.rows.remove("scan").unwrap().unwrap();
    assert_eq!(copy.state().await.damages.len(), 1, "the node reported it to the catalog");
    copy.schedule().await;
    let state = copy.state().await;
    assert!(state.damages.is_empty());
    let states: Vec<&FileRecord> = state
        .files
        .iter()
        .filter(|file| file.kind == FileKind::States && file.checkpoint == Some(newest) && !file.marked_for_deletion)
        .collect();
    assert_eq!(states.len(), 1, "one is named");
    // Without the archive there is no other source to answer from.
    std::fs::remove_file(copy.path(&of(FileKind::Archive))).unwrap();
    assert_eq!(copy.answers().await.rows.remove("scan").unwrap().unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_goes_on_from_the_former_snapshot_when_the_new_one_is_damaged() {
    crate::show_logs();
    let original = prepared().await;
    let copy = Copy::make(original.path()).await;
    let node = copy.installation.node(None).await.unwrap();
    let former = node.loaded().unwrap().views.values().next().unwrap().snapshot.as_ref().unwrap().manifest.run;
    let before = crate::table(&node, "counts");
    let run = copy.installation.run_view("counts", &|_| {}).await.unwrap();
    let state = copy.state().await;
    let bucket = state.files.iter().find(|file| file.kind == FileKind::Snapshot && file.path.contains(&run.id.to_string())).unwrap();
    copy.damage(bucket, Way::Flipped(300)).await;
    node.refresh().await.unwrap();
    let loaded = node.loaded().unwrap();
    let view = loaded.views.values().next().unwrap();
    assert_eq!(view.snapshot.as_ref().unwrap().manifest.run, former);
    assert_eq!(crate::table(&node, "counts"), before);
    let response = node.query("SELECT * FROM counts", Vec::new()).await.unwrap();
    assert!(response.meta.degraded);
    copy.schedule().await;
    node.refresh().await.unwrap();
    assert!(!node.query("SELECT * FROM counts", Vec::new()).await.unwrap().meta.degraded, "the scheduler ran it by itself");
    assert_eq!(crate::table(&node, "counts"), before);
}

/// Deletes the records before `begin` from the embedded log, as retention would.
async fn expire(copy: &Copy, partition: i32, begin: i64) {
    let url = format!("sqlite://{}", copy.folder.path().join("log/log.db").display());
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let sql = "UPDATE topic_partition SET begin_offset = ?1 WHERE number = ?2 AND topic_id = (SELECT id FROM topic WHERE name = 's')";
    assert_eq!(sqlx::query(sql).bind(begin).bind(partition).execute(&pool).await.unwrap().rows_affected(), 1);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_log_no_longer_has_is_lost_only_when_a_person_accepts_it_and_then_said_by_all() {
    crate::show_logs();
    let original = prepared().await;
    let copy = Copy::make(original.path()).await;
    let state = copy.state().await;
    let second = &state.checkpoints.iter().nth(1).unwrap();
    let range = second.ranges[0].clone();
    expire(&copy, range.partition.partition, range.start.0 + 1).await;
    for file in state.files.iter().filter(|file| file.checkpoint == Some(second.id) && file.kind != FileKind::States) {
        copy.damage(file, Way::Missing).await;
    }

    let refused = copy.repair(false).await;
    assert!(!refused.is_whole());
    let failed = refused.steps[0].failed.clone().unwrap();
    let range_text = format!("{}..{}", range.start, range.end);
    assert!(failed.contains(&range.partition.to_string()) && failed.contains(&range_text) && failed.contains("--accept-gap"), "{failed}");
    assert!(copy.state().await.gaps.is_empty());

    let accepted = copy.repair(true).await;
    assert!(accepted.is_whole(), "{accepted:?}");
    let gaps = copy.state().await.gaps.clone();
    assert!(gaps.iter().any(|gap| gap.partition == range.partition && gap.start == range.start && gap.end == range.end), "{gaps:?}");
    copy.schedule().await;
    copy.assert_whole("after a gap").await;
    let state = copy.state().await;
    let lines = jobs::ledger::partitions(&copy.installation.storage, &state, &Vector::new()).await.unwrap();
    assert!(lines.iter().any(|line| line.lost > 0 && line.gap.is_some()));
    let node = copy.installation.node(None).await.unwrap();
    let report = verify_view(&copy.verifier(), "counts", &jobs::served::NodeServed(node), now()).await.unwrap();
    assert!(report.is_equal() && report.gaps.iter().any(|gap| gap.contains(&range_text)), "{report:?}");
}
