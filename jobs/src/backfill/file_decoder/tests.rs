use super::*;

/// Few large files are decoded at once, however many processors there are.
#[test]
fn files_that_are_decoded_at_once_have_room() {
    let file = |bytes| {
        let stored = types::files::StoredObject { bytes, checksum: 0 };
        ObjectName::Archive { stream: "s".into(), checkpoint: Uuid::nil() }.record(stored, 1, None)
    };
    assert_eq!(bytes_held(&file(1_000)), 2_000);
    let largest = bytes_held(&file(256 << 20)) as usize;
    assert_eq!(largest, MOST_BYTES_OF_FILE, "of a larger file no more is held");
    assert!(largest <= BYTES_AT_ONCE && 2 * largest > BYTES_AT_ONCE);
    assert_eq!(bytes_held(&file(0)), 1);
}
