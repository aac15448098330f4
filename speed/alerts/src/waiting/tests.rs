use super::*;

fn reason(needed: i64, end: i64, identity: &str, committed: &str) -> Option<String> {
    let facts = AwaitedPartition { needed: Offset(needed), end: Offset(end), identity: identity.into(), committed: committed.into() };
    replaced(&BTreeMap::from([(PartitionId::new("pay", 3), facts)]))
}

#[test]
fn a_log_that_may_well_have_the_records_was_not_replaced() {
    assert_eq!(reason(10, 10, "one", "one"), None);
    assert_eq!(reason(10, 25, "one", "one"), None);
    assert_eq!(reason(10, 25, "one", ""), None, "nothing of it is committed yet");
    assert_eq!(replaced(&BTreeMap::new()), None);
}

#[test]
fn another_log_and_one_that_lost_records_are_named() {
    assert_eq!(
        reason(10, 9, "one", "one").unwrap(),
        "the log was replaced or lost records: it was evaluated with the records of pay/3 before offset 10, and the log ends at 9"
    );
    assert_eq!(
        reason(10, 25, "two", "one").unwrap(),
        "the log was replaced: it was evaluated with the records of pay/3 before offset 10, of the log one, and found the log two"
    );
}
