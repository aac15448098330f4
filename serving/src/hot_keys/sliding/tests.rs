use std::collections::HashMap;

use datafusion::common::ScalarValue;
use proptest::prelude::*;

use super::*;

const SECOND: Micros = 1_000_000;
const SHARE: f64 = 0.1;
/// What a sketch may be wrong by, of all that was counted.
const ERROR: f64 = 3.5 / SKETCH_ENTRIES as f64;

fn key(number: u32) -> Key {
    vec![ScalarValue::Utf8(Some(format!("device-{number}")))]
}

/// Keys of which some are frequent, others are asked once, and how long after the one before.
fn counted() -> impl Strategy<Value = Vec<(u32, Micros)>> {
    let frequent = (0..12u32, 0..6_000i64);
    let rare = (100..100_000u32, 0..6_000i64);
    (1..6u32, 1..6u32)
        .prop_flat_map(move |(of, rest)| prop::collection::vec(prop_oneof![of => frequent.clone(), rest => rare.clone()], 1..4_000))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_key_above_the_share_is_found_and_none_far_below_it(counted in counted()) {
        let mut sliding = Sliding::new(SECOND, 10);
        let mut now = 1_772_452_800_000_000;
        let mut all: Vec<(u32, Micros)> = Vec::new();
        for (number, after) in counted {
            now += after;
            sliding.count(&key(number), now).unwrap();
            all.push((number, now));
        }
        let first = (now.div_euclid(SECOND) - 10) * SECOND;
        let mut truth: HashMap<Key, f64> = HashMap::new();
        let in_window: Vec<u32> = all.into_iter().filter(|(_, at)| *at >= first).map(|(number, _)| number).collect();
        in_window.iter().for_each(|number| *truth.entry(key(*number)).or_default() += 1.0 / in_window.len() as f64);

        let found = sliding.frequent(SHARE, 0.0, now).unwrap();
        for (key, share) in &truth {
            let is_found = found.iter().any(|found| found.key == *key);
            prop_assert!(is_found || *share < SHARE + 1e-9, "{key:?} has {share}");
        }
        for found in &found {
            let share = truth[&found.key];
            prop_assert!(share >= SHARE - ERROR, "{:?} has {share}", found.key);
            prop_assert!(found.share >= share - 1e-9 && found.share <= share + ERROR);
        }
    }
}

#[test]
fn what_is_older_than_the_window_does_not_count() {
    let mut sliding = Sliding::new(SECOND, 10);
    (0..100).for_each(|_| sliding.count(&key(1), 0).unwrap());
    assert_eq!(sliding.frequent(SHARE, 0.0, 10 * SECOND).unwrap().len(), 1);
    assert!(sliding.frequent(SHARE, 0.0, 11 * SECOND).unwrap().is_empty() && sliding.is_empty(11 * SECOND));
    sliding.count(&key(2), 12 * SECOND).unwrap();
    assert_eq!(sliding.slots.len(), 1, "slots that are over go");
    assert_eq!(sliding.frequent(SHARE, 0.0, 12 * SECOND).unwrap()[0].key, key(2));
}

#[test]
fn a_key_below_the_rate_is_not_frequent() {
    let mut sliding = Sliding::new(SECOND / 4, 4);
    (0..50).for_each(|_| sliding.count(&key(1), SECOND).unwrap());
    assert_eq!(sliding.frequent(SHARE, 50.0, SECOND).unwrap()[0].per_second, 50.0);
    assert!(sliding.frequent(SHARE, 51.0, SECOND).unwrap().is_empty());
}

#[test]
fn a_window_keeps_as_much_however_many_keys_there_are() {
    let mut sliding = Sliding::new(SECOND, 10);
    for number in 0..200_000u32 {
        sliding.count(&key(number), i64::from(number) * 100).unwrap();
    }
    let kept: usize = sliding.slots.iter().map(|(_, sketch)| sketch.num_active_items()).sum();
    assert!(sliding.slots.len() <= 11 && kept <= 11 * SKETCH_ENTRIES, "{kept} keys are kept");
}
