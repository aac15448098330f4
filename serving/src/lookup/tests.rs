use ::types::{Error, ErrorKind};
use datafusion::common::ScalarValue;
use engine::events::parse_timestamp;
use futures::FutureExt;
use serde_json::{Value, json};

use super::{KeyRows, Keys};
use crate::answerer::WantedPaths;
use crate::harness::{Harness, NOW, event};
use crate::json::rows;
use crate::query_context::QueryContext;

const ALIKE: &str = "CREATE VIEW alike AS SELECT mine.device, count(DISTINCT theirs.device) AS devices FROM payments mine \
    JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";

fn text(pairs: &[(&str, &str)]) -> Keys {
    Keys::Text(vec![pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()])
}

fn json_keys(keys: &[Value]) -> Keys {
    Keys::Json(keys.iter().map(|key| key.as_object().cloned().unwrap()).collect())
}

async fn row(harness: &Harness, view: &str, keys: Keys, as_of: Option<&str>) -> (Value, bool) {
    let response = harness.node.lookup(view, keys, as_of.map(|text| parse_timestamp(text).unwrap())).await.unwrap();
    (serde_json::from_str(rows(&response.rows).unwrap()[0].get()).unwrap(), response.found[0])
}

#[tokio::test]
async fn a_lookup_adds_what_came_after_the_cut_to_the_snapshot() {
    let harness = Harness::filled().await;
    let (found, exists) = row(&harness, "velocity", text(&[("device", "a")]), None).await;
    assert!(exists);
    assert_eq!(
        found,
        json!({"device": "a", "n_1h": 2, "n_7d": 3, "amount_1h": "110.00", "amount_7d": "115.50", "last_seen": "2026-03-02T11:45:00Z"})
    );
    harness.fresh(1, &[event("7", "2026-03-02T11:59:00Z", "a", "0.50", "ok")]).await;
    let (found, _) = row(&harness, "velocity", text(&[("device", "a")]), None).await;
    assert_eq!(found["amount_1h"], "110.50", "a layer that is not checkpointed counts at once");
}

#[tokio::test]
async fn an_unknown_key_has_counts_of_zero_and_else_nulls() {
    let harness = Harness::filled().await;
    let (found, exists) = row(&harness, "velocity", text(&[("device", "nobody")]), None).await;
    assert!(!exists);
    assert_eq!(found, json!({"device": "nobody", "n_1h": 0, "n_7d": 0, "amount_1h": null, "amount_7d": null, "last_seen": null}));
}

#[tokio::test]
async fn null_is_a_key_like_any_other() {
    let harness = Harness::filled().await;
    let (found, exists) = row(&harness, "velocity", json_keys(&[json!({"device": null})]), None).await;
    assert!(exists);
    assert_eq!((&found["n_7d"], &found["amount_7d"]), (&json!(1), &json!("7.00")));
}

#[tokio::test]
async fn a_view_without_keys_has_one_row() {
    let harness = Harness::filled().await;
    harness.snapshot("totals").await;
    let (found, exists) = row(&harness, "totals", text(&[]), None).await;
    assert!(exists);
    assert_eq!(found, json!({"n": 6, "amount": "125.75"}));
}

#[tokio::test]
async fn a_past_time_is_answered_from_the_archive_and_the_answer_says_so() {
    let harness = Harness::filled().await;
    let at = Some(parse_timestamp("2026-03-01T10:10:00Z").unwrap());
    let response = harness.node.lookup("velocity", text(&[("device", "a")]), at).await.unwrap();
    assert!(response.meta.from_archive);
    assert_eq!(response.meta.cut, harness.node.loaded().unwrap().vector);
    assert_eq!(
        rows(&response.rows).unwrap()[0].get(),
        r#"{"device":"a","n_1h":1,"n_7d":1,"amount_1h":"5.50","amount_7d":"5.50","last_seen":"2026-03-01T10:00:00Z"}"#
    );

    let many = json_keys(&[json!({"device": "a"}), json!({"device": "b"}), json!({"device": null})]);
    let response = harness.node.lookup("velocity", many, at).await.unwrap();
    assert_eq!(response.found, [true, false, true]);
}

#[tokio::test]
async fn a_past_time_does_not_count_what_is_not_committed() {
    let harness = Harness::filled().await;
    harness.fresh(0, &[event("8", "2026-03-01T10:05:00Z", "a", "1000.00", "ok")]).await;
    let (found, _) = row(&harness, "velocity", text(&[("device", "a")]), Some("2026-03-01T10:10:00Z")).await;
    assert_eq!(found["amount_1h"], "5.50");
    let (found, _) = row(&harness, "velocity", text(&[("device", "a")]), Some("2026-03-02T12:00:00Z")).await;
    assert_eq!(found["amount_7d"], "1115.50", "states answer a time past all events, fresh ones too");
}

#[tokio::test]
async fn meta_names_the_position_the_time_and_what_is_approximate() {
    let harness = Harness::filled().await;
    let meta = harness.node.lookup("velocity", text(&[("device", "a")]), None).await.unwrap().meta;
    assert_eq!(meta.cut, "payments/0:5,payments/1:1".parse().unwrap());
    assert_eq!((meta.as_of, meta.complete_to, meta.snapshot_at), (NOW, Some(NOW), Some(NOW)));
    assert_eq!(meta.versions, [("velocity".into(), 1)].into());
    assert!(!meta.degraded && !meta.from_archive && meta.approximate.is_empty());
    let key = text(&[("device", "a"), ("status", "ok")]);
    assert_eq!(harness.node.lookup("pairs", key, None).await.unwrap().meta.approximate, ["ids"]);
}

#[tokio::test]
async fn keys_that_are_not_the_views_are_refused_by_name() {
    let harness = Harness::filled().await;
    let refused = async |view: &str, keys: Keys| harness.node.lookup(view, keys, None).await.unwrap_err();
    let cases = [
        ("velocity", text(&[]), "the key column \"device\" is missing: expected device TEXT"),
        ("velocity", text(&[("devise", "a")]), "\"devise\" is not a key column of the view: expected device TEXT"),
        ("velocity", text(&[("device", "a"), ("device", "b")]), "the key column \"device\" is given twice: expected device TEXT"),
        ("velocity", json_keys(&[json!({"device": 7})]), "the key column \"device\": found 7, expected TEXT"),
        ("velocity", json_keys(&[json!({"device": ["a"]})]), "the key column \"device\": found [\"a\"], expected TEXT"),
        ("totals", text(&[("device", "a")]), "\"device\" is not a key column of the view: expected no key: the view has one row"),
        (
            "velocity",
            Keys::Typed(vec![vec![ScalarValue::Int64(Some(1))]]),
            "the key column \"device\": found 1 of type BIGINT, expected TEXT",
        ),
        ("velocity", Keys::Typed(vec![vec![]]), "a key of 0 values: expected device TEXT"),
    ];
    for (view, keys, message) in cases {
        let error = refused(view, keys).await;
        assert_eq!((error.kind(), error.message()), (ErrorKind::Input, message));
    }
    let error = refused("velocitie", text(&[])).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("expected one of pairs, totals, velocity"), "{error}");
    let too_many = Keys::Json(vec![Default::default(); super::MAX_KEYS + 1]);
    assert_eq!(refused("totals", too_many).await.kind(), ErrorKind::Limit);
}

/// Otherwise one walk would stop every request of its thread.
#[tokio::test]
async fn walks_leave_the_asynchronous_threads_and_short_lookups_stay() {
    let harness = Harness::filled().await;
    harness.define_view("alike", ALIKE).await;
    let key = || text(&[("device", "a")]);
    let occupied = harness.node.runtime().lookups().occupied();
    let name = |device: &str| vec![("device".to_owned(), device.to_owned())];
    let mut walk = Box::pin(harness.node.lookup("alike", Keys::Text(vec![name("a"), name("nowhere")]), None));
    assert!(walk.as_mut().now_or_never().is_none(), "it was walked on the thread that asked");
    assert!(harness.node.lookup("velocity", key(), None).now_or_never().is_some(), "a plain lookup waits for walks");
    assert!(harness.node.lookup("alike", key(), None).now_or_never().is_some(), "a short walk waits for others");
    drop(occupied);
    assert_eq!(walk.await.unwrap().found, [true, false]);
}

#[tokio::test]
async fn a_cancelled_lookup_looks_no_key_up() {
    let harness = Harness::filled().await;
    harness.define_view("alike", ALIKE).await;
    for view in ["velocity", "alike"] {
        let context = QueryContext::new(harness.node.read_view().unwrap(), None, &[view]).unwrap();
        let (keys, paths) = (vec![vec![ScalarValue::from("a")]], WantedPaths::default());
        let lookup = KeyRows { context, view: view.into(), keys, columns: vec![0, 1], paths };
        let columns = lookup.key_columns().unwrap();
        assert_eq!(lookup.rows(&columns, None, &|| Ok(())).ok().map(|answers| answers.found), Some(vec![true]));
        let ended = lookup.rows(&columns, None, &|| Err(Error::unavailable("nobody waits"))).err();
        assert_eq!(ended.map(|error| error.kind()), Some(ErrorKind::Unavailable), "{view}");
    }
}

mod types {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
    use datafusion::common::ScalarValue;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::json_keys;
    use crate::lookup::Keys;

    fn typed(data_type: DataType, value: Value) -> Result<ScalarValue, String> {
        let field: FieldRef = Arc::new(Field::new("k", data_type, true));
        let keys = json_keys(&[json!({ "k": value })]).typed(&[field]);
        keys.map(|mut keys| keys.remove(0).remove(0)).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn json_values_become_the_keys_exact_types() {
        let decimal = DataType::Decimal128(18, 2);
        assert_eq!(typed(DataType::Int64, json!("9007199254740993")).unwrap(), ScalarValue::Int64(Some(9007199254740993)));
        assert_eq!(typed(DataType::Int32, json!(-7)).unwrap(), ScalarValue::Int32(Some(-7)));
        assert_eq!(typed(decimal.clone(), json!("12.5")).unwrap(), ScalarValue::Decimal128(Some(1250), 18, 2));
        assert_eq!(typed(decimal.clone(), json!(12.50)).unwrap(), ScalarValue::Decimal128(Some(1250), 18, 2));
        assert_eq!(typed(DataType::Date32, json!("1970-01-02")).unwrap(), ScalarValue::Date32(Some(1)));
        assert_eq!(typed(DataType::Boolean, json!(true)).unwrap(), ScalarValue::Boolean(Some(true)));
        assert_eq!(typed(DataType::Binary, json!("AP8=")).unwrap(), ScalarValue::Binary(Some(vec![0, 255])));
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let seconds = ScalarValue::TimestampMicrosecond(Some(1_000_000), Some("UTC".into()));
        assert_eq!(typed(time, json!("1970-01-01T01:00:01+01:00")).unwrap(), seconds);
    }

    #[test]
    fn what_would_lose_something_is_refused() {
        let decimal = DataType::Decimal128(18, 2);
        assert!(typed(decimal.clone(), json!("12.345")).unwrap_err().contains("expected DECIMAL(18,2)"));
        assert!(typed(decimal, json!(1234567890123456.2)).unwrap_err().contains("write it as a text"));
        assert!(typed(DataType::Int32, json!(3_000_000_000i64)).unwrap_err().contains("found \"3000000000\", expected INT"));
        assert!(typed(DataType::Int64, json!(1.5)).is_err());
        assert!(typed(DataType::Date32, json!("2024-13-01")).unwrap_err().contains("as YYYY-MM-DD"));
        assert!(typed(DataType::Boolean, json!(1)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_key_panic(text in any::<String>()) {
            let types = [DataType::Int64, DataType::UInt8, DataType::Float64, DataType::Decimal128(18, 2), DataType::Date32, DataType::Boolean,
                DataType::Binary, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), DataType::Timestamp(TimeUnit::Nanosecond, None)];
            for data_type in types {
                let field: FieldRef = Arc::new(Field::new("k", data_type, true));
                let _ = Keys::Text(vec![vec![("k".into(), text.clone())]]).typed(&[field]);
            }
        }
    }
}
