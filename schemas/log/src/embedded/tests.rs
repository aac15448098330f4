use std::fs::File;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::testing::{
    CommittedRecords, StoodStill, each_record_is_appended_once, made_of, numbered, output_of, source, subscription, until, values_of,
    within, work,
};
use crate::{LogEvent, NewRecord, ReaderGroup, check_mark, mark_of};
use types::ErrorKind;
use types::threads::clock_noting_threads;
use types::tiles::Micros;
use types::vector::PartitionId;

async fn log_in(folder: &TempDir) -> Arc<EmbeddedLog> {
    Arc::new(EmbeddedLog::open(folder.path(), &BTreeMap::new()).await.unwrap())
}

async fn log_with_clock(folder: &TempDir, clock: Clock) -> Arc<EmbeddedLog> {
    Arc::new(EmbeddedLog::open_with_clock(folder.path(), clock).await.unwrap())
}

fn wall_clock(ahead_s: i64) -> Clock {
    Arc::new(move || chrono::Utc::now().timestamp_micros() + ahead_s * 1_000_000)
}

/// Reads a whole partition, `step` records at a time.
async fn read_all(log: &EmbeddedLog, topic: &str, partition: i32, step: usize) -> Vec<types::record::Record> {
    let (mut records, mut position) = (Vec::new(), Offset::ZERO);
    loop {
        let fetched = log.read(&source(topic, partition), position, step).await.unwrap();
        assert!(fetched.records.len() <= step);
        records.extend(fetched.records);
        position = fetched.position;
        if fetched.at_end {
            return records;
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn what_is_appended_is_read_back_in_order(
        appends in vec(vec((proptest::option::of("[a-c]{1,2}"), vec(any::<u8>(), 0..50)), 0..30), 1..12),
        partitions in 1..4u32, step in 1..40usize
    ) {
        runtime().block_on(async {
            let folder = TempDir::new().unwrap();
            let log = log_in(&folder).await;
            log.create_topic("events", partitions).await.unwrap();
            let mut expected: BTreeMap<i32, Vec<_>> = BTreeMap::new();
            for append in appends {
                let record = |(key, value): (Option<String>, Vec<u8>)| NewRecord {
                    key: key.map(Bytes::from), value: Some(Bytes::from(value)), ..NewRecord::default()
                };
                let records: Vec<NewRecord> = append.into_iter().map(record).collect();
                let places = log.append("events", records.clone()).await.unwrap();
                assert_eq!(places.len(), records.len());
                for ((partition, offset), record) in places.into_iter().zip(records) {
                    expected.entry(partition).or_default().push((offset, record.key, record.value));
                }
            }
            for bounds in log.bounds("events").await.unwrap() {
                let expected = expected.remove(&bounds.partition).unwrap_or_default();
                assert_eq!(bounds.end.0 as usize, expected.len());
                let read = read_all(&log, "events", bounds.partition, step).await;
                let read: Vec<_> = read.into_iter().map(|record| (record.offset, record.key, record.value)).collect();
                assert_eq!(read, expected);
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_append_at_once_and_offsets_stay_dense() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (log_in(&folder).await, log_in(&folder).await);
    one.create_topic("events", 2).await.unwrap();
    let append = |log: Arc<EmbeddedLog>, from: usize| async move {
        for start in (from..from + 200).step_by(10) {
            log.append("events", numbered(start, start + 10)).await.unwrap();
        }
    };
    let tasks = [tokio::spawn(append(one.clone(), 0)), tokio::spawn(append(one.clone(), 200)), tokio::spawn(append(other, 400))];
    for task in tasks {
        task.await.unwrap();
    }
    let mut values = Vec::new();
    for partition in 0..2 {
        let records = read_all(&one, "events", partition, 64).await;
        assert!(records.iter().zip(0..).all(|(record, offset)| record.offset.0 == offset));
        values.extend(records.into_iter().filter_map(|record| record.value));
    }
    values.sort();
    assert_eq!(values, values_of(0, 600));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_waits_while_another_process_writes() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (log_in(&folder).await, log_in(&folder).await);
    one.create_topic("events", 1).await.unwrap();
    let held = other.store.write().await.unwrap();
    let appending = tokio::spawn(async move { one.append("events", numbered(0, 1)).await });
    // Much longer than it takes to try to begin once.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!appending.is_finished());
    held.rollback().await.unwrap();
    assert_eq!(within("the append", appending).await.unwrap().unwrap(), [(0, Offset::ZERO)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_write_ahead_log_is_copied_to_the_file_and_begins_anew_before_a_commit_would_do_it() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    let wal = async || -> (i64, i64, i64) { sqlx::query_as("PRAGMA wal_checkpoint(NOOP)").fetch_one(log.store.readers()).await.unwrap() };
    let large = NewRecord { value: Some(Bytes::from(vec![7; 18 << 20])), ..NewRecord::default() };
    log.append("events", vec![large]).await.unwrap();
    let copied = async {
        loop {
            let (_, pages, copied) = wal().await;
            if pages == copied {
                return pages;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let pages = within("a copy of all pages", copied).await;
    assert!(pages > 2_000, "{pages} pages are fewer than the record has");
    log.append("events", numbered(0, 1)).await.unwrap();
    let (_, pages, _) = wal().await;
    assert!(pages < 100, "the write-ahead log goes on, at {pages} pages");
    assert_eq!(read_all(&log, "events", 0, 1).await.len(), 2);
}

#[tokio::test]
async fn connections_that_copy_or_read_open_while_another_process_writes() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (log_in(&folder).await, log_in(&folder).await);
    let held = other.store.write().await.unwrap();
    one.store.copy_wal(store::WalCopy::BesideAppends).await.unwrap();
    within("a read", one.store.members()).await.unwrap();
    held.rollback().await.unwrap();
}

#[tokio::test]
async fn records_and_identity_outlive_the_process() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    assert_eq!(log.create_topic("events", 1).await.unwrap(), 1);
    log.append("events", numbered(0, 5)).await.unwrap();
    let identity = log.identity("events").await.unwrap();
    drop(log);

    let log = log_in(&folder).await;
    assert_eq!(log.create_topic("events", 9).await.unwrap(), 1);
    assert_eq!(log.identity("events").await.unwrap(), identity);
    assert_eq!(read_all(&log, "events", 0, 100).await.len(), 5);
    let folder = TempDir::new().unwrap();
    let elsewhere = log_in(&folder).await;
    elsewhere.create_topic("events", 1).await.unwrap();
    assert_ne!(elsewhere.identity("events").await.unwrap(), identity);
}

/// An append to a topic without records of that time does not end the outage.
#[tokio::test]
async fn timestamps_ahead_of_the_clock_are_an_outage_also_in_the_next_process() {
    const SECOND: Micros = 1_000_000;
    let folder = TempDir::new().unwrap();
    let now = Arc::new(AtomicI64::new(1_000 * SECOND));
    let clock: Clock = Arc::new({
        let now = now.clone();
        move || now.load(Ordering::Relaxed)
    });
    let log = log_with_clock(&folder, clock.clone()).await;
    log.create_topic("events", 1).await.unwrap();
    log.create_topic("others", 1).await.unwrap();
    let outages = |log: &EmbeddedLog| log.outages().into_iter().map(|outage| (outage.what, outage.error)).collect::<Vec<_>>();
    let went_back = |seconds| vec![(types::clocks::CLOCK_WENT_BACK, format!("records are appended with a time {seconds} s ahead of it"))];
    for (time, topic, expected) in
        [(1_000, "events", vec![]), (4_600, "events", vec![]), (1_001, "events", went_back(3_599)), (1_002, "others", went_back(3_598))]
    {
        now.store(time * SECOND, Ordering::Relaxed);
        log.append(topic, numbered(0, 1)).await.unwrap();
        assert_eq!(outages(&log), expected, "at {time}");
    }
    let next = log_with_clock(&folder, clock).await;
    assert_eq!(outages(&next), [], "it has appended nothing");
    next.append("events", numbered(0, 1)).await.unwrap();
    assert_eq!(outages(&next), went_back(3_598));
    now.store(4_600 * SECOND, Ordering::Relaxed);
    assert_eq!(outages(&next), []);
}

#[tokio::test]
async fn timestamps_never_go_back_in_a_partition() {
    let folder = TempDir::new().unwrap();
    let now = Arc::new(AtomicI64::new(1000));
    let clock = now.clone();
    let log = log_with_clock(&folder, Arc::new(move || clock.load(Ordering::Relaxed))).await;
    log.create_topic("events", 1).await.unwrap();
    for time in [1000, 3000, 2000, 4000] {
        now.store(time, Ordering::Relaxed);
        log.append("events", numbered(0, 1)).await.unwrap();
    }
    let times: Vec<Micros> = read_all(&log, "events", 0, 10).await.iter().map(|record| record.timestamp).collect();
    assert_eq!(times, [1000, 3000, 3000, 4000]);
    now.store(5000, Ordering::Relaxed);
    assert_eq!(log.read(&source("events", 0), Offset(4), 1).await.unwrap().fetched_at, 5000, "the time of the fetch");
}

#[tokio::test]
async fn large_appends_are_cut_into_rows_and_read_whole() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    let large = |size: usize| NewRecord { value: Some(vec![7; size].into()), ..NewRecord::default() };
    log.append("events", vec![large(3 << 20), large(10), large(900_000), large(900_000)]).await.unwrap();
    log.append("events", numbered(0, 10_000)).await.unwrap();
    let records = read_all(&log, "events", 0, 3000).await;
    assert_eq!(records.len(), 10_004);
    assert_eq!(records[0].value.as_ref().map(Bytes::len), Some(3 << 20));
}

#[tokio::test]
async fn unknown_topics_and_offsets_outside_are_named() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    log.append("events", numbered(0, 3)).await.unwrap();
    assert_eq!(log.bounds("nothing").await.unwrap(), []);
    assert_eq!((log.partition_count("nothing").await.unwrap(), log.partition_count("events").await.unwrap()), (None, Some(1)));
    assert_eq!(log.append("nothing", numbered(0, 1)).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(log.subscribe(subscription("a", &["nothing"])).await.err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(log.create_topic("", 1).await.unwrap_err().kind(), ErrorKind::Input);
    assert_eq!(log.create_topic("none", 0).await.unwrap_err().kind(), ErrorKind::Input);
    let error = log.read(&source("events", 0), Offset(4), 1).await.unwrap_err();
    assert!(error.to_string().contains("topic: events, partition: 0, offset: 4, the log has: 0..3"), "{error}");
}

#[tokio::test]
async fn a_damaged_batch_is_an_error_that_names_it() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    log.append("events", numbered(0, 3)).await.unwrap();
    log.append("events", numbered(3, 6)).await.unwrap();
    run_sql(&log, "UPDATE batch SET data = zeroblob(length(data)) WHERE base_offset = 3").await;

    // What is before it is read, whether more is asked for or not.
    for most in [3, 100] {
        let fetched = log.read(&source("events", 0), Offset::ZERO, most).await.unwrap();
        assert_eq!((fetched.records.len(), fetched.position, fetched.at_end), (3, Offset(3), false));
    }
    let error = log.read(&source("events", 0), Offset(4), 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("partition: 0, base offset: 3"), "{error}");
    let working = work(log.clone(), subscription("a", &["events"]), Arc::default(), CancellationToken::new());
    let reported = within("the failure", working).await;
    assert_eq!(reported.failed.unwrap().kind(), ErrorKind::Corrupt);

    run_sql(&log, "DELETE FROM batch WHERE base_offset = 3").await;
    let fetched = log.read(&source("events", 0), Offset(1), 10).await.unwrap();
    assert_eq!((fetched.records.len(), fetched.position, fetched.at_end), (2, Offset(3), false));
    let error = log.read(&source("events", 0), Offset(3), 10).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("offset: 3"), "{error}");
}

#[tokio::test]
async fn a_damaged_record_that_was_committed_last_holds_nothing_up() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    log.append("events", numbered(0, 3)).await.unwrap();
    let last = log.read(&source("events", 0), Offset(2), 1).await.unwrap().records.remove(0);
    let mark = mark_of(&PartitionId::new("events", 0), &last);
    run_sql(&log, "UPDATE batch SET data = zeroblob(length(data))").await;
    let bounds = log.bounds("events").await.unwrap();
    check_mark(&*log, &source("events", 0), &mark, &bounds[0]).await.unwrap();
}

async fn run_sql(log: &EmbeddedLog, sql: &'static str) {
    let mut write = log.store.write().await.unwrap();
    assert!(sqlx::query(sql).execute(&mut *write).await.unwrap().rows_affected() > 0);
    write.commit().await.unwrap();
}

#[tokio::test]
async fn a_file_of_an_unknown_format_is_refused() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    sqlx::raw_sql("PRAGMA user_version = 99").execute(log.store.readers()).await.unwrap();
    let error = EmbeddedLog::open(folder.path(), &BTreeMap::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("found: 99"), "{error}");
}

/// Whoever renews reads the clock, which notes on which thread. The consumer and the writer read it on others.
#[tokio::test(flavor = "multi_thread")]
async fn leases_of_the_log_are_renewed_on_the_threads_for_leases() {
    let folder = TempDir::new().unwrap();
    let (clock, mut threads) = clock_noting_threads(|| chrono::Utc::now().timestamp_micros());
    let log = log_with_clock(&folder, clock).await;
    log.create_topic("events", 1).await.unwrap();
    let _consumer = log.subscribe(subscription("a", &["events"])).await.unwrap();
    let renewed = async { while threads.recv().await.as_deref() != Some("leases") {} };
    within("a renewal", renewed).await;
}

/// A worker finds the next records waiting, and what waits for one that is slow is bounded.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_reads_as_far_ahead_of_its_worker_as_the_queue_has_places() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    log.append("events", numbered(0, 100)).await.unwrap();
    let subscription = Subscription { queue: 3, max_records: 5, ..subscription("a", &["events"]) };
    let mut consumer = log.subscribe(subscription).await.unwrap();
    match within("its partition", consumer.events.recv()).await {
        Some(LogEvent::Assigned { start, .. }) => start.send(Ok(vec![(source("events", 0), Offset::ZERO)])).unwrap(),
        other => panic!("{other:?}"),
    }
    until("three fetches that wait", || consumer.events.len() == 3).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(consumer.events.len(), 3, "it does not read on");
    let mut read = 0;
    while read < 100 {
        match within("the rest", consumer.events.recv()).await {
            Some(LogEvent::Fetched(fetched)) => {
                assert!(fetched.records.len() <= 5 && fetched.records.iter().zip(read..).all(|(record, offset)| record.offset.0 == offset));
                read += fetched.records.len() as i64;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_by_another_process_changes_what_is_seen_of_the_write_ahead_log() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (log_in(&folder).await, log_in(&folder).await);
    one.create_topic("events", 1).await.unwrap();
    let before = one.store.wal_state();
    other.append("events", numbered(0, 10)).await.unwrap();
    assert_ne!(one.store.wal_state(), before);
}

/// Whether a lease could not be renewed in time: then it is lost, rightly.
fn is_too_long_for_leases(stood_still: &StoodStill) -> bool {
    stood_still.longest() > lease::LEASE - 3 * lease::RENEW_EVERY
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_share_the_partitions_and_hand_over_without_loss_or_overlap() {
    let stood_still = StoodStill::begin();
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    let other_process = log_in(&folder).await;
    log.create_topic("events", 4).await.unwrap();
    let catalog = Arc::new(CommittedRecords::default());
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());

    let a = tokio::spawn(work(log.clone(), subscription("a", &["events"]), catalog.clone(), stop_a.clone()));
    log.append("events", numbered(0, 500)).await.unwrap();
    until("the first worker's records", || catalog.count() == 500).await;
    let b = tokio::spawn(work(other_process, subscription("b", &["events"]), catalog.clone(), stop_b.clone()));
    for start in (500..2500).step_by(20) {
        log.append("events", numbered(start, start + 20)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    until("both workers' records", || catalog.count() == 2500).await;
    stop_a.cancel();
    let a = a.await.unwrap();
    log.append("events", numbered(2500, 3000)).await.unwrap();
    until("the second worker's records", || catalog.count() == 3000).await;
    stop_b.cancel();
    let b = b.await.unwrap();

    assert_eq!(catalog.values(), values_of(0, 3000));
    if !is_too_long_for_leases(&stood_still) {
        assert_eq!((a.assigned, a.revoked, a.lost, a.refused_commits), (4, 4, 0, 0), "{a:?}");
        assert_eq!((b.assigned, b.revoked, b.lost, b.refused_commits), (4, 4, 0, 0), "{b:?}");
    }
    assert!(a.failed.is_none() && b.failed.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_taken_over_and_its_sleeper_loses_its_work() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    // To a worker whose clock is ahead, the other one's leases have expired.
    let ahead = log_with_clock(&folder, wall_clock(60)).await;
    log.create_topic("events", 2).await.unwrap();
    let catalog = Arc::new(CommittedRecords::default());
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());

    let a = tokio::spawn(work(log.clone(), subscription("a", &["events"]), catalog.clone(), stop_a.clone()));
    log.append("events", numbered(0, 300)).await.unwrap();
    until("the first worker's records", || catalog.count() == 300).await;
    let b = tokio::spawn(work(ahead, subscription("b", &["events"]), catalog.clone(), stop_b.clone()));
    let (mut end, mut taken) = (300, 0);
    while end < 1300 || taken < 2 {
        log.append("events", numbered(end, end + 10)).await.unwrap();
        end += 10;
        assert!(end < 60_000, "timed out: nobody takes over");
        tokio::time::sleep(Duration::from_millis(20)).await;
        (taken,) =
            sqlx::query_as::<_, (i64,)>("SELECT count(*) FROM lease WHERE owner = 'b'").fetch_one(log.store.readers()).await.unwrap();
    }
    until("all records", || catalog.count() == end).await;
    stop_a.cancel();
    stop_b.cancel();
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    assert_eq!(catalog.values(), values_of(0, end));
    // It hears of its loss, or the catalog tells it first: on a busy machine a checkpoint comes before the next look at
    // the leases.
    assert!((a.lost == 2 || a.refused_commits > 0) && b.lost == 0, "{a:?} {b:?}");
}

/// As when questions, or records, keep them busy.
#[tokio::test(flavor = "multi_thread")]
async fn no_lease_is_lost_while_all_threads_of_its_worker_are_busy() {
    let stood_still = StoodStill::begin();
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    let other_process = log_in(&folder).await;
    log.create_topic("events", 2).await.unwrap();
    let (catalog, threads) = (Arc::new(CommittedRecords::default()), runtime());
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());

    let a = threads.spawn(work(log.clone(), subscription("a", &["events"]), catalog.clone(), stop_a.clone()));
    log.append("events", numbered(0, 100)).await.unwrap();
    until("the first worker's records", || catalog.count() == 100).await;
    let busy = [(); 2].map(|()| std::sync::mpsc::channel::<()>());
    let busy = busy.map(|(release, released)| {
        threads.spawn(async move { released.recv().is_err() });
        release
    });
    let b = tokio::spawn(work(other_process, subscription("b", &["events"]), catalog.clone(), stop_b.clone()));
    // Leases that were not renewed meanwhile have expired.
    tokio::time::sleep(lease::LEASE + Duration::from_secs(2)).await;
    drop(busy);
    log.append("events", numbered(100, 200)).await.unwrap();
    until("all records", || catalog.count() == 200).await;
    stop_a.cancel();
    stop_b.cancel();
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    threads.shutdown_background();
    assert_eq!(catalog.values(), values_of(0, 200));
    let losses = (a.lost, a.refused_commits, b.lost, b.refused_commits);
    assert!(losses == (0, 0, 0, 0) || is_too_long_for_leases(&stood_still), "{a:?} {b:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_outside_the_log_fails_and_names_the_range() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    log.append("events", numbered(0, 3)).await.unwrap();
    let mut consumer = log.subscribe(subscription("a", &["events"])).await.unwrap();
    let Some(LogEvent::Assigned { start, .. }) = within("the assignment", consumer.events.recv()).await else { panic!("not assigned") };
    start.send(Ok(vec![(source("events", 0), Offset(10))])).unwrap();
    let Some(LogEvent::Failed(error)) = within("the failure", consumer.events.recv()).await else { panic!("did not fail") };
    assert!(error.to_string().contains("topic: events, partition: 0, offset: 10, the log has: 0..3"), "{error}");
    assert!(consumer.events.recv().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_at_its_end_says_so_at_once_and_again() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 3).await.unwrap();
    let (catalog, began, stop) = (Arc::new(CommittedRecords::default()), std::time::Instant::now(), CancellationToken::new());
    let worker = tokio::spawn(work(log, subscription("a", &["events"]), catalog.clone(), stop.clone()));
    until("each partition's end, ten times", || catalog.ends() >= 30).await;
    stop.cancel();
    worker.await.unwrap();
    // Of each partition at once, and then twice a second.
    let most = 3 * (1 + began.elapsed().as_millis() as usize / 500);
    assert!(catalog.ends() <= most, "{} of at most {most}", catalog.ends());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_partitions_of_a_dropped_consumer_are_free_at_once() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 2).await.unwrap();
    log.append("events", numbered(0, 50)).await.unwrap();
    let mut dropped = log.subscribe(subscription("a", &["events"])).await.unwrap();
    let Some(LogEvent::Assigned { start, .. }) = within("the assignment", dropped.events.recv()).await else { panic!("not assigned") };
    start.send(Ok(vec![(source("events", 0), Offset::ZERO), (source("events", 1), Offset::ZERO)])).unwrap();
    within("records", dropped.events.recv()).await.unwrap();
    drop(dropped);
    tokio::time::sleep(Duration::from_millis(300)).await;

    // To a worker whose clock is behind, no lease of the one before expires while it waits.
    let log = log_with_clock(&folder, wall_clock(-3_600)).await;
    let (catalog, stop) = (Arc::new(CommittedRecords::default()), CancellationToken::new());
    let worker = tokio::spawn(work(log, subscription("b", &["events"]), catalog.clone(), stop.clone()));
    until("the records", || catalog.count() == 50).await;
    stop.cancel();
    assert_eq!(worker.await.unwrap().assigned, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_partitions_of_a_killed_worker_are_free_at_once() {
    kill_a_worker(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_partitions_of_a_worker_that_is_killed_after_a_day_are_free_at_once() {
    kill_a_worker(Duration::from_secs(86_400)).await;
}

/// Kills a worker that began this long ago. Another one goes on with its partitions.
async fn kill_a_worker(age: Duration) {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 2).await.unwrap();
    log.append("events", numbered(0, 50)).await.unwrap();
    let (catalog, path) = (Arc::new(CommittedRecords::default()), folder.path().to_path_buf());
    let killed = runtime();
    let its_catalog = catalog.clone();
    killed.spawn(async move {
        let log = Arc::new(EmbeddedLog::open(&path, &BTreeMap::new()).await.unwrap());
        work(log, subscription("a", &["events"]), its_catalog, CancellationToken::new()).await
    });
    until("the first worker's records", || catalog.count() == 50).await;
    log.append("events", numbered(50, 80)).await.unwrap();
    // Its tasks end where they stand, and the system closes its files.
    killed.shutdown_background();
    age_lock_files(&folder, age).await;

    // To a worker whose clock is behind, no lease of the one before expires while it waits.
    let behind = log_with_clock(&folder, wall_clock(-3_600)).await;
    let stop = CancellationToken::new();
    let worker = tokio::spawn(work(behind, subscription("b", &["events"]), catalog.clone(), stop.clone()));
    until("the second worker's records", || catalog.count() == 80).await;
    stop.cancel();
    assert_eq!(worker.await.unwrap().assigned, 2);
    assert_eq!(std::fs::read_dir(folder.path().join("workers")).unwrap().count(), 0);
}

/// Waits until nobody holds the lock files, and dates them this far back.
async fn age_lock_files(folder: &TempDir, age: Duration) {
    for entry in std::fs::read_dir(folder.path().join("workers")).unwrap() {
        let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
        until("the end of the worker", || file.try_lock_shared().is_ok()).await;
        file.set_modified(SystemTime::now() - age).unwrap();
    }
}

/// Leaves SQLite's connection room for this many more pages; as a full disk, it ends the transaction that needs more.
async fn leave_room(log: &EmbeddedLog, pages: i64) {
    let mut write = log.store.write().await.unwrap();
    let (used,): (i64,) = sqlx::query_as("PRAGMA page_count").fetch_one(&mut *write).await.unwrap();
    let limit = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {}", used + pages));
    sqlx::raw_sql(limit).execute(&mut *write).await.unwrap();
    write.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_without_room_takes_no_record_and_the_next_one_goes_on() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 2).await.unwrap();
    log.append("events", numbered(0, 10)).await.unwrap();
    let before = log.bounds("events").await.unwrap();
    for _ in 0..3 {
        leave_room(&log, 2).await;
        let error = log.append("events", numbered(10, 20_000)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("full"), "{error}");
        assert_eq!(log.bounds("events").await.unwrap(), before, "all of an append or nothing");
        assert_eq!(log.outages()[0].what, "the log takes no records");
    }
    // A connection whose transaction SQLite ended is closed; one whose transaction was rolled back has its limit still.
    leave_room(&log, 100_000).await;
    log.append("events", numbered(10, 20_000)).await.unwrap();
    assert!(log.outages().is_empty());
    let ends: i64 = log.bounds("events").await.unwrap().iter().map(|bounds| bounds.end.0).sum();
    assert_eq!(ends, 20_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_and_committed_is_trimmed_and_the_rest_reads_as_before() {
    let folder = TempDir::new().unwrap();
    let now = Arc::new(AtomicI64::new(1_000));
    let clock: Clock = Arc::new({
        let now = now.clone();
        move || now.load(Ordering::Relaxed)
    });
    let log = log_with_clock(&folder, clock).await;
    log.create_topic("events", 1).await.unwrap();
    // Batches of ten records, one a second; enough for several transactions.
    for batch in 0..200 {
        now.store(1_000 + batch as Micros * 1_000_000, Ordering::Relaxed);
        log.append("events", numbered(batch * 10, batch * 10 + 10)).await.unwrap();
    }
    let events = source("events", 0);
    let all = read_all(&log, "events", 0, 500).await;
    let begin = async || log.bounds("events").await.unwrap()[0].begin.0;
    // What would go is what goes.
    let trim = async |before: i64, appended_before: Micros| {
        let trimmable = log.trimmable(&events, "g", Offset(before), appended_before).await.unwrap();
        assert_eq!(log.trim(&events, "g", Offset(before), appended_before).await.unwrap(), trimmable);
        trimmable
    };

    assert_eq!(trim(0, Micros::MAX).await, 0, "nothing is committed");
    assert_eq!(trim(2_000, 1_000).await, 0, "nothing is old enough");
    let before = log.size().await.unwrap();
    assert_eq!((before.records, log.trimmable(&events, "g", Offset(9_999), Micros::MAX).await.unwrap()), (2_000, 2_000));
    assert_eq!(trim(1_205, Micros::MAX).await, 1_200, "whole batches before the offset");
    assert_eq!((begin().await, log.bounds("events").await.unwrap()[0].end.0), (1_200, 2_000));
    assert_eq!(trim(2_000, 1_000 + 150 * 1_000_000).await, 300, "those that are old");
    assert_eq!(begin().await, 1_500);
    let after = log.size().await.unwrap();
    assert!(after.records == 500 && after.bytes < before.bytes, "{before:?}, {after:?}");

    let rest = log.read(&events, Offset(1_500), 10_000).await.unwrap();
    assert_eq!(rest.records, all[1_500..]);
    let error = log.read(&events, Offset(1_499), 1).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("1500..2000"), "{error}");
    log.append("events", numbered(2_000, 2_001)).await.unwrap();
    assert_eq!(log.read(&events, Offset(2_000), 1).await.unwrap().records.len(), 1, "offsets go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_room_of_what_is_trimmed_is_given_back() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    for _ in 0..16 {
        let large = NewRecord { value: Some(Bytes::from(vec![7; 1 << 20])), ..NewRecord::default() };
        log.append("events", vec![large]).await.unwrap();
    }
    assert_eq!(log.trim(&source("events", 0), "g", Offset(15), Micros::MAX).await.unwrap(), 15);
    let (pages, free): (i64, i64) = sqlx::query_as("SELECT page_count, freelist_count FROM pragma_page_count, pragma_freelist_count")
        .fetch_one(log.store.readers())
        .await
        .unwrap();
    assert!(pages < 400 && free < 100, "{pages} pages of 8 KiB, {free} free");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_group_has_read_is_not_trimmed() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    log.append("events", numbered(0, 10)).await.unwrap();
    sqlx::query("INSERT INTO lease VALUES ('others', 'events', 0, NULL, 1, 0)").execute(log.store.readers()).await.unwrap();
    assert_eq!(log.trimmable(&source("events", 0), "g", Offset(10), Micros::MAX).await.unwrap(), 0);
    assert_eq!(log.trim(&source("events", 0), "g", Offset(10), Micros::MAX).await.unwrap(), 0);
    assert_eq!(log.trim(&source("events", 0), "others", Offset(10), Micros::MAX).await.unwrap(), 10);
}

/// A group that has another name now, say: nobody would ever trim the topic again.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_forgotten_holds_nothing_back_and_one_that_reads_is_not_forgotten() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("events", 1).await.unwrap();
    log.append("events", numbered(0, 10)).await.unwrap();
    let mut consumer = log.subscribe(subscription("a", &["events"])).await.unwrap();
    match within("its partition", consumer.events.recv()).await {
        Some(LogEvent::Assigned { start, .. }) => start.send(Ok(vec![(source("events", 0), Offset::ZERO)])).unwrap(),
        other => panic!("{other:?}"),
    }
    let group = |is_active| ReaderGroup { name: "speed".into(), topics: vec!["events".into()], is_active };
    assert_eq!(log.reader_groups().await.unwrap(), [group(true)]);
    assert_eq!(log.forget_group("speed").await.unwrap_err().kind(), ErrorKind::Conflict);
    drop(consumer);
    within("the worker's end", async {
        while log.reader_groups().await.unwrap() != [group(false)] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let trimmed = async || log.trim(&source("events", 0), "renamed", Offset(10), Micros::MAX).await.unwrap();
    assert_eq!(trimmed().await, 0, "it may come back");
    assert_eq!(log.forget_group("other").await.unwrap_err().kind(), ErrorKind::NotFound);
    log.forget_group("speed").await.unwrap();
    assert_eq!(log.reader_groups().await.unwrap(), []);
    assert_eq!(trimmed().await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_an_event_is_appended_once() {
    let folder = TempDir::new().unwrap();
    let (first, second) = (log_in(&folder).await, log_in(&folder).await);
    first.create_topic("out", 3).await.unwrap();
    each_record_is_appended_once(&*first, &*second, "out", &output_of("in", "g")).await;
    // It is known after a restart.
    drop((first, second));
    assert_eq!(log_in(&folder).await.take_over_output(&output_of("in", "g")).await.unwrap().next, Some(Offset(60)));
}

/// Its owner had the output when it began the append. Another one takes it over before the writer's transaction.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_waited_while_its_output_was_taken_over_is_refused() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("out", 1).await.unwrap();
    let in_out = output_of("in", "g");
    let first = log.take_over_output(&in_out).await.unwrap().appender;
    let mut write = log.store.write().await.unwrap();
    let mut append = first.append("out", made_of(0..5), Offset(5));
    assert!(futures::poll!(append.as_mut()).is_pending());
    super::output::set_owner(&mut *write, &in_out, Uuid::new_v4()).await.unwrap();
    write.commit().await.unwrap();
    let refused = within("the refusal", append).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(log.bounds("out").await.unwrap()[0].end, Offset(0));
}

/// A log file of an earlier release has no table for outputs.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_log_takes_outputs() {
    let folder = TempDir::new().unwrap();
    let log = log_in(&folder).await;
    log.create_topic("out", 1).await.unwrap();
    let mut write = log.store.write().await.unwrap();
    sqlx::raw_sql("DROP TABLE output; DROP TABLE output_owner").execute(&mut *write).await.unwrap();
    write.commit().await.unwrap();
    drop(log);
    let log = log_in(&folder).await;
    let taken = log.take_over_output(&output_of("in", "g")).await.unwrap();
    taken.appender.append("out", made_of(0..5), Offset(5)).await.unwrap();
    assert_eq!(log.take_over_output(&output_of("in", "g")).await.unwrap().next, Some(Offset(5)));
}
