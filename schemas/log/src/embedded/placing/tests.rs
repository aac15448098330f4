use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::embedded::store::Store;

const ROW: &str = "(?, ?, ?, ?, ?, ?, ?)";

fn batch_at(base_offset: i64, bytes: usize) -> BatchRow {
    BatchRow { base_offset, records: 1, timestamp: 0, checksum: 0, data: vec![0; bytes] }
}

/// The lengths of all batches, by offset.
async fn lengths(store: &Store) -> Vec<i64> {
    sqlx::query_scalar("SELECT length(data) FROM batch ORDER BY base_offset").fetch_all(store.readers()).await.unwrap()
}

/// More batches than one statement inserts, and more bytes than one message has.
#[tokio::test]
async fn each_batch_is_inserted_once_when_the_transaction_is_committed() {
    let folder = TempDir::new().unwrap();
    let store = Arc::new(Store::open(folder.path()).await.unwrap());
    let sizes: Vec<usize> = (0..60).map(|nth| if nth % 7 == 3 { 3 << 20 } else { 100 + nth }).collect();
    // A reader connects while nothing is written.
    assert_eq!(lengths(&store).await, [0_i64; 0]);
    let (mut transaction, _) = AppendTransaction::begin(&store, |_| {}).await.unwrap();
    let mut inserts = Inserts::default();
    for (nth, size) in sizes.iter().enumerate() {
        inserts.add((1, 0), batch_at(nth as i64, *size), &mut transaction).await.unwrap();
    }
    inserts.finish(transaction.statements());
    assert_eq!(lengths(&store).await, [0_i64; 0]);
    transaction.commit().await.unwrap();
    assert_eq!(lengths(&store).await, sizes.iter().map(|size| *size as i64).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_batches_of_several_partitions_are_inserted_by_one_statement() {
    let folder = TempDir::new().unwrap();
    let store = Arc::new(Store::open(folder.path()).await.unwrap());
    let (mut transaction, _) = AppendTransaction::begin(&store, |_| {}).await.unwrap();
    let mut inserts = Inserts::default();
    for number in 0..ROWS_AT_ONCE as i32 + 3 {
        inserts.add((1, number), batch_at(0, 1_000), &mut transaction).await.unwrap();
    }
    inserts.finish(transaction.statements());
    let rows: Vec<usize> = transaction.statements().text().split(';').map(|statement| statement.matches(ROW).count()).collect();
    assert_eq!(rows, [ROWS_AT_ONCE, 3]);
}
