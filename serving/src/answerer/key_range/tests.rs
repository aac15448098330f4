use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn each_key_is_in_one_range_and_ranges_have_as_many_keys(
        keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..4), 1..200),
        others in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..20),
        count in 1usize..12,
    ) {
        let ranges = KeyRange::split(keys.iter().rev().map(Vec::as_slice).collect(), count);
        prop_assert!(ranges.len() <= count);
        for key in keys.iter().chain(&others) {
            prop_assert_eq!(ranges.iter().filter(|range| range.contains(key)).count(), 1, "{:?} in {:?}", key, ranges);
        }
        let most = keys.len().div_ceil(count);
        for range in &ranges {
            prop_assert!(keys.iter().filter(|key| range.contains(key)).count() <= most, "{:?} of {:?}", range, ranges);
        }
    }
}

#[test]
fn no_keys_are_one_range() {
    assert_eq!(KeyRange::split(Vec::new(), 3), [KeyRange::default()]);
    assert_eq!(KeyRange::split(vec![b"a", b"a", b"a"], 3).len(), 2, "one key is not split");
}

#[test]
fn each_range_has_this_many_samples() {
    assert_eq!((sampling_step(1_000_000, 10), sampling_step(100, 10), sampling_step(0, 0)), (1_562, 1, 1));
}
