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
