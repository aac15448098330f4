//! `top_k(x, k)`: the k most frequent values, in bounded space.

use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Int64Array, StringArray, StructArray, new_empty_array};
use arrow::compute::{CastOptions, SortColumn, SortOptions, cast_with_options, lexsort_to_indices, take_arrays};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility};
use datasketches::frequencies::{ErrorType, FrequentItemsSketch};

use super::MOST_AT_ONCE;
use super::bounds::checked_bound;

pub const TOP_K: &str = "top_k";
/// The greatest `k`.
pub(crate) const TOP_K_MAX: usize = 100;
/// The number of different values that are counted exactly.
pub const TOP_K_CAPACITY: usize = MAP_SIZE / 4 * 3;

/// Slots of the sketch, a power of two.
const MAP_SIZE: usize = 1024;
/// The greatest total count of a sketch. It keeps the sum of any two from overflowing.
const MAX_WEIGHT: u64 = i64::MAX as u64 / 2;
/// The bytes of a state before its values, and of each value beside its text: the count, and the length of the text.
const STATE_HEAD_BYTES: usize = 32;
const STATE_VALUE_BYTES: usize = 12;

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
        Ok(result_type(&arguments[0]))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Field::new(format_state_name(args.name, TOP_K), DataType::Binary, true).into()])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let mut of_all = TopKs::new(&args)?;
        of_all.make_groups(1);
        Ok(Box::new(TopKOfAll(of_all)))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(TopKs::new(&args)?))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn result_type(value: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Struct(result_row(value)), true)))
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

/// What the values of one group are counted with.
#[derive(Debug)]
struct Sketch {
    items: FrequentItemsSketch<String>,
    /// The size of all texts in it.
    text_bytes: usize,
}

impl Sketch {
    fn new() -> Result<Self> {
        let items = FrequentItemsSketch::new(MAP_SIZE).map_err(|error| exec_datafusion_err!("{TOP_K}: {error}"))?;
        Ok(Self { items, text_bytes: 0 })
    }

    fn count(&mut self, text: &str) -> Result<()> {
        if self.items.total_weight() >= MAX_WEIGHT {
            return exec_err!("{TOP_K} has counted {MAX_WEIGHT} values: it cannot count more");
        }
        let (different, error) = (self.items.num_active_items(), self.items.maximum_error());
        self.items.update_ref(text);
        if self.items.maximum_error() != error {
            // Rare values were dropped.
            self.text_bytes = text_bytes(&self.items);
        } else if self.items.num_active_items() > different {
            self.text_bytes += text.len();
        }
        Ok(())
    }

    fn merge(&mut self, other: FrequentItemsSketch<String>) -> Result<()> {
        if self.items.total_weight() + other.total_weight() > MAX_WEIGHT {
            return exec_err!("{TOP_K} has counted {MAX_WEIGHT} values: it cannot count more");
        }
        match self.items.is_empty() {
            true => self.items = other,
            false => self.items.merge(&other),
        }
        self.text_bytes = text_bytes(&self.items);
        Ok(())
    }

    /// What it holds on the heap.
    fn held_bytes(&self) -> usize {
        self.items.estimated_size() + self.text_bytes
    }

    /// The length of its state.
    fn state_bytes(&self) -> usize {
        STATE_HEAD_BYTES + self.items.num_active_items() * STATE_VALUE_BYTES + self.text_bytes
    }
}

/// The sketches of every group.
#[derive(Debug)]
struct TopKs {
    k: usize,
    value_type: DataType,
    /// A group's sketch is created with its first value.
    sketches: Vec<Option<Sketch>>,
    /// What all sketches hold, and how long their states are.
    held_bytes: usize,
    state_bytes: usize,
}

impl TopKs {
    fn new(args: &AccumulatorArgs<'_>) -> Result<Self> {
        let k = checked_bound(TOP_K, args, TOP_K_MAX)?;
        Ok(Self::with_type(k, args.expr_fields[0].data_type().clone()))
    }

    fn with_type(k: usize, value_type: DataType) -> Self {
        Self { k, value_type, sketches: Vec::new(), held_bytes: 0, state_bytes: 0 }
    }

    fn make_groups(&mut self, total: usize) {
        self.sketches.resize_with(total, || None);
    }

    /// Counts values. The columns: x, k.
    fn update(&mut self, columns: &[ArrayRef], counts: impl Fn(usize) -> bool, groups: &[usize]) -> Result<()> {
        let Some(values) = columns.first() else { return exec_err!("{TOP_K} got no column") };
        let texts = self.to_text(values)?;
        for (row, text) in texts.as_string::<i32>().iter().enumerate() {
            if let Some(text) = text.filter(|_| counts(row)) {
                self.change(groups[row], |sketch| sketch.count(text))?;
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let Some(states) = states.first().and_then(|state| state.as_binary_opt::<i32>()) else {
            return exec_err!("the state of {TOP_K} is not binary");
        };
        for (state, group) in states.iter().zip(groups) {
            if let Some(state) = state {
                let other = read(state)?;
                self.change(*group, |sketch| sketch.merge(other))?;
            }
        }
        Ok(())
    }

    /// Changes a group's sketch, and accounts what it holds.
    fn change(&mut self, group: usize, change: impl FnOnce(&mut Sketch) -> Result<()>) -> Result<()> {
        let sketch = match &mut self.sketches[group] {
            Some(sketch) => {
                self.held_bytes -= sketch.held_bytes();
                self.state_bytes -= sketch.state_bytes();
                sketch
            }
            empty => empty.insert(Sketch::new()?),
        };
        let changed = change(sketch);
        self.held_bytes += sketch.held_bytes();
        self.state_bytes += sketch.state_bytes();
        changed
    }

    /// The states of the first groups.
    fn states(&self, groups: usize) -> Result<ArrayRef> {
        let sketches = &self.sketches[..groups];
        let total: usize = sketches.iter().flatten().map(Sketch::state_bytes).sum();
        if i32::try_from(total).is_err() {
            return exec_err!("{TOP_K} has {total} bytes to return at once: expected at most {}", i32::MAX);
        }
        let mut states = BinaryBuilder::with_capacity(groups, total);
        for sketch in sketches {
            states.append_option(sketch.as_ref().map(|sketch| sketch.items.serialize()));
        }
        Ok(Arc::new(states.finish()))
    }

    /// The most frequent values of the first groups.
    fn values(&self, groups: usize) -> Result<ArrayRef> {
        let values = self.sketches[..groups].iter().map(|sketch| self.most_frequent(sketch.as_ref()));
        match values.collect::<Result<Vec<ScalarValue>>>()? {
            none if none.is_empty() => Ok(new_empty_array(&result_type(&self.value_type))),
            values => ScalarValue::iter_to_array(values),
        }
    }

    fn most_frequent(&self, sketch: Option<&Sketch>) -> Result<ScalarValue> {
        let fields = result_row(&self.value_type);
        let Some(sketch) = sketch.map(|sketch| &sketch.items).filter(|items| items.num_active_items() > 0) else {
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

    /// Forgets the first groups. The others are numbered from 0.
    fn forget(&mut self, groups: usize) {
        if groups == self.sketches.len() {
            (self.sketches, self.held_bytes, self.state_bytes) = (Vec::new(), 0, 0);
            return;
        }
        for sketch in self.sketches.drain(..groups).flatten() {
            self.held_bytes -= sketch.held_bytes();
            self.state_bytes -= sketch.state_bytes();
        }
    }

    fn groups_of(&self, emit_to: EmitTo) -> usize {
        match emit_to {
            EmitTo::All => self.sketches.len(),
            EmitTo::First(groups) => groups,
        }
    }

    /// What is held, and the states that are made of it when it is handed on. More than any limit once the states
    /// approach what an Arrow column holds: when memory is refused, operators emit everything at once.
    fn all_bytes(&self) -> usize {
        if self.state_bytes > MOST_AT_ONCE {
            return usize::MAX / 64;
        }
        size_of_val(self) + self.sketches.capacity() * size_of::<Option<Sketch>>() + self.held_bytes + self.state_bytes
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

impl GroupsAccumulator for TopKs {
    fn update_batch(&mut self, columns: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.make_groups(total_groups);
        self.update(columns, |row| only.is_none_or(|only| only.is_valid(row) && only.value(row)), groups)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.make_groups(total_groups);
        self.merge(states, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.groups_of(emit_to);
        let values = self.values(groups)?;
        self.forget(groups);
        Ok(values)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.groups_of(emit_to);
        let states = self.states(groups)?;
        self.forget(groups);
        Ok(vec![states])
    }

    fn convert_to_state(&self, columns: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each = Self::with_type(self.k, self.value_type.clone());
        let rows = columns.first().map_or(0, |column| column.len());
        let groups: Vec<usize> = (0..rows).collect();
        each.update_batch(columns, &groups, only, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.all_bytes()
    }
}

/// One group alone, which may be asked again and again.
#[derive(Debug)]
struct TopKOfAll(TopKs);

impl Accumulator for TopKOfAll {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |column| column.len());
        self.0.update(columns, |_| true, &vec![0; rows])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |column| column.len());
        self.0.merge(states, &vec![0; rows])
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::try_from_array(&self.0.states(1)?, 0)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.values(1)?, 0)
    }

    fn size(&self) -> usize {
        self.0.all_bytes()
    }
}

/// Whether a state counts all its values exactly.
pub(crate) fn top_k_is_exact(state: &[u8]) -> Result<bool> {
    Ok(read(state)?.maximum_error() == 0)
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
