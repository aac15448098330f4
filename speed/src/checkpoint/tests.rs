use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use futures::FutureExt;
use storage::dead_letter_schema;
use uuid::Uuid;

use super::*;
use crate::harness::speed_layer;

mod held_store;

use held_store::HeldStore;

const PATIENCE: Duration = Duration::from_secs(60);

/// A checkpoint of no partition with these files of dead letters, begun.
fn begin(speed: &Speed, dead_letters: Vec<(Arc<str>, RecordBatch)>) -> Checkpoint {
    let sealed = SealedEpoch {
        record: CheckpointRecord::new(Uuid::now_v7(), "worker", 0, Vec::new()),
        identities: BTreeMap::new(),
        topic_ids: BTreeSet::new(),
        marks: Vec::new(),
        versions: dead_letters.iter().map(|(stream, _)| (stream.clone(), 1)).collect(),
        archive: BTreeMap::new(),
        dead_letters,
        layers: Vec::new(),
    };
    Checkpoint::begin(sealed, Vec::new(), Vec::new(), speed, CancellationToken::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checkpoints_of_a_process_are_written_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let speed = speed_layer(folder.path()).await;
    let other = speed.writers.turn().await.unwrap();
    let mut checkpoint = begin(&speed, Vec::new());
    let early = tokio::time::timeout(Duration::from_millis(300), checkpoint.committed()).await;
    assert!(early.is_err(), "it does not wait for the checkpoint of another worker");
    drop(other);
    let committed = async || tokio::time::timeout(PATIENCE, begin(&speed, Vec::new()).committed()).await.expect("timed out").unwrap();
    tokio::time::timeout(PATIENCE, checkpoint.committed()).await.expect("timed out: its turn does not come").unwrap();
    // Each gives its turn back.
    committed().await;
    committed().await;
}

/// The thread that writes its files goes on: it cannot be stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_given_up_keeps_its_turn_until_its_thread_ends() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(HeldStore::new());
    let speed = Speed { storage: ObjectStorage::over(store.clone()).unwrap(), ..speed_layer(folder.path()).await };
    let checkpoint = begin(&speed, vec![("payments".into(), RecordBatch::new_empty(dead_letter_schema()))]);
    tokio::time::timeout(PATIENCE, store.reached.notified()).await.expect("timed out: nothing is written");
    checkpoint.give_up().await;
    assert!(speed.writers.turn().now_or_never().is_none(), "another checkpoint is written at the same time");
    store.allowed.add_permits(1);
    drop(tokio::time::timeout(PATIENCE, speed.writers.turn()).await.expect("timed out: the turn does not come back").unwrap());
}
