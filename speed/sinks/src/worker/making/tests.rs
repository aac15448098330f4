use proptest::prelude::*;

use super::*;

#[test]
fn events_are_received_at_the_greatest_timestamp_so_far_and_not_after_now() {
    assert_eq!(received_times(None, &[5, 3, 9, 9, 4], 100), [5, 5, 9, 9, 9]);
    assert_eq!(received_times(Some(7), &[5, 3, 9], 100), [7, 7, 9]);
    assert_eq!(received_times(Some(7), &[5, 30, 9], 20), [7, 20, 20], "a producer's clock is ahead");
}

proptest! {
    #[test]
    fn micro_batches_do_not_matter(times in prop::collection::vec(-50i64..50, 0..40), cut in 0usize..40, before in prop::option::of(-50i64..50)) {
        let whole: Vec<Micros> = running_maximum(before, &times).collect();
        let (one, other) = times.split_at(cut.min(times.len()));
        let mut parts: Vec<Micros> = running_maximum(before, one).collect();
        let between = parts.last().copied().or(before);
        parts.extend(running_maximum(between, other));
        prop_assert_eq!(parts, whole);
    }
}
