//! The disk of one schedule in ten: it runs full, and has space again a moment later.

use std::time::{Duration, Instant};

use rand::Rng;
use types::{ErrorKind, Result};

use super::{Run, STREAMS};

impl Run {
    /// The disk runs full while one worker is at work. That worker has committed everything a moment after there is
    /// space.
    pub(super) async fn full_disk(&mut self) {
        let Some(mut disk) = self.disk.take() else { return };
        while !self.workers.is_empty() {
            self.crash_worker().await;
        }
        self.start("one", Duration::from_millis(150));
        self.trace.push("the disk is full".into());
        let fails_at_once = disk.fails_at_once();
        disk.fill().unwrap();
        self.is_full = true;
        self.until_refused().await;
        for _ in 0..self.rng.random_range(3..10) {
            match self.rng.random_range(0..8) {
                0..3 => self.append().await,
                3 if fails_at_once => self.batch().await,
                4 if fails_at_once => self.collect().await,
                5 => self.refresh().await,
                _ => self.check("on the way").await,
            }
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..60))).await;
        }
        self.trace.push("the disk has space".into());
        disk.give_space().unwrap();
        self.is_full = false;
        self.disk = Some(disk);
        for (stream, _) in STREAMS {
            let committed = self.harness.committed(stream, stream).await;
            assert!(committed.is_ok(), "{stream} of {}: {committed:?}\n{}", self.model.ends, self.trace.join("\n"));
        }
        let worker = &self.workers["one"];
        assert!(!worker.task.is_finished(), "the worker of the full disk ended\n{}", self.trace.join("\n"));
    }

    /// What SQLite has room for in its files still goes on.
    async fn until_refused(&mut self) {
        let (began, refused) = (Instant::now(), self.refused);
        while self.refused == refused {
            assert!(began.elapsed() < Duration::from_secs(120), "timed out: the disk was never full\n{}", self.trace.join("\n"));
            self.append().await;
            // An outage of the catalog, of the storage, or of a worker, which cannot commit.
            self.refused += self.node().outages().len();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What came of an action; `None` where the disk was full.
    pub(super) fn done<T>(&mut self, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(error) if self.is_full && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Limit) => {
                self.trace.push(format!("refused: {error}"));
                self.refused += 1;
                None
            }
            Err(error) => panic!("{error}\n{}", self.trace.join("\n")),
        }
    }
}
