//! What a value is as a text: PostgreSQL's text of a real number, an interval and an array. DataFusion's cast writes
//! `1.0`, `1 days` and `[a, b]`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, IntervalMonthDayNanoType, IntervalUnit};
use arrow::util::display::array_value_to_string;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use types::value_texts::{ArrayItemText, DoubleText, IntervalText, RealText};

/// Whether the text of a value of this type differs from that of DataFusion's cast. A BOOLEAN is `true` where it is
/// cast, and `t` where `concat` joins it.
pub(crate) fn has_own_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float32 | DataType::Float64 | DataType::Interval(_) | DataType::Duration(_) => true,
        DataType::List(item) => !matches!(item.data_type(), DataType::Struct(_) | DataType::Map(..)),
        _ => false,
    }
}

pub(crate) const VALUE_TEXT: &str = "value_text";

/// Returns the function that takes a value and returns its text.
pub(crate) fn value_text() -> ScalarUDF {
    ScalarUDF::from(ValueText { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ValueText {
    signature: Signature,
}

impl ScalarUDFImpl for ValueText {
    fn name(&self) -> &str {
        VALUE_TEXT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(Arc::new(texts(values)?))),
            [ColumnarValue::Scalar(value)] => {
                let texts = texts(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?))
            }
            others => exec_err!("value_text was called with {} arguments: expected 1", others.len()),
        }
    }
}

fn texts(values: &ArrayRef) -> Result<StringArray> {
    let values = in_one_unit(values)?;
    (0..values.len()).map(|row| values.is_valid(row).then(|| text(&values, row)).transpose()).collect()
}

/// Intervals and differences of times as the one type that has all of them.
fn in_one_unit(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Interval(_) | DataType::Duration(_) => Ok(cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?),
        _ => Ok(Arc::clone(values)),
    }
}

/// The text of a value that is not NULL.
fn text(values: &ArrayRef, row: usize) -> Result<String> {
    Ok(match values.data_type() {
        DataType::Float64 => DoubleText(values.as_primitive::<Float64Type>().value(row)).to_string(),
        DataType::Float32 => RealText(values.as_primitive::<Float32Type>().value(row)).to_string(),
        DataType::Boolean => (if values.as_boolean().value(row) { "t" } else { "f" }).to_owned(),
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let interval = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
            IntervalText { months: interval.months, days: interval.days, micros: interval.nanoseconds / 1_000 }.to_string()
        }
        DataType::List(_) => list_text(&values.as_list::<i32>().value(row))?,
        _ => array_value_to_string(values, row)?,
    })
}

fn list_text(items: &ArrayRef) -> Result<String> {
    let items = in_one_unit(items)?;
    let is_nested = items.data_type().is_nested();
    let texts = (0..items.len()).map(|row| match items.is_null(row) {
        true => Ok("NULL".to_owned()),
        false if is_nested => text(&items, row),
        false => Ok(ArrayItemText(&text(&items, row)?).to_string()),
    });
    Ok(format!("{{{}}}", texts.collect::<Result<Vec<String>>>()?.join(",")))
}
