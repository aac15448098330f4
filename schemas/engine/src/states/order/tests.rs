use arrow::array::BinaryArray;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{differing, sorted_rows};

type Keys = Vec<Vec<u8>>;

/// Keys of few different bytes, zero among them: some share prefixes, some are prefixes of others, some are equal.
fn keys() -> impl Strategy<Value = Keys> {
    let beginning = vec(byte(), 0..20);
    (beginning, vec(vec(byte(), 0..20), 0..120))
        .prop_map(|(beginning, endings)| endings.into_iter().map(|ending| beginning.iter().copied().chain(ending).collect()).collect())
}

/// Keys of two lengths that differ in their first byte and in a bounded number of other bytes, like the edges
/// of both sides.
fn of_two_lengths() -> impl Strategy<Value = Keys> {
    let places = (vec(0..30usize, 0..24), vec(0..40usize, 0..24));
    let rows = vec((any::<bool>(), vec(byte(), 24)), 0..600);
    (places, rows).prop_map(|((near, far), rows)| {
        let key = |(is_far, bytes): (bool, Vec<u8>)| {
            let (len, places) = if is_far { (40, &far) } else { (30, &near) };
            let mut key = vec![7; len];
            places.iter().zip(bytes).for_each(|(place, byte)| key[*place] = byte);
            std::iter::once(u8::from(is_far)).chain(key).collect()
        };
        rows.into_iter().map(key).collect()
    })
}

fn byte() -> impl Strategy<Value = u8> + Clone {
    prop_oneof![Just(0u8), Just(1), Just(255)]
}

fn array(keys: &[Vec<u8>]) -> BinaryArray {
    keys.iter().map(|key| Some(key.as_slice())).collect()
}

proptest! {
    #[test]
    fn rows_are_in_the_order_of_their_keys_and_of_their_numbers_among_equals(keys in prop_oneof![keys(), of_two_lengths()]) {
        let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
        expected.sort_by_key(|row| (&keys[*row as usize], *row));
        prop_assert_eq!(sorted_rows(&array(&keys), &|a, b| a.cmp(&b)), expected);
    }
}

#[test]
fn keys_of_one_length_are_one_number_where_they_differ_in_sixteen_bytes() {
    let key = |row: u8, differ: usize| {
        let mut key = vec![1; 60];
        key[20..20 + differ].fill(row);
        key
    };
    let of = |differ: usize| {
        let keys: Keys = (0..=255).map(|row| key(row, differ)).collect();
        differing(&array(&keys), &(0..256).collect::<Vec<_>>())
    };
    assert_eq!(of(16), Some((20..36).collect()));
    assert_eq!(of(17), None);
    let lengths = array(&[vec![1, 2], vec![1, 2, 3]]);
    assert_eq!(differing(&lengths, &[0, 1]), None);
    assert_eq!(differing(&lengths, &[1, 1]), Some(vec![]));
}
