use super::*;

#[test]
fn the_bucket_of_a_key_never_changes() {
    let found: Vec<u32> = [&b""[..], b"a", b"device-1", b"device-2", &[0xff; 32]].into_iter().map(|key| bucket_of(key, 1000)).collect();
    assert_eq!(found, [138, 719, 797, 758, 690]);
    assert_eq!(bucket_of(b"a", 0), 0);
    assert_eq!(bucket_of(b"a", 1), 0);
}
