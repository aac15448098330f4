//! The law where the disk runs full for a while: meanwhile every answer is the plain SELECT, and what fails does so because
//! of the disk. Once there is space, everything goes on.

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
/// What SQLite and the operating system say of a full disk. SQLite needs room for what it reads and locks with, too.
const OF_A_FULL_DISK: [&str; 4] = ["disk is full", "No space left", "disk I/O error", "unable to open database file"];
/// A run that ended on the full disk may not have been able to release its lease, which then expires.
const OF_A_LEASE: &str = "is being run by another process";

/// What is tried while the disk is full.
#[derive(Debug, Clone)]
enum Attempt {
    Append(Vec<Row>),
    Run,
    RunFull,
    /// The worker dies. Its fresh layers are served.
    Crash,
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
            self.trace.push(match attempt {
                Attempt::Append(rows) => format!("tries to append {}", rows.len()),
                other => format!("tries {other:?}"),
            });
            let fails_at_once = disk.fails_at_once();
            let outcome = self.attempt(attempt, &mut worker, fails_at_once).await;
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
        // Of the worker, the catalog and the storage.
        while self.node.outages().is_empty() {
            assert!(began.elapsed() < LONG, "timed out: the disk was never full: {:?}", self.trace);
            if let Err(error) = self.append(rows).await {
                return self.expect_refused(&error);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn attempt(&mut self, attempt: &Attempt, worker: &mut Option<Worker>, fails_at_once: bool) -> Result<()> {
        match attempt {
            Attempt::Append(rows) => self.append(rows).await,
            Attempt::Run if fails_at_once => self.harness.batch_within("v", RunTime::EventClock, LITTLE_MEMORY_BYTES).await.map(drop),
            Attempt::RunFull if fails_at_once => self.recompute().await,
            Attempt::Run | Attempt::RunFull => Ok(()),
            Attempt::Crash => {
                if let Some(worker) = worker.take() {
                    self.kill(worker).await;
                }
                Ok(())
            }
        }
    }

    /// The worker commits all that was appended, without being started again. If it died, another one does.
    async fn go_on(&mut self, worker: Option<Worker>) {
        let worker = worker.unwrap_or_else(|| self.harness.worker("one", Duration::from_millis(150), Some(self.fresh.clone())));
        let committed = self.harness.committed("s", "s").await;
        assert!(committed.is_ok(), "{} is not committed: {committed:?}\n{}", self.ends, self.trace.join("\n"));
        assert!(!worker.task.is_finished(), "the worker of the full disk ended: {:?}", self.trace);
        worker.finish().await.unwrap();
        self.crashed = false;
        let began = Instant::now();
        loop {
            match self.harness.batch_within("v", RunTime::EventClock, LITTLE_MEMORY_BYTES).await {
                Err(error) if is_of_a_lease(&error) && began.elapsed() < LONG => tokio::time::sleep(Duration::from_millis(200)).await,
                ran => break drop(ran.unwrap()),
            }
        }
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
        let text = error.to_string();
        let is_of_the_disk = error.kind() == ErrorKind::Unavailable && OF_A_FULL_DISK.iter().any(|words| text.contains(words));
        assert!(is_of_the_disk || is_of_a_lease(error), "{error:?} is not of a full disk\n{}", self.trace.join("\n"));
        self.trace.push(format!("refused: {text}"));
    }
}

fn is_of_a_lease(error: &Error) -> bool {
    error.kind() == ErrorKind::Conflict && error.message().contains(OF_A_LEASE)
}

async fn holds(sql: &str, before: &[Step], (rows, attempts): (&[Row], &[Attempt]), after: &[Step]) {
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
    // One case for ten of those without a full disk. Each waits for a worker that tries again.
    #![proptest_config(ProptestConfig { cases: cases().div_ceil(10), max_shrink_iters: 20, ..ProptestConfig::default() })]
    fn on_this_disk_what_is_served_equals_the_plain_select(
        sql in view(),
        before in prop::collection::vec(step(), 0..6),
        rows in prop::collection::vec(row(), 1..25),
        attempts in prop::collection::vec(attempt(), 1..6),
        after in prop::collection::vec(step(), 0..4),
    ) {
        prop_assume!(are_supported(&sql, &before) && are_supported(&sql, &after));
        run(holds(&sql, &before, (&rows, &attempts), &after));
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
