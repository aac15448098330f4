use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::prelude::{SessionContext, col};

use super::*;

/// Computes over the columns `n` and `m`, with the function for the operator.
async fn computed(operator: IntegerOperator, columns: [ArrayRef; 2]) -> Result<ArrayRef> {
    let [n, m] = columns;
    let rows = RecordBatch::try_from_iter([("n", n), ("m", m)])?;
    let session = SessionContext::new();
    let operands = match operator {
        IntegerOperator::Negate => vec![col("n")],
        _ => vec![col("n"), col("m")],
    };
    let call = Expr::ScalarFunction(ScalarFunction::new_udf(operator.function(), operands));
    let batches = session.read_batch(rows)?.select(vec![call])?.collect().await?;
    Ok(batches[0].column(0).clone())
}

fn bigints(values: [i64; 2]) -> [ArrayRef; 2] {
    values.map(|value| Arc::new(Int64Array::from(vec![Some(value), None])) as ArrayRef)
}

#[tokio::test]
async fn what_fits_is_computed_and_what_does_not_is_an_error() {
    for (operator, operands, expected) in [
        (IntegerOperator::Add, [i64::MAX - 1, 1], Some(i64::MAX)),
        (IntegerOperator::Add, [i64::MAX, 1], None),
        (IntegerOperator::Subtract, [i64::MIN + 1, 1], Some(i64::MIN)),
        (IntegerOperator::Subtract, [i64::MIN, 1], None),
        (IntegerOperator::Multiply, [1 << 61, 2], Some(1 << 62)),
        (IntegerOperator::Multiply, [1 << 62, 2], None),
        (IntegerOperator::Negate, [i64::MAX, 0], Some(-i64::MAX)),
        (IntegerOperator::Negate, [i64::MIN, 0], None),
    ] {
        match (computed(operator, bigints(operands)).await, expected) {
            (Ok(values), Some(expected)) => {
                let values = values.as_primitive::<Int64Type>();
                assert_eq!((values.value(0), values.is_null(1)), (expected, true), "{operator:?} {operands:?}");
            }
            (Err(error), None) => assert!(error.to_string().contains("Overflow happened on"), "{error}"),
            (found, _) => panic!("{operator:?} {operands:?}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_result_has_the_width_of_its_operands() {
    let ints = |value: i32| [Arc::new(Int32Array::from(vec![value])) as ArrayRef, Arc::new(Int32Array::from(vec![2]))];
    let values = computed(IntegerOperator::Multiply, ints(1 << 29)).await.unwrap();
    assert_eq!(values.as_primitive::<Int32Type>().value(0), 1 << 30);
    assert!(computed(IntegerOperator::Multiply, ints(1 << 30)).await.is_err());
}

#[test]
fn a_column_is_named_after_the_operator() {
    let sum = Expr::ScalarFunction(ScalarFunction::new_udf(IntegerOperator::Add.function(), vec![col("n"), col("m")]));
    assert_eq!(sum.schema_name().to_string(), "n + m");
    let negative = Expr::ScalarFunction(ScalarFunction::new_udf(IntegerOperator::Negate.function(), vec![col("n")]));
    assert_eq!(negative.schema_name().to_string(), Expr::Negative(Box::new(col("n"))).schema_name().to_string());
}
