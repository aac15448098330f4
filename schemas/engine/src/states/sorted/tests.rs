use arrow::array::{ArrayRef, StringArray};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::states::rows::find_key;
use types::ErrorKind;

/// Chunks of a run, each with one column that repeats the key.
fn run(keys: &[Vec<u8>], ends: &[usize]) -> SortedRun {
    let chunk = |keys: &[Vec<u8>]| {
        let column: ArrayRef = Arc::new(StringArray::from_iter_values(keys.iter().map(|key| format!("{key:?}"))));
        StateRows::from_sorted(RecordBatch::try_from_iter([("k", column)]).unwrap(), BinaryArray::from_iter_values(keys))
    };
    let mut from = 0;
    let mut chunks = Vec::new();
    for end in ends.iter().copied().filter(|end| *end < keys.len()).chain([keys.len()]) {
        if from < end {
            chunks.push(chunk(&keys[from..end]));
            from = end;
        }
    }
    SortedRun::from_chunks(chunks, 0)
}

#[test]
fn a_block_that_is_nowhere_in_its_file_is_damage() {
    let buffer = Buffer::from(vec![0u8; 64]);
    assert_eq!(slice(&buffer, &arrow_ipc::Block::new(8, 16, 40)).unwrap().len(), 56);
    let nowhere = [(-8, 16, 40), (8, -16, 40), (8, 16, -40), (8, -1, 1), (8, 16, 41), (8, 16, i64::MAX), (i64::MAX, 16, 40)];
    for (from, metadata, body) in nowhere {
        let error = slice(&buffer, &arrow_ipc::Block::new(from, metadata, body)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{from} {metadata} {body}");
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4)
}

proptest! {
    #[test]
    fn a_key_and_a_prefix_are_found_in_all_their_chunks(mut keys in vec(key(), 0..80), mut ends in vec(1usize..80, 0..6), asked in key()) {
        keys.sort();
        ends.sort_unstable();
        let run = run(&keys, &ends);
        let rows = |found: Vec<(&StateRows, std::ops::Range<usize>)>| -> Vec<Vec<u8>> {
            found.into_iter().flat_map(|(chunk, rows)| rows.map(|row| chunk.keys().value(row).to_vec()).collect::<Vec<_>>()).collect()
        };
        let equal: Vec<Vec<u8>> = keys.iter().filter(|key| **key == asked).cloned().collect();
        prop_assert_eq!(rows(run.find(&asked).collect()), equal);
        let beginning: Vec<Vec<u8>> = keys.iter().filter(|key| key.starts_with(&asked)).cloned().collect();
        prop_assert_eq!(rows(run.find_prefix(&asked)), beginning);
        let all = BinaryArray::from_iter_values(&keys);
        let from = keys.partition_point(|key| *key < asked);
        prop_assert_eq!(find_key(&all, &asked), from..keys.partition_point(|key| *key <= asked));
    }

    /// Searched by binary search at first, and by hash after enough searches or where the keys were indexed before.
    #[test]
    fn keys_are_found_together_as_they_are_alone(
        mut keys in vec(key(), 0..80), mut ends in vec(1usize..80, 0..3), asked in vec(key(), 0..12), indexed in any::<bool>(),
    ) {
        keys.sort();
        ends.sort_unstable();
        let (run, probes) = (run(&keys, &ends), asked.iter().map(|key| Probe::new(key)).collect::<Vec<_>>());
        if indexed {
            run.chunks().iter().for_each(StateRows::index_keys);
        }
        for _ in 0..4 {
            let mut found = vec![0; asked.len()];
            run.find_keys(&probes, |index, chunk, rows| {
                assert!(rows.clone().all(|row| chunk.keys().value(row) == asked[index]));
                found[index] += rows.len();
            });
            let expected: Vec<usize> = asked.iter().map(|asked| keys.iter().filter(|key| *key == asked).count()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
