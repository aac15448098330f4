//! A speed layer in memory for tests: an empty catalog, an empty storage, and an embedded log in a folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use engine::functions::Functions;
use storage::ObjectStorage;

use crate::decide::DedupSettings;
use crate::layer::{Speed, WorkerSettings};
use crate::released::ProcessIds;
use crate::writers::CheckpointWriters;

/// Its clock always shows the epoch, and one worker writes a checkpoint at a time.
pub(crate) async fn speed_layer(folder: &Path) -> Speed {
    Speed {
        catalog: Catalog::open("sqlite::memory:").await.unwrap(),
        storage: ObjectStorage::open("memory://").unwrap(),
        log: event_log::open(&format!("file://{}", folder.join("log").display()), &BTreeMap::new()).await.unwrap(),
        functions: Functions::standard(),
        fresh: None,
        sinks: None,
        registration: None,
        ids: ProcessIds::new(DedupSettings { memory_bytes: 1 << 20, folder: folder.join("dedup") }, 1),
        writers: CheckpointWriters::new(1),
        settings: WorkerSettings {
            worker: "worker".into(),
            group: "basestream".into(),
            checkpoint_interval: Duration::from_secs(10),
            checkpoint_bytes: 1 << 20,
            merged_beside_rows: 20,
            max_future: Duration::from_secs(600),
            partitions: 1,
            accept_gap: false,
        },
        clock: Arc::new(|| 0),
        progress: Default::default(),
    }
}
