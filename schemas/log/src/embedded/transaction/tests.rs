use tempfile::TempDir;

use super::*;
use crate::embedded::store::Store;

async fn topics(store: &Store) -> Vec<String> {
    sqlx::query_scalar("SELECT name FROM topic ORDER BY name").fetch_all(store.readers()).await.unwrap()
}

fn insert(statements: &mut Statements, name: &str) {
    let sql = statements.next();
    sql.push("INSERT INTO topic (name, identity, partitions) VALUES (").push_bind(name).push(", 'one', 1)");
}

#[tokio::test]
async fn each_statement_gets_its_own_values_and_its_own_rows() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let reads = |reads: &mut Statements| {
        for values in [vec![1_i64, 2], vec![], vec![3]] {
            let sql = reads.next();
            sql.push("SELECT value FROM json_each('[1,2,3]') WHERE value IN (");
            let mut listed = sql.separated(", ");
            for value in values {
                listed.push_bind(value);
            }
            sql.push(")");
        }
    };
    let (transaction, rows) = AppendTransaction::begin(&store, reads).await.unwrap();
    let found: Vec<Vec<i64>> = rows.map(|rows| rows.iter().map(|row| sqlx::Row::get(row, 0)).collect()).collect();
    assert_eq!(found, [vec![1, 2], vec![], vec![3]]);
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_is_dropped_changes_nothing_and_is_in_nobodys_way() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let (mut transaction, _) = AppendTransaction::begin(&store, |_| {}).await.unwrap();
    insert(transaction.statements(), "dropped");
    // It is written, and not committed.
    transaction.run().await.unwrap();
    drop(transaction);
    let (mut transaction, _) = AppendTransaction::begin(&store, |_| {}).await.unwrap();
    insert(transaction.statements(), "committed");
    transaction.commit().await.unwrap();
    assert_eq!(topics(&store).await, ["committed"]);
}

#[tokio::test]
async fn a_statement_that_fails_rolls_back_those_before_it() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let (mut transaction, _) = AppendTransaction::begin(&store, |_| {}).await.unwrap();
    insert(transaction.statements(), "once");
    insert(transaction.statements(), "once");
    insert(transaction.statements(), "twice");
    transaction.commit().await.unwrap_err();
    let (mut transaction, _) = AppendTransaction::begin(&store, |_| {}).await.unwrap();
    insert(transaction.statements(), "another");
    transaction.commit().await.unwrap();
    assert_eq!(topics(&store).await, ["another"]);
}

#[tokio::test]
async fn a_transaction_waits_for_the_one_that_holds_the_write_lock() {
    let folder = TempDir::new().unwrap();
    let (store, other) = (Store::open(folder.path()).await.unwrap(), Store::open(folder.path()).await.unwrap());
    let (mut first, _) = AppendTransaction::begin(&store, |_| {}).await.unwrap();
    insert(first.statements(), "first");
    let second = async {
        let reads = |reads: &mut Statements| {
            reads.next().push("SELECT name FROM topic");
        };
        let (_, rows) = AppendTransaction::begin(&other, reads).await.unwrap();
        rows.flatten().map(|row| sqlx::Row::get(&row, 0)).collect::<Vec<String>>()
    };
    let (found, committed) = tokio::join!(second, first.commit());
    committed.unwrap();
    assert_eq!(found, ["first"]);
}
