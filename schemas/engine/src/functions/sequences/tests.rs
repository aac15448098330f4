use arrow::array::{Array, ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use proptest::prelude::*;

use super::super::tests::{inputs, lowered, merged, query, single, state_columns, try_lowered};
use super::accumulate::Collected;
use super::event::MarkedEvent;
use super::*;
use crate::states::merge::groups_accumulator;

mod naive;

use naive::Piece;

/// An event as the search and the funnel see it.
pub(super) fn event(time: i64, mask: u32) -> MarkedEvent {
    MarkedEvent { time, mask, group: 0, event_time: time, offset: 0, place: 0 }
}

pub(super) fn state_of<C: Collected>(collected: &C, group: u32) -> Option<Vec<u8>> {
    let mut state = Vec::new();
    collected.push_state(group, &mut state);
    Some(state).filter(|state| !state.is_empty())
}

fn schema() -> SchemaRef {
    let time = |name, nullable| Field::new(name, timestamp_type(), nullable);
    Arc::new(Schema::new(vec![
        time("ts", true),
        Field::new("a", DataType::Boolean, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("c", DataType::Boolean, true),
        time("event_time", false),
        Field::new("source", DataType::Utf8, false),
        Field::new("part", DataType::Int32, false),
        Field::new("seq", DataType::Int64, false),
        Field::new("x", DataType::Int64, true),
    ]))
}

#[derive(Debug, Clone)]
struct Row {
    second: Option<i64>,
    holds: [Option<bool>; 3],
    event_second: i64,
    source: &'static str,
    partition: i32,
}

fn row() -> impl Strategy<Value = Row> {
    let second = prop_oneof![9 => (0..30i64).prop_map(Some), 1 => Just(None)];
    let holds = prop::array::uniform3(prop::option::weighted(0.9, prop::bool::weighted(0.4)));
    // Many events tie in time.
    (second, holds, 0..2i64, prop::sample::select(vec!["auth", "pay"]), 0..2i32)
        .prop_map(|(second, holds, event_second, source, partition)| Row { second, holds, event_second, source, partition })
}

fn batch(rows: &[Row]) -> RecordBatch {
    let times = |seconds: Vec<Option<i64>>| {
        let micros = seconds.into_iter().map(|second| second.map(|second| second * 1_000_000));
        Arc::new(TimestampMicrosecondArray::from_iter(micros).with_timezone("UTC")) as ArrayRef
    };
    let holds = |number: usize| Arc::new(rows.iter().map(|row| row.holds[number]).collect::<BooleanArray>()) as ArrayRef;
    let columns = vec![
        times(rows.iter().map(|row| row.second).collect()),
        holds(0),
        holds(1),
        holds(2),
        times(rows.iter().map(|row| Some(row.event_second)).collect()),
        Arc::new(rows.iter().map(|row| Some(row.source)).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| row.partition).collect::<Int32Array>()),
        // An offset is that of its partition: a smaller one in the other source is later or earlier by the source
        // alone.
        Arc::new((0..rows.len() as i64).rev().collect::<Int64Array>()),
        Arc::new((0..rows.len() as i64).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The events with a time, in the order of their position.
fn in_order(rows: &[Row]) -> Vec<naive::Event> {
    let mask = |row: &Row| row.holds.iter().enumerate().map(|(number, holds)| u32::from(*holds == Some(true)) << number).sum::<u32>();
    let offset = |number: usize| rows.len() - number;
    let mut placed: Vec<_> = rows
        .iter()
        .enumerate()
        .filter_map(|(number, row)| Some(((row.second?, row.event_second, row.source, row.partition, offset(number)), mask(row))))
        .collect();
    placed.sort_unstable();
    placed.into_iter().map(|((second, ..), mask)| (second, mask)).collect()
}

fn pattern() -> impl Strategy<Value = Vec<Piece>> {
    let comparison = prop::sample::select(vec!["<=", "<", ">=", ">", "=="]);
    let piece = prop_oneof![
        6 => (1..4u32).prop_map(Piece::Condition),
        1 => Just(Piece::Any),
        2 => Just(Piece::AnyNumber),
        3 => (comparison.clone(), 0..12i64).prop_map(|(comparison, seconds)| Piece::Time(comparison, seconds)),
        2 => (1..4u32, comparison, 0..12i64).prop_map(|(number, comparison, seconds)| Piece::ConditionAt(number, comparison, seconds)),
    ];
    prop::collection::vec(piece, 1..7).prop_map(|pieces| {
        let mut pattern = vec![Piece::Condition(1)];
        for piece in pieces {
            match (pattern.last(), &piece) {
                (Some(Piece::Time(..)), Piece::Time(..)) | (Some(Piece::Time(..) | Piece::AnyNumber), Piece::ConditionAt(..)) => {}
                _ => pattern.push(piece),
            }
        }
        pattern
    })
}

const POSITION: &str = "ORDER BY event_time, source, part, seq";

/// The value of a call by a single pass, and by states of these parts that were merged in two rounds; they are equal.
fn value(call: &AggregateFunctionExpr, batch: &RecordBatch, parts: &[u8], order: &[u32]) -> ScalarValue {
    let once = single(call, batch);
    assert_eq!(merged(call, batch, parts, order), once, "of parts");
    assert_eq!(grouped(call, batch, parts, order), once, "of parts, as groups");
    once
}

/// The same through the accumulators of groups, beside other groups, whose states are handed on in two parts.
fn grouped(call: &AggregateFunctionExpr, batch: &RecordBatch, parts: &[u8], order: &[u32]) -> ScalarValue {
    let call = Arc::new(call.clone());
    let count = order.len();
    let mut first = groups_accumulator(&call).unwrap();
    let groups: Vec<usize> = (0..batch.num_rows()).map(|row| parts[row] as usize % count).collect();
    first.update_batch(&inputs(&call, batch), &groups, None, count).unwrap();
    let head = first.state(datafusion::logical_expr::EmitTo::First(count / 2)).unwrap();
    let tail = first.state(datafusion::logical_expr::EmitTo::All).unwrap();
    let mut last = groups_accumulator(&call).unwrap();
    for states in [tail, head] {
        let to_group_1 = vec![1; states[0].len()];
        last.merge_batch(&states, &to_group_1, 3).unwrap();
    }
    ScalarValue::try_from_array(&last.evaluate(datafusion::logical_expr::EmitTo::All).unwrap(), 1).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_split_and_order_of_merging_finds_what_trying_everything_finds(
        rows in prop::collection::vec(row(), 0..24),
        parts in prop::collection::vec(any::<u8>(), 24),
        order in prop::collection::vec(any::<u32>(), 1..7),
        pattern in pattern(),
    ) {
        let (batch, text) = (batch(&rows), naive::text_of(&pattern));
        let kept: Vec<_> = in_order(&rows).into_iter().filter(|(_, mask)| *mask != 0).collect();
        let count = naive::count(&pattern, &kept);
        let counted = lowered(&format!("sequence_count('{text}', ts, a, b, c {POSITION})"), &schema());
        prop_assert_eq!(value(&counted, &batch, &parts, &order), ScalarValue::Int64(Some(count)), "{} in {:?}", text, kept);
        let found = lowered(&format!("sequence_match('{text}', ts, a, b, c {POSITION})"), &schema());
        prop_assert_eq!(value(&found, &batch, &parts, &order), ScalarValue::Boolean(Some(count > 0)), "{} in {:?}", text, kept);
    }

    #[test]
    fn any_split_and_order_of_merging_gives_the_level_of_the_longest_chain(
        rows in prop::collection::vec(row(), 0..16),
        parts in prop::collection::vec(any::<u8>(), 16),
        order in prop::collection::vec(any::<u32>(), 1..7),
        conditions in prop::sample::select(vec!["a", "a, b", "a, b, c", "a, a, b", "a, b, a, c"]),
        modes in prop::sample::subsequence(vec!["strict_deduplication", "strict_order", "strict_increase", "strict_once"], 0..=4),
        window in 1..30i64,
    ) {
        let columns: Vec<usize> = conditions.split(", ").map(|name| ["a", "b", "c"].iter().position(|known| *known == name).unwrap()).collect();
        let mask = |mask: u32| columns.iter().enumerate().map(|(number, column)| (mask >> column & 1) << number).sum::<u32>();
        let events: Vec<_> = in_order(&rows).into_iter().map(|(second, holds)| (second, mask(holds))).collect();
        let level = naive::level(columns.len() as u32, &modes, window, &events);
        let named: String = modes.iter().map(|mode| format!("'{mode}', ")).collect();
        let call = lowered(&format!("window_funnel('{window}s', {named}ts, {conditions} {POSITION})"), &schema());
        prop_assert_eq!(value(&call, &batch(&rows), &parts, &order), ScalarValue::Int64(Some(level)), "{:?} of {:?}", modes, events);
    }

    #[test]
    fn any_split_and_order_of_merging_gives_the_sessions_the_gaps_and_who_came_back(
        rows in prop::collection::vec(row(), 0..24),
        parts in prop::collection::vec(any::<u8>(), 24),
        order in prop::collection::vec(any::<u32>(), 1..7),
        gap in 1..9i64,
    ) {
        let batch = batch(&rows);
        let seconds: Vec<i64> = rows.iter().filter_map(|row| row.second).collect();
        let of = |call: &str| value(&lowered(call, &schema()), &batch, &parts, &order);
        prop_assert_eq!(of(&format!("session_count(ts, '{gap}s')")), ScalarValue::Int64(Some(naive::sessions(&seconds, gap))));
        let longest = naive::longest_gap(&seconds).map(|seconds| seconds * 1_000_000);
        prop_assert_eq!(of("longest_gap(ts)"), ScalarValue::DurationMicrosecond(longest));
        let holds = |number: usize| rows.iter().any(|row| row.holds[number] == Some(true));
        let wanted = [holds(0), holds(0) && holds(1), holds(0) && holds(2)];
        prop_assert_eq!(of("retention(a, b, c)").to_string(), format!("[{}, {}, {}]", wanted[0], wanted[1], wanted[2]));
    }
}

#[test]
fn events_of_the_same_time_are_in_the_order_of_their_place() {
    let row = |number: usize, source, partition| Row {
        second: Some(1),
        holds: std::array::from_fn(|holds| Some(holds == number)),
        event_second: 1,
        source,
        partition,
    };
    let matches = |rows: &[Row]| {
        let call = lowered(&format!("sequence_match('(?1)(?2)(?3)', ts, a, b, c {POSITION})"), &schema());
        value(&call, &batch(rows), &[0, 1, 2], &[0, 1, 2]).to_string()
    };
    // Later rows have smaller offsets.
    assert_eq!(matches(&[row(1, "pay", 0), row(0, "auth", 1), row(2, "pay", 1)]), "true");
    assert_eq!(matches(&[row(0, "pay", 0), row(1, "auth", 1), row(2, "pay", 1)]), "false");
    assert_eq!(matches(&[row(2, "pay", 0), row(1, "pay", 0), row(0, "pay", 0)]), "true");
    assert_eq!(matches(&[row(0, "pay", 0), row(1, "pay", 0), row(2, "pay", 0)]), "false");
}

#[test]
fn over_nothing_there_is_no_match_and_nothing_to_count() {
    for (call, wanted) in [
        ("sequence_match('(?1)', ts, a)", "false"),
        ("sequence_count('(?1)', ts, a)", "0"),
        ("window_funnel('1h', 'strict_order', ts, a)", "0"),
        ("retention(a, b)", "[false, false]"),
        ("session_count(ts, '1m')", "0"),
        ("longest_gap(ts)", "NULL"),
    ] {
        let call = lowered(call, &schema());
        assert_eq!(value(&call, &batch(&[]), &[], &[0]).to_string(), wanted, "{call:?}");
    }
}

#[test]
fn a_call_that_is_none_is_refused_while_planning() {
    for (call, expected) in [
        ("sequence_match('(?1)(?3)', ts, a, b)", "has '3)' at character 7: expected a condition from 1 to 2"),
        ("sequence_match('(?1)', a)", "was called with (TEXT, BOOLEAN): expected a pattern (TEXT), a time (TIMESTAMPTZ) and 1 to 32"),
        ("sequence_match(ts, a)", "was called with (TIMESTAMPTZ, BOOLEAN): expected a pattern"),
        ("sequence_count('(?1)', ts)", "sequence_count was called with (TEXT, TIMESTAMPTZ)"),
        ("sequence_count('(?1)', '(?2)', ts, a)", "expected a pattern (TEXT), a time"),
        ("sequence_count('(?1)', ts, a, x)", "condition 2 of sequence_count (argument 4) is BIGINT: expected BOOLEAN"),
        ("sequence_count(source, ts, a)", "the first argument of sequence_count is an expression: expected the pattern"),
        ("window_funnel('1 hour', ts, a)", "the first argument of window_funnel: "),
        ("window_funnel(ts, a)", "expected a window and its modes (TEXT)"),
        ("window_funnel('1h', 'strict', ts, a)", "has the mode 'strict'"),
        ("session_count(ts, x)", "expected a time (TIMESTAMPTZ) and a gap (TEXT)"),
        ("session_count(ts, source)", "the second argument of session_count is an expression"),
        ("session_count(ts, '0s')", "the second argument of session_count: "),
        ("longest_gap(x)", "longest_gap was called with (BIGINT)"),
        ("retention(a, x)", "retention was called with (BOOLEAN, BIGINT): expected 1 to 32 conditions"),
    ] {
        let error = try_lowered(call, &schema()).unwrap_err();
        assert!(error.to_string().contains(expected), "{call}: {error}");
        assert_eq!(types::Error::from(error).kind(), types::ErrorKind::Input, "{call}");
    }
    for (call, expected) in [
        ("sequence_match('(?1)', ts, a ORDER BY x)", "takes no ORDER BY"),
        ("window_funnel('1h', source, ts, a)", "argument 2 of window_funnel is an expression: expected a literal text"),
        ("sequence_count(DISTINCT '(?1)', ts, a)", "does not take DISTINCT"),
        ("retention(DISTINCT a)", "does not take DISTINCT"),
        ("longest_gap(DISTINCT ts)", "does not take DISTINCT"),
    ] {
        let error = try_lowered(call, &schema()).and_then(|call| call.create_accumulator().map(drop)).unwrap_err().to_string();
        assert!(error.contains(expected), "{call}: {error}");
    }
}

#[test]
fn a_time_may_be_a_date_or_a_timestamp_of_any_unit_and_zone() {
    let rows = batch(&[]);
    for time in ["CAST(ts AS DATE)", "CAST(ts AS TIMESTAMP)", "to_timestamp_seconds(x)", "ts + INTERVAL '1 day'"] {
        let call = lowered(&format!("sequence_match('(?1)', {time}, a)"), &schema());
        assert_eq!(single(&call, &rows), ScalarValue::Boolean(Some(false)), "{time}");
    }
}

#[tokio::test]
async fn in_a_query_they_need_no_order() {
    let sql = "SELECT device, sequence_count('(?1)(?2)', to_timestamp(ts), city = 'Rome', city IS NOT NULL) AS n,
               window_funnel('2s', to_timestamp(ts), city = 'Rome', city IS NULL) AS f FROM t GROUP BY device ORDER BY device";
    let answer = query(sql).await.unwrap();
    let rows: Vec<String> = answer.lines().skip(3).take(2).map(|line| line.replace(' ', "")).collect();
    assert_eq!(rows, ["|a|2|2|", "|b|0|0|"], "{answer}");
}

#[test]
fn a_state_that_is_no_state_is_refused() {
    let numbers: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![-1]))];
    for call in ["sequence_match('(?1)', ts, a)", "session_count(ts, '1m')", "retention(a)"] {
        let call = lowered(call, &schema());
        let mut accumulator = call.create_accumulator().unwrap();
        assert!(accumulator.merge_batch(&numbers).is_err() && accumulator.merge_batch(&[]).is_err(), "{call:?}");
        let state = state_columns(accumulator.as_mut());
        assert_eq!(state[0].data_type(), call.state_fields().unwrap()[0].data_type());
    }
}
