//! Computes with times in the zone of a session, as PostgreSQL does. All times have the type of UTC. Where a result
//! depends on the zone, a time is cast to the type with the session's zone, in which DataFusion then computes, and a
//! resulting time is cast back to that of UTC. A time that has another zone by `AT TIME ZONE` keeps it. Our own
//! functions add intervals to times, and convert texts, dates and local times to times (`functions/local_times.rs`).

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, cast, try_cast};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use types::{Error, Reason};

use crate::functions::local_times;
use crate::plan::rewrite::each_expression;

const UTC: &str = "UTC";

/// The functions whose results depend on the zone of their arguments.
const OF_LOCAL_TIME: [&str; 7] = ["array_to_string", "date_part", "date_trunc", "to_char", "to_date", "to_local_time", "to_time"];

/// The units that date_trunc() truncates to a midnight.
const OF_DAYS: [&str; 5] = ["day", "week", "month", "quarter", "year"];

/// What to write instead of a series of times.
const SERIES_OF_DATES: &str = "generate DATEs or TIMESTAMPs and cast each of them to TIMESTAMPTZ";

/// Makes a session compute with times in a zone: a name or an offset that Arrow knows, other than `UTC`.
pub fn compute_in_zone(session: &mut SessionContext, zone: &str) -> Result<()> {
    session.add_analyzer_rule(Arc::new(TimesInSessionZone { zone: zone.into() }));
    session.register_expr_planner(Arc::new(DatesFromTimes))
}

/// Casts a date that is subtracted from a time, or from which a time is subtracted, to a time. DataFusion's coercion
/// casts both to local times, which could then not be distinguished from casts in the query.
#[derive(Debug)]
struct DatesFromTimes;

impl ExprPlanner for DatesFromTimes {
    fn plan_binary_op(&self, both: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = both;
        let is_utc = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, Some(zone)) if &**zone == UTC);
        let (left, right) = match (&op, left.get_type(schema), right.get_type(schema)) {
            (BinaryOperator::Minus, Ok(time), Ok(DataType::Date32)) if is_utc(&time) => (left, cast(right, time)),
            (BinaryOperator::Minus, Ok(DataType::Date32), Ok(time)) if is_utc(&time) => (cast(left, time), right),
            _ => (left, right),
        };
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

/// Runs after DataFusion's own coercion, which casts values that are compared or combined with a time.
#[derive(Debug)]
struct TimesInSessionZone {
    zone: Arc<str>,
}

impl AnalyzerRule for TimesInSessionZone {
    fn name(&self) -> &str {
        "times_in_session_zone"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        self.refuse_tables_of_times(&plan)?;
        let plan = each_expression(plan, &|expr, schema| Ok(compare_with_midnights(expr, schema)))?;
        each_expression(plan, &|expr, schema| self.in_zone(expr, schema, config))
    }
}

/// DataFusion compares a time with a date as two local times. Makes the date a time instead, so that a table can be
/// asked for the times after it.
fn compare_with_midnights(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let mut expr = expr;
    let changed = match &mut expr {
        Expr::BinaryExpr(both) if both.op.supports_propagation() => as_times(&mut [both.left.as_mut(), both.right.as_mut()], schema),
        Expr::Between(between) => as_times(&mut [between.expr.as_mut(), between.low.as_mut(), between.high.as_mut()], schema),
        _ => false,
    };
    if changed { Transformed::yes(expr) } else { Transformed::no(expr) }
}

/// If some expressions are times and the others dates, all cast to local times, casts them to times instead. Returns
/// whether anything changed.
fn as_times(all: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let Some(sides) = all.iter().map(|expr| side(expr, schema)).collect::<Option<Vec<CastToLocal>>>() else { return false };
    if sides.iter().all(|side| side.is_date) || !sides.iter().any(|side| side.is_date) {
        return false;
    }
    for (expr, side) in all.iter_mut().zip(sides) {
        if let Expr::Cast(local) = std::mem::take(&mut **expr) {
            **expr = cast(*local.expr, DataType::Timestamp(side.unit, Some(UTC.into())));
        }
    }
    true
}

/// A date or a time that is cast to a local time.
struct CastToLocal {
    is_date: bool,
    unit: TimeUnit,
}

fn side(expr: &Expr, schema: &DFSchema) -> Option<CastToLocal> {
    let Expr::Cast(Cast { expr, field }) = expr else { return None };
    let DataType::Timestamp(unit, None) = field.data_type() else { return None };
    match expr.get_type(schema).ok()? {
        DataType::Date32 => Some(CastToLocal { is_date: true, unit: *unit }),
        DataType::Timestamp(_, Some(zone)) if &*zone == UTC => Some(CastToLocal { is_date: false, unit: *unit }),
        _ => None,
    }
}

impl TimesInSessionZone {
    fn in_zone(&self, expr: Expr, schema: &DFSchema, config: &ConfigOptions) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Cast(Cast { expr, field }) => {
                let operand = self.operand(*expr, field.data_type(), schema, false)?;
                Ok(operand.update_data(|operand| Expr::Cast(Cast::new_from_field(Box::new(operand), field))))
            }
            Expr::TryCast(TryCast { expr, field }) => {
                let operand = self.operand(*expr, field.data_type(), schema, true)?;
                Ok(operand.update_data(|operand| Expr::TryCast(TryCast::new_from_field(Box::new(operand), field))))
            }
            Expr::ScalarFunction(call) => self.called(call, schema, config),
            Expr::BinaryExpr(both) => Ok(self.shifted(both, schema)),
            other => Ok(Transformed::no(other)),
        }
    }

    /// Rewrites the operand of a cast: a time that becomes a text, a date or a local time, or one of those that becomes
    /// a time. With `safe`, a value that cannot be cast is NULL.
    ///
    /// Errors: an array of times that becomes one of local times.
    fn operand(&self, operand: Expr, to: &DataType, schema: &DFSchema, safe: bool) -> Result<Transformed<Expr>> {
        let Ok(from) = operand.get_type(schema) else { return Ok(Transformed::no(operand)) };
        let Some(zoned) = self.zoned(&from) else {
            return Ok(match item_type(to) {
                DataType::Timestamp(unit, _) if self.zoned(to).is_some() && is_local(&from) => {
                    Transformed::yes(self.instant(operand, *unit, safe))
                }
                _ => Transformed::no(operand),
            });
        };
        let cast = if safe { try_cast } else { cast };
        match (&from, item_type(to)) {
            (DataType::Timestamp(..), DataType::Timestamp(_, None)) => {
                let call = ScalarFunction::new_udf(datetime::to_local_time(), vec![cast(operand, zoned)]);
                Ok(Transformed::yes(Expr::ScalarFunction(call)))
            }
            (_, DataType::Timestamp(_, None)) => Err(self.refusal("an array of times that is cast to TIMESTAMP[]", "cast each of them")),
            (_, local) if is_local(local) => Ok(Transformed::yes(cast(operand, zoned))),
            _ => Ok(Transformed::no(operand)),
        }
    }

    /// Converts a text, a date or a local time to a time.
    fn instant(&self, local: Expr, unit: TimeUnit, safe: bool) -> Expr {
        Expr::ScalarFunction(ScalarFunction::new_udf(local_times::instant(&self.zone, unit, safe), vec![local]))
    }

    fn called(&self, mut call: ScalarFunction, schema: &DFSchema, config: &ConfigOptions) -> Result<Transformed<Expr>> {
        let is_given_local = || call.args.first().is_some_and(|first| first.get_type(schema).is_ok_and(|given| is_local(&given)));
        match call.func.name() {
            "current_date" => Ok(Transformed::yes(cast(self.now(config), DataType::Date32))),
            "current_time" => Ok(Transformed::yes(cast(self.now(config), DataType::Time64(TimeUnit::Nanosecond)))),
            "to_unixtime" if call.args.first().is_some_and(|first| is_text(first, schema)) => {
                Err(self.refusal("to_unixtime() of a text", "cast it to TIMESTAMPTZ"))
            }
            // DataFusion ends a series where a step leads to what is not one local time.
            name @ ("generate_series" | "range") if self.is_of_times(&call, schema) && !steps_by_hours(&call) => {
                Err(self.refusal(&format!("{name}() of times by days or months"), SERIES_OF_DATES))
            }
            name if name.starts_with("to_timestamp") && is_given_local() => {
                let returned = Expr::ScalarFunction(call.clone()).get_type(schema)?;
                if let (DataType::Timestamp(unit, Some(_)), [local]) = (&returned, call.args.as_mut_slice()) {
                    *local = self.instant(std::mem::take(local), *unit, false);
                    return Ok(Transformed::yes(Expr::ScalarFunction(call)));
                }
                let mut zoned = config.clone();
                zoned.execution.time_zone = Some(self.zone.to_string());
                Ok(match call.func.inner().with_updated_config(&zoned) {
                    Some(function) if self.zoned(&returned).is_some() => {
                        let call = ScalarFunction::new_udf(Arc::new(function), call.args);
                        Transformed::yes(cast(Expr::ScalarFunction(call), returned))
                    }
                    _ => Transformed::no(Expr::ScalarFunction(call)),
                })
            }
            name if OF_LOCAL_TIME.contains(&name) => {
                let returned = Expr::ScalarFunction(call.clone()).get_type(schema)?;
                let is_midnight = name == "date_trunc" && is_of_days(&call);
                let mut changed = false;
                for argument in &mut call.args {
                    changed |= self.local(argument, schema);
                }
                let call = Expr::ScalarFunction(call);
                Ok(match (changed, self.zoned(&returned)) {
                    (false, _) => Transformed::no(call),
                    (true, None) => Transformed::yes(call),
                    // DataFusion takes the one with the offset of the given time where the zone has a midnight twice.
                    (true, Some(DataType::Timestamp(unit, _))) if is_midnight => Transformed::yes(self.instant(call, unit, false)),
                    (true, Some(_)) => Transformed::yes(cast(call, returned)),
                })
            }
            _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
        }
    }

    fn is_of_times(&self, call: &ScalarFunction, schema: &DFSchema) -> bool {
        call.args.iter().any(|argument| argument.get_type(schema).is_ok_and(|given| self.zoned(&given).is_some()))
    }

    /// Adds an interval to a time, or subtracts it. Days and months are those of the zone.
    fn shifted(&self, both: BinaryExpr, schema: &DFSchema) -> Transformed<Expr> {
        let BinaryExpr { left, op, right } = both;
        let is_interval = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Interval(_)));
        let is_time = |expr: &Expr| expr.get_type(schema).is_ok_and(|given| self.zoned(&given).is_some());
        let (function, time, interval) = match op {
            Operator::Plus if is_time(&left) && is_interval(&right) => (local_times::sum(&self.zone), left, right),
            Operator::Plus if is_interval(&left) && is_time(&right) => (local_times::sum(&self.zone), right, left),
            Operator::Minus if is_time(&left) && is_interval(&right) => (local_times::difference(&self.zone), left, right),
            _ => return Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
        };
        let interval = cast(*interval, DataType::Interval(IntervalUnit::MonthDayNano));
        Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*time, interval])))
    }

    /// Casts a time, or an array of times, to the type with the zone. Returns false, and changes nothing, for other
    /// expressions.
    fn local(&self, expr: &mut Expr, schema: &DFSchema) -> bool {
        let Some(zoned) = expr.get_type(schema).ok().and_then(|given| self.zoned(&given)) else { return false };
        *expr = cast(std::mem::take(expr), zoned);
        true
    }

    fn now(&self, config: &ConfigOptions) -> Expr {
        let now = ScalarFunction::new_udf(datetime::now(config), Vec::new());
        cast(Expr::ScalarFunction(now), DataType::Timestamp(TimeUnit::Nanosecond, Some(self.zone.clone())))
    }

    /// The type of a time, or of an array of times, with the zone instead of UTC.
    fn zoned(&self, data_type: &DataType) -> Option<DataType> {
        match data_type {
            DataType::Timestamp(unit, Some(zone)) if &**zone == UTC => Some(DataType::Timestamp(*unit, Some(self.zone.clone()))),
            DataType::List(item) => {
                let zoned = self.zoned(item.data_type())?;
                Some(DataType::List(Arc::new(item.as_ref().clone().with_data_type(zoned))))
            }
            _ => None,
        }
    }

    /// The arguments of a table function are computed before any rule runs.
    fn refuse_tables_of_times(&self, plan: &LogicalPlan) -> Result<()> {
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && scan.table_name.table().ends_with("()")
                && scan.source.schema().fields().iter().any(|field| self.zoned(field.data_type()).is_some())
            {
                let name = scan.table_name.table();
                return Err(self.refusal(&format!("{name} of times in FROM"), SERIES_OF_DATES));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    fn refusal(&self, what: &str, instead: &str) -> DataFusionError {
        let message = format!("{what} does not follow the session's TimeZone '{}': {instead}, or SET TimeZone = 'UTC'", self.zone);
        Error::input(message).with_reason(Reason::NotSupported).into()
    }
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|given| given.is_string())
}

fn is_of_days(truncation: &ScalarFunction) -> bool {
    let Some(Expr::Literal(unit, _)) = truncation.args.first() else { return false };
    let unit = unit.try_as_str().flatten().unwrap_or_default();
    OF_DAYS.iter().any(|of_days| of_days.eq_ignore_ascii_case(unit))
}

/// Whether the step of a series is written with neither days nor months.
fn steps_by_hours(series: &ScalarFunction) -> bool {
    let Some(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(step)), _)) = series.args.get(2) else { return false };
    step.months == 0 && step.days == 0
}

/// Whether the same value of this type, or of an array's items, means another time in another zone.
fn is_local(data_type: &DataType) -> bool {
    matches!(
        item_type(data_type),
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(_, None)
    )
}

fn item_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::List(item) => item_type(item.data_type()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
