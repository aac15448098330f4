use arrow::array::BinaryArray;
use proptest::collection::vec;
use proptest::prelude::*;

use super::sorted_rows;

/// Few different bytes, zero among them: keys that begin alike, end within one another, and are equal.
fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(255)];
    let beginning = vec(byte.clone(), 0..20);
    (beginning, vec(vec(byte, 0..20), 0..120))
        .prop_map(|(beginning, endings)| endings.into_iter().map(|ending| beginning.iter().copied().chain(ending).collect()).collect())
}

proptest! {
    #[test]
    fn rows_are_in_the_order_of_their_keys_and_of_their_numbers_among_equals(keys in keys()) {
        let array: BinaryArray = keys.iter().map(|key| Some(key.as_slice())).collect();
        let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
        expected.sort_by_key(|row| (&keys[*row as usize], *row));
        prop_assert_eq!(sorted_rows(&array, &|a, b| a.cmp(&b)), expected);
    }
}
