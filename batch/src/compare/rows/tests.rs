use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt8Array};
use engine::states::KeyCodec;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::bucket_partitioner::tests::planned;

const VIEW: &str = "CREATE VIEW sums WITH (windows = '1h') AS SELECT account, count(*) AS payments FROM payments GROUP BY account";

/// By key, level and tile: the number of events.
type Rows = BTreeMap<(String, u8, i64), i64>;

fn rows() -> impl Strategy<Value = Rows> {
    btree_map((prop::sample::select(vec!["", "a", "b", "bb"]).prop_map(str::to_owned), 2u8..5, 0i64..4), 0i64..3, 0..40)
}

fn state_rows(plan: &ViewPlan, codec: &KeyCodec, rows: &[(&(String, u8, i64), &i64)]) -> StateRows {
    let fields: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|((key, ..), _)| key))),
        Arc::new(UInt8Array::from_iter_values(rows.iter().map(|((_, level, _), _)| *level))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|((.., tile), _)| *tile)).with_timezone("UTC")),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, events)| **events))),
    ];
    let batch = RecordBatch::try_new(plan.state_schema().clone(), fields).unwrap();
    let keys = codec.encode(&batch.columns()[..1], batch.num_rows()).unwrap();
    StateRows::from_sorted(batch, keys)
}

/// One side's rows, in chunks of these sizes.
struct Chunks<'r> {
    rows: Vec<(&'r (String, u8, i64), &'r i64)>,
    sizes: Vec<usize>,
    at: usize,
}

impl<'r> Chunks<'r> {
    fn next(&mut self) -> &[(&'r (String, u8, i64), &'r i64)] {
        let size = self.sizes[self.at % self.sizes.len()];
        self.at += 1;
        &self.rows[..size.min(self.rows.len())]
    }
}

fn compared(plan: &ViewPlan, codec: &KeyCodec, (kept, recomputed): (&Rows, &Rows), sizes: [Vec<usize>; 2]) -> ComparedRows {
    let [of_kept, of_recomputed] = sizes;
    let mut kept = Chunks { rows: kept.iter().collect(), sizes: of_kept, at: 0 };
    let mut recomputed = Chunks { rows: recomputed.iter().collect(), sizes: of_recomputed, at: 0 };
    let mut found = ComparedRows::default();
    loop {
        let at_hand = (state_rows(plan, codec, kept.next()), state_rows(plan, codec, recomputed.next()));
        let (of_kept, of_recomputed) = (at_hand.0.len(), at_hand.1.len());
        let (left, also_left) = compare_at_hand(plan, at_hand, |_| true, &mut found).unwrap();
        assert!(left.is_empty() || also_left.is_empty(), "it goes on while both have rows");
        if (of_kept, of_recomputed) == (0, 0) {
            assert!(kept.rows.is_empty() && recomputed.rows.is_empty(), "it goes on while there are rows");
            return found;
        }
        kept.rows.drain(..of_kept - left.len());
        recomputed.rows.drain(..of_recomputed - also_left.len());
    }
}

proptest! {
    /// However the rows of both sides come.
    #[test]
    fn every_row_is_compared_once_and_every_difference_is_found(kept in rows(), recomputed in rows(), sizes in [vec(1usize..9, 1..5), vec(1usize..9, 1..5)]) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let plan = runtime.block_on(planned(VIEW));
        let codec = KeyCodec::for_plan(&plan).unwrap();
        let found = compared(&plan, &codec, (&kept, &recomputed), sizes);
        let mut places: Vec<&(String, u8, i64)> = kept.keys().chain(recomputed.keys()).collect();
        places.sort();
        places.dedup();
        let differing: Vec<&&(String, u8, i64)> = places.iter().filter(|place| kept.get(place) != recomputed.get(place)).collect();
        prop_assert_eq!((found.rows, found.differences), (places.len() as i64, differing.len() as i64));
        prop_assert_eq!(found.first.len(), differing.len().min(SHOWN));
        for (difference, (key, ..)) in found.first.iter().zip(differing) {
            prop_assert_eq!(&difference.key, &format!("account={key}"));
        }
    }
}

#[tokio::test]
async fn a_difference_names_the_key_the_column_and_both_values() {
    let plan = planned(VIEW).await;
    let codec = KeyCodec::for_plan(&plan).unwrap();
    let one = |level: Level, events: i64| Rows::from([(("a".to_owned(), level.code(), 60_000_000), events)]);
    let (hour, all) = (one(Level::Hour1, 2), one(Level::All, 2));
    let sizes = || [vec![9], vec![9]];
    let [changed] = &compared(&plan, &codec, (&hour, &one(Level::Hour1, 3)), sizes()).first[..] else { panic!("one difference") };
    let expected = StateDifference {
        key: "account=a".into(),
        column: "payments_1h".into(),
        state: "__events".into(),
        level: Level::Hour1.to_string(),
        tile: "1970-01-01T00:01:00Z".into(),
        kept: "2".into(),
        recomputed: "3".into(),
    };
    assert_eq!(*changed, expected);
    let [lost] = &compared(&plan, &codec, (&Rows::new(), &all), sizes()).first[..] else { panic!("one difference") };
    assert_eq!((&*lost.column, &*lost.tile, &*lost.kept, &*lost.recomputed), ("*", "all time", "no row", "a row"));
}

#[test]
fn a_long_state_is_shown_in_part() {
    assert_eq!(shortened("é".repeat(SHOWN_CHARACTERS)), "é".repeat(SHOWN_CHARACTERS));
    assert_eq!(shortened("é".repeat(SHOWN_CHARACTERS + 1)), format!("{}..", "é".repeat(SHOWN_CHARACTERS)));
}
