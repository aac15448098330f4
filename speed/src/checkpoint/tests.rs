use std::collections::BTreeMap;

use uuid::Uuid;

use super::*;
use crate::harness::speed_layer;

/// A checkpoint of no partition, begun.
fn begin(speed: &Speed) -> Checkpoint {
    let sealed = SealedEpoch {
        record: CheckpointRecord::new(Uuid::now_v7(), "worker", 0, Vec::new()),
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
