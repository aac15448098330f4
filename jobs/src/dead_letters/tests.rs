use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use event_log::{Consumer, Fetched, Log, NewRecord, PartitionBounds, Subscription, TopicPartition};
use tokio_util::sync::CancellationToken;
use types::files::FileKind;
use types::vector::PartitionId;
use types::{Error, ErrorKind, Result};

use super::*;
use crate::installation::Installation;

const STREAM: &str = "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, amount BIGINT NOT NULL)
    WITH (topic = 'payments', format = 'json', event_time = 'ts', key = 'id')";

/// An installation on embedded services, with one stream of two partitions.
struct Bench {
    folder: tempfile::TempDir,
    installation: Installation,
}

impl Bench {
    async fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let text = "[log]\npartitions = 2\n[speed]\ncheckpoint_interval = '100ms'\n";
        let settings = Settings::parse(text, &folder.path().join("basestream.toml"), &Variables::default()).unwrap();
        let installation = Installation::open(&settings, Functions::standard()).await.unwrap();
        let bench = Bench { folder, installation };
        bench.define(STREAM).await;
        bench
    }

    async fn define(&self, stream: &str) {
        let (definitions, problems) = definitions::parse::parse_definitions(&[(None, stream.to_owned())]);
        problems.into_result().unwrap();
        self.installation.apply(&definitions, false).await.unwrap();
    }

    async fn append(&self, values: &[&[u8]]) {
        let record = |value: &&[u8]| NewRecord {
            key: Some(Bytes::from_static(b"k")),
            value: Some(Bytes::copy_from_slice(value)),
            headers: vec![("h".into(), Bytes::from_static(b"\xff"))],
            partition_by: None,
        };
        self.installation.log.append("payments", values.iter().map(record).collect()).await.unwrap();
    }

    /// Lets a worker read the log to its end; returns how many records were archived and dead-lettered in total.
    async fn work(&self) -> (i64, i64) {
        let stop = CancellationToken::new();
        let speed = self.installation.speed("worker", None);
        let token = stop.clone();
        let task = tokio::spawn(async move { speed.run(token).await });
        let mut counts = (0, 0);
        for _ in 0..2_400 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let state = self.installation.catalog.state().await.unwrap();
            let ranges = || state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges);
            counts = (ranges().map(|r| r.archived).sum(), ranges().map(|r| r.dead_lettered).sum());
            let ends = self.installation.log.bounds("payments").await.unwrap();
            if ends.iter().all(|b| state.vector().get(&PartitionId::new("pay", b.partition)) == b.end) {
                break;
            }
        }
        stop.cancel();
        task.await.unwrap().unwrap();
        counts
    }

    async fn list(&self, selection: Selection) -> DeadLetterListing {
        list(&self.installation, Some("pay"), &selection, 10, |_| {}).await.unwrap()
    }

    async fn replay(&self, options: ReplayOptions) -> Result<ReplaySummary> {
        replay(&self.installation, "pay", &options, |_| {}).await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exports all dead letters, changes the text, and returns the corrected file.
    async fn corrected(&self, name: &str, correct: impl Fn(String) -> String) -> PathBuf {
        let path = self.path(name);
        export(&self.installation, "pay", &Selection::default(), path.to_str().unwrap(), |_| {}).await.unwrap();
        let text = correct(std::fs::read_to_string(&path).unwrap());
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn dead_files(&self) -> Vec<types::files::FileRecord> {
        let state = self.installation.catalog.state().await.unwrap();
        state.files.iter().filter(|file| file.kind == FileKind::DeadLetters).cloned().collect()
    }
}

const GOOD: &[u8] = br#"{"id":"a","ts":"2026-01-01T00:00:00Z","amount":1}"#;
const NO_AMOUNT: &[u8] = br#"{"id":"b","ts":"2026-01-01T00:00:00Z"}"#;
const TEXT_AMOUNT: &[u8] = br#"{"id":"c","ts":"2026-01-01T00:00:00Z","amount":"much"}"#;

fn selected_by_reason(reason: &str) -> Selection {
    Selection { reason: Some(reason.into()), ..Selection::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_view_leaves_out_is_listed_and_exported() {
    let bench = Bench::new().await;
    let definitions = [STREAM, "CREATE VIEW shares AS SELECT id, sum(100 / amount) AS share FROM pay GROUP BY id"];
    bench.define(&definitions.join(";\n")).await;
    let zero = br#"{"id":"z","ts":"2026-01-01T00:00:00Z","amount":0}"#;
    bench.append(&[GOOD, zero, GOOD, zero]).await;
    assert_eq!(bench.work().await, (4, 0));

    let listed = list_view(&bench.installation, "shares", 1).await.unwrap();
    assert_eq!((&*listed.view, listed.version, listed.count, listed.events.len()), ("shares", 1, 2, 1));
    assert_eq!((&*listed.events[0].stream, listed.events[0].offset), ("pay", Offset(1)));
    assert_eq!(listed.events[0].reason, "division by zero");

    let path = bench.path("failing.jsonl");
    let exported = export_view(&bench.installation, "shares", path.to_str().unwrap(), |_| {}).await.unwrap();
    assert_eq!(exported.exported, 2);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let offsets: Vec<i64> = lines.iter().map(|line| line["offset"].as_i64().unwrap()).collect();
    assert_eq!(offsets, [1, 3]);
    assert_eq!(lines[0]["event"], serde_json::json!({ "id": "z", "ts": "2026-01-01T00:00:00Z", "amount": 0 }));
    assert_eq!(lines[0]["reason"], "division by zero");

    let unknown = list_view(&bench.installation, "no_such", 1).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_newest_first_and_counted_by_reason() {
    let bench = Bench::new().await;
    bench.append(&[GOOD, NO_AMOUNT, TEXT_AMOUNT, b"\xff\xfe", NO_AMOUNT]).await;
    assert_eq!(bench.work().await, (1, 4));
    let listing = bench.list(Selection::default()).await;
    assert_eq!((listing.count, listing.dead_letters.len()), (4, 4));
    assert_eq!(listing.reasons[0].reason, "column amount ($.amount): found nothing, expected BIGINT NOT NULL");
    assert_eq!((listing.reasons[0].count, listing.reasons.len()), (2, 3));
    let newest = &listing.dead_letters[0];
    assert_eq!((newest.offset, newest.key.as_deref(), newest.value_bytes), (Offset(4), Some("k"), NO_AMOUNT.len()));
    let some = bench.list(selected_by_reason("INVALID utf-8")).await;
    assert_eq!((some.count, some.dead_letters[0].offset), (1, Offset(3)), "{some:?}");
    let unknown = list(&bench.installation, Some("nobody"), &Selection::default(), 10, |_| {}).await.unwrap_err();
    assert!(unknown.kind() == ErrorKind::NotFound && unknown.to_string().contains("pay"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn corrected_values_become_events_once_however_often_they_are_replayed() {
    let bench = Bench::new().await;
    bench.append(&[GOOD, NO_AMOUNT, TEXT_AMOUNT, b"\xff\xfe"]).await;
    bench.work().await;
    let file = bench.corrected("fixed.jsonl", |text| text.replace(r#"\"much\""#, "7").replace(r#"00Z\"}"#, r#"00Z\",\"amount\":2}"#)).await;
    let options = ReplayOptions { file: Some(file), ..ReplayOptions::default() };

    let dry = bench.replay(ReplayOptions { dry_run: true, ..options.clone() }).await.unwrap();
    assert_eq!((dry.replayed, bench.work().await), (2, (1, 3)), "a dry run sends nothing");
    let first = bench.replay(options.clone()).await.unwrap();
    assert_eq!((first.replayed, first.already, first.refused), (2, 0, 1), "{first:?}");
    assert_eq!((first.first_refused[0].line, first.first_refused[0].offset), (Some(3), Offset(3)));
    assert!(first.first_refused[0].reason.contains("invalid UTF-8"), "{first:?}");
    assert_eq!(bench.installation.catalog.replayed_dead_letters("pay").await.unwrap().len(), 1, "neighbours are one range");
    let again = bench.replay(options).await.unwrap();
    assert_eq!((again.replayed, again.already, again.refused), (0, 2, 1));
    assert_eq!(bench.work().await, (3, 3), "two more events, and no more dead letters");

    let listing = bench.list(Selection::default()).await;
    let replayed: Vec<bool> = listing.dead_letters.iter().map(|letter| letter.replayed).collect();
    assert_eq!(replayed, [false, true, true]);
    let source = TopicPartition { topic: "payments".into(), partition: log_partition(&bench).await };
    let fetched = bench.installation.log.read(&source, Offset(4), 10).await.unwrap();
    let record = &fetched.records[0];
    assert_eq!(record.headers, [("h".into(), Bytes::from_static(b"\xff")), (REPLAYED_FROM.into(), origin(&bench, 1).await)]);
    assert_eq!(record.key.as_deref(), Some(&b"k"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_replay_sends_so_many_and_a_repeat_the_next_ones() {
    let bench = Bench::new().await;
    bench.append(&[TEXT_AMOUNT, NO_AMOUNT, TEXT_AMOUNT, NO_AMOUNT, NO_AMOUNT]).await;
    assert_eq!(bench.work().await, (0, 5));
    bench.define(&STREAM.replace("amount BIGINT NOT NULL", "amount BIGINT")).await;
    let limited = |limit| ReplayOptions { limit: Some(limit), ..ReplayOptions::default() };
    let dry = bench.replay(ReplayOptions { dry_run: true, ..limited(2) }).await.unwrap();
    assert_eq!((dry.replayed, dry.refused, dry.limit_reached), (2, 2, true), "{dry:?}");
    for (replayed, already, limit_reached) in [(2, 0, true), (1, 2, false), (0, 3, false)] {
        let summary = bench.replay(limited(2)).await.unwrap();
        assert_eq!((summary.replayed, summary.already, summary.limit_reached), (replayed, already, limit_reached), "{summary:?}");
    }
    assert_eq!(bench.work().await, (3, 5));

    let file = bench.corrected("fixed.jsonl", |text| text.replace(r#"\"much\""#, "7")).await;
    let corrected = ReplayOptions { file: Some(file), ..limited(1) };
    let first = bench.replay(corrected.clone()).await.unwrap();
    assert_eq!((first.replayed, first.already, first.limit_reached), (1, 0, true), "{first:?}");
    let second = bench.replay(corrected).await.unwrap();
    assert_eq!((second.replayed, second.limit_reached), (1, true), "{second:?}");
    assert_eq!(bench.work().await, (5, 5));
}

/// Returns the partition of the key `k`.
async fn log_partition(bench: &Bench) -> i32 {
    let bounds = bench.installation.log.bounds("payments").await.unwrap();
    bounds.iter().find(|bounds| bounds.end > Offset::ZERO).unwrap().partition
}

async fn origin(bench: &Bench, offset: i64) -> Bytes {
    format!("payments/{}/{offset}", log_partition(bench).await).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_the_far_future_is_refused_with_its_time_and_counted_as_one_reason() {
    let bench = Bench::new().await;
    let of_year = |year: u32| format!("{{\"id\":\"d\",\"ts\":\"{year}-01-01T00:00:00Z\",\"amount\":1}}");
    bench.append(&[of_year(2998).as_bytes(), of_year(2999).as_bytes()]).await;
    assert_eq!(bench.work().await, (0, 2));
    let reason = "event time: found .., expected at most 10m after the clock (speed.max_future)";
    let listing = bench.list(Selection::default()).await;
    assert_eq!((listing.reasons[0].reason.as_str(), listing.reasons[0].count), (reason, 2));
    let refused = bench.replay(ReplayOptions::default()).await.unwrap();
    assert_eq!(refused.refused_reasons, [(reason.to_owned(), 2)]);
    let first = &refused.first_refused[0].reason;
    assert!(first.starts_with("event time: found 299"), "{first}");
    assert!(first.contains("-01-01T00:00:00Z with this machine's clock at 2"), "{first}");
}

#[tokio::test(flavor = "multi_thread")]
async fn original_bytes_are_replayed_when_the_definition_takes_them_now() {
    let bench = Bench::new().await;
    bench.append(&[NO_AMOUNT, TEXT_AMOUNT, NO_AMOUNT]).await;
    assert_eq!(bench.work().await, (0, 3));
    let refused = bench.replay(ReplayOptions::default()).await.unwrap();
    assert_eq!((refused.replayed, refused.refused), (0, 3), "as they stand they would die again");
    assert_eq!(refused.refused_reasons[0], ("column amount ($.amount): found nothing, expected BIGINT NOT NULL".into(), 2));

    bench.define(&STREAM.replace("amount BIGINT NOT NULL", "amount BIGINT")).await;
    let one = Selection { partition: Some(log_partition(&bench).await), offset: Some(Offset(2)), ..Selection::default() };
    assert_eq!(bench.replay(ReplayOptions { selection: one.clone(), ..ReplayOptions::default() }).await.unwrap().replayed, 1);
    let rest = bench.replay(ReplayOptions { selection: selected_by_reason("found nothing"), ..ReplayOptions::default() }).await.unwrap();
    assert_eq!((rest.replayed, rest.already), (1, 1));
    assert_eq!(bench.work().await, (2, 3));
    let forced = bench.replay(ReplayOptions { produce_invalid: true, ..ReplayOptions::default() }).await.unwrap();
    assert_eq!((forced.replayed, forced.already), (1, 2));
    assert_eq!(bench.work().await, (2, 4), "sent as it is, it is a dead letter again");
    let nothing = Selection { offset: Some(Offset(99)), ..one };
    let error = bench.replay(ReplayOptions { selection: nothing, ..ReplayOptions::default() }).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("offset: 99"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_died_after_the_append_is_recognised_by_its_records() {
    let mut bench = Bench::new().await;
    bench.append(&[TEXT_AMOUNT, TEXT_AMOUNT]).await;
    bench.work().await;
    let file = bench.corrected("fixed.jsonl", |text| text.replace(r#"\"much\""#, "7")).await;
    let options = ReplayOptions { file: Some(file), ..ReplayOptions::default() };
    let whole = bench.installation.log.clone();
    let lossy = Arc::new(LostReply { log: whole.clone(), fired: AtomicBool::new(false) });
    bench.installation.log = lossy.clone();
    let error = bench.replay(options.clone()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && lossy.fired.load(Ordering::SeqCst), "{error}");
    assert!(bench.installation.catalog.replayed_dead_letters("pay").await.unwrap().is_empty(), "nothing could be remembered");

    bench.installation.log = whole;
    let summary = bench.replay(options).await.unwrap();
    assert_eq!((summary.recovered, summary.already, summary.replayed), (2, 2, 0), "{summary:?}");
    assert_eq!(bench.work().await, (2, 2));
}

/// A log that loses the acknowledgement of an append: the records are in it.
#[derive(Debug)]
struct LostReply {
    log: Arc<dyn Log>,
    fired: AtomicBool,
}

#[async_trait]
impl Log for LostReply {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        self.log.create_topic(topic, partitions).await
    }

    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        self.log.bounds(topic).await
    }

    async fn identity(&self, topic: &str) -> Result<String> {
        self.log.identity(topic).await
    }

    async fn append(&self, topic: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        self.log.append(topic, records).await?;
        self.fired.store(true, Ordering::SeqCst);
        Err(Error::unavailable("the reply was lost"))
    }

    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched> {
        self.log.read(source, from, max_records).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer> {
        self.log.subscribe(subscription).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replays_of_one_stream_do_not_run_at_once() {
    let bench = Bench::new().await;
    bench.append(&[NO_AMOUNT]).await;
    bench.work().await;
    let stream = bench.installation.stream("pay").await.unwrap();
    let (turn, _) = again::ReplayTurn::take(&bench.installation.catalog, &*bench.installation.log, &stream, "another").await.unwrap();
    let error = bench.replay(ReplayOptions::default()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("another"), "{error}");
    turn.finish().await.unwrap();
    assert_eq!(bench.replay(ReplayOptions::default()).await.unwrap().refused, 1);
}

/// A compaction may supersede a file that is still to be read, and the collector then takes it.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_kept_while_dead_letters_are_read() {
    let bench = Bench::new().await;
    let definitions = [STREAM, "CREATE VIEW shares AS SELECT id, sum(100 / amount) AS share FROM pay GROUP BY id"];
    bench.define(&definitions.join(";\n")).await;
    bench.append(&[NO_AMOUNT, br#"{"id":"z","ts":"2026-01-01T00:00:00Z","amount":0}"#]).await;
    bench.work().await;
    let pins = || {
        let state = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(bench.installation.catalog.state())).unwrap();
        state.leases.iter().filter(|lease| lease.pin == Some(types::vector::Vector::new())).count()
    };
    let pinned = std::cell::Cell::new(0);
    let read = |_| pinned.set(pinned.get() + pins());
    let (all, installation) = (Selection::default(), &bench.installation);
    list(installation, Some("pay"), &all, 10, read).await.unwrap();
    assert_eq!((pinned.get(), pins()), (1, 0));
    export(installation, "pay", &all, bench.path("dead.jsonl").to_str().unwrap(), read).await.unwrap();
    assert_eq!((pinned.get(), pins()), (2, 0));
    export_view(installation, "shares", bench.path("failing.jsonl").to_str().unwrap(), read).await.unwrap();
    assert_eq!((pinned.get(), pins()), (3, 0));
    let options = ReplayOptions { produce_invalid: true, ..ReplayOptions::default() };
    let replayed = replay(installation, "pay", &options, read).await.unwrap();
    assert_eq!((replayed.replayed, pinned.get(), pins()), (1, 4, 0));
}

/// What a node reports every two seconds.
#[tokio::test(flavor = "multi_thread")]
async fn the_most_frequent_reason_of_the_newest_file_is_known_and_the_file_is_read_once() {
    let bench = Bench::new().await;
    bench.append(&[TEXT_AMOUNT]).await;
    bench.work().await;
    bench.append(&[NO_AMOUNT, TEXT_AMOUNT, NO_AMOUNT]).await;
    bench.work().await;
    let state = bench.installation.catalog.state().await.unwrap();
    let mut newest = NewestDeadLetters::default();
    assert_eq!(newest.reasons(&bench.installation.storage, &state, i64::MAX).await, BTreeMap::new(), "none became one since then");
    let example = "column amount ($.amount): found nothing, expected BIGINT NOT NULL".to_owned();
    let expected = BTreeMap::from([(Arc::<str>::from("pay"), FrequentReason { example, count: 2, of: 3 })]);
    assert_eq!(newest.reasons(&bench.installation.storage, &state, 0).await, expected);
    let empty = storage::ObjectStorage::open("memory://").unwrap();
    assert_eq!(newest.reasons(&empty, &state, 0).await, expected, "the file is not read again");
    assert_eq!(NewestDeadLetters::default().reasons(&empty, &state, 0).await, BTreeMap::new(), "the file is gone");
}

/// What `status` reports.
#[tokio::test(flavor = "multi_thread")]
async fn the_most_frequent_reason_is_counted_in_the_files_of_several_checkpoints() {
    let bench = Bench::new().await;
    for letters in [[NO_AMOUNT, NO_AMOUNT].as_slice(), &[NO_AMOUNT], &[TEXT_AMOUNT]] {
        bench.append(letters).await;
        bench.work().await;
    }
    let state = bench.installation.catalog.state().await.unwrap();
    let since = |since| recent(&bench.installation.storage, &state, "pay", &[], since);
    let example = "column amount ($.amount): found nothing, expected BIGINT NOT NULL".to_owned();
    let reason = FrequentReason { example, count: 3, of: 4 };
    assert_eq!(since(0).await.unwrap(), RecentDeadLetters { replayed: 0, reason: Some(Ok(reason)) });
    assert_eq!(since(i64::MAX).await.unwrap(), RecentDeadLetters::default());

    let files = bench.dead_files().await;
    let oldest = files.iter().min_by_key(|file| file.checkpoint).unwrap();
    std::fs::remove_file(bench.path("data/storage").join(&oldest.path)).unwrap();
    let newer = since(0).await.unwrap().reason.unwrap().unwrap();
    assert_eq!((newer.count, newer.of), (1, 2), "a file that is gone hides nothing of the newer ones");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_named_and_the_others_go_on() {
    let bench = Bench::new().await;
    for _ in 0..2 {
        bench.append(&[NO_AMOUNT]).await;
        bench.work().await;
    }
    let files = bench.dead_files().await;
    assert_eq!(files.len(), 2);
    let path = bench.path("data/storage").join(&files[0].path);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let listing = bench.list(Selection::default()).await;
    assert_eq!((listing.count, listing.damaged.len()), (1, 1));
    assert_eq!(listing.damaged[0].file, files[0].path);
    std::fs::remove_file(&path).unwrap();
    let target = bench.path("out.jsonl");
    let exported = export(&bench.installation, "pay", &Selection::default(), target.to_str().unwrap(), |_| {}).await.unwrap();
    assert_eq!((exported.exported, exported.damaged.len()), (1, 1));
    bench.define(&STREAM.replace("amount BIGINT NOT NULL", "amount BIGINT")).await;
    let summary = bench.replay(ReplayOptions::default()).await.unwrap();
    assert_eq!((summary.replayed, summary.damaged.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_exported_or_replayed_is_said_and_nothing_is_done() {
    let bench = Bench::new().await;
    bench.append(&[GOOD]).await;
    bench.work().await;
    let to = bench.path("dead.jsonl");
    let none = export(&bench.installation, "pay", &selected_by_reason("no such reason"), to.to_str().unwrap(), |_| {}).await.unwrap();
    assert_eq!(none, ExportSummary::default());
    assert!(!to.exists(), "no empty file is left");
    assert!(bench.replay(ReplayOptions::default()).await.unwrap().is_empty());

    bench.append(&[NO_AMOUNT]).await;
    bench.work().await;
    let error = export(&bench.installation, "pay", &selected_by_reason("no such reason"), to.to_str().unwrap(), |_| {}).await.unwrap_err();
    assert_eq!(error.message(), "none of the 1 dead letters of the stream \"pay\" matches");
    let unmatched = ReplayOptions { selection: selected_by_reason("no such reason"), ..ReplayOptions::default() };
    assert_eq!(bench.replay(unmatched).await.unwrap_err().kind(), ErrorKind::NotFound);
    let file = bench.corrected("dead.jsonl", |text| text).await;
    let error = export(&bench.installation, "pay", &Selection::default(), file.to_str().unwrap(), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("the file already exists"), "{error}");
    let nowhere = bench.path("none/dead.jsonl");
    let error = export(&bench.installation, "pay", &Selection::default(), nowhere.to_str().unwrap(), |_| {}).await.unwrap_err();
    assert!(error.message().starts_with("there is no folder ") && error.message().contains("none: expected one that exists"), "{error}");

    let line = std::fs::read_to_string(&file).unwrap();
    let refused = async |text: String| replay_file(&bench, &file, text).await.unwrap_err().to_string();
    let other = line.replace("\"payments\"", "\"refunds\"");
    let error = refused(format!("{line}{line}\n{other}{{}}\n")).await;
    for expected in ["dead.jsonl:2: it repeats the dead letter of line 1", ":4: found the source \"refunds\"", ":5: missing field `source`"]
    {
        assert!(error.contains(expected), "{expected} in {error}");
    }
    assert!(refused("\n\n".into()).await.contains("has no lines"));
    let stranger = replay_file(&bench, &file, line.replace("\"offset\":1", "\"offset\":0")).await.unwrap();
    assert_eq!(stranger.first_refused[0].reason, "it names no dead letter of the stream", "{stranger:?}");
    assert_eq!(bench.work().await, (1, 1), "nothing was sent");
}

async fn replay_file(bench: &Bench, file: &Path, text: String) -> Result<ReplaySummary> {
    std::fs::write(file, text).unwrap();
    bench.replay(ReplayOptions { file: Some(file.into()), ..ReplayOptions::default() }).await
}
