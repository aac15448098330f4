use arrow::array::Int64Array;
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use engine::plan::session_config;

use super::*;

const EVENTS: &str = "(VALUES ('a', 'x', 1), ('a', 'x', 2), ('a', 'y', 1), ('a', NULL, 3), ('b', NULL, 1), ('c', '', 2), \
    ('c', 'x', 2), ('d', 'y', 1), ('d', 'y', 2)) AS events(device, label, n)";

#[tokio::test]
async fn texts_are_counted_as_datafusion_counts_them() {
    let counts = "count(DISTINCT label) AS labels, count(DISTINCT label) FILTER (WHERE n > 1) AS few, \
        count(DISTINCT arrow_cast(label, 'Utf8View')) AS views, count(DISTINCT n) AS numbers, count(label) AS present, count(*) AS events";
    for sql in [
        format!("SELECT device, {counts} FROM {EVENTS} GROUP BY device ORDER BY device"),
        format!("SELECT {counts} FROM {EVENTS}"),
        format!("SELECT {counts} FROM {EVENTS} WHERE n > 5"),
    ] {
        let answer = async |session: SessionContext| {
            let rows = session.sql(&sql).await.unwrap().collect().await.unwrap();
            pretty_format_batches(&rows).unwrap().to_string()
        };
        let ours = SessionContext::new_with_config(session_config());
        ours.register_udaf(count());
        assert_eq!(answer(ours).await, answer(SessionContext::new_with_config(session_config())).await, "{sql}");
    }
}

/// As in the states of views, and in GROUP BY.
#[tokio::test]
async fn the_two_zeros_are_one_value() {
    let floats =
        "(VALUES ('a', 0.0::double), ('a', -0.0::double), ('b', -0.0::double), ('b', 1.5::double), ('b', NULL)) AS events(device, x)";
    let session = SessionContext::new_with_config(session_config());
    session.register_udaf(count());
    // A FILTER and a second aggregate: a `count(DISTINCT x)` alone becomes two GROUP BYs.
    let counts = "count(DISTINCT x) AS floats, count(DISTINCT x::real) FILTER (WHERE x < 1) AS small, count(*) AS events";
    for (sql, expected) in [
        (format!("SELECT {counts} FROM {floats} GROUP BY device ORDER BY device"), [[1, 1, 2], [2, 1, 3]].as_slice()),
        (format!("SELECT {counts} FROM {floats}"), [[2, 1, 5]].as_slice()),
    ] {
        let rows = session.sql(&sql).await.unwrap().collect().await.unwrap();
        let found: Vec<[i64; 3]> = rows
            .iter()
            .flat_map(|batch| {
                let counts: Vec<&Int64Array> = batch.columns().iter().map(|column| column.as_primitive::<Int64Type>()).collect();
                (0..batch.num_rows()).map(move |row| [counts[0].value(row), counts[1].value(row), counts[2].value(row)])
            })
            .collect();
        assert_eq!(found, expected, "{sql}");
    }
}

#[test]
fn a_set_begins_small_and_those_of_several_parts_are_merged() {
    let mut parts = [["x", "y", "x"], ["y", "z", "y"]].map(|texts| {
        let mut part = DistinctTexts::default();
        assert!(part.size() < 100, "{}", part.size());
        part.update_batch(&[Arc::new(StringArray::from_iter_values(texts))]).unwrap();
        part
    });
    let mut merged = DistinctTexts::default();
    for part in &mut parts {
        let states: Vec<ArrayRef> = part.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
        merged.merge_batch(&states).unwrap();
        assert_eq!(part.evaluate().unwrap(), ScalarValue::Int64(Some(0)), "a state is taken out");
    }
    assert_eq!(merged.evaluate().unwrap(), ScalarValue::Int64(Some(3)));
}
