use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const ROW: &str = "(?, ?, ?, ?, ?, ?, ?)";

fn batch_of(bytes: usize) -> BatchRow {
    BatchRow { base_offset: 0, records: 1, timestamp: 0, checksum: 0, data: vec![0; bytes] }
}

fn rows_of(statement: QueryBuilder<Sqlite>) -> usize {
    statement.into_string().matches(ROW).count()
}

#[test]
fn the_batches_of_several_partitions_are_inserted_by_one_statement() {
    let mut inserts = Inserts::default();
    for number in 0..8 {
        assert!(inserts.add((1, number), batch_of(1_000)).is_none());
    }
    assert_eq!(inserts.rest().map(rows_of), Some(8));
    assert!(inserts.rest().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_batch_is_in_one_statement_and_none_is_too_large(sizes in vec(0..2_usize << 20, 0..40)) {
        let (mut inserts, mut statements) = (Inserts::default(), Vec::new());
        for size in &sizes {
            statements.extend(inserts.add((1, 0), batch_of(*size)).map(rows_of));
        }
        statements.extend(inserts.rest().map(rows_of));
        prop_assert_eq!(statements.iter().sum::<usize>(), sizes.len());
        let mut left = sizes.as_slice();
        for rows in statements {
            let (inserted, rest) = left.split_at(rows);
            prop_assert!((1..=ROWS_AT_ONCE).contains(&rows));
            prop_assert!(inserted[..rows - 1].iter().sum::<usize>() < BYTES_AT_ONCE);
            left = rest;
        }
    }
}
