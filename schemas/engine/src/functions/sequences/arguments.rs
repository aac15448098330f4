//! Which arguments a call of these aggregates takes, and how messages list those that it has.

use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use types::sql_types::sql_name;

pub(super) fn refuse_distinct(function: &str, args: &AccumulatorArgs<'_>) -> Result<()> {
    if args.is_distinct { plan_err!("{function} does not take DISTINCT") } else { Ok(()) }
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

pub(super) fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, _) | DataType::Date32)
}

pub(super) fn is_condition(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Boolean | DataType::Null)
}

pub(super) fn names_of(arguments: &[DataType]) -> String {
    arguments.iter().map(sql_name).collect::<Vec<_>>().join(", ")
}
