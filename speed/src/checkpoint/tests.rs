use std::collections::BTreeMap;
use std::path::Path;

use catalog::Catalog;
use engine::functions::Functions;
use uuid::Uuid;

use super::*;
use crate::decide::DedupSettings;
use crate::layer::WorkerSettings;
use crate::let_go::ProcessIds;
use crate::writers::CheckpointWriters;

async fn speed_layer(folder: &Path) -> Speed {
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
            worker: "w".into(),
            group: "g".into(),
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

/// A checkpoint of no partition, begun.
fn begin(speed: &Speed) -> Checkpoint {
    let sealed = SealedEpoch {
        record: CheckpointRecord::new(Uuid::now_v7(), "w", 0, Vec::new()),
        identities: BTreeMap::new(),
        marks: Vec::new(),
        versions: BTreeMap::new(),
        archive: BTreeMap::new(),
        dead_letters: Vec::new(),
        layers: Vec::new(),
    };
    Checkpoint::begin(sealed, Vec::new(), Vec::new(), speed, CancellationToken::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checkpoints_of_a_process_are_written_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let speed = speed_layer(folder.path()).await;
    let other = speed.writers.turn().await.unwrap();
    let mut checkpoint = begin(&speed);
    let early = tokio::time::timeout(Duration::from_millis(300), checkpoint.committed()).await;
    assert!(early.is_err(), "it does not wait for the checkpoint of another worker");
    drop(other);
    let committed = async || tokio::time::timeout(Duration::from_secs(60), begin(&speed).committed()).await.expect("timed out").unwrap();
    tokio::time::timeout(Duration::from_secs(60), checkpoint.committed()).await.expect("timed out: its turn does not come").unwrap();
    // Each gives its turn back.
    committed().await;
    committed().await;
}
