use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use catalog::DefinitionKind;
use serde_json::{Value, json};
use types::{ErrorKind, Result};

use crate::harness::{Harness, NOW, SilentLog, event};
use crate::json::rows;
use crate::{Described, Node, NodeSettings, SearchPath, ServingLimits, views_read};

async fn ask(harness: &Harness, sql: &str) -> Result<Vec<RecordBatch>> {
    harness.node.query(sql, Vec::new()).await?.collect().await
}

async fn described(harness: &Harness, sql: &str) -> Result<Described> {
    harness.node.describe(harness.node.read_view().unwrap(), sql, &[], SearchPath::default()).await
}

/// Each row's JSON.
async fn lines(harness: &Harness, sql: &str) -> Vec<String> {
    let batches = ask(harness, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    batches.iter().flat_map(|batch| rows(batch).unwrap()).map(|row| row.get().to_owned()).collect()
}

async fn plan(harness: &Harness, sql: &str) -> String {
    pretty_format_batches(&ask(harness, &format!("EXPLAIN {sql}")).await.unwrap()).unwrap().to_string()
}

async fn refusal(harness: &Harness, sql: &str) -> String {
    let error = ask(harness, sql).await.expect_err(sql);
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_a_table_with_a_row_for_each_key_that_has_one() {
    let harness = Harness::filled().await;
    assert_eq!(
        lines(&harness, "SELECT device, n_1h, amount_7d FROM velocity ORDER BY device NULLS FIRST").await,
        [
            r#"{"device":null,"n_1h":0,"amount_7d":"7.00"}"#,
            r#"{"device":"a","n_1h":2,"amount_7d":"115.50"}"#,
            r#"{"device":"c<&","n_1h":1,"amount_7d":"2.00"}"#,
        ]
    );
    assert_eq!(lines(&harness, "SELECT count(*) AS keys FROM velocity").await, [r#"{"keys":3}"#]);
    let by_number = "SELECT 2 AS two, min(device) AS device, count(*) AS keys FROM velocity GROUP BY two";
    assert_eq!(lines(&harness, by_number).await, [r#"{"two":2,"device":"a","keys":3}"#]);
    let by_device = "SELECT 2 AS device, count(*) AS keys FROM velocity GROUP BY device";
    assert_eq!(lines(&harness, by_device).await, [r#"{"device":2,"keys":1}"#; 3]);
    assert_eq!(lines(&harness, "SELECT * FROM totals").await, [r#"{"n":6,"amount":"125.75"}"#]);
    assert_eq!(lines(&harness, "SELECT sum(v.n_7d) AS n FROM velocity v JOIN totals t ON v.n_7d < t.n").await, [r#"{"n":5}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn naming_every_key_takes_the_lookup_path_and_answers_as_the_scan_does() {
    let harness = Harness::filled().await;
    let lookups = [
        ("SELECT * FROM velocity WHERE device = 'a'", 1, 1),
        ("SELECT n_7d FROM velocity WHERE 'a' = device AND n_7d > 100", 1, 0),
        ("SELECT * FROM velocity WHERE device IN ('a', 'nobody', 'a')", 2, 1),
        ("SELECT * FROM velocity WHERE device IN ('a', 'b', 'c<&', 'd', 'e', 'f')", 6, 2),
        ("SELECT * FROM velocity WHERE device IS NULL OR device = 'a'", 2, 2),
        ("SELECT * FROM velocity WHERE device IN ('a', NULL)", 1, 1),
        ("SELECT * FROM velocity WHERE device = ANY (ARRAY['a', NULL, 'c<&'])", 2, 2),
        ("SELECT v.device AS d, n_7d FROM velocity v WHERE v.device = 'a'::text", 1, 1),
        ("SELECT * FROM pairs WHERE device = 'a' AND status IN ('ok', 'no')", 2, 1),
        ("SELECT * FROM totals", 1, 1),
    ];
    for (sql, keys, found) in lookups {
        let plan = plan(&harness, sql).await;
        assert!(plan.contains("LookupExec: view=") && plan.contains(&format!("keys={keys}")), "{sql}: {plan}");
        assert!(!plan.contains("RepartitionExec"), "a few rows are worth no other task: {sql}: {plan}");
        assert_eq!(lines(&harness, sql).await.len(), found, "{sql}");
    }
    let scans = ["SELECT n_1h FROM velocity", "SELECT n_1h FROM velocity WHERE device > 'a'", "SELECT n FROM pairs WHERE device = 'a'"];
    for sql in scans {
        assert!(plan(&harness, sql).await.contains("ViewScanExec: view="), "{sql}");
    }
    let narrow = plan(&harness, "SELECT n_1h FROM velocity WHERE n_7d > 1").await;
    assert!(narrow.contains("parts=3 columns=[n_1h, n_7d]"), "{narrow}");
    assert_eq!(
        lines(&harness, "SELECT * FROM velocity WHERE device = 'a'").await,
        lines(&harness, "SELECT * FROM velocity WHERE device || '' = 'a'").await,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_rows_exist_is_a_column_too() {
    let harness = Harness::filled().await;
    for (column, expected) in [
        ("EXISTS (SELECT 1 FROM velocity WHERE device = 'a')", true),
        ("EXISTS (SELECT device FROM velocity WHERE device = 'nobody')", false),
        ("NOT EXISTS (SELECT * FROM velocity v WHERE device = 'nobody' ORDER BY n_1h)", true),
        ("NOT EXISTS (SELECT 1 FROM velocity) OR EXISTS (SELECT DISTINCT status FROM pairs LIMIT 2)", true),
        ("EXISTS (SELECT 1 FROM velocity LIMIT 0)", false),
        ("EXISTS (SELECT 1 FROM velocity OFFSET 3)", false),
        ("EXISTS (SELECT sum(n_1h) FROM velocity WHERE device = 'nobody')", true),
        ("EXISTS (SELECT 1)", true),
        ("EXISTS (SELECT EXISTS (SELECT 1 FROM velocity WHERE false))", true),
        ("CASE WHEN EXISTS (SELECT 1 FROM totals) THEN n > 1 ELSE false END", true),
        ("(SELECT EXISTS (SELECT 1 FROM totals))", true),
    ] {
        let sql = format!("SELECT {column} AS found FROM totals");
        assert_eq!(lines(&harness, &sql).await, [format!(r#"{{"found":{expected}}}"#)], "{column}");
    }
    let correlated = "SELECT device, EXISTS (SELECT 1 FROM velocity v WHERE v.device = p.device LIMIT 1) AS is_there, \
        NOT EXISTS (SELECT v.device FROM velocity v WHERE v.device = p.device AND v.n_1h > 1) AS is_quiet \
        FROM pairs p ORDER BY device NULLS FIRST";
    assert_eq!(
        lines(&harness, correlated).await,
        [
            r#"{"device":null,"is_there":false,"is_quiet":true}"#,
            r#"{"device":"a","is_there":true,"is_quiet":false}"#,
            r#"{"device":"b","is_there":false,"is_quiet":true}"#,
            r#"{"device":"c<&","is_there":true,"is_quiet":true}"#,
        ]
    );
    // It is true of each device, also of one without rows.
    let of_nothing = "SELECT EXISTS (SELECT sum(n_1h) FROM velocity v WHERE v.device = p.device) AS e FROM pairs p";
    ask(&harness, of_nothing).await.unwrap_err();
    let in_a_table = "SELECT count(*) AS n FROM (SELECT device, EXISTS (SELECT 1 FROM totals) AS e FROM pairs) AS t WHERE e";
    assert_eq!(lines(&harness, in_a_table).await, [r#"{"n":4}"#]);
    let described = described(&harness, "SELECT EXISTS (SELECT 1 FROM totals)").await.unwrap();
    assert_eq!(described.schema.field(0).data_type(), &arrow::datatypes::DataType::Boolean);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_of_names_the_time_of_every_view() {
    let harness = Harness::filled().await;
    let sql = "SET as_of = '2026-03-01T10:10:00Z'; SELECT device, n_1h, n_7d FROM velocity ORDER BY device NULLS FIRST";
    assert_eq!(lines(&harness, sql).await, [r#"{"device":null,"n_1h":0,"n_7d":1}"#, r#"{"device":"a","n_1h":1,"n_7d":1}"#]);
    let one = "SET as_of = '2026-03-01T10:10:00Z'; SELECT n_1h FROM velocity WHERE device = 'a'";
    assert_eq!(lines(&harness, one).await, [r#"{"n_1h":1}"#]);
    let response = harness.node.query(sql, Vec::new()).await.unwrap();
    assert!(response.meta.from_archive);
    assert_eq!(serde_json::to_value(&response.meta).unwrap()["as_of"], "2026-03-01T10:10:00Z");
    assert!(ask(&harness, "SET as_of = 'yesterday'; SELECT 1").await.unwrap_err().to_string().contains("as RFC 3339 with a zone"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_over_two_views_has_one_position() {
    let harness = Harness::filled().await;
    harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    let both = "SELECT t.n, count(*) AS keys FROM totals t CROSS JOIN velocity v GROUP BY t.n";
    assert_eq!(lines(&harness, both).await, [r#"{"n":7,"keys":4}"#]);
    let meta = harness.node.query(both, Vec::new()).await.unwrap().meta;
    assert_eq!(meta.cut, "payments/0:6,payments/1:1".parse().unwrap());
    assert_eq!(meta.versions.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_beside_a_stream_counts_the_events_that_the_stream_has() {
    let harness = Harness::filled().await;
    harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    let cut = async |sql: &str| harness.node.query(sql, Vec::new()).await.unwrap().meta.cut.to_string();
    assert_eq!(lines(&harness, "SELECT n FROM totals").await, [r#"{"n":7}"#]);
    assert_eq!(cut("SELECT n FROM totals").await, "payments/0:6,payments/1:1");

    let events = "SELECT count(*) AS n, max(__offset) + 1 AS next FROM payments WHERE __partition = 0";
    assert_eq!(lines(&harness, events).await, [r#"{"n":5,"next":5}"#]);
    assert_eq!(cut(events).await, "payments/0:5,payments/1:1", "the cut is where the rows end");
    let both = "WITH raw AS (SELECT count(*) AS n FROM payments) SELECT t.n AS counted, raw.n AS n FROM totals t CROSS JOIN raw";
    assert_eq!(lines(&harness, both).await, [r#"{"counted":6,"n":6}"#]);
    assert_eq!(cut(both).await, "payments/0:5,payments/1:1");
    assert_eq!(cut("SELECT count(*) FROM system.views").await, "payments/0:6,payments/1:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_which_nothing_was_read_is_named() {
    let harness = Harness::new().await;
    let unread = async |sql: &str| harness.node.query(sql, Vec::new()).await.unwrap().meta.unread.join(",");
    assert_eq!(unread("SELECT * FROM totals").await, "payments");
    assert_eq!(unread("SELECT * FROM payments").await, "payments");
    assert_eq!(unread("SELECT * FROM system.views").await, "");
    harness.fresh(0, &[event("1", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    assert_eq!(unread("SELECT * FROM totals").await, "");
    assert_eq!(unread("SELECT * FROM payments").await, "payments", "nothing of it is in the archive yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_bound_as_literals_are() {
    let harness = Harness::filled().await;
    let one = async |sql: &str, params: Vec<Value>| -> Result<Vec<String>> {
        let batches = harness.node.query(sql, params).await?.collect().await?;
        Ok(batches.iter().flat_map(|batch| rows(batch).unwrap()).map(|row| row.get().to_owned()).collect())
    };
    let sql = "SELECT device FROM velocity WHERE device = $1 AND n_7d >= $2";
    assert_eq!(one(sql, vec![json!("a"), json!(1)]).await.unwrap(), [r#"{"device":"a"}"#]);
    let sql = "SELECT id FROM payments WHERE ts < $1 ORDER BY id";
    assert_eq!(one(sql, vec![json!("2026-03-01T10:00:00Z")]).await.unwrap(), [r#"{"id":"4"}"#]);
    let sql = "SELECT id FROM payments WHERE (amount > 0) = $1 AND id = '4'";
    for truth in [json!(true), json!("true"), json!("yes")] {
        assert_eq!(one(sql, vec![truth]).await.unwrap(), [r#"{"id":"4"}"#]);
    }
    assert!(one(sql, vec![json!("f")]).await.unwrap().is_empty());
    let neither = one(sql, vec![json!("maybe")]).await.unwrap_err();
    assert_eq!(neither.message(), "found 'maybe' beside a BOOLEAN, expected 'true' or 'false'");
    let missing = one("SELECT device FROM velocity WHERE device = $2", vec![json!("a")]).await.unwrap_err();
    assert!(missing.message().contains("names the parameter $2, and 1 values are given"), "{missing}");
    for sql in ["SELECT device FROM velocity WHERE device = $1", "SELECT id FROM payments p WHERE $1 < p.device"] {
        let number = one(sql, vec![json!(1)]).await.unwrap_err();
        assert!(number.message().starts_with("the parameter $1 is the number 1, and "), "{number}");
        assert!(number.message().ends_with("device is TEXT: expected a text"), "{number}");
    }
    let list = one("SELECT $1", vec![json!([1])]).await.unwrap_err();
    assert!(list.message().contains("the parameter $1: found an array"), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_states_of_both_layers_can_be_read() {
    let harness = Harness::filled().await;
    harness.fresh(1, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    let batch =
        lines(&harness, "SELECT device, level, tile, events FROM velocity__batch WHERE level = '1min' AND device = 'a' ORDER BY tile")
            .await;
    assert_eq!(batch, [r#"{"device":"a","level":"1min","tile":"2026-03-02T11:30:00Z","events":1}"#], "1 minute tiles are kept for an hour");
    let speed = lines(&harness, "SELECT device, events FROM velocity__speed ORDER BY device").await;
    assert_eq!(speed, [r#"{"device":"a","events":1}"#, r#"{"device":"c<&","events":1}"#, r#"{"device":"z","events":1}"#]);
    assert_eq!(lines(&harness, "SELECT count(*) AS n FROM pairs__batch").await, [r#"{"n":0}"#]);
    assert!(lines(&harness, "SELECT * FROM velocity__speed LIMIT 1").await[0].contains("sum(amount)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn states_say_what_their_view_says_of_what_they_stand_on() {
    let harness = Harness::filled().await;
    harness.fresh(0, &[event("9", "2026-03-01T10:05:00Z", "z", "1.00", "ok")]).await;
    for (table, view) in [("velocity__batch", "velocity"), ("velocity__speed", "velocity"), ("pairs__speed", "pairs")] {
        let meta = harness.node.query(&format!("SELECT * FROM {table}"), Vec::new()).await.unwrap().meta;
        assert_eq!(meta.versions, [(view.into(), 1)].into(), "{table}");
        assert!(meta.complete_to.is_some() && !meta.degraded && meta.approximate.is_empty(), "{table}: {meta:?}");
    }
    let past = harness.node.query("SET as_of = '2026-03-01T10:10:00Z'; SELECT * FROM velocity__speed", Vec::new()).await.unwrap();
    assert!(!past.meta.from_archive, "states are those that are kept");
    assert_eq!(past.meta.cut, "payments/0:6,payments/1:1".parse().unwrap(), "with what is not committed");
    let both = "SELECT v.device FROM velocity v JOIN velocity__speed s ON v.device = s.device";
    assert_eq!(harness.node.query(both, Vec::new()).await.unwrap().meta.versions.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn states_of_a_view_that_is_not_kept_yet_are_refused_as_the_view_is() {
    let harness = Harness::filled().await;
    harness.fresh(1, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    harness.define_view("newer", "CREATE VIEW newer AS SELECT device, count(*) AS n FROM payments GROUP BY device").await;
    for table in ["newer", "newer__batch", "newer__speed"] {
        let error = ask(&harness, &format!("SELECT * FROM {table}")).await.expect_err(table);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{table}: {error}");
        assert!(error.message().contains("does not keep version 1 of the view \"newer\" yet"), "{table}: {error}");
    }
    assert!(refusal(&harness, "SELECT * FROM newer__edges").await.contains("there is no table"), "it has no JOIN");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_its_accepted_events_with_their_place() {
    let harness = Harness::filled().await;
    harness.fresh(1, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    assert_eq!(
        lines(&harness, "SELECT id, __partition, __offset FROM payments WHERE ts > '2026-03-02T11:40:00Z' ORDER BY id").await,
        [r#"{"id":"5","__partition":0,"__offset":3}"#, r#"{"id":"6","__partition":0,"__offset":4}"#],
        "what is not committed is not in the archive"
    );
    assert_eq!(lines(&harness, "SELECT count(*) AS n FROM payments").await, [r#"{"n":6}"#]);
    let first = lines(&harness, "SELECT * FROM payments LIMIT 1").await;
    assert!(first[0].starts_with(r#"{"id":"#), "{first:?}");
    let meta = harness.node.query("SELECT id FROM payments", Vec::new()).await.unwrap().meta;
    assert!(meta.complete_to.is_some() && meta.versions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_of_an_idle_stream_is_as_complete_as_it_is_read() {
    let harness = Harness::filled().await;
    let complete_to = async || harness.node.query("SELECT id FROM payments", Vec::new()).await.unwrap().meta.complete_to;
    assert_eq!(complete_to().await, Some(NOW));
    harness.complete(0, NOW + 5);
    assert_eq!(complete_to().await, Some(NOW), "the other partition is as old as its commit");
    harness.complete(1, NOW + 3);
    assert_eq!(complete_to().await, Some(NOW + 3));
    harness.fresh(1, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    assert_eq!(complete_to().await, Some(NOW), "an event that is read is not committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_can_be_asked() {
    let harness = Harness::filled().await;
    harness.log.create_topic("payments", 2).await.unwrap();
    harness.node.attach_log(harness.log.clone());
    assert_eq!(
        lines(&harness, "SELECT stream, partition, next_offset, end_offset, lag FROM system.partitions").await,
        [
            r#"{"stream":"payments","partition":0,"next_offset":5,"end_offset":0,"lag":0}"#,
            r#"{"stream":"payments","partition":1,"next_offset":1,"end_offset":0,"lag":0}"#,
        ]
    );
    assert_eq!(
        lines(&harness, "SELECT stream, sum(archived) AS archived, bool_and(balanced) AS balanced FROM system.handover GROUP BY stream")
            .await,
        [r#"{"stream":"payments","archived":6,"balanced":true}"#]
    );
    assert_eq!(
        lines(&harness, "SELECT start, \"end\" FROM system.handover ORDER BY committed_at, 1 DESC LIMIT 1").await,
        [r#"{"start":3,"end":5}"#]
    );
    assert_eq!(
        lines(&harness, "SELECT view, version, status, served, layers FROM system.views ORDER BY view").await[2],
        r#"{"view":"velocity","version":1,"status":"active","served":true,"layers":1}"#
    );
    assert_eq!(lines(&harness, "SELECT count(*) AS n FROM system.checkpoints").await, [r#"{"n":3}"#]);
    assert_eq!(lines(&harness, "SELECT * FROM system.runs").await.len(), 0);
    assert_eq!(lines(&harness, "SELECT * FROM basestream.system.runs r JOIN public.totals t ON true").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_reported_while_the_log_does_not_answer() {
    let harness = Harness::filled().await;
    harness.node.attach_log(std::sync::Arc::new(SilentLog::default()));
    assert_eq!(
        lines(&harness, "SELECT partition, next_offset, end_offset, lag FROM system.partitions").await,
        [
            r#"{"partition":0,"next_offset":5,"end_offset":null,"lag":null}"#,
            r#"{"partition":1,"next_offset":1,"end_offset":null,"lag":null}"#,
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cut_of_a_view_is_that_of_the_streams_it_reads() {
    let harness = Harness::filled().await;
    harness.other_stream("clicks", 7).await;
    harness.snapshot("velocity").await;
    let published = harness.catalog.state().await.unwrap().snapshot("velocity", 1).unwrap().cut.clone();
    assert_eq!(published.to_string(), "clicks/0:7,payments/0:5,payments/1:1", "a run is cut over all streams");
    let cut = lines(&harness, "SELECT cut FROM system.views WHERE view = 'velocity'").await;
    assert_eq!(cut, [r#"{"cut":"payments/0:5,payments/1:1"}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_can_be_written_and_no_file_be_read() {
    let harness = Harness::filled().await;
    let statements = [
        "CREATE TABLE t (a INT)",
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '/etc/passwd'",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE velocity",
        "INSERT INTO payments VALUES (1)",
        "DELETE FROM payments",
        "UPDATE payments SET id = '1'",
        "COPY (SELECT 1) TO 'x.parquet'",
        "SET datafusion.execution.batch_size = 1; SELECT 1",
        "SET as_of = 1; SELECT 1",
        "RESET datafusion.execution.batch_size",
        "BEGIN",
        "PREPARE p AS SELECT 1",
        "EXPLAIN INSERT INTO payments VALUES (1)",
        "EXPLAIN COPY (SELECT 1) TO 'x.parquet'",
        "SELECT 1; SELECT 2",
        "SET as_of = '2026-03-01T10:10:00Z'",
        "",
        "SELEC 1",
    ];
    for sql in statements {
        refusal(&harness, sql).await;
    }
    assert!(refusal(&harness, "SELECT * FROM '/etc/passwd'").await.contains("there is no table"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_table_is_answered_with_the_known_ones() {
    let harness = Harness::filled().await;
    let message = refusal(&harness, "SELECT * FROM velocty").await;
    for known in ["velocity", "velocity__batch", "velocity__speed", "payments", "system.handover"] {
        assert!(message.contains(known), "{message}");
    }
    assert!(refusal(&harness, "SELECT * FROM system.nothing").await.contains("there is no table \"system.nothing\""));
    assert!(refusal(&harness, "SELECT nothing FROM velocity").await.contains("n_7d"), "a wrong column names the right ones");
    assert!(lines(&harness, "SHOW TABLES").await.len() >= 14);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_or_an_alert_in_the_place_of_a_table_is_reported_as_one_with_how_it_is_read() {
    let harness = Harness::filled().await;
    harness.define(DefinitionKind::Sink, "scored", "CREATE SINK scored WITH (topic = 'scored') AS SELECT id FROM payments").await;
    let alert = "CREATE ALERT busy WITH (topic = 'alerts') AS SELECT device FROM velocity WHERE n_1h > 3";
    harness.define(DefinitionKind::Alert, "busy", alert).await;
    let refused = refusal(&harness, "SELECT * FROM scored").await;
    assert!(refused.contains("there is no table \"scored\", because it is a sink: ") && refused.contains("sink read scored"), "{refused}");
    let refused = refusal(&harness, "SELECT * FROM busy").await;
    assert!(refused.contains("there is no table \"busy\", because it is an alert: ") && refused.contains("alert open busy"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_has_any_escape_character() {
    let harness = Harness::filled().await;
    for (pattern, expected) in [
        ("'a%b' LIKE 'a/%b' ESCAPE '/'", true),
        ("'axb' LIKE 'a/%b' ESCAPE '/'", false),
        ("'a/b' LIKE 'A//_' ESCAPE '/'", false),
        ("'a/b' ILIKE 'A//_' ESCAPE '/'", true),
        ("'a\\%' LIKE 'a\\#%' ESCAPE '#'", true),
        ("'a\\b' NOT LIKE 'a\\_' ESCAPE ''", false),
        ("device LIKE device || '/%' ESCAPE '/'", false),
        ("device || '%' LIKE device || '/%' ESCAPE '/'", true),
    ] {
        let sql = format!("SELECT {pattern} AS x FROM velocity WHERE device = 'a'");
        assert_eq!(lines(&harness, &sql).await, [format!(r#"{{"x":{expected}}}"#)], "{sql}");
    }
    let sql = "SELECT count(*) AS n FROM velocity WHERE device LIKE $1 || '%' ESCAPE '/' AND n_1h > $2";
    let answer = harness.node.query(sql, vec![json!("c/<"), json!(0)]).await.unwrap().collect().await.unwrap();
    assert_eq!(answer.iter().flat_map(|batch| rows(batch).unwrap()).map(|row| row.get().to_owned()).collect::<Vec<_>>(), [r#"{"n":1}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_without_an_alias_is_named_as_sql() {
    let harness = Harness::filled().await;
    for (sql, expected) in [
        ("SELECT 3", vec!["3"]),
        ("SELECT 'x', NULL, true", vec!["'x'", "NULL", "true"]),
        ("SELECT n_1h + 1, device FROM velocity ORDER BY n_7d DESC LIMIT 2", vec!["velocity.n_1h + 1", "device"]),
        ("SELECT n_1h + $1 - 2 FROM velocity", vec!["velocity.n_1h + $1 - 2"]),
        // The name is another one's already.
        ("SELECT 5 AS \"3\", 3", vec!["3", "Int64(3)"]),
    ] {
        let described = described(&harness, sql).await.unwrap();
        let params = if sql.contains('$') { vec![json!(1)] } else { Vec::new() };
        let answer = harness.node.query(sql, params).await.unwrap();
        for schema in [&described.schema, &answer.schema] {
            assert_eq!(schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), expected, "{sql}");
        }
        answer.collect().await.unwrap();
    }
    assert_eq!(lines(&harness, "SELECT 3").await, [r#"{"3":3}"#]);
    let ordered = lines(&harness, "SELECT n_1h + 1, device FROM velocity ORDER BY n_7d DESC, device LIMIT 1").await;
    assert_eq!(ordered, [r#"{"velocity.n_1h + 1":3,"device":"a"}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_may_be_selected_again_and_cast() {
    let harness = Harness::filled().await;
    for (sql, expected) in [
        ("SELECT n_1h, n_1h::text, (n_1h) FROM velocity WHERE device = 'a'", r#"{"n_1h":2,"n_1h_2":"2","n_1h_3":2}"#),
        ("SELECT v.n_1h::text, v.n_1h FROM velocity v WHERE device = 'a'", r#"{"n_1h":"2","n_1h_2":2}"#),
        ("SELECT n, n::text FROM totals ORDER BY n DESC LIMIT 1", r#"{"n":6,"n_2":"6"}"#),
        ("SELECT DISTINCT n, CAST(n AS INT), n + 1 AS m FROM totals", r#"{"n":6,"n_2":6,"m":7}"#),
        ("SELECT *, n::text, 3 FROM totals", r#"{"n":6,"amount":"125.75","n_2":"6","3":3}"#),
        ("SELECT a.n, b.n FROM totals a JOIN totals b ON a.n = b.n", r#"{"n":6,"n_2":6}"#),
    ] {
        assert_eq!(lines(&harness, sql).await, [expected], "{sql}");
    }
    let sql = "SELECT n, n::text FROM totals";
    let described = described(&harness, sql).await.unwrap();
    assert!(described.schema.fields().iter().all(|field| field.name() == "n"), "{described:?}");
    assert!(plan(&harness, sql).await.contains("LookupExec: view="));
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_one_name_are_answered_under_it() {
    let harness = Harness::filled().await;
    for (sql, expected) in [
        ("SELECT n + 1, n + 1, (n + 1)::text FROM totals", r#"{"totals.n + 1":7,"totals.n + 1_2":7,"totals.n + 1_3":"7"}"#),
        ("SELECT 3, 3", r#"{"3":3,"3_2":3}"#),
        ("SELECT count(*), count(*) AS c, count(*) AS c FROM totals ORDER BY c", r#"{"count(*)":1,"c":1,"c_2":1}"#),
        ("SELECT n AS a, amount AS a, 2 AS a FROM totals ORDER BY n", r#"{"a":6,"a_2":"125.75","a_3":2}"#),
        ("SELECT n, totals.n, 7 AS b FROM totals ORDER BY n", r#"{"n":6,"n_2":6,"b":7}"#),
        ("SELECT n + 1 AS amount, amount FROM totals", r#"{"amount":7,"amount_2":"125.75"}"#),
        ("SELECT v.*, n, v.amount FROM totals v", r#"{"n":6,"amount":"125.75","n_2":6,"amount_2":"125.75"}"#),
        ("SELECT *, n + 1 AS n, 1 AS amount FROM totals", r#"{"n":6,"amount":"125.75","n_2":7,"amount_2":1}"#),
        ("SELECT n, n FROM totals UNION ALL SELECT 0, 0 FROM totals WHERE n < 0", r#"{"n":6,"n_2":6}"#),
        ("SELECT * FROM (SELECT n, n, amount AS b, amount AS b FROM totals) d", r#"{"n":6,"n_2":6,"b":"125.75","b_2":"125.75"}"#),
        ("SELECT d.amount FROM (SELECT v.*, n FROM totals v) d WHERE d.amount > 0", r#"{"amount":"125.75"}"#),
        ("WITH d AS (SELECT n AS a, n AS a, 5 AS b FROM totals) SELECT b, d.* FROM d", r#"{"b":5,"a":6,"a_2":6,"b_2":5}"#),
        ("SELECT x, z FROM (SELECT n AS a, n AS a, n AS a FROM totals) AS d (x, y, z)", r#"{"x":6,"z":6}"#),
        ("SELECT 1 AS one FROM totals WHERE n IN (SELECT c FROM (SELECT n AS c, n + 1, n + 1 FROM totals) d)", r#"{"one":1}"#),
        ("SELECT abs(n), abs(n::bigint), n + 1 FROM totals", r#"{"abs(totals.n)":6,"abs(totals.n)_2":6,"totals.n + 1":7}"#),
    ] {
        assert_eq!(lines(&harness, sql).await, [expected], "{sql}");
    }
    let sql = "SELECT n_1h + 1 AS a, n_1h AS a, $1 AS b, $1 AS b FROM velocity WHERE device = 'a'";
    let described = described(&harness, sql).await.unwrap();
    let names: Vec<&str> = described.schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!((names, described.params.len()), (vec!["a", "a", "b", "b"], 1));
    let sql = "SELECT n_1h + 1, n_1h + 1, v.*, n_1h FROM velocity v WHERE device = 'a'";
    assert!(plan(&harness, sql).await.contains("LookupExec: view="));
}

#[tokio::test(flavor = "multi_thread")]
async fn order_by_finds_the_columns_of_the_select_before_those_of_tables() {
    let harness = Harness::filled().await;
    let (texts, numbers) = ([r#"{"a":"10"}"#, r#"{"a":"9"}"#], [r#"{"a":"9"}"#, r#"{"a":"10"}"#]);
    for (sql, expected) in [
        ("SELECT a::text FROM (VALUES (9), (10)) AS t (a) ORDER BY a", texts),
        ("SELECT DISTINCT a::text FROM (VALUES (9), (10), (9)) AS t (a) ORDER BY a", texts),
        ("SELECT a::text FROM (VALUES (9), (10), (9)) AS t (a) GROUP BY a::text ORDER BY a", texts),
        ("SELECT a::text FROM (VALUES (9), (10), (9)) AS t (a) GROUP BY a ORDER BY a DESC", numbers),
        ("SELECT * FROM (SELECT a::text FROM (VALUES (9), (10)) AS t (a) ORDER BY a LIMIT 2) AS d", texts),
        ("WITH d AS (SELECT t.a::text FROM (VALUES (9), (10)) AS t (a)) SELECT d.a FROM d ORDER BY a", texts),
        ("SELECT a::text FROM (VALUES (9), (10)) AS t (a) ORDER BY t.a", numbers),
        ("SELECT a::text FROM (VALUES (9), (10)) AS t (a) ORDER BY a + 0", numbers),
    ] {
        assert_eq!(lines(&harness, sql).await, expected, "{sql}");
    }
    let sql = "SELECT a AT TIME ZONE 'UTC' FROM (VALUES (TIMESTAMPTZ '2026-05-01 12:00:00Z')) AS t (a) ORDER BY a";
    assert_eq!(lines(&harness, sql).await, [r#"{"t.a":"2026-05-01T12:00:00Z"}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_column_of_a_function_in_from_may_be_called_as_its_alias() {
    let harness = Harness::filled().await;
    let days = "SELECT count(d) AS n FROM generate_series('2026-05-01'::timestamp, '2026-05-03'::timestamp, '1 day') AS d";
    for (sql, expected) in [
        ("SELECT g FROM generate_series(1, 3) AS g WHERE g > 2", r#"{"g":3}"#),
        ("SELECT g.g + 1 AS n FROM generate_series(3, 3) g", r#"{"n":4}"#),
        ("SELECT g.value FROM generate_series(3, 3) AS g", r#"{"value":3}"#),
        ("SELECT u FROM unnest(ARRAY[3]) AS u", r#"{"u":3}"#),
        (days, r#"{"n":3}"#),
    ] {
        assert_eq!(lines(&harness, sql).await, [expected], "{sql}");
    }
    let refused = refusal(&harness, "SELECT h FROM generate_series(1, 3) AS g").await;
    assert!(refused.contains("there is no column \"h\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_different_columns_cannot_be_referred_to() {
    let harness = Harness::filled().await;
    for sql in [
        "SELECT n AS a, amount AS a FROM totals ORDER BY a",
        "SELECT *, n + 1 AS n FROM totals ORDER BY n",
        "SELECT n AS a, amount AS a, count(*) AS c FROM totals GROUP BY a",
        "SELECT d.a FROM (SELECT n AS a, amount AS a FROM totals) d",
        "SELECT d.n FROM (SELECT n, n::text FROM totals) d",
        // Without a column of the name, one of another table or of the outer query would be taken.
        "SELECT amount FROM (SELECT n AS amount, n + 1 AS amount FROM totals) d CROSS JOIN totals",
        "SELECT n FROM totals WHERE EXISTS (SELECT 1 FROM (SELECT 1 AS amount, 2 AS amount) d WHERE amount > 100)",
        "SELECT * FROM (SELECT n AS k, n + 1 AS k FROM totals) x NATURAL JOIN (SELECT n AS k FROM totals) y",
        "SELECT d.n FROM (SELECT a.n, b.n, a.n::text FROM totals a JOIN totals b ON true) d",
    ] {
        let refused = refusal(&harness, sql).await;
        assert!(refused.contains("several columns are called \""), "{sql}: {refused}");
    }
    for (sql, expected) in [
        ("SELECT n, n, missing FROM totals", "there is no column \"missing\""),
        ("SELECT n, n FROM totals ORDER BY missing", "there is no column \"missing\""),
        ("SELECT n FROM totals a JOIN totals b ON a.n = b.n", "the column \"n\" is in several of the tables"),
        ("SELECT d.n FROM (SELECT *, n + 1 AS n FROM totals) d", "the column \"n\" is in several of the tables"),
    ] {
        let refused = refusal(&harness, sql).await;
        assert!(refused.contains(expected), "{sql}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_may_be_without_seconds_and_its_zone_in_letters_of_any_case() {
    let harness = Harness::filled().await;
    let sql = "SELECT TIMESTAMP '2026-01-01 02:30' AT TIME ZONE 'europe/berlin' AS a, '2026-01-01 02:30+02'::timestamptz AS b";
    assert_eq!(lines(&harness, sql).await, [r#"{"a":"2026-01-01T01:30:00Z","b":"2026-01-01T00:30:00Z"}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_time_that_its_zone_has_twice_or_not_at_all_is_answered() {
    let harness = Harness::filled().await;
    for (local, expected) in [("2026-03-29 02:30", "2026-03-29T01:30:00Z"), ("2026-10-25 02:30", "2026-10-25T01:30:00Z")] {
        let sql = format!("SELECT TIMESTAMP '{local}' AT TIME ZONE 'europe/berlin' AS a");
        assert_eq!(lines(&harness, &sql).await, [format!(r#"{{"a":"{expected}"}}"#)], "{local}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_past_the_memory_limit_is_a_limit_or_spills() {
    let harness = Harness::filled().await;
    let sql =
        "SELECT array_agg(CAST(a.value AS TEXT) || CAST(b.value AS TEXT)) AS texts FROM range(1, 20000) a CROSS JOIN range(1, 2000) b";
    let error = ask(&harness, sql).await.expect_err("40 million texts do not fit 64 MiB");
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}

/// What cleans a folder of temporary files may remove it while the node runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_spills_also_after_somebody_has_removed_the_folder() {
    let mut cache = None;
    let harness = Harness::with_settings(|settings| {
        cache = Some(settings.cache.clone());
        NodeSettings { limits: ServingLimits { query_memory_bytes: Some(8 << 20), ..ServingLimits::default() }, ..settings }
    })
    .await;
    let sql =
        "SELECT count(*) AS keys FROM (SELECT lpad(CAST(value AS TEXT), 100, 'x') AS k FROM range(1, 100001) numbers GROUP BY 1) groups";
    assert_eq!(lines(&harness, sql).await, [r#"{"keys":100000}"#]);
    std::fs::remove_dir_all(cache.unwrap()).unwrap();
    assert_eq!(lines(&harness, sql).await, [r#"{"keys":100000}"#]);
}

/// Found by hand, with the fuzz target: the constant is computed while the query is planned, and an allocation that
/// fails ends the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_constant_past_all_memory_is_refused_and_ends_no_process() {
    let harness = Harness::filled().await;
    let refusal = refusal(&harness, "SELECT array_repeat(array_repeat(array_repeat(1, 2000), 2000), 2000)").await;
    assert!(refusal.contains("array_repeat"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_with_the_name_of_a_table_function_decides_where_its_query_stands() {
    let harness = Harness::filled().await;
    // Nothing is newer than any time, so that what is kept of it answers.
    harness.other_stream("others", 1).await;
    harness.define_view("quiet", "CREATE VIEW quiet AS SELECT count(*) AS n FROM others").await;
    harness.define_view("range", "CREATE VIEW range AS SELECT count(*) AS n FROM payments").await;
    let in_the_past = |sql: &str| format!("SET as_of = '2026-03-01T10:10:00Z'; {sql}");
    for sql in ["SELECT r.n FROM range r LEFT JOIN quiet q ON true", "SELECT n FROM totals", "SELECT n FROM range"] {
        let sql = in_the_past(sql);
        assert_eq!(lines(&harness, &sql).await, [r#"{"n":2}"#], "{sql}");
        assert!(harness.node.query(&sql, Vec::new()).await.unwrap().meta.from_archive, "{sql}");
    }
    assert_eq!(lines(&harness, "SELECT count(*) AS n FROM range(1, 10)").await, [r#"{"n":9}"#]);
}

/// DataFusion would leave all but one of them out.
#[tokio::test(flavor = "multi_thread")]
async fn a_subquery_without_a_name_is_computed_also_if_it_is_written_as_the_one_in_it() {
    let harness = Harness::filled().await;
    for (sql, expected) in [
        ("SELECT n + 1 AS n FROM (SELECT n + 1 AS n FROM (SELECT 1 AS n))", r#"{"n":3}"#),
        ("SELECT -n AS n FROM (SELECT -n AS n FROM (SELECT value AS n FROM range(5, 6)))", r#"{"n":5}"#),
        ("SELECT n * 2 AS n FROM (SELECT n FROM (SELECT n * 2 AS n FROM (SELECT 1 AS n)) WHERE n > 0)", r#"{"n":4}"#),
        ("SELECT n * n AS n FROM (SELECT n * n AS n FROM (SELECT n * n AS n FROM (SELECT 2 AS n)))", r#"{"n":256}"#),
        ("WITH a AS (SELECT substr(s, 2) AS s FROM (SELECT substr(s, 2) AS s FROM (SELECT 'abc' AS s))) SELECT s FROM a", r#"{"s":"c"}"#),
    ] {
        assert_eq!(lines(&harness, sql).await, [expected], "{sql}");
    }
}

/// Each ended the process, or held gigabytes, by one small request: as a constant while it was planned, or from a
/// view's own values.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_does_not_make_a_value_past_all_memory() {
    let harness = Harness::filled().await;
    let calls = [
        ("range", "array_length(range(1, 100000000000))"),
        ("range", "array_length(range(1, n_7d * 200000000))"),
        ("generate_series", "generate_series(1, 200000000)"),
        ("repeat", "repeat('x', 1000000000)"),
        ("repeat", "sum(length(repeat(device, 1000000)))"),
        ("lpad", "lpad('x', 300000000, 'y')"),
        ("rpad", "rpad(device, 300000000)"),
        ("array_resize", "array_resize([1], 400000000, 0)"),
        ("array_resize", "list_resize([n_7d], 400000000)"),
        ("array_repeat", "list_repeat(device, 1000000000)"),
    ];
    for (name, call) in calls {
        let refusal = refusal(&harness, &format!("SELECT {call} FROM velocity")).await;
        assert!(refusal.contains(&format!("{name} makes a value of")) && refusal.contains("expected at most 65536"), "{call}: {refusal}");
    }
    let refusal = refusal(&harness, "SELECT approx_percentile_cont(n_7d, 0.5, 1000000000000) FROM velocity").await;
    assert!(refusal.contains("expected a literal number from 1 to 10000"), "{refusal}");
}

/// The number alone would make a list of as many types.
#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_with_a_number_past_all_memory_is_refused() {
    let harness = Harness::filled().await;
    let describe = async |number: usize| {
        let sql = format!("SELECT device FROM velocity WHERE device = ${number}");
        described(&harness, &sql).await
    };
    assert_eq!(describe(65_535).await.unwrap().params.len(), 65_535);
    for number in [65_536, 4_000_000_000_000] {
        let error = describe(number).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
        assert_eq!(error.message(), format!("the query names the parameter ${number}: expected at most $65535"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_for_an_array_is_read_as_postgresql_reads_it() {
    let harness = Harness::filled().await;
    let count = async |condition: &str, params: Vec<Value>| {
        let sql = format!("SELECT count(*) AS n FROM velocity WHERE device {condition}");
        let response = harness.node.query(&sql, params).await.map_err(|error| error.message().to_owned())?;
        let batches = response.collect().await.map_err(|error| error.message().to_owned())?;
        Ok::<_, String>(rows(&batches[0]).unwrap()[0].get().to_owned())
    };
    for condition in ["= ANY ($1)", "= ANY ($1::text[])", "= ANY ('{a,\"c<&\",NULL}')", "= ANY ('{a,c<&}'::text[])"] {
        let params = if condition.contains('$') { vec![json!("{a, \"c<&\"}")] } else { Vec::new() };
        assert_eq!(count(condition, params).await, Ok(r#"{"n":2}"#.to_owned()), "{condition}");
    }
    assert_eq!(count("<> ALL ('{a}')", Vec::new()).await, Ok(r#"{"n":1}"#.to_owned()), "NULL is neither");
    assert_eq!(count("= ANY ('{}')", Vec::new()).await, Ok(r#"{"n":0}"#.to_owned()));
    assert_eq!(count("= 'a' AND n_7d = ANY ('{ 3,4}')", Vec::new()).await, Ok(r#"{"n":1}"#.to_owned()), "of the type compared with");
    let malformed = count("= ANY ($1)", vec![json!("a")]).await.unwrap_err();
    assert!(malformed.starts_with("malformed array literal: \"a\""), "{malformed}");
    let looked_up = plan(&harness, "SELECT n_7d FROM velocity WHERE device = ANY ('{a,b}')").await;
    assert!(looked_up.contains("LookupExec: view=velocity keys=2"), "{looked_up}");
}

#[tokio::test(flavor = "multi_thread")]
async fn integers_that_overflow_are_errors_where_they_are_evaluated() {
    let harness = Harness::filled().await;
    for (sql, found) in [
        ("SELECT 9223372036854775807 + 1 AS n", "9223372036854775807 + 1"),
        ("SELECT 9223372036854775806 + 1 + 1 AS n", "9223372036854775807 + 1"),
        ("SELECT -9223372036854775807 - 2 AS n", "-9223372036854775807 - 2"),
        ("SELECT -(-9223372036854775807 - 1) AS n", "-(-9223372036854775808)"),
        ("SELECT CAST(2147483647 AS INT) * CAST(2 AS INT) AS n", "2147483647 * 2"),
        ("SELECT device FROM velocity WHERE n_1h < 4611686018427387904 * 2", "4611686018427387904 * 2"),
    ] {
        assert_eq!(refusal(&harness, sql).await, format!("a number is too large: {found}"), "{sql}");
    }
    for (sql, found) in [
        ("SELECT n_7d + 9223372036854775807 AS n FROM velocity WHERE device = 'a'", "3 + 9223372036854775807"),
        ("SELECT sum(n_7d * 4611686018427387904) AS n FROM velocity WHERE device = 'a'", "3 * 4611686018427387904"),
        ("SELECT device FROM velocity WHERE -9223372036854775807 - n_7d < 0 AND device = 'a'", "-9223372036854775807 - 3"),
        ("SELECT -(n_7d - 9223372036854775807 - 4) AS n FROM velocity WHERE device = 'a'", "- -9223372036854775808"),
        ("SELECT abs(n_7d - 9223372036854775807 - 4) AS n FROM velocity WHERE device = 'a'", "abs(-9223372036854775808)"),
        ("SELECT CAST(2147483644 + n_7d AS INT) + CAST(1 AS INT) AS n FROM velocity WHERE device = 'a'", "2147483647 + 1"),
        ("SELECT 1 LIMIT 9223372036854775807 + 1", "9223372036854775807 + 1"),
        ("SELECT 1 OFFSET 9223372036854775807 * 2", "9223372036854775807 * 2"),
        ("SELECT 1 LIMIT 9999999999999999999", "9999999999999999999 does not fit BIGINT"),
    ] {
        assert_eq!(refusal(&harness, sql).await, format!("a number is too large: {found}"), "{sql}");
    }
    let named = "SELECT n_7d + 1, -n_7d, n_7d * 2 - 1 FROM velocity WHERE device = 'a'";
    assert_eq!(lines(&harness, named).await, [r#"{"velocity.n_7d + 1":4,"(- velocity.n_7d)":-3,"velocity.n_7d * 2 - 1":5}"#]);
    let guarded = "SELECT CASE WHEN n_1h < 0 THEN 9223372036854775807 + 1 ELSE 2 + 3 END AS n FROM velocity WHERE device = 'a'";
    assert_eq!(lines(&harness, guarded).await, [r#"{"n":5}"#]);
    assert_eq!(lines(&harness, "SELECT CAST(2147483647 AS INT) * 2").await, [r#"{"2147483647 * 2":4294967294}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_under_a_bound_are_answered_below_it() {
    let harness = Harness::filled().await;
    let sql = "SELECT lpad(CAST(n_7d AS TEXT), 4, '0') AS padded, repeat(device, 3) AS thrice, array_repeat(n_7d, 2) AS twice, \
               range(3) AS numbers, array_length(array_resize([n_7d], 4)) AS four FROM velocity WHERE device = 'a'";
    assert_eq!(lines(&harness, sql).await, [r#"{"padded":"0003","thrice":"aaa","twice":[3,3],"numbers":[0,1,2],"four":4}"#]);
    assert_eq!(
        lines(&harness, "SELECT count(*) AS n FROM generate_series(1, 1000000)").await,
        [r#"{"n":1000000}"#],
        "rows have no such bound"
    );
}

/// Each at its limit on a test's stack of 2 MiB, and past it as an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_without_end_is_refused_and_one_at_the_limit_is_answered() {
    let harness = Harness::filled().await;
    let chains = [
        ("SELECT 1", " + 1", "", 510),
        ("SELECT true", " AND true", "", 510),
        ("SELECT n_1h FROM velocity WHERE n_1h = 1", " OR n_1h = 1", "", 254),
        ("SELECT device", " || device", " FROM velocity", 500),
        ("SELECT 1 IS NULL", " IS NULL", "", 500),
        ("SELECT 1", "::INT", "", 500),
        ("SELECT NULL::INT", "[]", "", 64),
        ("SELECT 1", " UNION ALL SELECT 1", "", 250),
        ("SELECT count(*) FROM totals", ", totals", "", 0),
        ("WITH a AS (SELECT 1)", ", a AS (SELECT 1)", " SELECT 1", 0),
        ("", "EXPLAIN ", "SELECT 1", 1),
        ("SELECT ", "(", "1", 0),
        ("SELECT ", "NOT ", "true", 20),
        ("SELECT CAST(NULL AS ", "ARRAY<", "INT", 0),
    ];
    for (head, link, tail, most) in chains {
        let chained = |links: usize| format!("{head}{}{tail}", link.repeat(links));
        if most > 0 {
            ask(&harness, &chained(most)).await.unwrap_or_else(|error| panic!("{head}{link}..: {error}"));
        }
        for links in [1_100, 30_000] {
            let refusal = refusal(&harness, &chained(links)).await;
            assert!(refusal.contains("found more than"), "{head}{link}: {refusal}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_loads_the_views_of_its_query_alone() {
    let harness = Harness::filled().await;
    let sql = "SELECT device, n_7d FROM velocity WHERE device = 'b'";
    let node = harness.node_of(views_read(sql)).await;
    let loaded: Vec<String> = node.loaded().unwrap().views.keys().map(|view| view.name.to_string()).collect();
    assert_eq!(loaded, ["velocity"]);
    let rows = async |node: &Node| node.query(sql, Vec::new()).await.unwrap().collect().await.unwrap();
    assert_eq!(rows(&node).await, rows(&harness.node).await);
}
