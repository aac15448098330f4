use types::vector::PartitionId;

use super::*;

#[test]
fn a_log_with_other_records_or_fewer_is_refused() {
    let known = |log_identity: &str| PartitionRecord {
        id: PartitionId::new("payments", 0),
        next_offset: Offset(10),
        log_identity: log_identity.to_owned(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    assert!(check_log(&known("log"), "log", Offset(10)).is_ok());
    assert!(check_log(&known(""), "log", Offset(12)).is_ok(), "of an earlier release, or of a gap alone");
    let other = check_log(&known("log"), "another", Offset(20)).unwrap_err().to_string();
    assert!(other.contains("not the one that the catalog knows") && other.contains("another"), "{other}");
    let shorter = check_log(&known("log"), "log", Offset(9)).unwrap_err().to_string();
    assert!(shorter.contains("shorter than the catalog expects") && shorter.contains("payments/0"), "{shorter}");
}
