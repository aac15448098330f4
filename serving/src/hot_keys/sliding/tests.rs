use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const SECOND: Micros = 1_000_000;
const SHARE: f64 = 0.1;
const ENTRIES: usize = 128;
/// What a sketch may be wrong by, of all that was counted.
const ERROR: f64 = 3.5 / ENTRIES as f64;

fn key(number: u32) -> Vec<u8> {
    format!("device-{number}").into_bytes()
}

fn count(sliding: &mut Sliding, number: u32, times: u64, now: Micros) {
    sliding.count(times, [(&*key(number), times)], now).unwrap();
}

/// Hot by the rate alone.
fn rate(per_second: f64) -> HotFrom {
    HotFrom { share: 2.0, per_second }
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
    fn every_hot_key_is_found_and_none_that_is_far_from_it(counted in counted(), rate in 1.0f64..400.0, left_out in 0u64..3) {
        let mut sliding = Sliding::new(SECOND, 10, ENTRIES);
        let mut now = 1_772_452_800_000_000;
        let mut all: Vec<(u32, Micros)> = Vec::new();
        for (number, after) in counted {
            now += after;
            // Some of all that is counted is of keys that are not named.
            sliding.count(1 + left_out, [(&*key(number), 1)], now).unwrap();
            all.push((number, now));
        }
        let first = (now.div_euclid(SECOND) - 10) * SECOND;
        let seconds = (now - first) as f64 / 1e6;
        let in_window: Vec<u32> = all.into_iter().filter(|(_, at)| *at >= first).map(|(number, _)| number).collect();
        let named = in_window.len() as f64;
        let of_all = 1.0 + left_out as f64;
        let mut truth: HashMap<Vec<u8>, f64> = HashMap::new();
        in_window.iter().for_each(|number| *truth.entry(key(*number)).or_default() += 1.0);

        let from = HotFrom { share: SHARE, per_second: rate };
        let found = sliding.frequent(&from, now).unwrap();
        for (key, counted) in &truth {
            let by_share = counted / named / of_all >= SHARE + 1e-9 && counted / seconds >= LEAST_PER_SECOND + 1e-9;
            let by_rate = counted - ERROR * named >= rate * seconds + 1e-6;
            let is_found = found.iter().any(|found| found.key == *key);
            prop_assert!(is_found || !by_share && !by_rate, "{key:?} has {counted}");
            // One key alone: no worse.
            let is_hot = sliding.is_hot(key, &from, now);
            prop_assert!(is_hot || !by_share && !by_rate, "{key:?} has {counted}");
            prop_assert!(!is_hot || counted / seconds >= rate - 1e-6 || (counted + ERROR * named) / named / of_all >= SHARE - 1e-9);
        }
        for found in &found {
            let counted = truth[&found.key];
            let share = counted / named / of_all;
            prop_assert!(counted / seconds >= rate - 1e-6 || share >= SHARE - ERROR, "{:?} has {counted}", found.key);
            prop_assert!(found.share >= share - 1e-9 && found.share <= share + ERROR);
        }
    }
}

#[test]
fn what_is_older_than_the_window_does_not_count() {
    let from = HotFrom { share: SHARE, per_second: 1e9 };
    let mut sliding = Sliding::new(SECOND, 10, ENTRIES);
    count(&mut sliding, 1, 200, 0);
    assert!(sliding.is_hot(&key(1), &from, 10 * SECOND));
    assert_eq!(sliding.frequent(&from, 10 * SECOND).unwrap().len(), 1);
    assert!(sliding.frequent(&from, 11 * SECOND).unwrap().is_empty() && sliding.is_empty(11 * SECOND));
    assert!(!sliding.is_hot(&key(1), &from, 11 * SECOND));
    count(&mut sliding, 2, 200, 12 * SECOND);
    assert_eq!(sliding.slots.len(), 1, "slots that are over go");
    assert_eq!(sliding.frequent(&from, 12 * SECOND).unwrap()[0].key, key(2));
}

#[test]
fn a_key_is_hot_by_its_share_where_it_is_asked_often_enough_or_by_its_rate_alone() {
    let mut sliding = Sliding::new(SECOND / 4, 4, ENTRIES);
    count(&mut sliding, 1, 9, SECOND);
    let by_share = HotFrom { share: SHARE, per_second: 1e9 };
    assert!(sliding.frequent(&by_share, SECOND).unwrap().is_empty(), "nine a second are few");
    count(&mut sliding, 1, 41, SECOND);
    assert_eq!(sliding.frequent(&by_share, SECOND).unwrap()[0].per_second, 50.0);
    sliding.count(100_000, [], SECOND).unwrap();
    assert!(sliding.frequent(&by_share, SECOND).unwrap().is_empty());
    assert_eq!(sliding.frequent(&rate(50.0), SECOND).unwrap().len(), 1);
    assert!(sliding.frequent(&rate(51.0), SECOND).unwrap().is_empty() && !sliding.is_hot(&key(1), &rate(51.0), SECOND));
}

/// Otherwise what a sketch may be wrong by would make many keys hot where there is much.
#[test]
fn a_rate_is_certain() {
    let mut sliding = Sliding::new(SECOND, 10, ENTRIES);
    for number in 0..200_000u32 {
        count(&mut sliding, number % 5_000, 1, 10 * SECOND);
    }
    assert!(sliding.frequent(&rate(10.0), 10 * SECOND).unwrap().is_empty(), "each has 4 a second");
}

#[test]
fn a_window_keeps_as_much_however_many_keys_there_are() {
    let mut sliding = Sliding::new(SECOND, 10, ENTRIES);
    for number in 0..200_000u32 {
        count(&mut sliding, number, 1, i64::from(number) * 100);
    }
    let kept: usize = sliding.slots.iter().map(|slot| slot.sketch.num_active_items()).sum();
    assert!(sliding.slots.len() <= 11 && kept <= 11 * ENTRIES, "{kept} keys are kept");
}
