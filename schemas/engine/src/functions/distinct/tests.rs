use arrow::array::{Date32Array, Decimal128Array, Float64Array, StringArray};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::physical_expr::GroupsAccumulatorAdapter;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column;
use proptest::prelude::*;

use super::*;

/// A batch: a value, its group, and whether it passes the FILTER.
type Batch = Vec<(Option<i8>, u8, Option<bool>)>;

#[derive(Debug, Clone)]
enum Step {
    Update(Batch),
    /// Merges the state of another accumulator, as if from another layer.
    Merge(Batch),
    Convert(Batch),
    /// Emits this many groups.
    Emit(u8),
}

fn batch() -> impl Strategy<Value = Batch> {
    prop::collection::vec((prop::option::weighted(0.8, -4..4i8), 0..6u8, prop::option::weighted(0.9, prop::bool::weighted(0.8))), 0..30)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => batch().prop_map(Step::Update),
        2 => batch().prop_map(Step::Merge),
        1 => batch().prop_map(Step::Convert),
        1 => (0..6u8).prop_map(Step::Emit),
    ]
}

const TYPES: usize = 5;

fn values(of: usize, batch: &Batch) -> ArrayRef {
    let numbers = batch.iter().map(|(value, _, _)| *value);
    match of {
        0 => Arc::new(numbers.map(|x| x.map(|x| if x == 0 { String::new() } else { format!("value {x}") })).collect::<StringArray>()),
        1 => Arc::new(numbers.map(|x| x.map(i32::from)).collect::<Date32Array>()),
        2 => Arc::new(numbers.map(|x| x.map(|x| x > 0)).collect::<BooleanArray>()),
        3 => Arc::new(
            numbers
                .map(|x| x.map(|x| [f64::NAN, -3.0, 0.0, f64::INFINITY, 0.5, -0.5, 1.0, 2.0][(x + 4) as usize]))
                .collect::<Float64Array>(),
        ),
        _ => Arc::new(numbers.map(|x| x.map(i128::from)).collect::<Decimal128Array>().with_precision_and_scale(18, 2).unwrap()),
    }
}

fn expr(data_type: &DataType, inner: bool) -> Arc<AggregateFunctionExpr> {
    let schema = Arc::new(arrow::datatypes::Schema::new(vec![Field::new("x", data_type.clone(), true)]));
    let function = if inner { count_udaf() } else { Arc::new(AggregateUDF::from(GroupedCount { inner: count_udaf() })) };
    Arc::new(AggregateExprBuilder::new(function, vec![Arc::new(Column::new("x", 0))]).schema(schema).alias("x").distinct().build().unwrap())
}

/// Returns both accumulators: one set for all groups, and DataFusion's accumulator per group.
fn both(data_type: &DataType) -> [Box<dyn GroupsAccumulator>; 2] {
    let ours = expr(data_type, false);
    assert!(ours.groups_accumulator_supported());
    let inner = expr(data_type, true);
    let adapted = GroupsAccumulatorAdapter::new(move || inner.create_accumulator());
    [ours.create_groups_accumulator().unwrap(), Box::new(adapted)]
}

fn feed(to: &mut dyn GroupsAccumulator, of: usize, batch: &Batch, groups: usize) {
    let of_row: Vec<usize> = batch.iter().map(|(_, group, _)| usize::from(*group)).collect();
    let only: BooleanArray = batch.iter().map(|(_, _, passes)| *passes).collect();
    to.update_batch(&[values(of, batch)], &of_row, Some(&only), groups).unwrap();
}

fn seen_by(batch: &Batch) -> usize {
    batch.iter().map(|(_, group, _)| usize::from(*group) + 1).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_set_for_all_groups_counts_as_one_for_each(steps in prop::collection::vec(step(), 1..12), of in 0..TYPES) {
        let data_type = values(of, &Vec::new()).data_type().clone();
        let mut both = both(&data_type);
        let mut groups = 0;
        for step in &steps {
            match step {
                Step::Update(batch) => {
                    groups = groups.max(seen_by(batch));
                    both.iter_mut().for_each(|one| feed(one.as_mut(), of, batch, groups));
                }
                Step::Merge(batch) => {
                    // The states are the same, so each accumulator merges the state of the other as well.
                    let made = self::both(&data_type).map(|mut one| {
                        feed(one.as_mut(), of, batch, 6);
                        one.state(EmitTo::All).unwrap()
                    });
                    groups = 6;
                    for one in &mut both {
                        made.iter().for_each(|state| one.merge_batch(state, &[0, 1, 2, 3, 4, 5], groups).unwrap());
                    }
                }
                Step::Convert(batch) => {
                    let only: BooleanArray = batch.iter().map(|(_, _, passes)| *passes).collect();
                    let state = self::both(&data_type)[0].convert_to_state(&[values(of, batch)], Some(&only)).unwrap();
                    groups = groups.max(seen_by(batch));
                    let of_row: Vec<usize> = batch.iter().map(|(_, group, _)| usize::from(*group)).collect();
                    both.iter_mut().for_each(|one| one.merge_batch(&state, &of_row, groups).unwrap());
                }
                Step::Emit(first) => {
                    // DataFusion emits at least one group.
                    let first = usize::from(*first).min(groups);
                    if first == 0 {
                        continue;
                    }
                    groups -= first;
                    let [ours, theirs] = both.each_mut().map(|one| one.evaluate(EmitTo::First(first)).unwrap());
                    prop_assert_eq!(&ours, &theirs);
                }
            }
        }
        if groups > 0 {
            let [ours, theirs] = both.each_mut().map(|one| one.evaluate(EmitTo::All).unwrap());
            prop_assert_eq!(&ours, &theirs);
        }
    }
}

#[test]
fn a_slice_of_states_and_null_lists_merge() {
    let [mut made, _] = both(&DataType::Utf8);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "b", "c"]));
    made.update_batch(&[texts], &[0, 1, 2, 2], None, 3).unwrap();
    let state = made.state(EmitTo::All).unwrap().swap_remove(0).slice(1, 2);
    let lists = state.as_list::<i32>();
    let first_is_null = ListArray::new(
        Arc::new(Field::new_list_field(DataType::Utf8, true)),
        lists.offsets().clone(),
        lists.values().clone(),
        Some(vec![false, true].into()),
    );
    let [mut merged, _] = both(&DataType::Utf8);
    merged.merge_batch(std::slice::from_ref(&state), &[0, 1], 2).unwrap();
    merged.merge_batch(&[Arc::new(first_is_null)], &[2, 2], 3).unwrap();
    assert_eq!(merged.evaluate(EmitTo::All).unwrap().as_ref(), &Int64Array::from(vec![1, 2, 2]));
}

#[test]
fn nulls_without_a_type_are_left_to_datafusion() {
    assert!(!expr(&DataType::Null, false).groups_accumulator_supported());
}

#[test]
fn what_was_handed_on_is_held_no_more() {
    let [mut counts, _] = both(&DataType::Utf8);
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..50_000).map(|at| format!("a text of some length {at}"))));
    counts.update_batch(&[texts], &vec![0; 50_000], None, 1).unwrap();
    let held = counts.size();
    counts.state(EmitTo::All).unwrap();
    assert!(counts.size() * 10 < held, "{held} bytes before, {} after", counts.size());
}

#[test]
fn an_accumulator_without_values_holds_next_to_nothing() {
    let mut counts = DistinctCounts::new(DataType::Utf8).unwrap();
    assert!(counts.size() < 1 << 10, "{} bytes", counts.size());
    let states = counts.state(EmitTo::All).unwrap();
    assert_eq!(states[0].len(), 0);
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(["a", "b", "a"]));
    counts.update_batch(&[text], &[0, 0, 1], None, 2).unwrap();
    assert_eq!(counts.evaluate(EmitTo::All).unwrap().as_ref(), &Int64Array::from(vec![2, 1]));
    assert!(counts.size() < 1 << 10, "{} bytes after the counts were handed on", counts.size());
}

#[test]
fn more_than_a_list_holds_asks_for_more_memory_than_there_is() {
    let texts = |from: usize| -> ArrayRef { Arc::new(StringArray::from_iter_values((from..from + 100).map(|at| format!("text {at}")))) };
    let mut counts = DistinctCounts { most_at_once: 150, ..DistinctCounts::new(DataType::Utf8).unwrap() };
    let mut plenty = DistinctCounts::new(DataType::Utf8).unwrap();
    for counts in [&mut counts, &mut plenty] {
        counts.update_batch(&[texts(0)], &[0; 100], None, 1).unwrap();
        counts.update_batch(&[texts(100)], &[0; 100], None, 1).unwrap();
    }
    assert!(counts.size() > 1 << 50 && plenty.size() < 1 << 20, "{} and {}", counts.size(), plenty.size());
    counts.state(EmitTo::All).unwrap();
    assert!(counts.size() < 1 << 20, "{} after it was handed on", counts.size());
}

#[test]
fn there_is_one_zero() {
    let mut counts = DistinctCounts::new(DataType::Float64).unwrap();
    let zeros: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![0.0, -0.0, 1.0]));
    counts.update_batch(&[zeros], &[0, 0, 0], None, 1).unwrap();
    assert_eq!(counts.evaluate(EmitTo::All).unwrap().as_ref(), &Int64Array::from(vec![2]));
}
