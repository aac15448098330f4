//! Texts that are compared with bytes. As in PostgreSQL, `'\x00ff'` in `seal = '\x00ff'` is two bytes; DataFusion would
//! compare with the bytes of the text itself.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use types::{Error, Reason};

use super::rewrite::each_expression;

/// Runs after DataFusion's coercion, which casts the texts to bytes.
#[derive(Debug)]
pub struct BytesInHexadecimal;

impl AnalyzerRule for BytesInHexadecimal {
    fn name(&self) -> &str {
        "bytes_in_hexadecimal"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, _| match digits(&expr) {
            Some(digits) => Ok(Transformed::yes(Expr::Literal(ScalarValue::Binary(Some(hexadecimal_bytes(digits)?)), None))),
            None => Ok(Transformed::no(expr)),
        })
    }
}

fn digits(expr: &Expr) -> Option<&str> {
    let Expr::Cast(cast) = expr else { return None };
    let Expr::Literal(text, _) = &*cast.expr else { return None };
    text.try_as_str()??.strip_prefix("\\x").filter(|_| *cast.field.data_type() == DataType::Binary)
}

/// Returns the bytes of a text without its `\x`.
///
/// Errors: `Input` for digits that are not in pairs, and for other characters.
pub fn hexadecimal_bytes(digits: &str) -> types::Result<Vec<u8>> {
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.filter(|_| are_digits).ok_or_else(|| {
        let shown: String = digits.chars().take(60).collect();
        let message = format!("invalid bytes: found \"\\x{shown}\", expected pairs of hexadecimal digits after \\x");
        Error::input(message).with_reason(Reason::InvalidText)
    })
}
