use super::*;

#[test]
fn a_record_counts_in_its_batch_with_its_key_its_value_and_its_headers() {
    let bytes = |count: usize| Some(Bytes::from(vec![b'x'; count]));
    let header = |name: &str, count: usize| (name.to_owned(), Bytes::from(vec![b'x'; count]));
    assert_eq!(bytes_of(&NewRecord::default()), 0);
    let record =
        NewRecord { key: bytes(1), value: bytes(20), headers: vec![header("a", 300), header("bcd", 4_000)], partition_by: bytes(90_000) };
    assert_eq!(bytes_of(&record), 1 + 20 + 301 + 4_003, "what it is placed by is not sent");
}
