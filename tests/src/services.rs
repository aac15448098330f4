//! Real services, when they are there: `just services up` says where.

use std::env::var;
use std::io::Write;

use uuid::Uuid;

use crate::process::Urls;

/// The values of these variables. `None`: some are not set, the test is left out, and said so.
///
/// With `BASESTREAM_REQUIRE_SERVICES=1` (CI) their absence is a failure.
pub fn needed<const N: usize>(test: &str, names: [&str; N]) -> Option<[String; N]> {
    let found: Vec<String> = names.iter().filter_map(|name| var(name).ok()).collect();
    let found: Result<[String; N], Vec<String>> = found.try_into();
    if found.is_err() {
        assert!(var("BASESTREAM_REQUIRE_SERVICES").is_err(), "{test} needs the services: {}", names.join(", "));
        // Not println!: a passing test's output is swallowed, and this is to be seen.
        let _ = writeln!(std::io::stderr(), "left out: {test} (start the services with `just services up`, then source their env file)");
    }
    found.ok()
}

/// The engines' URLs for one run of one test: a prefix, a database and a topic of its own. `None`: left out, and said so.
pub async fn engines(test: &str) -> Option<Urls> {
    let [s3, postgres, kafka] = needed(test, ["BASESTREAM_TEST_S3", "BASESTREAM_TEST_POSTGRES", "BASESTREAM_TEST_KAFKA"])?;
    let name = format!("{test}_{}", Uuid::now_v7().simple());
    let pool = sqlx::PgPool::connect(&postgres).await.unwrap_or_else(|error| panic!("PostgreSQL at BASESTREAM_TEST_POSTGRES: {error}"));
    let created = sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&pool).await;
    created.unwrap_or_else(|error| panic!("a database for {test}: {error}"));
    let server = postgres.rsplit_once('/').map_or(postgres.as_str(), |(server, _)| server);
    Some(Urls { storage: format!("{}/{name}", s3.trim_end_matches('/')), catalog: format!("{server}/{name}"), log: kafka })
}
