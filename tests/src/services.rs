//! Real services, when they are there: `just services up` says where.

use std::env::var;
use std::io::Write;

use uuid::Uuid;

use crate::process::Urls;

/// The engines' URLs for one run of one test: a prefix, a database and a topic of its own. `None`: left out, and said so.
///
/// With `BASESTREAM_REQUIRE_SERVICES=1` (CI) their absence is a failure.
pub async fn engines(test: &str) -> Option<Urls> {
    let found = (var("BASESTREAM_TEST_S3"), var("BASESTREAM_TEST_POSTGRES"), var("BASESTREAM_TEST_KAFKA"));
    let (Ok(s3), Ok(postgres), Ok(kafka)) = found else {
        assert!(var("BASESTREAM_REQUIRE_SERVICES").is_err(), "{test} needs the services: BASESTREAM_TEST_S3, _POSTGRES, _KAFKA");
        // Not println!: a passing test's output is swallowed, and this is to be seen.
        let _ = writeln!(std::io::stderr(), "left out: {test} (start the services with `just services up`, then source their env file)");
        return None;
    };
    let name = format!("{test}_{}", Uuid::now_v7().simple());
    let pool = sqlx::PgPool::connect(&postgres).await.unwrap_or_else(|error| panic!("PostgreSQL at BASESTREAM_TEST_POSTGRES: {error}"));
    let created = sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&pool).await;
    created.unwrap_or_else(|error| panic!("a database for {test}: {error}"));
    let server = postgres.rsplit_once('/').map_or(postgres.as_str(), |(server, _)| server);
    Some(Urls { storage: format!("{}/{name}", s3.trim_end_matches('/')), catalog: format!("{server}/{name}"), log: kafka })
}
