use types::vector::Offset;

use super::*;

#[test]
fn a_dead_letter_counts_with_its_key_its_value_and_its_headers() {
    let large = || Bytes::from(vec![b'x'; 3_000]);
    let bytes_of = |key: Option<Bytes>, value: Option<Bytes>, headers: Vec<(String, Bytes)>| {
        let mut letters = DeadLetters::default();
        let source = TopicPartition { topic: "payments".into(), partition: 0 };
        letters.append(&source, &Record { offset: Offset(1), timestamp: 2, key, value, headers }, "why");
        (letters.bytes(), letters.finish().unwrap().num_rows())
    };
    let (none, rows) = bytes_of(None, None, Vec::new());
    assert_eq!(rows, 1);
    assert_eq!(bytes_of(Some(large()), None, Vec::new()).0 - none, 3_000);
    assert_eq!(bytes_of(None, Some(large()), Vec::new()).0 - none, 3_000);
    // As they are kept: base64 takes four bytes for three.
    let headers = bytes_of(None, None, vec![("trace".into(), large())]).0 - none;
    assert!((4_000..4_100).contains(&headers), "{headers}");
}
