use arrow::array::{Decimal128Array, Decimal256Array, Int64Array, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef, i256};
use proptest::prelude::*;

use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column;

use super::super::tests::{merged, query};
use super::*;

fn schema() -> SchemaRef {
    let wide = DataType::Decimal256(76, 0);
    Arc::new(Schema::new(vec![
        Field::new("i", DataType::Int64, true),
        Field::new("d", DataType::Decimal128(38, 0), true),
        Field::new("w", wide, true),
    ]))
}

fn aggregate(on_past: OnPast, column: &str) -> AggregateFunctionExpr {
    let index = schema().index_of(column).unwrap();
    let function = Arc::new(Sum::function("sum", on_past));
    AggregateExprBuilder::new(function, vec![Arc::new(Column::new(column, index))]).schema(schema()).alias("x").build().unwrap()
}

/// Rows whose values are multiples of a third of each type's range.
fn batch(thirds: &[Option<i8>]) -> RecordBatch {
    let third = i256::from_string(&"3".repeat(76)).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(thirds.iter().map(|n| n.map(|n| i64::MAX / 3 * i64::from(n))).collect::<Int64Array>()),
        Arc::new(
            thirds
                .iter()
                .map(|n| n.map(|n| 33_333_333_333_333_333_333_333_333_333_333_333_333i128 * i128::from(n)))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(38, 0)
                .unwrap(),
        ),
        Arc::new(
            thirds
                .iter()
                .map(|n| n.map(|n| third.wrapping_mul(i256::from_i128(n.into()))))
                .collect::<Decimal256Array>()
                .with_precision_and_scale(76, 0)
                .unwrap(),
        ),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

proptest! {
    #[test]
    fn a_sum_is_right_or_past_its_type_in_every_order(
        thirds in prop::collection::vec(prop::option::weighted(0.9, -3..=3i8), 1..24),
        parts in prop::collection::vec(0..4u8, 24),
        order in prop::collection::vec(0..9u32, 4),
        column in prop::sample::select(vec!["i", "d", "w"]),
    ) {
        let sum: i32 = thirds.iter().flatten().map(|n| i32::from(*n)).sum();
        let is_past = sum.abs() > 3;
        let asked = merged(&aggregate(OnPast::Ask, column), &batch(&thirds), &parts, &order);
        prop_assert_eq!(asked, ScalarValue::Boolean(Some(is_past)));
        if !is_past {
            let value = merged(&aggregate(OnPast::Fail, column), &batch(&thirds), &parts, &order);
            let expected = match (column, thirds.iter().flatten().next()) {
                (_, None) => None,
                ("i", _) => Some((i64::MAX / 3 * i64::from(sum)).to_string()),
                (of, _) => {
                    let threes = "3".repeat(if of == "d" { 38 } else { 76 });
                    Some(i256::from_string(&threes).unwrap().wrapping_mul(i256::from_i128(sum.into())).to_string())
                }
            };
            let value = (!value.is_null()).then(|| value.to_string());
            prop_assert_eq!(value, expected);
        }
    }
}

#[tokio::test]
async fn a_query_fails_where_its_sum_is_past_its_type_and_counts_on_where_it_comes_back() {
    let of = |select: &'static str| async move { query(select).await.map_err(|error| error.to_string()) };
    let past = of("SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) AS v(x)").await.unwrap_err();
    assert!(past.contains("a sum is past the range of BIGINT"), "{past}");
    assert!(of("SELECT sum(x) FROM (VALUES (9223372036854775807), (1), (-2)) AS v(x)").await.unwrap().contains("9223372036854775806"));
    assert!(of("SELECT sum(DISTINCT x) FROM (VALUES (9223372036854775807), (1)) AS v(x)").await.unwrap_err().contains("past the range"));
    let windowed = "SELECT max(s) AS m FROM (SELECT sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s \
                    FROM (VALUES (1), (2), (4)) AS v(x))";
    assert!(of(windowed).await.unwrap().contains("| 6 |"));
    assert!(of("SELECT sum(x) AS s FROM (VALUES (1.5), (2.25)) AS v(x)").await.unwrap().contains("3.75"));
}
