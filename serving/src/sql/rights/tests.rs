use std::sync::Arc;

use access::{Grant, GrantScope};
use arrow::array::RecordBatch;
use catalog::{DefinitionKind, Role};
use types::ErrorKind;

use super::*;
use crate::harness::Harness;
use crate::json::rows;

/// A reader of these views and streams alone.
fn reader(views: &[&str], streams: &[&str]) -> Arc<Principal> {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let only = GrantScope { views: set(views), streams: set(streams) };
    Arc::new(Principal::new("ann", vec![Grant { role: Role::Reader, only: Some(only) }]))
}

async fn ask(harness: &Harness, principal: &Arc<Principal>, sql: &str) -> Result<Vec<RecordBatch>> {
    harness.node.acting_for(principal.clone()).query(sql, Vec::new()).await?.collect().await
}

/// However a table is named or hidden, what it holds needs its right.
#[tokio::test(flavor = "multi_thread")]
async fn no_query_reaches_a_table_without_its_right() {
    let harness = Harness::filled().await;
    let ann = reader(&["velocity"], &[]);
    let secret = [
        "SELECT * FROM totals",
        "SELECT * FROM public.totals",
        "SELECT * FROM basestream.public.totals",
        "SELECT * FROM \"totals\"",
        "SELECT * FROM TOTALS",
        "SELECT * FROM totals__batch",
        "SELECT * FROM totals__speed",
        "SELECT * FROM payments",
        "SELECT * FROM pairs__speed WHERE device = 'a'",
        "SELECT * FROM velocity JOIN totals ON true",
        "SELECT * FROM velocity, LATERAL (SELECT * FROM totals) t",
        "SELECT (SELECT max(n) FROM totals) AS n FROM velocity",
        "SELECT device FROM velocity WHERE n_1h IN (SELECT n FROM totals)",
        "SELECT device FROM velocity WHERE EXISTS (SELECT 1 FROM totals WHERE totals.n = velocity.n_1h)",
        "WITH x AS (SELECT * FROM totals) SELECT * FROM x",
        "WITH velocity AS (SELECT * FROM totals) SELECT * FROM velocity",
        "WITH RECURSIVE r AS (SELECT n FROM totals UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
        "SELECT device FROM velocity UNION ALL SELECT device FROM pairs",
        "SELECT device FROM velocity EXCEPT SELECT device FROM pairs",
        "SELECT device FROM velocity ORDER BY (SELECT max(n) FROM totals)",
        "SELECT count(*) OVER (ORDER BY (SELECT max(n) FROM totals)) FROM velocity",
        "EXPLAIN SELECT * FROM totals",
        "EXPLAIN ANALYZE SELECT * FROM totals",
        "SET as_of = '2026-03-02T11:00:00Z'; SELECT * FROM totals",
        "SELECT * FROM system.views",
        "SELECT * FROM basestream.system.runs",
        "SELECT count(*) FROM velocity, system.checkpoints",
    ];
    for sql in secret {
        let error = ask(&harness, &ann, sql).await.expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{sql}: {error}");
        assert!(error.message().starts_with("\"ann\" may not read "), "{sql}: {error}");
    }
    // A name that means two things is never answered from the one without a right.
    let hidden = "SELECT * FROM totals WHERE EXISTS (WITH totals AS (SELECT 1) SELECT * FROM totals)";
    assert!(ask(&harness, &ann, hidden).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_needs_no_right_on_its_streams_and_a_stream_none_on_its_views() {
    let harness = Harness::filled().await;
    let ann = reader(&["velocity"], &[]);
    for sql in [
        "SELECT * FROM velocity WHERE device = 'a'",
        "SELECT * FROM velocity__batch",
        "SELECT * FROM velocity__speed",
        "SELECT v.device FROM velocity v JOIN velocity__speed s ON v.device = s.device",
        "WITH totals AS (SELECT 1 AS n) SELECT * FROM totals",
        "SELECT * FROM range(1, 3)",
        "SELECT 1",
    ] {
        assert!(ask(&harness, &ann, sql).await.is_ok(), "{sql}");
    }
    let bob = reader(&[], &["payments"]);
    assert!(ask(&harness, &bob, "SELECT id, amount FROM payments").await.is_ok());
    assert_eq!(ask(&harness, &bob, "SELECT * FROM velocity").await.unwrap_err().kind(), ErrorKind::Forbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_shows_each_what_it_may_read() {
    let harness = Harness::filled().await;
    let ann = reader(&["velocity"], &[]);
    let sql = "SELECT table_name FROM information_schema.tables WHERE table_schema <> 'information_schema' ORDER BY table_name";
    let shown = ask(&harness, &ann, sql).await.unwrap();
    let names: Vec<String> = shown.iter().flat_map(|batch| rows(batch).unwrap()).map(|row| row.get().to_owned()).collect();
    assert_eq!(names, ["velocity", "velocity__batch", "velocity__speed"].map(|name| format!("{{\"table_name\":\"{name}\"}}")));
    let columns = "SELECT * FROM information_schema.columns WHERE table_name = 'totals'";
    assert_eq!(ask(&harness, &ann, columns).await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
    // A wrong name does not list the tables of others.
    let error = ask(&harness, &ann, "SELECT * FROM tota").await.unwrap_err().to_string();
    assert!(error.contains("velocity__speed") && !error.contains("totals") && !error.contains("system"), "{error}");
    // Nor does it say what else there is.
    harness.define(DefinitionKind::Sink, "scored", "CREATE SINK scored WITH (topic = 'scored') AS SELECT id FROM payments").await;
    let error = ask(&harness, &ann, "SELECT * FROM scored").await.unwrap_err().to_string();
    assert!(error.contains("may not read the table \"scored\": ") && !error.contains("sink"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_its_right_is_refused_in_the_same_way_whether_or_not_it_is_there() {
    let harness = Harness::filled().await;
    let writer = Principal::new("ann", vec![Grant { role: Role::Writer, only: None }]);
    for principal in [reader(&["velocity"], &[]), reader(&[], &["other"]), Arc::new(writer)] {
        for (there, absent) in [("totals", "nothing"), ("payments", "nothing"), ("public.pairs__batch", "public.nothing__batch")] {
            let mut refusals = Vec::new();
            for name in [there, absent] {
                let error = ask(&harness, &principal, &format!("SELECT * FROM {name}")).await.unwrap_err();
                refusals.push((error.kind(), error.reason(), error.to_string().replace(name, "it")));
            }
            assert_eq!(refusals[0].0, ErrorKind::Forbidden, "{there}");
            assert_eq!(refusals[0], refusals[1], "{there}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_have_the_same_rights() {
    let harness = Harness::filled().await;
    let key = || crate::Keys::Text(vec![vec![("device".to_owned(), "a".to_owned())]]);
    let node = harness.node.acting_for(reader(&["velocity"], &[]));
    assert!(node.lookup("velocity", key(), None).await.is_ok());
    for other in ["pairs", "no_such_view"] {
        assert_eq!(node.lookup(other, key(), None).await.err().unwrap().kind(), ErrorKind::Forbidden, "{other}");
    }
}

/// The plan alone is enough: a right does not depend on how the text was read.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_refused_by_what_it_scans() {
    let harness = Harness::filled().await;
    let loaded = harness.node.loaded().unwrap();
    let registry = &loaded.registry;
    let table = |name: &str| TableReference::parse_str(name);
    let ann = reader(&["velocity"], &[]);
    for (name, is_allowed) in [
        ("velocity", true),
        ("velocity__batch", true),
        ("basestream.public.velocity", true),
        ("information_schema.tables", true),
        ("totals__speed", false),
        ("payments", false),
        ("system.runs", false),
        ("another.velocity", false),
    ] {
        assert_eq!(allow_table(&ann, registry, &table(name)).is_ok(), is_allowed, "{name}");
    }
}

/// SQL is a way to views and streams, and to nothing else of the machine.
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_reaches_a_file_or_writes() {
    let harness = Harness::filled().await;
    let anyone = Principal::anonymous();
    for sql in [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'file:///etc/passwd'",
        "SELECT * FROM \"/etc/passwd\"",
        "SELECT * FROM 's3://bucket/archive/a.parquet'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('/data/a.parquet')",
        "SELECT * FROM parquet_metadata('/data/a.parquet')",
        "SELECT * FROM read_json('/etc/passwd')",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT load_extension('x')",
        "CREATE EXTERNAL TABLE t (a INT) STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE TABLE t AS SELECT * FROM velocity",
        "CREATE VIEW t AS SELECT * FROM velocity",
        "CREATE FUNCTION f(INT) RETURNS INT RETURN $1",
        "COPY velocity TO '/tmp/out.csv'",
        "COPY (SELECT * FROM velocity) TO 's3://bucket/out.parquet'",
        "EXPLAIN COPY velocity TO '/tmp/out.csv'",
        "EXPLAIN CREATE EXTERNAL TABLE t (a INT) STORED AS CSV LOCATION '/etc/passwd'",
        "INSERT INTO payments SELECT * FROM payments",
        "DELETE FROM payments",
        "UPDATE payments SET amount = 0",
        "DROP TABLE velocity",
        "SET datafusion.catalog.location = '/etc'",
        "PREPARE p AS SELECT 1",
        "SELECT 1; DROP TABLE velocity",
    ] {
        let error = match harness.node.acting_for(anyone.clone()).query(sql, Vec::new()).await {
            Err(error) => error,
            Ok(response) => response.collect().await.expect_err(sql),
        };
        assert_eq!(error.kind(), ErrorKind::Input, "{sql}: {error}");
    }
}
