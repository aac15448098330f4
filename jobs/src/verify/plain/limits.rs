//! Which values of a column are past a limit, as plain SQL: the bytes of the values that an aggregate collects, summed
//! up.
//!
//! The rules are those of `max_state_bytes`, written again: 8 bytes for each value and the length of its text, of an
//! aggregate in order also of what it is ordered by. Aggregates of sequences count 16 bytes for each event that they
//! keep, or 8 bytes for each time or stretch of time that has one.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::DataType;
use datafusion::common::Result as DataFusionResult;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident, NullTreatment,
};

use definitions::durations::parse_duration;
use definitions::syntax::SyntaxNode;
use engine::functions::sums_to_verify;

use super::calls::name_of;
use super::distinct;

/// The default of `max_state_bytes`, repeated here on purpose.
pub(super) const MAX_STATE_BYTES: u64 = 1_048_576;

/// Aggregates that keep every value.
const KEEP_EVERY_VALUE: [&str; 4] = ["array_agg", "string_agg", "median", "percentile_cont"];
/// Aggregates that keep every different value, if it says DISTINCT.
const KEEP_DIFFERENT_VALUES: [&str; 8] = ["count", "sum", "avg", "bit_xor", "array_agg", "string_agg", "median", "percentile_cont"];

/// Aggregates that keep events: all, or those that hold a condition.
const KEEP_EVENTS: [&str; 3] = ["sequence_match", "sequence_count", "window_funnel"];
const EVENT_BYTES: u64 = 16;
const STRETCH_BYTES: u64 = 8;

/// Functions that return how many bytes values are: of their arguments, or of the items of a list.
const BYTES_OF_VALUES: &str = "__bytes_of_values";
const BYTES_OF_LIST: &str = "__bytes_of_list";
/// The same as [`BYTES_OF_VALUES`], under a name of its own: two columns of one SELECT could not have the same.
const BYTES_OF_TEXTS: &str = "__bytes_of_texts";
/// Likewise.
const BYTES_OF_RECURRING: &str = "__bytes_of_recurring";
const SUM_IS_PAST: &str = "__sum_is_past";

/// Registers the functions that these expressions call, a `sum` that is NULL past its type, and a `count` that takes
/// little memory.
pub fn register(session: &SessionContext) {
    session.register_udaf(distinct::count());
    for function in sums_to_verify(SUM_IS_PAST) {
        session.register_udaf(function);
    }
    for (name, of_list) in [(BYTES_OF_VALUES, false), (BYTES_OF_TEXTS, false), (BYTES_OF_RECURRING, false), (BYTES_OF_LIST, true)] {
        session.register_udf(ScalarUDF::from(Bytes { name, of_list, signature: Signature::variadic_any(Volatility::Immutable) }));
    }
}

/// How values count of which an aggregate keeps the different ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recurring {
    /// By the rule.
    Once,
    /// What is within a limit when it is counted like this is within it by the rule too. No values have to be kept to
    /// find that.
    EachTime,
}

/// Returns a condition that holds where an aggregate in a rewritten expression is a sum past its type, or collects more
/// bytes than this. `None` if neither can be.
pub(super) fn is_past(expr: &Expr, limit_bytes: Option<u64>, recurring: Recurring) -> Option<String> {
    let mut conditions = Vec::new();
    let _ = expr.visit_expressions(|expr| {
        if let Expr::Function(call) = expr {
            if let Some((bytes, limit_bytes)) = bytes_of(call, recurring).or_else(|| bytes_of_events(call, recurring)).zip(limit_bytes) {
                conditions.push(format!("coalesce({bytes} > {limit_bytes}, false)"));
            }
            if name_of(call) == "sum" {
                let mut asked = call.clone();
                asked.name = vec![Ident::new(SUM_IS_PAST)].into();
                conditions.push(format!("coalesce({asked}, false)"));
            }
        }
        ControlFlow::Continue(())
    });
    (!conditions.is_empty()).then(|| conditions.join(" OR "))
}

pub(super) fn asks_for_bytes(is_past: &str) -> bool {
    [BYTES_OF_VALUES, BYTES_OF_TEXTS, BYTES_OF_LIST, AS_TIME, KEPT_EVENT].iter().any(|part| is_past.contains(part))
}

/// What is in the conditions on aggregates of sequences.
const AS_TIME: &str = "'Timestamp(Microsecond, None)'";
const KEPT_EVENT: &str = "IS NOT NULL AND (";

fn bytes_of_events(call: &Function, recurring: Recurring) -> Option<String> {
    let FunctionArguments::List(list) = &call.args else { return None };
    let name = name_of(call);
    let filter = call.filter.as_ref().map(|filter| format!(" FILTER (WHERE {filter})")).unwrap_or_default();
    let arguments: Vec<&Expr> = list
        .args
        .iter()
        .filter_map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
            _ => None,
        })
        .collect();
    let texts: Vec<String> = arguments.iter().map_while(|argument| literal_text(argument)).collect();
    if KEEP_EVENTS.contains(&name.as_str()) {
        let (time, conditions) = arguments[texts.len()..].split_first()?;
        let holds = match texts.iter().any(|text| text == "strict_order") {
            true => "true".to_owned(),
            false => conditions.iter().map(|condition| format!("coalesce({condition}, false)")).collect::<Vec<_>>().join(" OR "),
        };
        return Some(format!("sum(CASE WHEN {time} {KEPT_EVENT}{holds}) THEN {EVENT_BYTES} END){filter}"));
    }
    let time = format!("arrow_cast({}, {AS_TIME})", arguments.first()?);
    let distinct = if recurring == Recurring::Once { "DISTINCT " } else { "" };
    match name.as_str() {
        "longest_gap" => Some(format!("{STRETCH_BYTES} * count({distinct}{time}){filter}")),
        "session_count" => {
            let gap = parse_duration(&literal_text(arguments.get(1)?)?).ok()?.as_micros();
            let us = format!("arrow_cast({time}, 'Int64')");
            // Rounded down, also before 1970.
            let stretch = format!("{us} / {gap} - CASE WHEN {us} % {gap} < 0 THEN 1 ELSE 0 END");
            Some(format!("{STRETCH_BYTES} * count({distinct}{stretch}){filter}"))
        }
        _ => None,
    }
}

fn literal_text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => value.clone().into_string(),
        _ => None,
    }
}

fn bytes_of(call: &Function, recurring: Recurring) -> Option<String> {
    let FunctionArguments::List(list) = &call.args else { return None };
    let name = name_of(call);
    let filter = call.filter.as_ref().map(|filter| format!(" FILTER (WHERE {filter})")).unwrap_or_default();
    let argument = list.args.iter().find_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    });
    let value = named(call.within_group.first().map(|sorted| &sorted.expr).or(argument)?);
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        let is_kept = KEEP_DIFFERENT_VALUES.contains(&name.as_str());
        return is_kept.then(|| match recurring {
            Recurring::Once => format!("{BYTES_OF_LIST}(array_agg(DISTINCT {value}){filter})"),
            Recurring::EachTime => format!("sum({BYTES_OF_RECURRING}({value})){filter}"),
        });
    }
    if !KEEP_EVERY_VALUE.contains(&name.as_str()) {
        return None;
    }
    let order = list.clauses.iter().flat_map(|clause| match clause {
        FunctionArgumentClause::OrderBy(order) => order.iter().map(|item| named(&item.expr)).collect(),
        _ => Vec::new(),
    });
    let kept: Vec<String> = std::iter::once(value.clone()).chain(order).collect();
    let function = if name == "string_agg" { BYTES_OF_TEXTS } else { BYTES_OF_VALUES };
    let bytes = format!("{function}({})", kept.join(", "));
    Some(match call.null_treatment {
        Some(NullTreatment::IgnoreNulls) => format!("sum(CASE WHEN {value} IS NOT NULL THEN {bytes} END){filter}"),
        _ => format!("sum({bytes}){filter}"),
    })
}

/// A value as an expression that DataFusion names by all of its text: it leaves casts out, and the sums over `x` and
/// over `CAST(x AS TEXT)` in one SELECT would have the same name.
fn named(value: &Expr) -> String {
    match value {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => value.to_string(),
        _ => format!("CASE WHEN '{}' IS NOT NULL THEN {value} END", value.to_string().replace('\'', "''")),
    }
}

/// The bytes of values: each argument is one, or is a list of them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bytes {
    name: &'static str,
    of_list: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Bytes {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&arguments.args)?;
        let rows = columns.first().map_or(0, |column| column.len());
        let bytes_in = |column: &ArrayRef, row: usize| match (self.of_list, column.data_type()) {
            (false, _) => Ok(bytes_of_value(column, row)),
            (true, DataType::List(_)) => Ok(bytes_of_items(column, row)),
            (true, other) => Err(DataFusionError::Internal(format!("found {other}, expected a list"))),
        };
        let of_row = |row: usize| columns.iter().map(|column| bytes_in(column, row)).sum::<DataFusionResult<i64>>();
        let bytes = (0..rows).map(of_row).collect::<DataFusionResult<Int64Array>>()?;
        Ok(ColumnarValue::Array(Arc::new(bytes)))
    }
}

fn bytes_of_value(column: &ArrayRef, row: usize) -> i64 {
    let length = match column.data_type() {
        // It has no bits that say so.
        DataType::Null => return 0,
        _ if column.is_null(row) => return 0,
        DataType::Utf8 => column.as_string::<i32>().value(row).len(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).len(),
        DataType::Utf8View => column.as_string_view().value(row).len(),
        DataType::Binary => column.as_binary::<i32>().value(row).len(),
        DataType::LargeBinary => column.as_binary::<i64>().value(row).len(),
        DataType::BinaryView => column.as_binary_view().value(row).len(),
        DataType::List(_) => return 8 + bytes_of_items(column, row),
        _ => 0,
    };
    8 + length as i64
}

fn bytes_of_items(lists: &ArrayRef, row: usize) -> i64 {
    if lists.is_null(row) {
        return 0;
    }
    let items = lists.as_list::<i32>().value(row);
    (0..items.len()).map(|item| bytes_of_value(&items, item)).sum()
}
