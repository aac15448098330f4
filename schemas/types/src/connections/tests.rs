use super::*;

#[tokio::test]
async fn a_connection_to_a_file_is_not_tested_before_each_use() {
    assert!(!file_pool(1).get_test_before_acquire());
    assert!(pool::<sqlx::Postgres>(1).get_test_before_acquire(), "a server may have hung up");
}

/// The only connection is to a database in memory, which would be lost with it.
#[tokio::test]
async fn a_connection_whose_transaction_was_dropped_is_used_again_without_it() {
    let pool = file_pool(1).connect("sqlite::memory:").await.unwrap();
    sqlx::raw_sql("CREATE TABLE numbers (number INTEGER)").execute(&pool).await.unwrap();
    for _ in 0..20 {
        let mut write = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::raw_sql("INSERT INTO numbers VALUES (1)").execute(&mut *write).await.unwrap();
        drop(write);
        let (count,): (i64,) = sqlx::query_as("SELECT count(*) FROM numbers").fetch_one(&pool).await.unwrap();
        assert_eq!(count, 0);
    }
}
