use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray, UInt8Array};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::states::testing::planned;
use types::tiles::cover;

const T: Micros = 1_772_452_812_345_678;
const DAY_S: u64 = 86_400;
const KEYS: usize = 4;

static PLAN: LazyLock<ViewPlan> =
    LazyLock::new(|| planned("CREATE VIEW v WITH (windows = '1d') AS SELECT k, count(*) AS n FROM s GROUP BY k"));

/// A piece of one key: each row's level, and how long before now its tile is.
#[derive(Debug, Clone)]
struct TestPiece {
    batch: usize,
    key: u32,
    rolled_up: bool,
    rows: Vec<(Level, i64)>,
}

fn levels() -> impl Strategy<Value = Vec<Level>> {
    subsequence(Level::LEVELS.to_vec(), 1..=Level::LEVELS.len())
}

/// Ranges as views with these levels have them: their edges are starts of its finest tiles.
fn ranges(levels: &[Level]) -> BoxedStrategy<Vec<TimeRange>> {
    let hops: Vec<Level> = levels.iter().copied().filter(|level| *level != Level::All).collect();
    if hops.is_empty() {
        return Just(vec![TimeRange::ALL]).boxed();
    }
    let back = || prop::option::of((1u64..500 * DAY_S).prop_map(Duration::from_secs));
    let range = (back(), back(), prop::sample::select(hops)).prop_map(|(window, until, hop)| TimeRange { window, until, hop });
    vec(range, 1..5).boxed()
}

fn levels_and_ranges() -> impl Strategy<Value = (Vec<Level>, Vec<TimeRange>)> {
    levels().prop_flat_map(|levels| {
        let ranges = ranges(&levels);
        (Just(levels), ranges)
    })
}

fn plan_with((levels, ranges): (Vec<Level>, Vec<TimeRange>)) -> ViewPlan {
    let mut plan = PLAN.clone();
    (plan.levels, plan.ranges) = (levels, ranges);
    plan
}

fn held() -> impl Strategy<Value = TestPiece> {
    let before = prop_oneof![0i64..100_000_000, 0i64..100_000_000_000, -100_000_000_000i64..50_000_000_000_000];
    let row = (prop::sample::select(Level::LEVELS.to_vec()), before);
    (0usize..3, 0u32..KEYS as u32, any::<bool>(), vec(row, 0..40)).prop_map(|(batch, key, rolled_up, rows)| TestPiece {
        batch,
        key,
        rolled_up,
        rows,
    })
}

/// Returns the batches, and the position of each piece.
fn batches(held: &[TestPiece]) -> (Vec<RecordBatch>, Vec<(usize, Range<usize>)>) {
    let mut rows: Vec<Vec<(u8, Micros)>> = vec![Vec::new(); 3];
    let mut places = Vec::new();
    for piece in held {
        let mut sorted: Vec<(u8, Micros)> = piece.rows.iter().map(|(level, before)| (level.code(), level.floor(T - before))).collect();
        sorted.sort_unstable();
        let batch = &mut rows[piece.batch];
        places.push((piece.batch, batch.len()..batch.len() + sorted.len()));
        batch.extend(sorted);
    }
    (rows.iter().map(|rows| batch(rows)).collect(), places)
}

fn pieces_of<'a>(held: &[TestPiece], batches: &'a [RecordBatch], places: &[(usize, Range<usize>)]) -> Pieces<'a> {
    let mut pieces = Pieces::default();
    for (piece, (batch, place)) in held.iter().zip(places) {
        pieces.add(&batches[*batch], place.clone(), piece.key, piece.rolled_up);
    }
    pieces
}

fn batch(rows: &[(u8, Micros)]) -> RecordBatch {
    let tiles = rows.iter().map(|(_, tile)| Some(*tile)).collect::<TimestampMicrosecondArray>().with_timezone("UTC");
    let columns: [(&str, ArrayRef); 3] = [
        ("k", Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "k")))),
        (LEVEL, Arc::new(rows.iter().map(|(level, _)| Some(*level)).collect::<UInt8Array>())),
        (TILE, Arc::new(tiles)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Filters row by row: returns the rows of the range, each with its key.
fn filtered(
    plan: &ViewPlan,
    range: RangeIndex,
    held: &[TestPiece],
    batches: &[RecordBatch],
    places: &[(usize, Range<usize>)],
) -> Vec<(usize, usize, u32)> {
    let span = plan.range(range).at(T);
    let (rolled_up, fresh) = (cover(span, &plan.levels), cover(span, &plan.levels[..1]));
    let mut rows = Vec::new();
    for (piece, (batch, place)) in held.iter().zip(places) {
        let (levels, tiles) = super::places(plan, &batches[*batch]).unwrap();
        let runs = if piece.rolled_up { &rolled_up } else { &fresh };
        for row in place.clone() {
            let level = Level::from_code(levels[row]).unwrap();
            if runs.iter().any(|run| run.contains(level, tiles[row])) {
                rows.push((*batch, row, piece.key));
            }
        }
    }
    rows
}

proptest! {
    #[test]
    fn each_range_has_the_rows_that_a_filter_finds(
        levels_and_ranges in levels_and_ranges(),
        held in vec(held(), 0..12),
    ) {
        let plan = plan_with(levels_and_ranges);
        let (batches, places) = batches(&held);
        let pieces = pieces_of(&held, &batches, &places);
        let asked: Vec<RangeIndex> = (0..plan.ranges.len()).rev().map(RangeIndex).collect();
        let selection = RangeSelection::for_ranges(&plan, &asked, &pieces, KEYS, T).unwrap();
        let address = |batch: &RecordBatch| pieces.batches.iter().position(|known| std::ptr::eq(*known, batch)).unwrap();
        let (mut rows, mut groups, mut group_count) = (Vec::new(), Vec::new(), 0);
        for (place, range) in asked.iter().enumerate() {
            let mut group_of = [NO_GROUP; KEYS];
            for (batch, row, key) in filtered(&plan, *range, &held, &batches, &places) {
                let group = &mut group_of[key as usize];
                if *group == NO_GROUP {
                    *group = group_count;
                    group_count += 1;
                }
                rows.push((address(&batches[batch]), row));
                groups.push(*group as usize);
            }
            prop_assert_eq!(selection.groups_of(place), &group_of[..]);
        }
        prop_assert_eq!(selection.rows, rows);
        prop_assert_eq!(selection.groups, groups);
        prop_assert_eq!(selection.group_count, group_count as usize);
    }
}

proptest! {
    /// Where ranges end with the time, a key has the same rows in them until it is said to have others.
    #[test]
    fn the_rows_of_a_key_stay_as_they_are_until_they_are_said_to_change(
        levels_and_ranges in levels_and_ranges(),
        held in vec(held().prop_map(|held| TestPiece { rolled_up: false, ..held }), 0..6),
        later in prop_oneof![0i64..200_000_000, 0i64..200_000_000_000, 0i64..50_000_000_000_000],
    ) {
        let plan = plan_with(levels_and_ranges);
        let (batches, places) = batches(&held);
        let pieces = pieces_of(&held, &batches, &places);
        let changes = pieces.changes(&plan, &plan.ranges, KEYS, T).unwrap();
        let rows_of = |range: RangeIndex, t: Micros| {
            let selection = RangeSelection::for_ranges(&plan, &[range], &pieces, KEYS, RowTime::up_to(t)).unwrap();
            let group_of: Vec<u32> = selection.groups_of(0).to_vec();
            let of_group = |group: u32| {
                let rows = selection.rows.iter().zip(&selection.groups).filter(|(_, of)| **of == group as usize);
                rows.map(|(row, _)| *row).collect::<Vec<_>>()
            };
            group_of.into_iter().map(of_group).collect::<Vec<_>>()
        };
        for range in (0..plan.ranges.len()).map(RangeIndex) {
            let (now, then) = (rows_of(range, T), rows_of(range, T + later));
            for key in (0..KEYS).filter(|key| changes[*key].is_none_or(|changes| T + later < changes)) {
                prop_assert_eq!(&now[key], &then[key], "key {} in {:?}", key, plan.range(range));
            }
        }
    }
}

proptest! {
    #[test]
    fn a_plan_that_was_asked_at_other_times_finds_the_rows_that_a_new_one_finds(
        both in vec(levels_and_ranges(), 2),
        held in vec(held(), 0..6),
        asked in vec((0usize..2, any::<bool>(), prop_oneof![-90_000_000i64..90_000_000, -200_000_000_000i64..200_000_000_000]), 1..12),
    ) {
        let plans: Vec<ViewPlan> = both.into_iter().map(plan_with).collect();
        let (batches, places) = batches(&held);
        let pieces = pieces_of(&held, &batches, &places);
        for (plan, has_end, later) in asked {
            let time = if has_end { RowTime::up_to(T + later) } else { RowTime::from(T + later) };
            let selected = |plan: &ViewPlan| {
                let ranges: Vec<RangeIndex> = (0..plan.ranges.len()).map(RangeIndex).collect();
                let selection = RangeSelection::for_ranges(plan, &ranges, &pieces, KEYS, time).unwrap();
                (selection.rows, selection.groups, selection.group_of)
            };
            prop_assert_eq!(selected(&plans[plan]), selected(&plans[plan].clone()), "at {:?}", time);
        }
    }
}

#[test]
fn a_level_that_is_not_known_is_damage() {
    let batch = batch(&[(0, 0), (9, 0)]);
    let mut pieces = Pieces::default();
    pieces.add(&batch, 0..2, 0, true);
    let error = RangeSelection::for_ranges(&PLAN, &[RangeIndex(0)], &pieces, 1, T).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("unknown tile level 9")), "{error:?}");
}
