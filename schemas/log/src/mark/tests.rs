use super::*;
use types::vector::Offset;

#[test]
fn what_stands_in_another_part_of_a_record_is_another_record() {
    let record = |key: Option<&str>, value: Option<&str>, headers: &[(&str, &str)]| Record {
        offset: Offset(1),
        timestamp: 2,
        key: key.map(|key| key.to_owned().into()),
        value: value.map(|value| value.to_owned().into()),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned().into())).collect(),
    };
    let all = [
        record(None, None, &[]),
        record(Some(""), None, &[]),
        record(None, Some(""), &[]),
        record(Some("ab"), None, &[]),
        record(Some("a"), Some("b"), &[]),
        record(None, Some("ab"), &[]),
        record(Some("a"), None, &[("b", "")]),
        record(Some("a"), None, &[("", "b")]),
    ];
    let mut sums: Vec<u32> = all.iter().map(checksum).collect();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), all.len());
}
