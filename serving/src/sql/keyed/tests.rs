use serde_json::json;

use super::*;
use crate::harness::{Harness, event};
use crate::json::rows;
use crate::value_errors::OnValueError;

#[test]
fn nothing_but_the_plainest_form_is_read() {
    for sql in [
        "SELECT * FROM v WHERE k = 'a'",
        "select v.a, \"B\" from v where v.k = $1 and \"L\" = 7",
        "SELECT a -- of v\n FROM v WHERE k='it''s'",
        "SELECT key, day FROM orders WHERE name = 'a'",
        "SELECT \"from\", \"all\" FROM v WHERE \"interval\" = 'a'",
        "SELECT a FROM v WHERE k = 'a';",
    ] {
        assert!(PlainLookup::read(sql).is_some(), "{sql}");
    }
    for sql in [
        "",
        "SELECT a FROM v",
        "SELECT a AS b FROM v WHERE k = 'a'",
        "SELECT a b FROM v WHERE k = 'a'",
        "SELECT DISTINCT a FROM v WHERE k = 'a'",
        "SELECT count(*) FROM v WHERE k = 'a'",
        "SELECT a + 1 FROM v WHERE k = 'a'",
        "SELECT a::text FROM v WHERE k = 'a'",
        "SELECT w.a FROM v WHERE k = 'a'",
        "SELECT v.* FROM v WHERE k = 'a'",
        "SELECT current_user FROM v WHERE k = 'a'",
        "SELECT all FROM v WHERE k = 'a'",
        "SELECT distinct FROM v WHERE k = 'a'",
        "SELECT a, FROM FROM v WHERE k = 'a'",
        "SELECT a FROM v AS w WHERE k = 'a'",
        "SELECT a FROM v w WHERE k = 'a'",
        "SELECT a FROM v, w WHERE k = 'a'",
        "SELECT a FROM public.v WHERE k = 'a'",
        "SELECT a FROM v WHERE w.k = 'a'",
        "SELECT a FROM v WHERE k = 'a' OR l = 'b'",
        "SELECT a FROM v WHERE k = 'a' AND",
        "SELECT a FROM v WHERE k = 'a' LIMIT 1",
        "SELECT a FROM v WHERE k = 'a' FOR UPDATE",
        "SELECT a FROM v WHERE k = 'a'; SELECT 1",
        "SELECT a FROM v WHERE k = 'a'::text",
        "SELECT a FROM v WHERE (k = 'a')",
        "SELECT a FROM v WHERE k > 'a'",
        "SELECT a FROM v WHERE k = -1",
        "SELECT a FROM v WHERE k = l",
        "SELECT a FROM v WHERE k = NULL",
        "SELECT a FROM v WHERE NULL = 'a'",
        "SELECT a FROM v WHERE 'a' = k",
        "SELECT a FROM v WHERE k IN ('a')",
        "EXPLAIN SELECT a FROM v WHERE k = 'a'",
        "SET as_of = '2026-03-02T11:00:00Z'; SELECT a FROM v WHERE k = 'a'",
        "SELECT a FROM v WHERE k = 'a",
    ] {
        assert!(PlainLookup::read(sql).is_none(), "{sql}");
    }
}

#[test]
fn a_value_is_one_of_its_keys_type_or_none() {
    let value = |asked: Asked, data_type: DataType| asked.value(&data_type, false, &Params::Typed(Vec::new()));
    assert_eq!(value(Asked::Text("7".into()), DataType::Utf8), Some(ScalarValue::from("7")));
    assert_eq!(value(Asked::Text("7".into()), DataType::Int64), None);
    assert_eq!(value(Asked::Number("7".into()), DataType::Int64), Some(ScalarValue::Int64(Some(7))));
    assert_eq!(value(Asked::Number("7".into()), DataType::Int32), Some(ScalarValue::Int32(Some(7))));
    assert_eq!(value(Asked::Number("7".into()), DataType::Utf8), None);
    assert_eq!(value(Asked::Number("7.5".into()), DataType::Int64), None);
    assert_eq!(value(Asked::Number("5000000000".into()), DataType::Int32), None);
    assert_eq!(value(Asked::Parameter(1), DataType::Utf8), None);

    let typed = |param: ScalarValue, data_type: DataType| Asked::Parameter(1).value(&data_type, false, &Params::Typed(vec![param]));
    assert_eq!(typed(ScalarValue::Int16(Some(7)), DataType::Int64), Some(ScalarValue::Int64(Some(7))));
    assert_eq!(typed(ScalarValue::Date32(Some(7)), DataType::Date32), Some(ScalarValue::Date32(Some(7))));
    assert_eq!(typed(ScalarValue::Int64(Some(7)), DataType::Utf8), None);
    assert_eq!(typed(ScalarValue::Utf8(None), DataType::Utf8), None);
    assert_eq!(typed(ScalarValue::Float64(Some(7.0)), DataType::Float64), None);

    let uuid = |text: &str| Asked::Text(text.into()).value(&DataType::Utf8, true, &Params::Json(Vec::new()));
    let spelled = "00112233-4455-6677-8899-aabbccddeeff";
    assert_eq!(uuid(&spelled.to_uppercase()), Some(ScalarValue::from(spelled)));
    assert_eq!(uuid("no uuid"), None);
}

fn is_planned_here(harness: &Harness, principal: &Principal, sql: &str, params: &[Json]) -> bool {
    let (read_view, params) = (harness.node.read_view().unwrap(), Params::Json(params.to_vec()));
    let text = QueryText { sql, as_of: None, on_value_error: OnValueError::Fail };
    ready(harness.node.runtime(), principal, &read_view, text, &params).unwrap().is_some()
}

/// The rows of a query, its columns, which of them are UUIDs, and its meta.
async fn answer(harness: &Harness, sql: &str, params: &[Json]) -> (Vec<String>, Vec<(String, DataType)>, Vec<bool>, Meta) {
    let response = harness.node.query(sql, params.to_vec()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let columns = response.schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect();
    let (uuids, meta) = (response.uuids.clone(), response.meta.clone());
    let batches = response.collect().await.unwrap();
    let lines = batches.iter().flat_map(|batch| rows(batch).unwrap()).map(|row| row.get().to_owned()).collect();
    (lines, columns, uuids, meta)
}

/// In brackets, a condition is not of this form.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_is_the_one_of_datafusion() {
    let harness = Harness::filled().await;
    harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "a", "1.00", "ok")]).await;
    let questions = [
        ("SELECT * FROM velocity", "device = 'a'", vec![], 1),
        ("SELECT n_7d, device FROM velocity", "velocity.device = $1", vec![json!("a")], 1),
        ("select Velocity.\"amount_7d\" from VELOCITY", "Device = 'nobody'", vec![], 0),
        ("SELECT ids, n FROM pairs", "status = 'ok' AND device = $1", vec![json!("a")], 1),
        ("SELECT n FROM pairs", "status = $1 AND device = $1", vec![json!("a")], 0),
    ];
    for (head, condition, params, found) in questions {
        let (plain, other) = (format!("{head} WHERE {condition}"), format!("{head} WHERE ({condition})"));
        assert!(is_planned_here(&harness, &Principal::anonymous(), &plain, &params), "{plain}");
        assert!(!is_planned_here(&harness, &Principal::anonymous(), &other, &params), "{other}");
        let answered = answer(&harness, &plain, &params).await;
        assert_eq!(answered.0.len(), found, "{plain}");
        assert_eq!(answered, answer(&harness, &other, &params).await, "{plain}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_or_may_not_be_read_is_left_to_datafusion() {
    let harness = Harness::filled().await;
    let questions: [(&str, &[Json]); 9] = [
        ("SELECT * FROM nowhere WHERE device = 'a'", &[]),
        ("SELECT nothing FROM velocity WHERE device = 'a'", &[]),
        ("SELECT device, device FROM velocity WHERE device = 'a'", &[]),
        ("SELECT * FROM velocity WHERE n_7d = 1", &[]),
        ("SELECT * FROM velocity WHERE device = 'a' AND device = 'b'", &[]),
        ("SELECT n FROM pairs WHERE device = 'a'", &[]),
        ("SELECT * FROM velocity WHERE device = $1", &[]),
        ("SELECT * FROM velocity WHERE device = 'a'", &[Json::Null]),
        ("SELECT * FROM velocity WHERE device = $1", &[Json::Null]),
    ];
    for (sql, params) in questions {
        assert!(!is_planned_here(&harness, &Principal::anonymous(), sql, params), "{sql}");
    }
    let sql = "SELECT * FROM velocity WHERE device = 'a'";
    assert!(is_planned_here(&harness, &Principal::anonymous(), sql, &[]));
    assert!(!is_planned_here(&harness, &Principal::nobody(), sql, &[]));
}
