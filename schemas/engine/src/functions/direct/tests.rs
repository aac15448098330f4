use std::iter::successors;
use std::sync::LazyLock;

use arrow::array::{ListBuilder, PrimitiveBuilder, StringBuilder};
use arrow::buffer::OffsetBuffer;
use arrow::compute::interleave;
use arrow::datatypes::{Field, Schema};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{EmitTo, Expr, GroupsAccumulator, col};
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::Column;
use proptest::prelude::*;

use super::*;
use crate::functions::decimals::avg;
use crate::functions::extremes::{greatest, least};
use crate::functions::grouped;
use crate::functions::limited::limited;
use crate::functions::sums::{judged_sum, sum};

/// The arrays of a field, and the rows of each.
const ARRAYS: usize = 3;
const ROWS: usize = 8;

/// Some groups are past it, some may be, and some are not.
const LIMIT_BYTES: u64 = 60;

/// For every operation, its aggregates over all types of which it merges states.
static AGGREGATES: LazyLock<Vec<(DirectOperation, AggregateFunctionExpr)>> = LazyLock::new(|| {
    let operations = successors(Some(DirectOperation::Count), |operation| operation_after(*operation));
    operations.flat_map(|operation| aggregates(operation).into_iter().map(move |aggregate| (operation, aggregate))).collect()
});

/// So that none is forgotten.
fn operation_after(operation: DirectOperation) -> Option<DirectOperation> {
    match operation {
        DirectOperation::Count => Some(DirectOperation::Sum),
        DirectOperation::Sum => Some(DirectOperation::JudgedSum),
        DirectOperation::JudgedSum => Some(DirectOperation::Average),
        DirectOperation::Average => Some(DirectOperation::DecimalAverage),
        DirectOperation::DecimalAverage => Some(DirectOperation::Least),
        DirectOperation::Least => Some(DirectOperation::Greatest),
        DirectOperation::Greatest => Some(DirectOperation::DistinctCount),
        DirectOperation::DistinctCount => None,
    }
}

fn aggregates(operation: DirectOperation) -> Vec<AggregateFunctionExpr> {
    let over = |types: &[DataType], function: fn(&DataType) -> Arc<AggregateUDF>| -> Vec<AggregateFunctionExpr> {
        types.iter().map(|data_type| aggregate(function(data_type), data_type)).collect()
    };
    match operation {
        DirectOperation::Count => over(&[DataType::Utf8], |_| count_udaf()),
        DirectOperation::Sum => over(&[DataType::Float64, DataType::Decimal128(18, 2)], |_| Arc::new(sum())),
        DirectOperation::JudgedSum => {
            let whole_numbers = [DataType::Int64, DataType::UInt64, DataType::Duration(TimeUnit::Microsecond)];
            let decimals = [DataType::Decimal128(20, 4), DataType::Decimal128(38, 0)];
            over(&whole_numbers.into_iter().chain(decimals).collect::<Vec<_>>(), sum_of_view)
        }
        DirectOperation::Average => over(&[DataType::Float64], |_| Arc::new(avg())),
        DirectOperation::DecimalAverage => over(&[DataType::Decimal128(18, 2), DataType::Decimal128(38, 10)], |_| Arc::new(avg())),
        DirectOperation::Least => over(&ordered_types(), |_| Arc::new(least())),
        DirectOperation::Greatest => over(&ordered_types(), |_| Arc::new(greatest())),
        DirectOperation::DistinctCount => [DataType::Utf8, DataType::Int64].iter().map(distinct_count).collect(),
    }
}

fn ordered_types() -> Vec<DataType> {
    let mut types = vec![
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(18, 2),
        DataType::Decimal256(76, 38),
        DataType::Date32,
    ];
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        types.extend([DataType::Timestamp(unit, None), DataType::Timestamp(unit, Some("UTC".into()))]);
    }
    types
}

fn aggregate(function: Arc<AggregateUDF>, input: &DataType) -> AggregateFunctionExpr {
    let schema = Arc::new(Schema::new(vec![Field::new("x", input.clone(), true)]));
    AggregateExprBuilder::new(function, vec![Arc::new(Column::new("x", 0))]).schema(schema).alias("a").build().unwrap()
}

fn distinct_count(input: &DataType) -> AggregateFunctionExpr {
    let call = AggregateFunction::new_udf(count_udaf(), vec![col("x")], true, None, Vec::new(), None);
    let Expr::AggregateFunction(call) = limited(grouped(Expr::AggregateFunction(call)), LIMIT_BYTES) else { panic!("{input}") };
    let schema = Arc::new(Schema::new(vec![Field::new("x", input.clone(), true)]));
    let count = AggregateExprBuilder::new(call.func, vec![Arc::new(Column::new("x", 0))]).schema(schema).alias("a").distinct();
    count.build().unwrap()
}

fn sum_of_view(input: &DataType) -> Arc<AggregateUDF> {
    let fields = aggregate(Arc::new(sum()), input).state_fields().unwrap();
    match judged_sum(&sum().call(vec![col("x")]), &fields) {
        Some(Expr::AggregateFunction(judged)) => judged.func,
        other => panic!("{input}: {other:?}"),
    }
}

/// A state's field: extreme numbers of its type, as `picks` chooses them.
fn column(data_type: &DataType, picks: &[Option<u8>]) -> ArrayRef {
    macro_rules! whole_numbers {
        ($primitive:ty, $native:ty) => {
            picked::<$primitive>(
                data_type,
                &[<$native>::MIN, <$native>::MIN + 1, 0, 1, 2, <$native>::MAX / 3, <$native>::MAX - 1, <$native>::MAX],
                picks,
            )
        };
    }
    macro_rules! floating_point_numbers {
        ($primitive:ty, $native:ident) => {
            picked::<$primitive>(
                data_type,
                &[0.0, -0.0, 1.0, -2.5, 1e-30, $native::MIN, $native::MAX, $native::INFINITY, $native::NEG_INFINITY, $native::NAN],
                picks,
            )
        };
    }
    match data_type {
        DataType::Int8 => whole_numbers!(Int8Type, i8),
        DataType::Int16 => whole_numbers!(Int16Type, i16),
        DataType::Int32 => whole_numbers!(Int32Type, i32),
        DataType::Int64 => whole_numbers!(Int64Type, i64),
        DataType::UInt8 => whole_numbers!(UInt8Type, u8),
        DataType::UInt16 => whole_numbers!(UInt16Type, u16),
        DataType::UInt32 => whole_numbers!(UInt32Type, u32),
        DataType::UInt64 => whole_numbers!(UInt64Type, u64),
        DataType::Float32 => floating_point_numbers!(Float32Type, f32),
        DataType::Float64 => floating_point_numbers!(Float64Type, f64),
        DataType::Decimal128(..) => whole_numbers!(Decimal128Type, i128),
        DataType::Decimal256(..) => {
            let number = i256::from_i128;
            let numbers = [i256::MIN, i256::MAX, number(0), number(1), number(-12_345), number(i128::MIN), number(i128::MAX)];
            picked::<Decimal256Type>(data_type, &numbers, picks)
        }
        DataType::Date32 => whole_numbers!(Date32Type, i32),
        DataType::Timestamp(TimeUnit::Second, _) => whole_numbers!(TimestampSecondType, i64),
        DataType::Timestamp(TimeUnit::Millisecond, _) => whole_numbers!(TimestampMillisecondType, i64),
        DataType::Timestamp(TimeUnit::Microsecond, _) => whole_numbers!(TimestampMicrosecondType, i64),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => whole_numbers!(TimestampNanosecondType, i64),
        DataType::List(item) => lists(item, picks),
        DataType::Boolean => Arc::new(picks.iter().map(|pick| pick.map(|pick| pick % 64 == 0)).collect::<BooleanArray>()),
        other => panic!("a state of {other}"),
    }
}

/// Lists of few values, some of them alike.
fn lists(item: &FieldRef, picks: &[Option<u8>]) -> ArrayRef {
    let values = |pick: Option<u8>| {
        let pick = pick.unwrap_or_default();
        (0..pick % 4).map(move |at| pick / 4 % 5 + at)
    };
    match item.data_type() {
        DataType::Utf8 => {
            let mut lists = ListBuilder::new(StringBuilder::new()).with_field(item.clone());
            for pick in picks {
                values(*pick).for_each(|value| lists.values().append_value("x".repeat(value.into())));
                lists.append(true);
            }
            Arc::new(lists.finish())
        }
        _ => {
            let mut lists = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new()).with_field(item.clone());
            for pick in picks {
                values(*pick).for_each(|value| lists.values().append_value(value.into()));
                lists.append(true);
            }
            Arc::new(lists.finish())
        }
    }
}

/// Numbers of rows, which do not add up to more than their type holds. In the state of a count none is NULL.
fn numbers_of_rows(data_type: &DataType, picks: &[Option<u8>]) -> ArrayRef {
    match data_type {
        DataType::Int64 => {
            let picks: Vec<Option<u8>> = picks.iter().map(|pick| Some(pick.unwrap_or_default())).collect();
            picked::<Int64Type>(data_type, &[0, 1, 2, 1 << 40], &picks)
        }
        _ => picked::<UInt64Type>(data_type, &[0, 1, 2, 1 << 40], picks),
    }
}

fn picked<T: ArrowPrimitiveType>(data_type: &DataType, numbers: &[T::Native], picks: &[Option<u8>]) -> ArrayRef {
    let mut column = PrimitiveBuilder::<T>::with_capacity(picks.len());
    picks.iter().for_each(|pick| column.append_option(pick.map(|pick| numbers[usize::from(pick) % numbers.len()])));
    Arc::new(column.finish().with_data_type(data_type.clone()))
}

/// The arrays of each field of a state.
fn state_columns(operation: DirectOperation, fields: &[FieldRef], picks: &[Option<u8>]) -> Vec<Vec<ArrayRef>> {
    let counts = matches!(operation, DirectOperation::Count | DirectOperation::Average | DirectOperation::DecimalAverage);
    let of_fields = fields.iter().zip(picks.chunks(ARRAYS * ROWS)).enumerate();
    let arrays = |(place, (field, picks)): (usize, (&FieldRef, &[Option<u8>]))| -> Vec<ArrayRef> {
        let column = if counts && place == 0 { numbers_of_rows } else { column };
        picks.chunks(ROWS).map(|picks| column(field.data_type(), picks)).collect()
    };
    of_fields.map(arrays).collect()
}

/// Numbers groups in the order of their first row.
fn numbered(groups: impl Iterator<Item = u8>) -> Vec<usize> {
    let mut known = Vec::new();
    let number = |group: u8| {
        known.iter().position(|other| *other == group).unwrap_or_else(|| {
            known.push(group);
            known.len() - 1
        })
    };
    groups.map(number).collect()
}

/// An accumulator that has merged the rows, some at a time.
fn accumulator(aggregate: &AggregateFunctionExpr, states: &GroupedStates<'_>, at_once: usize) -> Result<Box<dyn GroupsAccumulator>> {
    let mut accumulator = aggregate.create_groups_accumulator()?;
    let mut seen = 0;
    for (rows, groups) in states.rows.chunks(at_once).zip(states.groups.chunks(at_once)) {
        seen = groups.iter().fold(seen, |seen, group| seen.max(group + 1));
        let fields = states.fields.iter().map(|arrays| Ok(interleave(arrays, rows)?)).collect::<Result<Vec<ArrayRef>>>()?;
        accumulator.merge_batch(&fields, groups, seen)?;
    }
    Ok(accumulator)
}

/// The values with one NaN for all: which bits that of a sum has is left open.
fn with_one_nan(values: ArrayRef) -> ArrayRef {
    match values.as_primitive_opt::<Float64Type>() {
        Some(numbers) => Arc::new(numbers.unary::<_, Float64Type>(|number| if number.is_nan() { f64::NAN } else { number })),
        None => values,
    }
}

proptest! {
    #[test]
    fn values_are_those_of_accumulators(
        picks in prop::collection::vec(prop::option::weighted(0.8, any::<u8>()), 2 * ARRAYS * ROWS),
        placed in prop::collection::vec((0..ARRAYS, 0..ROWS, 0..5_u8), 1..40),
        at_once in 1..40_usize,
    ) {
        let rows: Vec<(usize, usize)> = placed.iter().map(|(array, row, _)| (*array, *row)).collect();
        let groups = numbered(placed.iter().map(|(_, _, group)| *group));
        let group_count = groups.iter().max().unwrap() + 1;
        for (operation, aggregate) in &*AGGREGATES {
            let fields = aggregate.state_fields().unwrap();
            let direct = DirectMerge::for_aggregate(aggregate, &fields).unwrap();
            prop_assert_eq!(direct.operation, *operation);
            let columns = state_columns(*operation, &fields, &picks);
            let arrays: Vec<Vec<&dyn Array>> = columns.iter().map(|arrays| arrays.iter().map(|array| array.as_ref()).collect()).collect();
            let states = GroupedStates { fields: &arrays, rows: &rows, groups: &groups, group_count };
            let expected = accumulator(aggregate, &states, at_once).and_then(|mut accumulator| accumulator.evaluate(EmitTo::All));
            let expected = expected.map(with_one_nan).map_err(|error| error.strip_backtrace());
            let found = match direct.values(&states) {
                Ok(Some(values)) => Ok(with_one_nan(values)),
                // As accumulators merge them.
                Ok(None) if *operation == DirectOperation::DistinctCount => continue,
                Ok(None) => panic!("{operation:?} of {}", direct.value_type),
                Err(error) => Err(error.strip_backtrace()),
            };
            prop_assert_eq!(&found, &expected, "{:?} of {}", operation, direct.value_type);
            if direct.values_are_states() {
                let values = found.unwrap();
                let merged = accumulator(aggregate, &states, at_once).unwrap().state(EmitTo::All).unwrap();
                prop_assert_eq!(vec![values], merged.into_iter().map(with_one_nan).collect::<Vec<_>>());
            }
        }
    }
}

/// They need more than their columns, or are not worth a merge of their own.
#[test]
fn other_aggregates_are_left_to_their_accumulators() {
    let others = [
        aggregate(Arc::new(least()), &DataType::Utf8),
        aggregate(Arc::new(greatest()), &DataType::Boolean),
        aggregate(sum_of_view(&DataType::Decimal256(76, 2)), &DataType::Decimal256(76, 2)),
        aggregate(Arc::new(avg()), &DataType::Decimal256(76, 2)),
        aggregate(Arc::new(avg()), &DataType::Duration(TimeUnit::Second)),
        distinct_count(&DataType::Date32),
    ];
    let direct = |aggregate: &AggregateFunctionExpr| DirectMerge::for_aggregate(aggregate, &aggregate.state_fields().unwrap()).is_some();
    assert_eq!(others.each_ref().map(direct), [false; 6]);
}

/// A set that may be past the limit has to be measured, and one that was past it once is not known.
#[test]
fn sets_are_counted_up_to_their_limit() {
    let aggregate = distinct_count(&DataType::Utf8);
    let fields = aggregate.state_fields().unwrap();
    let direct = DirectMerge::for_aggregate(&aggregate, &fields).unwrap();
    // A text counts its length and 8 bytes.
    let counted = |lists: &[Option<&[&str]>], mark: Option<bool>| {
        let DataType::List(item) = fields[0].data_type() else { panic!("{:?}", fields[0]) };
        let mut sets = ListBuilder::new(StringBuilder::new()).with_field(item.clone());
        for list in lists {
            list.unwrap_or_default().iter().for_each(|text| sets.values().append_value(text));
            sets.append(list.is_some());
        }
        let (sets, marks) = (sets.finish(), BooleanArray::from(vec![mark; lists.len()]));
        let fields: [Vec<&dyn Array>; 2] = [vec![&sets], vec![&marks]];
        let (rows, groups): (Vec<(usize, usize)>, Vec<usize>) = (0..lists.len()).map(|row| ((0, row), 0)).unzip();
        let states = GroupedStates { fields: &fields, rows: &rows, groups: &groups, group_count: 1 };
        let counted = direct.values(&states).unwrap()?;
        Some(counted.as_struct().column(0).as_primitive::<Int64Type>().value(0))
    };
    assert_eq!(counted(&[Some(&["a", "bb"]), Some(&["a"]), Some(&[])], Some(false)), Some(2));
    assert_eq!(counted(&[Some(&["a"]), Some(&["x".repeat(43).as_str()])], None), Some(2), "as many bytes as the limit");
    assert_eq!(counted(&[Some(&["a"]), Some(&["x".repeat(44).as_str()])], None), None, "a byte more");
    assert_eq!(counted(&[Some(&["a"])], Some(true)), None, "was past the limit");
    assert_eq!(counted(&[Some(&["a"]), None], None), None, "NULL");
}

/// Their values would take more memory than any process can have.
#[test]
fn no_room_is_made_for_the_values_of_sets_that_are_past_the_limit() {
    const VALUES: usize = 1 << 24;
    let aggregate = distinct_count(&DataType::Int64);
    let fields = aggregate.state_fields().unwrap();
    let direct = DirectMerge::for_aggregate(&aggregate, &fields).unwrap();
    let DataType::List(item) = fields[0].data_type() else { panic!("{:?}", fields[0]) };
    let values = Arc::new(Int64Array::from(vec![0_i64; VALUES]));
    let sets = ListArray::new(item.clone(), OffsetBuffer::from_lengths([VALUES]), values, None);
    let marks = BooleanArray::from(vec![false]);
    let fields: [Vec<&dyn Array>; 2] = [vec![&sets], vec![&marks]];
    let (rows, groups): (Vec<(usize, usize)>, Vec<usize>) = (0..1 << 20).map(|_| ((0, 0), 0)).unzip();
    let states = GroupedStates { fields: &fields, rows: &rows, groups: &groups, group_count: 1 };
    assert!(direct.values(&states).unwrap().is_none());
}
