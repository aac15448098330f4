use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_vector_reads_back_from_its_token(entries in proptest::collection::btree_map(("[a-z_]{1,8}", 0..64i32), 0..i64::MAX, 0..8)) {
        let vector: Vector = entries.into_iter().map(|((s, p), o)| (PartitionId::new(s, p), Offset(o))).collect();
        prop_assert_eq!(Vector::from_token(vector.token()).unwrap(), vector);
    }
}

#[test]
fn a_vector_that_is_behind_in_one_partition_does_not_cover() {
    let ahead: Vector = "a/0:5,a/1:3".parse().unwrap();
    let behind: Vector = "a/0:9,a/1:2".parse().unwrap();
    assert!(!behind.covers(&ahead) && !ahead.covers(&behind));
    let expected = Behind { partition: PartitionId::new("a", 1), found: Offset(2), expected: Offset(3) };
    assert_eq!(behind.behind(&ahead), Some(expected));
}

#[test]
fn of_positions_that_are_joined_the_later_one_of_a_partition_counts() {
    for text in ["a/0:7,b/1:2,a/0:3", "a/0:3,b/1:2,a/0:7"] {
        assert_eq!(text.parse::<Vector>().unwrap().to_string(), "a/0:7,b/1:2");
    }
    assert!("a/0:7,a/x:1".parse::<Vector>().is_err());
}

#[test]
fn a_partition_at_offset_0_is_present_and_an_absent_one_is_not() {
    let vector: Vector = "a/0:0".parse().unwrap();
    assert!(vector.has(&PartitionId::new("a", 0)) && !vector.has(&PartitionId::new("a", 1)));
}

#[test]
fn a_token_is_that_of_the_present_offsets() {
    let partition = PartitionId::new("s", 0);
    let mut vector = Vector::from_iter([(partition.clone(), Offset(1))]);
    let (before, first) = (vector.clone(), vector.token().to_owned());
    vector.set(partition, Offset(2));
    assert_ne!(vector.token(), first);
    assert_eq!(before.token(), first);
    assert_ne!(before, vector);
}
