//! Determines which states can be merged with each other, by the stamp that every file of states carries.
//!
//! DataFusion does not guarantee that a state's layout or hash stays the same between releases. Two files can be merged
//! if their stamps are equal; otherwise the states are recomputed from the archive. The fixture test of this file finds
//! what the stamp cannot show (the same types with another meaning). The function's number below is then raised.

use std::fmt::Write;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::DATAFUSION_VERSION;

/// The format numbers that were raised, by function. All others are 1.
/// `corr` kept sums of squares, in as many columns of the same types.
const RAISED: &[(&str, u16)] = &[("corr", 2)];

/// Returns our own format number of the state of an aggregate function, which may be a user's own. It is raised when
/// the fixture test shows that the encoding changed.
pub(crate) fn state_format(function_name: &str) -> u16 {
    RAISED.iter().find(|(name, _)| *name == function_name).map_or(1, |(_, number)| *number)
}

/// Returns a text that is equal for two files exactly if their states may be merged: DataFusion's major version, then
/// for each aggregate, in the order of the state columns, `function/format number(types of its state)`.
///
/// Field names and nullability are left out: DataFusion's names contain positions of one plan, and states bind by
/// position.
///
/// ```
/// # use engine::functions::state_stamp;
/// # use arrow::datatypes::DataType::{Float64, Int64, UInt64};
/// let stamp = state_stamp(&[("count", vec![Int64]), ("avg", vec![UInt64, Float64])]);
/// assert_eq!(stamp, "datafusion 55; count/1(Int64); avg/1(UInt64, Float64)");
/// ```
pub fn state_stamp<N: AsRef<str>, T: AsRef<[DataType]>>(aggregates: &[(N, T)]) -> String {
    let major = DATAFUSION_VERSION.split('.').next().unwrap_or(DATAFUSION_VERSION);
    let mut stamp = format!("datafusion {major}");
    for (name, types) in aggregates {
        let name = name.as_ref();
        let types = types.as_ref().iter().map(type_text).collect::<Vec<_>>().join(", ");
        // Writing to a String cannot fail.
        let _ = write!(stamp, "; {name}/{}({types})", state_format(name));
    }
    stamp
}

/// Returns a type as text, without the names and nullability of its fields.
fn type_text(data_type: &DataType) -> String {
    match data_type {
        DataType::List(item) => format!("List<{}>", type_text(item.data_type())),
        DataType::LargeList(item) => format!("LargeList<{}>", type_text(item.data_type())),
        DataType::FixedSizeList(item, length) => format!("FixedSizeList<{}, {length}>", type_text(item.data_type())),
        DataType::Struct(fields) => {
            let types = fields.iter().map(|field| type_text(field.data_type())).collect::<Vec<_>>();
            format!("Struct<{}>", types.join(", "))
        }
        DataType::Timestamp(unit, zone) => format!("Timestamp({}, {})", unit_text(*unit), zone.as_deref().unwrap_or("no zone")),
        other => other.to_string(),
    }
}

fn unit_text(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

#[cfg(test)]
mod tests;
