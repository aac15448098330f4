//! `top_k(x, k)`: the k most frequent values, in bounded space.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray, StructArray};
use arrow::compute::{CastOptions, SortColumn, SortOptions, cast_with_options, lexsort_to_indices, take_arrays};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datasketches::frequencies::{ErrorType, FrequentItemsSketch};

use super::calls::checked_bound;

pub const TOP_K: &str = "top_k";
/// The greatest `k`.
pub(crate) const TOP_K_MAX: usize = 100;
/// The number of different values that are counted exactly.
pub const TOP_K_CAPACITY: usize = MAP_SIZE / 4 * 3;

/// Slots of the sketch, a power of two.
const MAP_SIZE: usize = 1024;
/// The greatest total count of a sketch. It keeps the sum of any two from overflowing.
const MAX_WEIGHT: u64 = i64::MAX as u64 / 2;

/// `top_k(x, k) -> LIST<STRUCT<value, count BIGINT>>`: the `k` most frequent non-null values with their counts, by
/// count descending, then by value. NULL if there are no values.
///
/// The result is exact, and independent of the order of merging, while there are at most [`TOP_K_CAPACITY`] different
/// values. Beyond that the counts are estimates of the frequent-items sketch of Apache DataSketches (Misra-Gries):
/// never below the true count, and above it by at most 3.5/1024 (0.34 %) of all values counted. A value more frequent
/// than that is never missing. Which of the rarer values are listed, and the estimates, depend on the order of merging.
///
/// `x` is text (including UUID and JSON), an integer, a decimal, a boolean, a date or a timestamp. `k` is a literal
/// from 1 to 100.
///
/// State: one `Binary`, the sketch in DataSketches' own format, with values as text (dates and timestamps as their
/// underlying number); NULL if there are no values. At most 768 values with 12 bytes each.
pub fn top_k() -> AggregateUDF {
    AggregateUDF::from(TopK { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TopK {
    signature: Signature,
}

impl AggregateUDFImpl for TopK {
    fn name(&self) -> &str {
        TOP_K
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [x, k] if encoding(x).is_some() && k.is_integer() => Ok(arguments.to_vec()),
            [DataType::Float16 | DataType::Float32 | DataType::Float64, _] => {
                plan_err!("{TOP_K} does not count floating point numbers: round them to a DECIMAL or an integer first")
            }
            _ => {
                let found = arguments.iter().map(DataType::to_string).collect::<Vec<_>>().join(", ");
                plan_err!(
                    "{TOP_K} was called with ({found}): expected text, an integer, a decimal, a boolean, a date \
                     or a timestamp, and how many to list"
                )
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Struct(result_row(&arguments[0])), true))))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Field::new(format_state_name(args.name, TOP_K), DataType::Binary, true).into()])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let k = checked_bound(TOP_K, &args, TOP_K_MAX)?;
        Ok(Box::new(TopKAccumulator { k, value_type: args.expr_fields[0].data_type().clone(), sketch: None, text_bytes: 0 }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn result_row(value: &DataType) -> Fields {
    Fields::from(vec![Field::new("value", value.clone(), true), Field::new("count", DataType::Int64, true)])
}

/// Returns the type through which values become text and come back unchanged. `None` if top_k does not support the
/// type.
fn encoding(value: &DataType) -> Option<DataType> {
    match value {
        DataType::Timestamp(_, _) | DataType::Date64 => Some(DataType::Int64),
        DataType::Date32 => Some(DataType::Int32),
        DataType::Dictionary(_, values) => encoding(values),
        DataType::Boolean | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => Some(value.clone()),
        DataType::Decimal32(_, _) | DataType::Decimal64(_, _) | DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => {
            Some(value.clone())
        }
        integer if integer.is_integer() => Some(value.clone()),
        _ => None,
    }
}

#[derive(Debug)]
struct TopKAccumulator {
    k: usize,
    value_type: DataType,
    /// Created with the first value.
    sketch: Option<FrequentItemsSketch<String>>,
    /// The heap size of the texts in the sketch.
    text_bytes: usize,
}

impl Accumulator for TopKAccumulator {
    /// The columns: x, k.
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let Some(values) = columns.first() else { return exec_err!("{TOP_K} got no column") };
        let texts = self.to_text(values)?;
        for text in texts.as_string::<i32>().iter().flatten() {
            self.count(text)?;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(states) = states.first().and_then(|state| state.as_binary_opt::<i32>()) else {
            return exec_err!("the state of {TOP_K} is not binary");
        };
        for state in states.iter().flatten() {
            self.merge(read(state)?)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(self.sketch.as_ref().map(FrequentItemsSketch::serialize))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let fields = result_row(&self.value_type);
        let Some(sketch) = self.sketch.as_ref().filter(|sketch| sketch.num_active_items() > 0) else {
            return Ok(ScalarValue::new_null_list(DataType::Struct(fields), true, 1));
        };
        let rows = sketch.frequent_items_with_threshold(ErrorType::NoFalseNegatives, 0);
        let counts: Int64Array = rows.iter().map(|row| i64::try_from(row.estimate()).unwrap_or(i64::MAX)).map(Some).collect();
        let texts: StringArray = rows.iter().map(|row| Some(row.item().as_str())).collect();
        let values = self.values_from_text(Arc::new(texts))?;
        let columns = most_frequent(values, Arc::new(counts), self.k)?;
        let list = StructArray::try_new(fields, columns, None)?;
        Ok(SingleRowListArrayBuilder::new(Arc::new(list)).build_list_scalar())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.text_bytes + self.sketch.as_ref().map_or(0, FrequentItemsSketch::estimated_size)
    }
}

impl TopKAccumulator {
    fn count(&mut self, text: &str) -> Result<()> {
        let sketch = match &mut self.sketch {
            Some(sketch) => sketch,
            empty => empty.insert(new_sketch()?),
        };
        if sketch.total_weight() >= MAX_WEIGHT {
            return exec_err!("{TOP_K} has counted {MAX_WEIGHT} values: it cannot count more");
        }
        let before = sketch.num_active_items();
        sketch.update_ref(text);
        let after = sketch.num_active_items();
        if after > before {
            self.text_bytes += text.len();
        } else if after < before {
            self.text_bytes = text_bytes(sketch);
        }
        Ok(())
    }

    fn merge(&mut self, other: FrequentItemsSketch<String>) -> Result<()> {
        let Some(sketch) = &mut self.sketch else {
            self.text_bytes = text_bytes(&other);
            self.sketch = Some(other);
            return Ok(());
        };
        if sketch.total_weight() + other.total_weight() > MAX_WEIGHT {
            return exec_err!("{TOP_K} has counted {MAX_WEIGHT} values: it cannot count more");
        }
        sketch.merge(&other);
        self.text_bytes = text_bytes(sketch);
        Ok(())
    }

    fn to_text(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let through = self.encoding()?;
        convert(&convert(values, &through)?, &DataType::Utf8)
    }

    fn values_from_text(&self, texts: ArrayRef) -> Result<ArrayRef> {
        let through = self.encoding()?;
        convert(&convert(&texts, &through)?, &self.value_type)
    }

    fn encoding(&self) -> Result<DataType> {
        encoding(&self.value_type).ok_or_else(|| exec_datafusion_err!("{TOP_K} does not count values of {}", self.value_type))
    }
}

fn new_sketch() -> Result<FrequentItemsSketch<String>> {
    FrequentItemsSketch::new(MAP_SIZE).map_err(|error| exec_datafusion_err!("{TOP_K}: {error}"))
}

/// Reads a state. Checks the sizes before the sketch is built, which would allocate and add up whatever damaged bytes
/// say.
fn read(state: &[u8]) -> Result<FrequentItemsSketch<String>> {
    const LARGEST_LOG: u8 = MAP_SIZE.trailing_zeros() as u8;
    let [_, _, _, largest, current, ..] = state else {
        return exec_err!("a state of {TOP_K} has {} bytes: it is damaged", state.len());
    };
    if *largest != LARGEST_LOG || *current > LARGEST_LOG {
        return exec_err!("a state of {TOP_K} has 2^{current} of 2^{largest} slots: expected at most 2^{LARGEST_LOG}, it is damaged");
    }
    let sketch = FrequentItemsSketch::deserialize(state).map_err(|error| exec_datafusion_err!("a state of {TOP_K} is damaged: {error}"))?;
    if sketch.total_weight() > MAX_WEIGHT || sketch.maximum_error() > sketch.total_weight() {
        return exec_err!(
            "a state of {TOP_K} says it counted {} values with an error of {}: it is damaged",
            sketch.total_weight(),
            sketch.maximum_error()
        );
    }
    Ok(sketch)
}

fn text_bytes(sketch: &FrequentItemsSketch<String>) -> usize {
    sketch.frequent_items_with_threshold(ErrorType::NoFalseNegatives, 0).iter().map(|row| row.item().len()).sum()
}

/// Casts, and fails where the cast would give NULL.
fn convert(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    Ok(cast_with_options(array, to, &CastOptions { safe: false, ..CastOptions::default() })?)
}

/// Returns the `k` rows with the greatest counts, equal counts by value.
fn most_frequent(values: ArrayRef, counts: ArrayRef, k: usize) -> Result<Vec<ArrayRef>> {
    let by_count = SortColumn { values: Arc::clone(&counts), options: Some(SortOptions { descending: true, nulls_first: false }) };
    let by_value = SortColumn { values: Arc::clone(&values), options: None };
    let order = lexsort_to_indices(&[by_count, by_value], Some(k))?;
    Ok(take_arrays(&[values, counts], &order, None)?)
}

#[cfg(test)]
mod tests;
