use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use types::ErrorKind;

fn source() -> TopicPartition {
    TopicPartition { topic: "events".into(), partition: 3 }
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn record() -> impl Strategy<Value = NewRecord> {
    (option::of(bytes()), option::of(bytes()), vec((".{0,20}", bytes()), 0..3)).prop_map(|(key, value, headers)| NewRecord {
        key,
        value,
        headers,
        partition_by: None,
    })
}

proptest! {
    #[test]
    fn a_batch_gives_back_the_records_that_went_in(
        records in vec(record(), 1..40), base in 0..1_000_000i64, skip in 0..40i64, max in 1..60usize, timestamp in any::<i64>()
    ) {
        let batch = BatchRow::encode(3, base, timestamp, records.iter());
        let mut read = Vec::new();
        batch.decode(&source(), base + skip, max, &mut read).unwrap();
        let expected: Vec<&NewRecord> = records.iter().skip(skip as usize).take(max).collect();
        prop_assert_eq!(read.len(), expected.len());
        for (nth, (read, expected)) in read.iter().zip(expected).enumerate() {
            prop_assert_eq!(read.offset.0, base + skip + nth as i64);
            prop_assert_eq!(read.timestamp, timestamp);
            prop_assert_eq!((&read.key, &read.value, &read.headers), (&expected.key, &expected.value, &expected.headers));
        }
    }

    #[test]
    fn a_changed_byte_is_found(records in vec(record(), 1..10), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut batch = BatchRow::encode(3, 7, 1, records.iter());
        let at = at.index(batch.data.len());
        batch.data[at] ^= 1 << bit;
        let error = batch.decode(&source(), 7, 100, &mut Vec::new()).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn any_bytes_with_a_right_checksum_are_read_or_refused(data in vec(any::<u8>(), 0..200), records in 0..50i64) {
        let checksum = checksum(3, 0, records, 0, &data);
        BatchRow { base_offset: 0, records, timestamp: 0, checksum, data }.decode(&source(), 0, 100, &mut Vec::new()).ok();
    }
}

#[test]
fn a_batch_in_another_place_is_damaged_and_named() {
    let record = NewRecord { value: Some(Bytes::from_static(b"x")), ..NewRecord::default() };
    let batch = BatchRow::encode(2, 70, 1, [&record].into_iter());
    let error = batch.decode(&source(), 70, 1, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("partition: 3, base offset: 70"), "{error}");
}

#[test]
fn the_format_does_not_change() {
    let record = NewRecord {
        key: Some(Bytes::from_static(b"k")),
        value: None,
        headers: vec![("h".into(), Bytes::from_static(b"v"))],
        partition_by: None,
    };
    let batch = BatchRow::encode(0, 5, 9, [&record].into_iter());
    assert_eq!(batch.data, [1, 1, b'k', 1, 1, b'h', 1, b'v']);
    assert_eq!(batch.checksum, checksum(0, 5, 1, 9, &[1, 1, b'k', 1, 1, b'h', 1, b'v']));
}
