use proptest::collection::vec;
use proptest::prelude::*;
use types::vector::{Offset, PartitionId};

use super::*;

fn vector(offsets: &[i64]) -> Vector {
    (0..).zip(offsets).map(|(number, offset)| (PartitionId::new("pay", number), Offset(*offset))).collect()
}

#[test]
fn what_was_read_stays_until_every_partition_has_come_as_far() {
    let is_kept = |now: &[i64], before: &[i64]| is_kept(&vector(now), &vector(before));
    assert!(!is_kept(&[5, 5], &[5, 5]));
    assert!(is_kept(&[], &[5]), "all of it was withdrawn");
    assert!(is_kept(&[9, 4], &[5, 5]), "one partition is ahead, another behind");
    assert!(!is_kept(&[5, 5, 1], &[5, 5]), "a partition was added");
}

proptest! {
    /// However vectors come and go, what is read goes back in no partition.
    #[test]
    fn what_is_read_never_goes_back(vectors in vec(vec(0..4i64, 3), 1..30)) {
        let mut read = Vector::new();
        for now in vectors.iter().map(|offsets| vector(offsets)) {
            let next = if is_kept(&now, &read) { read.clone() } else { now.clone() };
            prop_assert!(next.covers(&read));
            prop_assert!(next == now || !now.covers(&next), "what is newer is read");
            read = next;
        }
    }
}
