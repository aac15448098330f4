//! The disk of one schedule in ten: it runs full, and has space again a moment later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use basestream_tests::Harness;
use basestream_tests::small_disk::SmallDisk;
use rand::Rng;
use storage::ObjectStorage;
use types::{ErrorKind, Result};

use super::{Run, STREAMS};
use crate::gate::{Gate, Way};

pub(super) enum Disk {
    /// The log, the catalog, the storage and the node's copies are on it.
    Small(SmallDisk),
    /// Where nothing can be mounted, the storage alone takes no files.
    Storage(Arc<Gate>),
}

impl Disk {
    /// An installation on a disk that can run full.
    pub(super) async fn with_harness() -> (Option<Disk>, Harness) {
        match SmallDisk::seen() {
            Some(disk) => {
                let folder = tempfile::tempdir_in(disk.path()).unwrap();
                (Some(Disk::Small(disk)), Harness::in_folder(folder).await.unwrap())
            }
            None => {
                let mut harness = Harness::new().await.unwrap();
                let gate = Gate::before(Arc::new(object_store::memory::InMemory::new()), "", Way::Fine);
                harness.storage = ObjectStorage::over(gate.clone()).unwrap();
                (Some(Disk::Storage(gate)), harness)
            }
        }
    }

    fn fill(&mut self) {
        match self {
            Disk::Small(disk) => disk.fill(0).unwrap(),
            Disk::Storage(gate) => gate.set(Way::Refused),
        }
    }

    fn give_space(&mut self) {
        match self {
            Disk::Small(disk) => disk.give_space().unwrap(),
            Disk::Storage(gate) => gate.set(Way::Fine),
        }
    }
}

impl Run {
    /// The disk runs full while one worker is at work. That worker has committed everything a moment after there is space.
    pub(super) async fn full_disk(&mut self) {
        let Some(mut disk) = self.disk.take() else { return };
        while !self.workers.is_empty() {
            self.crash_worker().await;
        }
        self.start("one", Duration::from_millis(150));
        self.trace.push("the disk is full".into());
        // A storage that does not answer is asked again for many seconds.
        let ends_at_once = matches!(disk, Disk::Small(_));
        disk.fill();
        self.is_full = true;
        self.until_refused().await;
        for _ in 0..self.rng.random_range(3..10) {
            match self.rng.random_range(0..8) {
                0..3 => self.append().await,
                3 if ends_at_once => self.batch().await,
                4 if ends_at_once => self.collect().await,
                5 => self.refresh().await,
                _ => self.check("on the way").await,
            }
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..60))).await;
        }
        self.trace.push("the disk has space".into());
        disk.give_space();
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
            // Of the worker, the catalog and the storage.
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
