use arrow::datatypes::Fields;
use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use engine::plan::TextType;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::Meta;
use crate::harness::{Harness, VELOCITY, definition, event};
use crate::json::rows;
use crate::lookup::MAX_KEYS;
use crate::sql::SessionSettings;
use crate::value_errors::OnValueError;

mod law;

#[test]
fn a_text_is_one_query_without_a_time() {
    assert!(parsed("SELECT a FROM v WHERE k = 'a';").is_some());
    for sql in [
        "",
        "SELECT a FROM v WHERE k = 'a'; SELECT 1",
        "SET as_of = '2026-03-02T11:00:00Z'; SELECT a FROM v WHERE k = 'a'",
        &format!("SELECT a FROM v WHERE k = '{}'", "a".repeat(MAX_TEXT_BYTES)),
    ] {
        assert!(parsed(sql).is_none(), "{sql}");
    }
}

/// What a key of this type may be.
fn values(condition: &str, (data_type, is_uuid): (DataType, bool), params: Vec<ScalarValue>) -> Option<Vec<ScalarValue>> {
    let lookup = parsed(&format!("SELECT a FROM v WHERE k {condition}")).unwrap_or_else(|| panic!("{condition}"));
    Key { data_type: &data_type, is_uuid, has_zone: false }.values(&lookup.keys[0].1, &Params::Typed(params))
}

#[test]
fn a_value_is_one_of_its_keys_type_or_none() {
    let value = |condition: &str, data_type: DataType| values(condition, (data_type, false), Vec::new());
    let only = |value: ScalarValue| Some(vec![value]);
    assert_eq!(value("= '7'", DataType::Utf8), only(ScalarValue::from("7")));
    assert_eq!(value("= '7'", DataType::Int64), None);
    assert_eq!(value("= '7'::bigint", DataType::Int64), only(ScalarValue::Int64(Some(7))));
    assert_eq!(value("= 'x'::bigint", DataType::Int64), None);
    assert_eq!(value("= 7", DataType::Int64), only(ScalarValue::Int64(Some(7))));
    assert_eq!(value("= -7", DataType::Int16), only(ScalarValue::Int16(Some(-7))));
    assert_eq!(value("= 7", DataType::Int32), only(ScalarValue::Int32(Some(7))));
    assert_eq!(value("= 7::text", DataType::Utf8), None);
    assert_eq!(value("= 7", DataType::Utf8), None);
    assert_eq!(value("= 5000000000", DataType::Int32), None);
    assert_eq!(value("= $1", DataType::Utf8), None);
    assert_eq!(value("= '2026-05-01'", DataType::Date32), only(ScalarValue::Date32(Some(20_574))));
    assert_eq!(value("= '2026-05-01T12:00:00'", DataType::Date32), None);
    assert_eq!(value("= DATE '2026-05-01'", DataType::Date32), only(ScalarValue::Date32(Some(20_574))));
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let noon = ScalarValue::TimestampMicrosecond(Some(1_777_636_800_000_000), Some("UTC".into()));
    for spelled in ["= '2026-05-01T12:00:00Z'", "= '2026-05-01 14:00:00+02:00'", "= TIMESTAMPTZ '2026-05-01T12:00:00Z'"] {
        assert_eq!(value(spelled, time.clone()), only(noon.clone()), "{spelled}");
    }
    assert_eq!(value("= '2026-05-01T12:00:00.0000001Z'", time.clone()), None, "no time has as many digits");
    assert_eq!(value("= '2026-05-01T12:00:00.0000001Z'::timestamptz", time.clone()), None);
    assert_eq!(value("= 'noon'", time), None);

    let typed = |param: ScalarValue, data_type: DataType| values("= $1", (data_type, false), vec![param]);
    assert_eq!(typed(ScalarValue::Int16(Some(7)), DataType::Int64), only(ScalarValue::Int64(Some(7))));
    assert_eq!(typed(ScalarValue::Date32(Some(7)), DataType::Date32), only(ScalarValue::Date32(Some(7))));
    assert_eq!(typed(ScalarValue::Int64(Some(7)), DataType::Utf8), None);
    assert_eq!(typed(ScalarValue::Utf8(None), DataType::Utf8), None);
    assert_eq!(typed(ScalarValue::Float64(Some(7.0)), DataType::Float64), None);

    let spelled = "00112233-4455-6677-8899-aabbccddeeff";
    let uuid = |text: &str| values(&format!("= '{text}'"), (DataType::Utf8, true), Vec::new());
    assert_eq!(uuid(&spelled.to_uppercase()), only(ScalarValue::from(spelled)));
    assert_eq!(uuid("no uuid"), None);
    // A cast gives the one spelling, whatever the key is.
    for is_uuid in [false, true] {
        let cast = |condition: &str, params: Vec<ScalarValue>| values(condition, (DataType::Utf8, is_uuid), params);
        let upper = spelled.to_uppercase();
        assert_eq!(cast(&format!("= '{upper}'::uuid"), Vec::new()), only(ScalarValue::from(spelled)));
        assert_eq!(cast("= $1::uuid", vec![ScalarValue::from(upper.as_str())]), only(ScalarValue::from(spelled)));
        assert_eq!(cast("= $1::uuid", vec![ScalarValue::from("no uuid")]), None);
    }
}

#[test]
fn of_a_list_each_value_counts_once_and_null_never() {
    let texts = |condition: &str, params: Vec<ScalarValue>| values(condition, (DataType::Utf8, false), params);
    let both = Some(vec![ScalarValue::from("b"), ScalarValue::from("a")]);
    assert_eq!(texts("IN ('b', 'a', NULL, 'b')", Vec::new()), both);
    assert_eq!(texts("IN ($1, $2::text, 'a')", vec![ScalarValue::from("b"), ScalarValue::from("a")]), both);
    assert_eq!(texts("IN ('b', 7)", Vec::new()), None);
    assert_eq!(texts("IN (NULL)", Vec::new()), None);
    assert_eq!(texts("= NULL", Vec::new()), None);

    let array = |items: &[ScalarValue], item: &DataType| vec![ScalarValue::List(ScalarValue::new_list_nullable(items, item))];
    let of_texts = array(&["b", "a", "b"].map(ScalarValue::from), &DataType::Utf8);
    assert_eq!(texts("= ANY ($1)", of_texts.clone()), both);
    assert_eq!(texts("= ANY ($1::text[])", of_texts.clone()), both);
    assert_eq!(texts("= ANY ($1::bigint[])", of_texts.clone()), None);
    assert_eq!(texts("= ANY ($1)", array(&[ScalarValue::from("b"), ScalarValue::Utf8(None)], &DataType::Utf8)).unwrap().len(), 1);
    assert_eq!(texts("= ANY ($1)", array(&[], &DataType::Utf8)), None);
    assert_eq!(texts("= ANY ($1)", vec![ScalarValue::from("b")]), None);
    assert_eq!(texts("= $1", of_texts.clone()), None);
    let date = |params: Vec<ScalarValue>| values("= ANY ($1)", (DataType::Date32, false), params);
    assert_eq!(date(array(&[ScalarValue::from("2026-05-01")], &DataType::Utf8)), None, "no array of texts is one of dates");

    let small = array(&[7, 8].map(|value| ScalarValue::Int16(Some(value))), &DataType::Int16);
    let whole = values("= ANY ($1)", (DataType::Int64, false), small);
    assert_eq!(whole, Some(vec![ScalarValue::Int64(Some(7)), ScalarValue::Int64(Some(8))]));
}

fn is_planned_here(harness: &Harness, principal: &Principal, sql: &str, params: &Params) -> bool {
    let read_view = Arc::new(harness.node.read_view().unwrap());
    let text = QueryText { sql, settings: SessionSettings::default(), on_value_error: OnValueError::Fail };
    ready(harness.node.runtime(), principal, &read_view, text, params).unwrap().is_some()
}

/// What a query is answered.
#[derive(Debug, PartialEq)]
struct Answered {
    columns: Fields,
    text_types: Vec<TextType>,
    meta: Meta,
    rows: Vec<String>,
}

async fn answer(harness: &Harness, sql: &str, params: &Params) -> Result<Answered> {
    let response = match params.clone() {
        Params::Json(params) => harness.node.query(sql, params).await?,
        Params::Typed(params) => harness.node.query_typed(None, sql, params, SessionSettings::default()).await?,
    };
    let (columns, text_types, meta) = (response.schema.fields().clone(), response.text_types.clone(), response.meta.clone());
    let batches = response.collect().await?;
    let names = |fields: &Fields| fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    assert!(batches.iter().all(|batch| names(batch.schema_ref().fields()) == names(&columns)), "{sql}");
    let mut rows: Vec<String> = batches.iter().flat_map(|batch| rows(batch).unwrap()).map(|row| row.get().to_owned()).collect();
    rows.sort();
    Ok(Answered { columns, text_types, meta, rows })
}

/// With what all kinds of keys can be asked of.
async fn harness() -> Harness {
    let harness = Harness::filled().await;
    for (name, select) in [
        ("by_day", "CAST(ts AS DATE) AS day, count(*) AS n FROM payments GROUP BY CAST(ts AS DATE)"),
        ("by_time", "ts, count(*) AS n FROM payments GROUP BY ts"),
        ("by_units", "CAST(amount AS BIGINT) AS units, count(*) AS n FROM payments GROUP BY CAST(amount AS BIGINT)"),
        (
            "alike",
            "mine.device, count(DISTINCT theirs.device) AS devices FROM payments mine \
             JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device",
        ),
    ] {
        harness.define_view(name, &format!("CREATE VIEW {name} AS SELECT {select}")).await;
    }
    harness
}

/// In brackets, a condition is not of this form.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_is_the_one_of_datafusion() {
    let harness = harness().await;
    harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "a", "1.00", "ok")]).await;
    let text = |text: &str| json!(text);
    let queries = [
        ("SELECT * FROM velocity", "device = 'a'", vec![], 1),
        ("SELECT n_7d, device FROM velocity", "velocity.device = $1", vec![text("a")], 1),
        ("select Velocity.\"amount_7d\" from VELOCITY", "Device = 'nobody'", vec![], 0),
        ("SELECT ids, n FROM pairs", "status = 'ok' AND device = $1", vec![text("a")], 1),
        ("SELECT n FROM pairs", "status = $1 AND device = $1", vec![text("a")], 0),
        ("SELECT v.device, n_7d AS count FROM velocity v", "v.device = $1::text", vec![text("a")], 1),
        ("SELECT n_7d \"N\", device AS n_7d FROM velocity AS \"V\"", "\"V\".device = CAST('a' AS TEXT)", vec![], 1),
        ("SELECT * FROM velocity", "device IN ('a', $1, 'nobody', NULL, 'a')", vec![text("c<&")], 2),
        ("SELECT n FROM pairs", "device IN ('a', 'c<&') AND status IN ('ok', 'no')", vec![], 2),
        ("SELECT * FROM alike", "device = 'a'", vec![], 1),
        ("SELECT devices FROM alike", "device IN ('a', 'c<&', 'nobody')", vec![], 2),
        ("SELECT * FROM by_units", "units IN (7, $1)", vec![json!(10)], 2),
        ("SELECT * FROM by_day", "day IN ('2026-03-01', DATE '2026-03-02')", vec![], 2),
        ("SELECT * FROM by_time", "ts IN ('2026-03-02T11:30:00Z', $1::timestamptz)", vec![text("2026-03-01T11:00:00+02:00")], 2),
    ];
    for (head, condition, params, found) in queries {
        let (plain, other) = (format!("{head} WHERE {condition}"), format!("{head} WHERE ({condition})"));
        let params = Params::Json(params);
        assert!(is_planned_here(&harness, &Principal::anonymous(), &plain, &params), "{plain}");
        assert!(!is_planned_here(&harness, &Principal::anonymous(), &other, &params), "{other}");
        let answered = answer(&harness, &plain, &params).await.unwrap();
        assert_eq!(answered.rows.len(), found, "{plain}");
        assert_eq!(answered, answer(&harness, &other, &params).await.unwrap(), "{plain}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_a_time_is_read_in_the_zone_of_the_session() {
    let harness = harness().await;
    let sql = "SELECT n FROM by_time WHERE ts = '2026-03-02 17:00:00'";
    for (time_zone, found) in [(Some("Asia/Kolkata"), 1), (None, 0)] {
        let settings = SessionSettings { time_zone, ..SessionSettings::default() };
        let response = harness.node.query_typed(None, sql, Vec::new(), settings).await.unwrap();
        let rows: usize = response.collect().await.unwrap().iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(rows, found, "{time_zone:?}");
    }
    let read_view = Arc::new(harness.node.read_view().unwrap());
    let is_planned = |sql: &str, params: Vec<ScalarValue>| {
        let settings = SessionSettings { time_zone: Some("Asia/Kolkata"), ..SessionSettings::default() };
        let text = QueryText { sql, settings, on_value_error: OnValueError::Fail };
        ready(harness.node.runtime(), &Principal::anonymous(), &read_view, text, &Params::Typed(params)).unwrap().is_some()
    };
    assert!(is_planned("SELECT * FROM velocity WHERE device = 'a'", Vec::new()));
    let time = ScalarValue::TimestampMicrosecond(Some(1_772_451_000_000_000), Some("UTC".into()));
    let times = ScalarValue::List(ScalarValue::new_list_nullable(std::slice::from_ref(&time), &time.data_type()));
    assert!(is_planned("SELECT n FROM by_time WHERE ts = $1", vec![time.clone()]), "a time depends on no zone");
    assert!(is_planned("SELECT n FROM by_time WHERE ts = $1::timestamptz", vec![time]));
    assert!(is_planned("SELECT n FROM by_time WHERE ts = ANY ($1)", vec![times]));
    for (condition, params) in [
        ("ts = '2026-03-02 17:00:00'", Vec::new()),
        ("ts = '2026-03-02 17:00:00'::timestamptz", Vec::new()),
        ("ts = $1", vec![ScalarValue::from("2026-03-02 17:00:00")]),
    ] {
        assert!(!is_planned(&format!("SELECT n FROM by_time WHERE {condition}"), params), "{condition}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_with_parameters_is_parsed_once() {
    let harness = Harness::filled().await;
    let runtime = harness.node.runtime();
    let (with, without) = ("SELECT * FROM velocity WHERE device = $1", "SELECT * FROM velocity WHERE device = 'a'");
    for (device, found) in [("a", 1), ("nobody", 0), ("c<&", 1)] {
        let answered = answer(&harness, with, &Params::Json(vec![json!(device)])).await.unwrap();
        assert_eq!(answered.rows.len(), found, "{device}");
    }
    answer(&harness, without, &Params::Json(Vec::new())).await.unwrap();
    let kept = runtime.plain_lookups().get(with).unwrap();
    assert!(Arc::ptr_eq(&kept, &known_lookup(runtime, with).unwrap()));
    assert!(runtime.plain_lookups().get(without).is_none(), "it may never come again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_a_changed_view_has_the_columns_of_the_version_that_answers() {
    let harness = Harness::filled().await;
    let change = async |versions: Vec<(u32, &str, DefinitionStatus)>| {
        let record = |(version, sql, status): (u32, &str, DefinitionStatus)| {
            let Add::Definition(record) = definition(DefinitionKind::View, "velocity", sql) else { panic!("a definition is added") };
            Add::Definition(DefinitionRecord { version, status, ..record })
        };
        let add = versions.into_iter().map(record).collect();
        harness.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
        harness.node.refresh().await.unwrap();
    };
    let answered = async |read_view: &ReadView, sql: &str| {
        let params = vec![ScalarValue::from("a")];
        let response = harness.node.query_typed(Some(read_view.clone()), sql, params, SessionSettings::default()).await?;
        let (columns, text_types) = (response.schema.fields().clone(), response.text_types.clone());
        let batches = response.collect().await?;
        let rows: Vec<String> = batches.iter().flat_map(|batch| rows(batch).unwrap()).map(|row| row.get().to_owned()).collect();
        Ok::<_, types::Error>((columns, text_types, rows))
    };
    let before = harness.node.read_view().unwrap();
    let changed = "CREATE VIEW velocity AS SELECT max(amount) AS most, device, count(*) AS n_7d FROM payments GROUP BY device";
    answered(&before, "SELECT * FROM velocity WHERE device = $1").await.unwrap();
    change(vec![(1, VELOCITY, DefinitionStatus::Kept), (2, changed, DefinitionStatus::Active)]).await;
    let after = harness.node.read_view().unwrap().with_served_versions();
    for (read_view, row) in [
        (&after, r#"{"most":"100.00","device":"a","n_7d":3}"#),
        (&before, r#"{"device":"a","n_1h":2,"n_7d":3,"amount_1h":"110.00","amount_7d":"115.50","last_seen":"2026-03-02T11:45:00Z"}"#),
        (&after, r#"{"most":"100.00","device":"a","n_7d":3}"#),
    ] {
        let (_, _, found) = answered(read_view, "SELECT * FROM velocity WHERE device = $1").await.unwrap();
        assert_eq!(found, [row]);
        for columns in ["*", "n_7d AS n, device"] {
            let select = format!("SELECT {columns} FROM velocity WHERE");
            let plain = answered(read_view, &format!("{select} device = $1")).await.unwrap();
            assert_eq!(plain, answered(read_view, &format!("{select} (device = $1)")).await.unwrap(), "{columns}");
        }
    }
    change(vec![(1, VELOCITY, DefinitionStatus::Retired), (2, changed, DefinitionStatus::Retired)]).await;
    let dropped = harness.node.read_view().unwrap();
    let refused = async |condition: &str| {
        let answer = answered(&dropped, &format!("SELECT * FROM velocity WHERE {condition}")).await;
        answer.expect_err("there is no such view").message().to_owned()
    };
    assert_eq!(refused("device = $1").await, refused("(device = $1)").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_read_counts_as_asked_for() {
    let harness = Harness::filled().await;
    let asked = || harness.node.read_view().unwrap().view("velocity").unwrap().snapshot.as_ref().unwrap().asked();
    let before = asked();
    let (sql, params) = ("SELECT * FROM velocity WHERE device = 'a'", Params::Json(Vec::new()));
    assert!(is_planned_here(&harness, &Principal::anonymous(), sql, &params));
    assert!(asked() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_or_may_not_be_read_is_left_to_datafusion() {
    let harness = Harness::filled().await;
    let queries: [(&str, &[Json]); 16] = [
        ("SELECT * FROM nowhere WHERE device = 'a'", &[]),
        ("SELECT nothing FROM velocity WHERE device = 'a'", &[]),
        ("SELECT device, device FROM velocity WHERE device = 'a'", &[]),
        ("SELECT device, n_7d AS device FROM velocity WHERE device = 'a'", &[]),
        ("SELECT n_7d AS \"Int64(3)\" FROM velocity WHERE device = 'a'", &[]),
        ("SELECT velocity.n_7d FROM velocity v WHERE device = 'a'", &[]),
        ("SELECT * FROM velocity WHERE n_7d = 1", &[]),
        ("SELECT * FROM velocity WHERE device = 'a' AND device = 'b'", &[]),
        ("SELECT n FROM pairs WHERE device = 'a'", &[]),
        ("SELECT * FROM velocity WHERE device = $1", &[]),
        ("SELECT * FROM velocity WHERE device = 'a'", &[Json::Null]),
        ("SELECT * FROM velocity WHERE device = $1", &[Json::Null]),
        ("SELECT * FROM velocity WHERE device IN ('a', 7)", &[]),
        ("SELECT * FROM velocity WHERE device IN (NULL)", &[]),
        ("SELECT * FROM velocity WHERE device = CAST('no uuid' AS UUID)", &[]),
        ("SELECT * FROM velocity WHERE device = ANY ($1)", &[Json::Array(Vec::new())]),
    ];
    for (sql, params) in queries {
        assert!(!is_planned_here(&harness, &Principal::anonymous(), sql, &Params::Json(params.to_vec())), "{sql}");
    }
    let keys = |count: usize| Params::Typed(vec![ScalarValue::List(ScalarValue::new_list_nullable(&numbered(count), &DataType::Utf8))]);
    let (sql, none) = ("SELECT * FROM velocity WHERE device = ANY ($1)", Params::Json(Vec::new()));
    assert!(is_planned_here(&harness, &Principal::anonymous(), sql, &keys(MAX_KEYS)));
    assert!(!is_planned_here(&harness, &Principal::anonymous(), sql, &keys(MAX_KEYS + 1)));
    let sql = "SELECT * FROM velocity WHERE device = 'a'";
    assert!(is_planned_here(&harness, &Principal::anonymous(), sql, &none));
    assert!(!is_planned_here(&harness, &Principal::nobody(), sql, &none));
}

/// This many texts.
fn numbered(count: usize) -> Vec<ScalarValue> {
    (0..count).map(|number| ScalarValue::from(number.to_string())).collect()
}
