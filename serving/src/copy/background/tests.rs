use super::*;

#[test]
fn a_storage_that_does_not_answer_is_asked_ever_less_often_and_as_at_first_once_it_did() {
    let mut retries = CopyRetries::new();
    let mut least = FIRST_WAIT;
    for _ in 0..20 {
        let wait = retries.next_wait();
        assert!(least <= wait && wait <= 2 * least, "{wait:?} instead of at least {least:?}");
        least = (2 * least).min(LAST_WAIT);
    }
    assert_eq!(least, LAST_WAIT);
    retries.begin_again();
    assert!(retries.next_wait() <= 2 * FIRST_WAIT);
}

#[test]
fn failures_are_warned_of_at_most_once_a_minute() {
    let (mut retries, begun) = (CopyRetries::new(), Instant::now());
    let seconds = (0..=180).filter(|seconds| retries.is_to_be_warned_of(begun + Duration::from_secs(*seconds)));
    assert_eq!(seconds.collect::<Vec<u64>>(), [0, 60, 120, 180]);
}
