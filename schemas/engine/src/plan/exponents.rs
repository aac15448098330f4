//! Writes numbers with an exponent out, in every session: `1e25` is a decimal with 26 digits. DataFusion reads it as
//! one digit with the point 25 places to the right of it. A quotient of such a decimal loses its digits, and an
//! optimiser rule that compares one with integers divides by zero.

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, i256};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::plan::rewrite::each_expression;

/// Runs before all rules that look at types.
#[derive(Debug)]
pub(super) struct ExponentsAreWrittenOut;

impl AnalyzerRule for ExponentsAreWrittenOut {
    fn name(&self) -> &str {
        "exponents_are_written_out"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, _| {
            Ok(match &expr {
                Expr::Literal(value, metadata) => match written_out(value) {
                    Some(value) => Transformed::yes(Expr::Literal(value, metadata.clone())),
                    None => Transformed::no(expr),
                },
                _ => Transformed::no(expr),
            })
        })
    }
}

/// Returns a decimal whose point is to the right of its digits as one with all digits before the point. One with more
/// digits than a decimal can have is a DOUBLE.
fn written_out(value: &ScalarValue) -> Option<ScalarValue> {
    let (digits, precision, scale) = match value {
        ScalarValue::Decimal128(Some(value), precision, scale) => (value.to_string(), *precision, *scale),
        ScalarValue::Decimal256(Some(value), precision, scale) => (value.to_string(), *precision, *scale),
        _ => return None,
    };
    if scale >= 0 {
        return None;
    }
    let zeros = scale.unsigned_abs();
    let written = format!("{digits}{}", "0".repeat(zeros.into()));
    let precision = precision.saturating_add(zeros);
    Some(if precision <= DECIMAL128_MAX_PRECISION {
        ScalarValue::Decimal128(Some(written.parse().ok()?), precision, 0)
    } else if precision <= DECIMAL256_MAX_PRECISION {
        ScalarValue::Decimal256(Some(i256::from_string(&written)?), precision, 0)
    } else {
        ScalarValue::Float64(Some(written.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    use arrow::util::display::array_value_to_string;

    use super::*;
    use crate::functions::Functions;
    use crate::plan::planning_session;

    #[test]
    fn only_a_point_to_the_right_of_the_digits_is_moved() {
        let decimal = |value: i128, precision, scale| written_out(&ScalarValue::Decimal128(Some(value), precision, scale));
        assert_eq!(decimal(-15, 2, -3), Some(ScalarValue::Decimal128(Some(-15_000), 5, 0)));
        assert_eq!(decimal(1, 1, -37), Some(ScalarValue::Decimal128(Some(10i128.pow(37)), 38, 0)));
        assert_eq!(
            decimal(1, 1, -38),
            i256::from_string(&format!("1{}", "0".repeat(38))).map(|one| ScalarValue::Decimal256(Some(one), 39, 0))
        );
        assert_eq!(decimal(2, 1, -100), Some(ScalarValue::Float64(Some(2e100))));
        assert_eq!((decimal(15, 2, 1), decimal(15, 2, 0)), (None, None));
    }

    #[tokio::test]
    async fn numbers_with_an_exponent_meet_every_type() {
        let columns: [(&str, ArrayRef); 2] = [("n", Arc::new(Int64Array::from(vec![150]))), ("x", Arc::new(Float64Array::from(vec![0.5])))];
        let session = planning_session(&Functions::standard()).unwrap();
        session.register_batch("t", RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        for (value, expected) in [
            ("n + 1e2", "250"),
            ("n * 1e2", "15000"),
            ("n / 1e2", "1.5"),
            ("n > 1.5e2", "false"),
            ("n IN (1.5e2, 3)", "true"),
            ("x < 1e2", "true"),
            ("1.0 / 1e22", "0.0000000000000000000001"),
            ("1e40", "10000000000000000000000000000000000000000"),
        ] {
            let batches = session.sql(&format!("SELECT {value} FROM t")).await.unwrap().collect().await.unwrap();
            let text = array_value_to_string(batches[0].column(0), 0).unwrap();
            let shown = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            assert_eq!(shown, expected, "{value}");
        }
    }
}
