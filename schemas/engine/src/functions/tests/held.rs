//! What our aggregates say they hold is what they hold, with one key and with many: every limit rests on it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::functions_aggregate::expr_fn::count_distinct;
use datafusion::logical_expr::{EmitTo, Expr, GroupsAccumulator, col};
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column;

use super::super::{grouped, peak_factor};
use super::{inputs, lowered, lowered_grouped};
use crate::states::merge::groups_accumulator;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with the bytes that each thread has allocated and not freed.
struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

fn count(bytes: isize) {
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: everything is the system allocator's; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist for a moment.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

const ROWS: usize = 8_192;
const BATCHES: usize = 40;
/// What no accumulator counts: a few empty lists, a schema, a sketch's scratch.
const SMALL: f64 = 65_536.0;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("x", DataType::Utf8, true),
        Field::new("ts", DataType::Int64, true),
        Field::new("seq", DataType::Int64, false),
        Field::new("d", DataType::Decimal128(18, 2), true),
    ]))
}

/// Values that recur after `different`, in no order of time.
fn batch(number: usize, different: usize) -> RecordBatch {
    let rows = || number * ROWS..(number + 1) * ROWS;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows().map(|row| format!("a value {:08}", row % different)))),
        Arc::new(Int64Array::from_iter_values(rows().map(|row| ((row * 7_919) % 1_000_003) as i64))),
        Arc::new(Int64Array::from_iter_values(rows().map(|row| row as i64))),
        Arc::new(Decimal128Array::from_iter_values(rows().map(|row| row as i128)).with_precision_and_scale(18, 2).unwrap()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn distinct(column: &str) -> AggregateFunctionExpr {
    let Expr::AggregateFunction(call) = grouped(count_distinct(col(column))) else { panic!("no aggregate") };
    let argument = Column::new_with_schema(column, &schema()).unwrap();
    AggregateExprBuilder::new(call.func, vec![Arc::new(argument)]).schema(schema()).alias(column).distinct().build().unwrap()
}

/// Feeds an accumulator, and compares what it says, times what it takes to hand its states on, with what is allocated:
/// always at most a fifth more. What one of ours says at the end is at most a fifth more than that takes.
fn check(name: &str, call: &AggregateFunctionExpr, keys: usize, different: usize) {
    check_batches(BATCHES, name, call, (keys, different));
}

fn check_batches(batches: usize, name: &str, call: &AggregateFunctionExpr, (keys, different): (usize, usize)) {
    let (call, factor) = (Arc::new(call.clone()), peak_factor(call));
    let before = LIVE.get();
    let mut accumulator: Box<dyn GroupsAccumulator> = groups_accumulator(&call).unwrap();
    for number in 0..batches {
        let columns = inputs(&call, &batch(number, different));
        let groups: Vec<usize> = (number * ROWS..(number + 1) * ROWS).map(|row| row % keys).collect();
        accumulator.update_batch(&columns, &groups, None, keys.min((number + 1) * ROWS)).unwrap();
        drop((columns, groups));
        let (held, said) = ((LIVE.get() - before) as f64, accumulator.size() as f64 * factor);
        assert!(held <= 1.2 * said + SMALL, "{name}, {keys} keys: {held} bytes are held, and {said} said, after batch {number}");
    }
    let said = accumulator.size() as f64 * factor;
    PEAK.set(LIVE.get());
    let states = accumulator.state(EmitTo::All).unwrap();
    let held = (PEAK.get() - before) as f64;
    assert!(states.iter().all(|state| state.len() == keys));
    assert!(held <= 1.2 * said + SMALL, "{name}, {keys} keys: handing on takes {held} bytes, and {said} were said");
    assert!(factor > 1.0 || said <= 1.2 * held + SMALL, "{name}, {keys} keys: {said} bytes were said, and handing on takes {held}");
}

#[test]
fn what_last_n_holds_is_what_it_says() {
    let call = lowered("last_n(x, 20 ORDER BY ts, seq)", &schema());
    for keys in [1, 100, 10_000, ROWS * BATCHES] {
        check("last_n", &call, keys, 5_000);
    }
}

#[test]
fn what_distinct_holds_is_what_it_says() {
    for (keys, different) in [(1, 100), (1, ROWS * BATCHES), (100, 5_000), (10_000, 100_000)] {
        check("count(DISTINCT)", &distinct("x"), keys, different);
    }
}

#[test]
fn what_distinct_holds_of_integers_is_what_it_says() {
    for keys in [1, 100, 10_000] {
        check("count(DISTINCT), integers", &distinct("seq"), keys, ROWS * BATCHES);
    }
}

/// One key has more different values than are counted exactly; of many keys each has one.
#[test]
fn what_top_k_holds_is_what_it_says() {
    let call = lowered("top_k(x, 5)", &schema());
    for keys in [1, 100, 10_000, ROWS * BATCHES] {
        check("top_k", &call, keys, 5_000);
    }
}

#[test]
fn what_avg_holds_of_decimals_is_what_it_says() {
    let call = lowered("avg(d)", &schema());
    for keys in [1, 10_000, ROWS * BATCHES] {
        check("avg", &call, keys, 5_000);
    }
}

/// Whatever is planned in a view: what its accumulators say is what they hold.
fn each_says_what_it_holds(calls: &[&str]) {
    for call in calls {
        let lowered = lowered(call, &schema());
        for keys in [1, 100, 10_000, ROWS * BATCHES] {
            check(call, &lowered, keys, ROWS * BATCHES);
        }
    }
}

#[test]
fn what_sums_hold_is_what_they_say() {
    each_says_what_it_holds(&["count(*)", "sum(d)", "sum(seq)"]);
}

#[test]
fn what_moments_hold_is_what_they_say() {
    each_says_what_it_holds(&["var_pop(d)", "stddev(seq)", "corr(d, seq)"]);
}

#[test]
fn what_lists_hold_is_what_they_say() {
    for call in ["array_agg(x ORDER BY ts, seq)", "string_agg(x, ',' ORDER BY ts, seq)", "array_agg(DISTINCT x ORDER BY x)"] {
        let lowered = lowered_grouped(call, &schema());
        for (keys, different) in [(1, ROWS * BATCHES), (1, 100), (100, 5_000), (10_000, ROWS * BATCHES), (ROWS * BATCHES, ROWS * BATCHES)] {
            check(call, &lowered, keys, different);
        }
    }
}

/// DataFusion's, with what [`peak_factor`] adds.
#[test]
fn what_datafusions_accumulators_hold_is_what_they_say_and_what_it_takes_to_hand_on() {
    const FEW: usize = 6;
    let calls = [
        "sum(DISTINCT seq)",
        "avg(DISTINCT d)",
        "median(d)",
        "percentile_cont(0.9) WITHIN GROUP (ORDER BY seq)",
        "max(x)",
        "first_value(x ORDER BY ts, seq)",
        "approx_distinct(x)",
        "approx_median(seq)",
    ];
    for call in calls {
        let lowered = lowered(call, &schema());
        // Of a hundred full sketches, which are 2 MiB, a seventh is said.
        let keys = if call == "approx_distinct(x)" { vec![1, 10_000, ROWS * FEW] } else { vec![1, 100, 10_000, ROWS * FEW] };
        for keys in keys {
            check_batches(FEW, call, &lowered, (keys, ROWS * FEW));
        }
    }
}

#[test]
fn what_funnels_and_gaps_hold_is_what_they_say() {
    let time = "to_timestamp_micros(1772366400000000 + seq * 3000000)";
    each_says_what_it_holds(&[&format!("window_funnel('1h', {time}, ts >= 0, ts > 5)"), &format!("longest_gap({time})")]);
}

/// However groups are emitted, what is left is accounted.
#[test]
fn what_top_k_holds_after_some_groups_were_handed_on_is_what_it_says() {
    let call = Arc::new(lowered("top_k(x, 5)", &schema()));
    let before = LIVE.get();
    let mut accumulator = groups_accumulator(&call).unwrap();
    let groups: Vec<usize> = (0..ROWS).map(|row| row % 100).collect();
    accumulator.update_batch(&inputs(&call, &batch(0, 5_000)), &groups, None, 100).unwrap();
    drop(groups);
    for groups in [40, 59] {
        let emitted = accumulator.state(EmitTo::First(groups)).unwrap();
        assert_eq!(emitted[0].len(), groups);
        drop(emitted);
        let (held, said) = ((LIVE.get() - before) as f64, accumulator.size() as f64);
        assert!(held <= 1.2 * said + SMALL, "{held} bytes are held, and {said} said");
    }
    assert_eq!(accumulator.state(EmitTo::All).unwrap()[0].len(), 1);
    assert!(accumulator.size() < 1_024, "{} bytes are said of no group", accumulator.size());
}

#[test]
fn what_sequences_hold_is_what_they_say() {
    let time = "to_timestamp_micros(1772366400000000 + seq * 3000000)";
    let of_events = format!("sequence_match('(?1)', {time}, ts >= 0)");
    let of_spans = format!("session_count({time}, '1s')");
    for (name, call) in [("sequence_match", of_events), ("session_count", of_spans)] {
        let call = lowered(&call, &schema());
        for keys in [1, 100, 10_000, ROWS * BATCHES] {
            check(name, &call, keys, 5_000);
        }
    }
}

#[test]
fn what_retention_holds_is_what_it_says() {
    let call = lowered("retention(ts > 5, seq > 5)", &schema());
    for keys in [1, 10_000, ROWS * BATCHES] {
        check("retention", &call, keys, 5_000);
    }
}

/// However many events a key has, twenty of them are kept.
#[test]
fn last_n_of_a_hot_key_stays_small() {
    let call = Arc::new(lowered("last_n(x, 20 ORDER BY ts, seq)", &schema()));
    let mut accumulator = groups_accumulator(&call).unwrap();
    for number in 0..BATCHES {
        accumulator.update_batch(&inputs(&call, &batch(number, 5_000)), &[0; ROWS], None, 1).unwrap();
        assert!(accumulator.size() < 16 << 10, "{} bytes after batch {number}", accumulator.size());
    }
}
