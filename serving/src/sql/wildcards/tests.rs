use types::{ErrorKind, Result};

use crate::harness::Harness;

const OWN: &str = "id ts device amount status";

/// The names of an answer's columns.
async fn columns(harness: &Harness, sql: &str) -> Result<String> {
    let response = harness.node.query(sql, Vec::new()).await?;
    let names: Vec<String> = response.schema.fields().iter().map(|field| field.name().clone()).collect();
    response.collect().await?;
    Ok(names.join(" "))
}

async fn assert_columns(harness: &Harness, expected: &str, queries: &[&str]) {
    for sql in queries {
        assert_eq!(columns(harness, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")), expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_star_is_the_streams_own_columns() {
    let harness = Harness::filled().await;
    let queries = [
        "SELECT * FROM payments",
        "SELECT payments.* FROM payments",
        "SELECT p.* FROM public.payments AS p",
        "SELECT * FROM \"payments\" WHERE id > '1' ORDER BY ts LIMIT 2",
        "SELECT DISTINCT * FROM payments",
        "SELECT * FROM (SELECT * FROM payments) AS p",
        "SELECT * FROM payments UNION ALL SELECT id, ts, device, amount, status FROM payments",
        "WITH p AS (SELECT * FROM payments) SELECT * FROM p",
        "WITH payments AS (SELECT * FROM payments) SELECT * FROM payments",
        "SELECT * FROM payments WHERE id IN (SELECT id FROM payments WHERE __offset > 1)",
        "SELECT a.* FROM payments a JOIN payments b ON a.__offset < b.__offset",
        "SELECT * FROM payments a NATURAL JOIN payments b",
    ];
    assert_columns(&harness, OWN, &queries).await;
    assert_columns(&harness, "id device amount status", &["SELECT * EXCEPT (ts) FROM payments", "SELECT * EXCLUDE (ts) FROM payments"])
        .await;
    assert_columns(&harness, "a b c d e", &["SELECT * FROM payments AS p (a, b, c, d, e)"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn system_columns_are_answered_where_they_are_named() {
    let harness = Harness::filled().await;
    let own = [
        "SELECT * FROM payments WHERE __offset >= 0",
        "SELECT * FROM payments p ORDER BY p.__partition, p.__offset",
        "SELECT * EXCEPT (__offset) FROM payments",
        "SELECT p.* EXCLUDE (__offset) FROM payments p",
        "SELECT p.* FROM payments p WHERE EXISTS (SELECT 1 FROM payments b WHERE b.id = p.id AND b.__offset = p.__offset)",
    ];
    assert_columns(&harness, OWN, &own).await;
    assert_columns(&harness, &format!("{OWN} __offset"), &["SELECT *, __offset FROM payments", "SELECT p.*, p.__offset FROM payments p"])
        .await;
    assert_columns(&harness, "id __offset", &["SELECT * FROM (SELECT id, __offset FROM payments) AS p"]).await;
    let shadowed = "WITH payments AS (SELECT id, __offset FROM payments) SELECT * FROM payments WHERE __offset > 0";
    assert_columns(&harness, "id __offset", &[shadowed]).await;
    assert_columns(&harness, "__partition n", &["SELECT __partition, count(*) AS n FROM payments GROUP BY __partition"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_star_over_a_join_has_the_own_columns_of_each_stream() {
    let harness = Harness::filled().await;
    let twice = format!("{OWN} {OWN}");
    let joins = [
        "SELECT * FROM payments a JOIN payments b ON a.id = b.id",
        "SELECT a.*, b.* FROM payments a JOIN payments b ON a.__offset = b.__offset AND a.__partition = b.__partition",
        "SELECT * FROM payments a JOIN payments b ON a.id = b.id WHERE a.__offset > 0",
        "SELECT * FROM payments a JOIN payments b ON a.id = b.id WHERE a.id IN (SELECT id FROM payments WHERE __offset > 0)",
        "SELECT * FROM payments a, payments b WHERE a.id = b.id",
    ];
    assert_columns(&harness, &twice, &joins).await;
    assert_columns(&harness, &format!("{OWN} ts device amount status"), &["SELECT * FROM payments a JOIN payments b USING (id)"]).await;
    assert_columns(&harness, &format!("{OWN} n amount"), &["SELECT * FROM payments CROSS JOIN totals"]).await;
    for sql in [
        "SELECT * FROM payments a JOIN payments b ON a.__offset = b.__offset",
        "SELECT a.id FROM payments a NATURAL JOIN payments b WHERE a.__offset = b.__offset",
    ] {
        let error = columns(&harness, sql).await.expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
        assert!(error.message().contains("system columns are named: expected"), "{error}");
    }
}
