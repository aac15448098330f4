//! Numbers that say how much an aggregate may hold: literals, within bounds.

use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::physical_plan::expressions::Literal;

/// Returns the literal second argument of an aggregate that is being lowered, under the same rules as in analysis.
pub(super) fn checked_bound(name: &str, args: &AccumulatorArgs<'_>, greatest: usize) -> Result<usize> {
    let literal = args.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>()).map(Literal::value);
    not_distinct(name, args.is_distinct)?;
    bound(name, "second", literal, greatest)
}

/// The argument at this place, as a literal number from 1 to `greatest`.
pub(super) fn bound(name: &str, place: &str, literal: Option<&ScalarValue>, greatest: usize) -> Result<usize> {
    let number = match literal {
        Some(ScalarValue::Int64(Some(n))) => Some(*n),
        Some(ScalarValue::Int32(Some(n))) => Some(i64::from(*n)),
        Some(ScalarValue::UInt64(Some(n))) => i64::try_from(*n).ok(),
        _ => None,
    };
    match number.and_then(|n| usize::try_from(n).ok()) {
        Some(n) if (1..=greatest).contains(&n) => Ok(n),
        _ => {
            let found = literal.map_or("an expression".to_owned(), |value| value.to_string());
            plan_err!("the {place} argument of {name} is {found}: expected a literal number from 1 to {greatest}")
        }
    }
}

pub(super) fn not_distinct(name: &str, distinct: bool) -> Result<()> {
    if distinct {
        return plan_err!("{name} does not take DISTINCT");
    }
    Ok(())
}
