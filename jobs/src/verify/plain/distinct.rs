//! `count(DISTINCT x)` of texts, with sets that begin empty. Each of DataFusion's begins with room for 128 texts and
//! 8 KiB of them, and there is one for each key and window: of 10,000 keys they are more than a gigabyte, nearly all of
//! it unused. And `count(DISTINCT x)` of floats, in which -0.0 and 0.0 are one value as they are everywhere else.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{HashSet, Result, ScalarValue};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature};
use types::sql_types::one_zero;

/// DataFusion's `count`, except for its sets of texts and of floats.
pub(super) fn count() -> AggregateUDF {
    AggregateUDF::from(PlainCount { inner: count_udaf() })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PlainCount {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for PlainCount {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.expr_fields {
            [text] if args.is_distinct && *text.data_type() == DataType::Utf8 => Ok(Box::new(DistinctTexts::default())),
            [float] if args.is_distinct && float.data_type().is_floating() => Ok(Box::new(DistinctFloats(self.inner.accumulator(args)?))),
            _ => self.inner.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }
}

/// The texts of one group. Their state is a list of them, like DataFusion's.
#[derive(Debug, Default)]
struct DistinctTexts {
    texts: HashSet<Box<str>>,
    /// Of the texts themselves.
    bytes: usize,
}

impl DistinctTexts {
    fn insert(&mut self, values: &ArrayRef) {
        for text in values.as_string::<i32>().iter().flatten() {
            if !self.texts.contains(text) {
                self.bytes += text.len();
                self.texts.insert(text.into());
            }
        }
    }
}

impl Accumulator for DistinctTexts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.insert(&values[0]);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for texts in states[0].as_list::<i32>().iter().flatten() {
            self.insert(&texts);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let texts = StringArray::from_iter_values(std::mem::take(&mut self.texts));
        self.bytes = 0;
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(texts)).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.texts.len() as i64)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.texts.capacity() * size_of::<Box<str>>() + self.bytes
    }
}

/// DataFusion's set of floats, without -0.0.
#[derive(Debug)]
struct DistinctFloats(Box<dyn Accumulator>);

impl Accumulator for DistinctFloats {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&values.iter().map(one_zero).collect::<Vec<_>>())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

#[cfg(test)]
mod tests;
