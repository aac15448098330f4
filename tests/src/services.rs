//! Real services: `just services up` starts them and prints their addresses.
//!
//! A test that needs them is marked `#[ignore = "needs services: .."]`, so that a plain `cargo test` reports it as
//! ignored. `tests/services/test` runs it, and it fails if its service is missing.

use std::env::var;

use uuid::Uuid;

use crate::process::Urls;

/// Returns the values of these variables. Panics if one is not set.
pub fn needed<const N: usize>(names: [&str; N]) -> [String; N] {
    names.map(|name| var(name).unwrap_or_else(|_| panic!("{name} is not set: `just services up`, then source its env file")))
}

/// Returns the engines' URLs for one run of one test, with a prefix, a database and a topic that no other run uses.
pub async fn engines(test: &str) -> Urls {
    let [s3, postgres, kafka] = needed(["BASESTREAM_TEST_S3", "BASESTREAM_TEST_POSTGRES", "BASESTREAM_TEST_KAFKA"]);
    let name = format!("{test}_{}", Uuid::now_v7().simple());
    let pool = sqlx::PgPool::connect(&postgres).await.unwrap_or_else(|error| panic!("PostgreSQL at BASESTREAM_TEST_POSTGRES: {error}"));
    let created = sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&pool).await;
    created.unwrap_or_else(|error| panic!("a database for {test}: {error}"));
    let server = postgres.rsplit_once('/').map_or(postgres.as_str(), |(server, _)| server);
    Urls { storage: format!("{}/{name}", s3.trim_end_matches('/')), catalog: format!("{server}/{name}"), log: kafka }
}
