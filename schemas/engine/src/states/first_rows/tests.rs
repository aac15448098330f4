use arrow::array::Array;
use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Keys of two texts: a node, and where its edge leads. Each text ends in a zero, so that none begins another.
fn encoded(node: u8, end: u8) -> Vec<u8> {
    format!("n{node}\0e{end}\0").into_bytes()
}

fn node_length(key: &[u8]) -> usize {
    key.iter().position(|byte| *byte == 0).unwrap() + 1
}

proptest! {
    #[test]
    fn an_index_finds_what_a_search_finds(
        rows in vec((0u8..20, 0u8..4), 0..60), asked in vec(0u8..25, 1..200), by_node in any::<bool>(), end in 0u8..4,
    ) {
        let mut rows: Vec<Vec<u8>> = rows.into_iter().map(|(node, end)| encoded(node, end)).collect();
        rows.sort();
        let keys = BinaryArray::from_iter_values(&rows);
        let beginning = |key: &[u8]| key[..if by_node { node_length(key) } else { key.len() }].to_vec();
        let entries = || {
            let is_first = |row: &usize| *row == 0 || beginning(&rows[*row]) != beginning(&rows[*row - 1]);
            Ok((0..rows.len()).filter(is_first).map(|row| IndexedRow { row: row as u32, length: beginning(&rows[row]).len() }).collect())
        };
        let first_rows = FirstRows::default();
        let mut answers = BTreeSet::new();
        for node in &asked {
            let prefix = beginning(&encoded(*node, end));
            let expected = rows.iter().position(|key| key.starts_with(&prefix));
            if first_rows.get().is_none() && first_rows.is_due(keys.len(), 1) {
                first_rows.build(&keys, entries());
            }
            let built = first_rows.get();
            if let Some(built) = built {
                prop_assert_eq!(built.find(&keys, Probe::new(&prefix)), expected);
                // Several at a time, of which some are not there.
                let prefixes: Vec<Vec<u8>> = asked.iter().map(|node| beginning(&encoded(*node, end))).collect();
                let probes: Vec<Probe<'_>> = prefixes.iter().map(|prefix| Probe::new(prefix)).collect();
                let one_by_one: Vec<Option<usize>> = probes.iter().map(|probe| built.find(&keys, *probe)).collect();
                prop_assert_eq!(built.find_all(&keys, &probes), one_by_one);
            }
            answers.insert(built.is_some());
        }
        // It is there after a quarter of as many searches as there are rows.
        let is_built = !rows.is_empty() && asked.len() >= rows.len().div_ceil(ROWS_PER_SEARCH);
        prop_assert_eq!(answers.contains(&true), is_built);
        prop_assert_eq!(first_rows.memory_bytes() > 0, is_built);
    }
}
