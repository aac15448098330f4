use super::*;
use crate::harness::SilentLog;

#[tokio::test]
async fn partition_is_missing_by_its_number_alone() {
    let log = SilentLog { partition_count: Some(3) };
    for (partition, expected) in [(0, None), (2, None), (3, Some(3)), (-1, Some(3))] {
        assert_eq!(count_without(&log, "payments", partition).await, expected, "{partition}");
    }
    assert_eq!(count_without(&SilentLog::default(), "payments", 3).await, None, "nobody says that it is missing");
}

#[test]
fn who_waits_long_looks_rarely_and_yet_sees_a_position_soon_after_it_is_reached() {
    let (mut waited, mut looks) = (Duration::ZERO, 0);
    while waited < MOST_WAITED {
        let pause = pause_after(waited);
        assert!(pause <= (waited / 8).max(Duration::from_millis(2)), "{pause:?} after {waited:?}");
        waited += pause;
        looks += 1;
    }
    assert!(looks < 500, "{looks}");
}
