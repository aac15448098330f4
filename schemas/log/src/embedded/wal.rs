//! Copies the pages of the write-ahead log to the file, beside the appends.
//!
//! SQLite itself would copy them in the first commit that finds the write-ahead log long enough, and that append would
//! take until megabytes are written. Here, appends wait only while the last few pages are copied. The next append then
//! starts the write-ahead log from its beginning.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use types::{Result, threads};

use super::store::{Store, WalCopy};

/// After about this many bytes of this process's appends the pages are copied.
const DUE_BYTES: usize = 16 << 20;
/// What the pages that refer to a batch take of the write-ahead log, beside those of its records.
const BATCH_BYTES: usize = 32 << 10;
/// How often it is tried. Each time another process may be in the way: one that copies, appends or reads.
const ATTEMPTS: usize = 10;
const RETRY_EVERY: Duration = Duration::from_millis(10);

/// A handle to the task that copies, which ends with it.
#[derive(Debug)]
pub(super) struct WalCopier {
    due: mpsc::Sender<()>,
    bytes: usize,
}

impl WalCopier {
    pub(super) fn start(store: Arc<Store>) -> WalCopier {
        let (due, inbox) = mpsc::channel(1);
        threads::LOG.spawn(run(store, inbox));
        WalCopier { due, bytes: 0 }
    }

    /// Takes note of an append of batches with this many bytes of records.
    pub(super) fn appended(&mut self, batches: usize, bytes: usize) {
        self.bytes += batches * BATCH_BYTES + bytes;
        if self.bytes >= DUE_BYTES && self.due.try_send(()).is_ok() {
            self.bytes = 0;
        }
    }
}

async fn run(store: Arc<Store>, mut due: mpsc::Receiver<()>) {
    while due.recv().await.is_some() {
        if let Err(error) = copy(&store).await {
            // SQLite does it in a commit, once the write-ahead log is much longer.
            tracing::warn!(%error, "the pages of the log's write-ahead log were not copied to the file");
        }
    }
}

async fn copy(store: &Store) -> Result<()> {
    for _ in 0..ATTEMPTS {
        // The second time copies what was appended during the first one, and leaves little for the last.
        store.copy_wal(WalCopy::BesideAppends).await?;
        if store.copy_wal(WalCopy::BesideAppends).await? && store.copy_wal(WalCopy::Last).await? {
            break;
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
    Ok(())
}
