//! Refuses expressions that fail because of one argument, whatever the others are: a divisor that is a constant zero, a
//! unit of time that is unknown or not constant, a constant pattern that is invalid.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, lit};
use types::{Error, Result};

use super::causes::{refused, root_cause};
use super::constants::{evaluate_constant, is_of_constants};
use super::simplify::{simplified, simplify_or_keep};
use super::unsupported::check_part;
use crate::checked::checked_physical;
use crate::plan::decimals::as_operator;
use crate::plan::written::{ColumnNames, sql_of};

/// The units of `date_trunc` and `date_part`. Which of them a call takes depends on the function and on the type.
const UNITS: [&str; 16] = [
    "nanosecond",
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "dow",
    "isodow",
    "doy",
    "week",
    "month",
    "quarter",
    "year",
    "isoyear",
    "epoch",
];

/// Checks an operator or a call, but not the expressions in its arguments.
///
/// Errors: `Input`, if its constant arguments, or a unit that is not constant, make it fail for every row.
pub(super) fn check_constant_arguments(expr: &Expr, schema: &DFSchema) -> Result<()> {
    if divides_by_zero(expr) {
        return Err(Error::input(format!("{} divides by zero: expected a divisor other than 0", sql_of(expr, ColumnNames::Bare))));
    }
    let Some(checked) = checked_argument(expr) else { return Ok(()) };
    // A call that cannot be sampled may still be computed: there may be no sample for one of its types.
    let Ok(sampled) = Sampled::new(expr, schema) else { return Ok(()) };
    match (sampled.evaluate(&sampled.call), checked) {
        (Ok(()), _) => Ok(()),
        (Err(error), CheckedArgument::Unit) => Err(unknown_unit(expr, &sampled, error)),
        (Err(error), CheckedArgument::Pattern) => Err(invalid_pattern(expr, error)),
    }
}

/// Whether an integer or a decimal is divided by a constant zero. A DOUBLE can be divided by zero.
fn divides_by_zero(expr: &Expr) -> bool {
    let decimals = as_operator(expr);
    let divisor = match (expr, &decimals) {
        (Expr::BinaryExpr(binary), _) | (_, Some(binary)) => divisor(binary),
        _ => None,
    };
    let value = divisor.filter(|divisor| is_of_constants(divisor)).and_then(|divisor| evaluate_constant(divisor).ok());
    value.is_some_and(|value| is_exact_zero(&value))
}

fn divisor(binary: &BinaryExpr) -> Option<&Expr> {
    matches!(binary.op, Operator::Divide | Operator::Modulo).then_some(&*binary.right)
}

fn is_exact_zero(value: &ScalarValue) -> bool {
    let data_type = value.data_type();
    let is_exact = data_type.is_integer() || data_type.is_decimal();
    is_exact && ScalarValue::new_zero(&data_type).is_ok_and(|zero| zero == *value)
}

/// The argument of a call that is checked.
enum CheckedArgument {
    /// A unit of time, the first argument: it has to be constant.
    Unit,
    /// A regular expression, with its flags. A part that is not constant is not checked.
    Pattern,
}

fn checked_argument(expr: &Expr) -> Option<CheckedArgument> {
    match expr {
        Expr::ScalarFunction(function) => match function.func.name() {
            "date_trunc" | "date_part" => Some(CheckedArgument::Unit),
            "regexp_like" | "regexp_match" | "regexp_replace" | "regexp_count" | "regexp_instr" => Some(CheckedArgument::Pattern),
            _ => None,
        },
        Expr::BinaryExpr(binary) => is_match(binary.op).then_some(CheckedArgument::Pattern),
        Expr::SimilarTo(_) => Some(CheckedArgument::Pattern),
        _ => None,
    }
}

/// Whether an operator is `~`, or one of its variants.
fn is_match(operator: Operator) -> bool {
    matches!(operator, Operator::RegexMatch | Operator::RegexIMatch | Operator::RegexNotMatch | Operator::RegexNotIMatch)
}

/// A call with a column in the place of each argument that is not constant, and one row of these columns. No function
/// fails because of the samples, so an error comes from the constants.
struct Sampled {
    call: Expr,
    schema: DFSchema,
    row: RecordBatch,
}

impl Sampled {
    fn new(call: &Expr, schema: &DFSchema) -> DataFusionResult<Sampled> {
        let (mut fields, mut samples) = (Vec::new(), Vec::new());
        let call = call.clone().map_children(|argument| {
            let argument = simplify_or_keep(argument, schema);
            if matches!(argument, Expr::Literal(..)) {
                return Ok(Transformed::yes(argument));
            }
            let sample = sample(&argument.get_type(schema)?)?;
            let name = format!("argument_{}", fields.len());
            fields.push(Field::new(name.as_str(), sample.data_type(), true));
            samples.push(sample.to_array()?);
            Ok(Transformed::yes(Expr::Column(Column::from_name(name))))
        })?;
        let columns = Arc::new(Schema::new(fields));
        let schema = DFSchema::try_from(columns.clone())?;
        let row = RecordBatch::try_new_with_options(columns, samples, &RecordBatchOptions::new().with_row_count(Some(1)))?;
        Ok(Sampled { call: call.data, schema, row })
    }

    /// Evaluates an expression in the way the layers do.
    fn evaluate(&self, expr: &Expr) -> DataFusionResult<()> {
        let physical = checked_physical(&simplified(expr, &self.schema)?, &self.schema)?;
        physical.evaluate(&self.row)?.into_array(1).map(|_| ())
    }

    /// Returns the units with which a call of `date_trunc` or `date_part` does not fail, and is not refused.
    fn known_units(&self) -> Vec<&'static str> {
        let Expr::ScalarFunction(function) = &self.call else { return Vec::new() };
        let is_known = |unit: &&str| {
            let mut function = function.clone();
            if let Some(first) = function.args.first_mut() {
                *first = lit(*unit);
            }
            let call = Expr::ScalarFunction(function);
            check_part(&call, &self.schema).is_ok() && self.evaluate(&call).is_ok()
        };
        UNITS.into_iter().filter(is_known).collect()
    }
}

/// A value that each of the functions takes in every place.
fn sample(data_type: &DataType) -> DataFusionResult<ScalarValue> {
    match data_type {
        // A text, a pattern, and a flag.
        text if text.is_string() => ScalarValue::from("i").cast_to(text),
        // Where a search begins, and which match is meant: both are counted from 1.
        number if number.is_integer() => ScalarValue::new_one(number),
        other => ScalarValue::new_zero(other),
    }
}

fn unknown_unit(call: &Expr, sampled: &Sampled, error: DataFusionError) -> Error {
    let (Expr::ScalarFunction(written), Expr::ScalarFunction(evaluated)) = (call, &sampled.call) else { return refused(call, error) };
    let known = sampled.known_units();
    let Some(unit) = written.args.first().filter(|_| !known.is_empty()) else { return refused(call, error) };
    let problem = match evaluated.args.first() {
        Some(Expr::Literal(..)) => "is not a known unit",
        _ => "is not a constant unit",
    };
    let (call, unit, known) = (sql_of(call, ColumnNames::Bare), sql_of(unit, ColumnNames::Bare), known.join(", "));
    Error::input(format!("{call} cannot be computed: {unit} {problem}: expected one of {known}"))
}

fn invalid_pattern(call: &Expr, error: DataFusionError) -> Error {
    let whole = Error::datafusion_root(&error).to_string();
    // The parser of patterns draws the place first.
    let reason = whole.lines().find_map(|line| line.trim().strip_prefix("error: ")).map(str::to_owned);
    let reason = reason.unwrap_or_else(|| root_cause(error).message().to_owned());
    Error::input(format!(
        "{} cannot be computed ({reason}): expected a valid regular expression and valid flags",
        sql_of(call, ColumnNames::Bare)
    ))
}
