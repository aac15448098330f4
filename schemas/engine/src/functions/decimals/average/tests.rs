use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Decimal128Array, Int64Array, RecordBatch};
use arrow::datatypes::{Field, Schema};
use arrow::util::display::array_value_to_string;
use datafusion::common::ScalarValue;
use num_bigint::BigInt;
use proptest::prelude::*;

use super::super::super::tests::{lowered, merged};
use super::*;
use crate::functions::Functions;
use crate::plan::planning_session;

fn batch(values: &[Option<i128>]) -> RecordBatch {
    let column = Decimal128Array::from(values.to_vec()).with_precision_and_scale(18, 2).unwrap();
    let schema = Schema::new(vec![Field::new("d", column.data_type().clone(), true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(column)]).unwrap()
}

/// The sum over the count, with 38 digits after the point, rounded half away from zero.
fn exact(values: &[i128]) -> Option<i256> {
    let count = BigInt::from(values.len());
    let sum = BigInt::from(values.iter().sum::<i128>()) * BigInt::from(10).pow(36);
    let (magnitude, is_negative) = if sum < BigInt::ZERO { (-sum, true) } else { (sum, false) };
    let (twice, doubled): (BigInt, BigInt) = (magnitude * 2 + &count, &count * 2);
    let rounded = twice.checked_div(&doubled)?;
    i256::from_string(&(if is_negative { -rounded } else { rounded }).to_string())
}

proptest! {
    #[test]
    fn an_average_is_the_exact_quotient_however_states_are_merged(
        values in prop::collection::vec(prop::option::of(-999_999..999_999i128), 1..40),
        parts in prop::collection::vec(any::<u8>(), 40),
        order in prop::collection::vec(any::<u32>(), 1..5),
    ) {
        let batch = batch(&values);
        let known: Vec<i128> = values.iter().flatten().copied().collect();
        let distinct: Vec<i128> = known.iter().copied().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        for (call, of) in [("avg(d)", &known), ("avg(DISTINCT d)", &distinct)] {
            let call = lowered(call, &batch.schema());
            prop_assert_eq!(merged(&call, &batch, &parts, &order), ScalarValue::Decimal256(exact(of), 76, 38));
        }
    }
}

#[test]
fn a_state_is_a_count_and_a_wide_sum_or_a_set() {
    let schema = batch(&[]).schema();
    for call in ["avg(d)", "avg(DISTINCT d)"] {
        let ours: Vec<DataType> = lowered(call, &schema).state_fields().unwrap().iter().map(|field| field.data_type().clone()).collect();
        let expected = match call {
            "avg(d)" => vec![DataType::UInt64, DataType::Decimal256(76, 2)],
            _ => vec![DataType::new_list(DataType::Decimal128(38, 2), true)],
        };
        assert_eq!(ours, expected, "{call}");
    }
}

#[tokio::test]
async fn averages_of_groups_and_windows_have_the_digits_of_a_quotient() {
    let columns: [(&str, ArrayRef); 2] =
        [("k", Arc::new(Int64Array::from(vec![1, 1, 1, 2]))), ("d", batch(&[Some(1), Some(2), Some(2), None]).column(0).clone())];
    let session = planning_session(&Functions::standard()).unwrap();
    session.register_batch("t", RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    let third = "0.01666666666666666666666666666666666667";
    for (sql, expected) in [
        ("SELECT avg(d) FROM t", vec![third]),
        ("SELECT mean(d) FROM t", vec![third]),
        ("SELECT avg(d) FROM t GROUP BY k ORDER BY k", vec![third, ""]),
        ("SELECT avg(d) FILTER (WHERE k = 2) FROM t", vec![""]),
        ("SELECT avg(DISTINCT d) * 100 FROM t GROUP BY k ORDER BY k", vec!["1.50000000000000000000000000000000000000", ""]),
        ("SELECT avg(k) FROM t", vec!["1.25"]),
    ] {
        let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
        let rows =
            batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| array_value_to_string(batch.column(0), row).unwrap()));
        assert_eq!(rows.collect::<Vec<_>>(), expected, "{sql}");
    }
    let sliding =
        "SELECT avg(d) OVER (ORDER BY d ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM t WHERE k = 1 ORDER BY a DESC LIMIT 1";
    let batches = session.sql(sliding).await.unwrap().collect().await.unwrap();
    assert_eq!(array_value_to_string(batches[0].column(0), 0).unwrap(), "0.02000000000000000000000000000000000000");
}
