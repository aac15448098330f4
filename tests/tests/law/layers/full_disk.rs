//! The law where the disk runs full for a while: meanwhile every answer is the plain SELECT, and what fails does so
//! because of the disk. Once there is space, everything goes on.

use std::time::{Duration, Instant};

use basestream_tests::disk::Disk;
use basestream_tests::{Worker, small_disk};
use batch::RunTime;
use proptest::prelude::*;
use types::{Error, ErrorKind, Result};

use super::{Installation, LAST, LITTLE_MEMORY_BYTES, Row, Step, are_supported, cases, row, run, step};
use crate::grammar::view;

const DISK_MEBIBYTES: u32 = 64;
/// Longer than anything takes that is waited for.
const LONG: Duration = Duration::from_secs(120);
/// What the operating system says of a full disk, where an error keeps only the text of what caused it.
const NO_SPACE: &str = "No space left";
/// What SQLite says of a full disk: its errors have no source. It needs room for what it reads and locks with, too: for
/// a file that it has to create, and for the index of its write-ahead log, where it answers with an I/O error
/// (`SQLITE_IOERR_SHMSIZE`).
const SQLITE_HAS_NO_SPACE: [&str; 3] = ["disk is full", "unable to open database file", "disk I/O error"];
/// A run that ended on the full disk may not have been able to release its lease, which then expires.
const LEASE_IS_HELD: &str = "is being run already";

/// What is tried while the disk is full.
#[derive(Debug, Clone)]
enum Attempt {
    Append(Vec<Row>),
    Run,
    RunFull,
    /// The worker dies. Its fresh layers are served.
    Crash,
}

impl Attempt {
    fn is_run(&self) -> bool {
        matches!(self, Attempt::Run | Attempt::RunFull)
    }
}

fn attempt() -> impl Strategy<Value = Attempt> {
    prop_oneof![
        4 => prop::collection::vec(row(), 1..25).prop_map(Attempt::Append),
        2 => Just(Attempt::Run),
        1 => Just(Attempt::RunFull),
        1 => Just(Attempt::Crash),
    ]
}

impl Installation {
    /// The disk runs full while a worker is at work.
    async fn full_disk(&mut self, disk: &mut Disk, rows: &[Row], attempts: &[Attempt]) {
        let mut worker = Some(self.start_worker(Duration::from_millis(150)).await);
        self.trace.push("the disk is full".into());
        disk.fill().unwrap();
        self.until_refused(rows).await;
        self.check().await;
        for attempt in attempts {
            if attempt.is_run() && !disk.fails_at_once() {
                self.trace.push(format!("skips {attempt:?}: the storage is asked again for many seconds"));
                continue;
            }
            self.trace.push(match attempt {
                Attempt::Append(rows) => format!("tries to append {}", rows.len()),
                other => format!("tries {other:?}"),
            });
            let outcome = self.attempt(attempt, &mut worker).await;
            self.expect_done_or_refused(outcome);
            let refreshed = self.node.refresh().await;
            self.expect_done_or_refused(refreshed);
            self.check().await;
        }
        self.trace.push("the disk has space".into());
        disk.give_space().unwrap();
        self.go_on(worker).await;
        self.check().await;
    }

    /// What SQLite has room for in its files still goes on.
    async fn until_refused(&mut self, rows: &[Row]) {
        let began = Instant::now();
        // An outage of the catalog, of the storage, or of the worker, which cannot commit.
        while self.node.outages().is_empty() {
            assert!(began.elapsed() < LONG, "timed out: the disk was never full: {:?}", self.trace);
            if let Err(error) = self.append(rows).await {
                return self.expect_refused(&error);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn attempt(&mut self, attempt: &Attempt, worker: &mut Option<Worker>) -> Result<()> {
        match attempt {
            Attempt::Append(rows) => self.append(rows).await,
            Attempt::Run => self.harness.batch_within("v", RunTime::EventClock, LITTLE_MEMORY_BYTES).await.map(drop),
            Attempt::RunFull => self.recompute().await,
            Attempt::Crash => {
                if let Some(worker) = worker.take() {
                    self.kill(worker).await;
                }
                Ok(())
            }
        }
    }

    /// If the worker died, another one goes on.
    async fn go_on(&mut self, worker: Option<Worker>) {
        let worker = worker.unwrap_or_else(|| self.harness.worker("one", Duration::from_millis(150), Some(self.fresh.clone())));
        self.expect_committed(worker).await;
        self.run_when_lease_expires().await;
        self.expect_served().await;
    }

    /// The worker commits all that was appended, without being started again.
    async fn expect_committed(&mut self, worker: Worker) {
        let committed = self.harness.committed("s", "s").await;
        assert!(committed.is_ok(), "{} is not committed: {committed:?}\n{}", self.ends, self.trace.join("\n"));
        assert!(!worker.task.is_finished(), "the worker of the full disk ended: {:?}", self.trace);
        worker.finish().await.unwrap();
        self.crashed = false;
    }

    async fn run_when_lease_expires(&self) {
        let began = Instant::now();
        loop {
            match self.harness.batch_within("v", RunTime::EventClock, LITTLE_MEMORY_BYTES).await {
                Err(error) if is_of_held_lease(&error) && began.elapsed() < LONG => tokio::time::sleep(Duration::from_millis(200)).await,
                ran => break drop(ran.unwrap()),
            }
        }
    }

    async fn expect_served(&self) {
        self.node.refresh().await.unwrap();
        let loaded = self.node.loaded().unwrap();
        assert!(loaded.vector.covers(&self.ends), "{} is served of {}: {:?}", loaded.vector, self.ends, self.trace);
    }

    fn expect_done_or_refused(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.expect_refused(&error);
        }
    }

    /// Checks that something failed because of the disk, and of nothing else.
    fn expect_refused(&mut self, error: &Error) {
        assert!(is_of_full_disk(error) || is_of_held_lease(error), "{error:?} is not of a full disk\n{}", self.trace.join("\n"));
        self.trace.push(format!("refused: {error}"));
    }
}

fn is_of_full_disk(error: &Error) -> bool {
    let text = error.to_string();
    let says_so = || text.contains(NO_SPACE) || SQLITE_HAS_NO_SPACE.iter().any(|words| text.contains(words));
    error.kind() == ErrorKind::Unavailable && (error.is_of_full_disk() || says_so())
}

fn is_of_held_lease(error: &Error) -> bool {
    error.kind() == ErrorKind::Conflict && error.message().contains(LEASE_IS_HELD)
}

async fn check_law_on_full_disk(sql: &str, before: &[Step], (rows, attempts): (&[Row], &[Attempt]), after: &[Step]) {
    let (mut disk, harness) = Disk::with_harness().await.unwrap();
    let mut installation = Installation::new(harness, sql).await;
    for step in before {
        installation.take(step).await;
    }
    installation.full_disk(&mut disk, rows, attempts).await;
    for step in after.iter().chain(&LAST) {
        installation.take(step).await;
    }
}

proptest! {
    // One case for two of those without a full disk. Each waits for a worker that tries again.
    #![proptest_config(ProptestConfig { cases: cases().div_ceil(2), max_shrink_iters: 20, ..ProptestConfig::default() })]
    fn on_this_disk_what_is_served_equals_the_plain_select(
        sql in view(),
        before in prop::collection::vec(step(), 0..6),
        rows in prop::collection::vec(row(), 1..25),
        attempts in prop::collection::vec(attempt(), 1..6),
        after in prop::collection::vec(step(), 0..4),
    ) {
        prop_assume!(are_supported(&sql, &before) && are_supported(&sql, &after));
        run(check_law_on_full_disk(&sql, &before, (&rows, &attempts), &after));
    }
}

/// On a small disk, where the environment allows to mount one.
#[test]
fn what_is_served_while_the_disk_is_full_and_after_it_equals_the_plain_select() {
    let test = "layers::full_disk::what_is_served_while_the_disk_is_full_and_after_it_equals_the_plain_select";
    if !small_disk::again(test, DISK_MEBIBYTES, &[]).unwrap() {
        on_this_disk_what_is_served_equals_the_plain_select();
    }
}
