use bytes::Bytes;

use super::*;

fn fetched(records: i64) -> Fetched {
    let record =
        |offset| Record { offset: Offset(offset), timestamp: 0, key: None, value: Some(Bytes::from_static(&[b'x'; 100])), headers: vec![] };
    Fetched {
        source: TopicPartition { topic: "s".into(), partition: 0 },
        // Every other offset has a record, and so has none of the last ones.
        records: (0..records).map(|number| record(2 * number)).collect(),
        position: Offset(2 * records + 10),
        at_end: true,
        fetched_at: 7,
    }
}

#[test]
fn the_parts_of_a_fetch_follow_one_another() {
    let all = fetched(10);
    let two = 2 * all.records[0].memory_bytes();
    let (mut parts, mut rest) = (Vec::new(), Some(all.clone()));
    while let Some(mut part) = rest {
        rest = split_off(&mut part, two);
        parts.push(part);
    }
    assert_eq!(parts.iter().map(|part| part.records.len()).collect::<Vec<_>>(), [2; 5]);
    assert_eq!(parts.iter().flat_map(|part| part.records.clone()).collect::<Vec<_>>(), all.records);
    // A part ends where the next one begins, and the last one where the fetch does.
    assert_eq!(parts.iter().map(|part| part.position.0).collect::<Vec<_>>(), [4, 8, 12, 16, 30]);
    assert_eq!(parts.iter().map(|part| part.at_end).collect::<Vec<_>>(), [false, false, false, false, true]);
}

#[test]
fn a_part_has_a_record_where_there_is_no_room() {
    let mut one = fetched(2);
    let rest = split_off(&mut one, 0).unwrap();
    assert_eq!((one.records.len(), rest.records.len()), (1, 1));
    let mut none = fetched(0);
    assert_eq!(split_off(&mut none, 0), None);
    assert!(none.at_end);
}
