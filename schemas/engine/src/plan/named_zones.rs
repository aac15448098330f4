//! Local times in a zone that a query names: `TIMESTAMP '2026-03-29 02:30:00' AT TIME ZONE 'Europe/Berlin'`. DataFusion
//! plans it as a cast to a type with that zone, which fails for a local time that the zone has twice or not at all. A
//! cast from such a type to a TIMESTAMP, which a comparison with a date needs too, would be the time in UTC.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::local_times;
use crate::plan::rewrite::each_expression;

/// The zone of all times without a named zone. Its clocks never change.
const UTC: &str = "UTC";

/// Converts local times in a named zone to the same times as PostgreSQL, and times in such a zone that are cast to a
/// TIMESTAMP to its local times. Runs after DataFusion's own coercion.
#[derive(Debug)]
pub struct LocalTimesInNamedZones;

impl AnalyzerRule for LocalTimesInNamedZones {
    fn name(&self) -> &str {
        "local_times_in_named_zones"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, schema| Ok(resolved(expr, schema)))
    }
}

fn resolved(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let resolved = match &expr {
        Expr::Cast(Cast { expr, field }) => {
            let operand = instant(expr, field.data_type(), schema, false).or_else(|| local_time(expr, field.data_type(), schema));
            operand.map(|operand| Expr::Cast(Cast::new_from_field(Box::new(operand), field.clone())))
        }
        Expr::TryCast(TryCast { expr, field }) => {
            let operand = instant(expr, field.data_type(), schema, true).or_else(|| local_time(expr, field.data_type(), schema));
            operand.map(|operand| Expr::TryCast(TryCast::new_from_field(Box::new(operand), field.clone())))
        }
        _ => None,
    };
    match resolved {
        Some(resolved) => Transformed::yes(resolved),
        None => Transformed::no(expr),
    }
}

/// Returns the time that an operand of a cast to a type with a named zone stands for, if it is a local time, a date or
/// a text.
fn instant(operand: &Expr, to: &DataType, schema: &DFSchema, safe: bool) -> Option<Expr> {
    let DataType::Timestamp(unit, Some(zone)) = to else { return None };
    if &**zone == UTC {
        return None;
    }
    let from = operand.get_type(schema).ok()?;
    let is_local = from.is_string() || matches!(from, DataType::Date32 | DataType::Timestamp(_, None));
    let call = || ScalarFunction::new_udf(local_times::instant(zone, *unit, safe), vec![operand.clone()]);
    is_local.then(|| Expr::ScalarFunction(call()))
}

/// Returns what the clocks of a named zone show, if the operand of a cast to a TIMESTAMP is a time in such a zone.
fn local_time(operand: &Expr, to: &DataType, schema: &DFSchema) -> Option<Expr> {
    let DataType::Timestamp(_, None) = to else { return None };
    match operand.get_type(schema).ok()? {
        DataType::Timestamp(_, Some(zone)) if &*zone != UTC => {
            Some(Expr::ScalarFunction(ScalarFunction::new_udf(datetime::to_local_time(), vec![operand.clone()])))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::functions::Functions;
    use crate::plan::{compute_in_zone, planning_session};

    async fn one(session: &SessionContext, expression: &str) -> String {
        let times = "(VALUES (TIMESTAMP '2026-03-29 02:30:00', TIMESTAMP '2026-10-25 02:30:00', CAST(NULL AS TIMESTAMP)))";
        let batches = session.sql(&format!("SELECT {expression} FROM {times} AS t(gap, twice, n)")).await.unwrap().collect().await.unwrap();
        array_value_to_string(batches[0].column(0), 0).unwrap()
    }

    #[tokio::test]
    async fn a_local_time_that_a_named_zone_has_twice_or_not_at_all_is_the_one_postgresql_takes() {
        let plain = planning_session(&Functions::standard()).unwrap();
        let mut zoned = planning_session(&Functions::standard()).unwrap();
        compute_in_zone(&mut zoned, "Asia/Tokyo").unwrap();
        for session in [plain, zoned] {
            session.add_analyzer_rule(Arc::new(LocalTimesInNamedZones));
            for (expression, expected) in [
                ("gap AT TIME ZONE 'Europe/Berlin'", "2026-03-29T03:30:00+02:00"),
                ("twice AT TIME ZONE 'Europe/Berlin'", "2026-10-25T02:30:00+01:00"),
                ("twice AT TIME ZONE 'America/New_York'", "2026-10-25T02:30:00-04:00"),
                ("twice AT TIME ZONE '+02:00'", "2026-10-25T02:30:00+02:00"),
                ("n AT TIME ZONE 'Europe/Berlin'", ""),
                ("TIMESTAMP '2026-10-25 02:30:00' AT TIME ZONE 'Europe/Berlin'", "2026-10-25T02:30:00+01:00"),
                ("'2026-03-29 02:30:00' AT TIME ZONE 'Europe/Berlin'", "2026-03-29T03:30:00+02:00"),
                ("DATE '2026-09-06' AT TIME ZONE 'America/Santiago'", "2026-09-06T01:00:00-03:00"),
                ("TIMESTAMPTZ '2026-10-25T00:30:00Z' AT TIME ZONE 'Europe/Berlin'", "2026-10-25T02:30:00+02:00"),
                ("CAST(TIMESTAMPTZ '2026-10-25T00:30:00Z' AT TIME ZONE 'Europe/Berlin' AS TIMESTAMP)", "2026-10-25T02:30:00"),
                ("TRY_CAST(gap AT TIME ZONE 'Europe/Berlin' AS TIMESTAMP)", "2026-03-29T03:30:00"),
                ("TIMESTAMPTZ '2026-03-28T22:30:00Z' AT TIME ZONE 'Europe/Berlin' >= DATE '2026-03-29'", "false"),
                ("TIMESTAMPTZ '2026-03-28T23:00:00Z' AT TIME ZONE 'Europe/Berlin' >= DATE '2026-03-29'", "true"),
            ] {
                assert_eq!(one(&session, expression).await, expected, "{expression}");
            }
        }
    }
}
