use std::collections::BTreeMap;

use super::*;
use crate::harness::{Harness, NOW, event};

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_every_layer_count() {
    let harness = Harness::filled().await;
    let read_view = harness.node.read_view().unwrap();
    let [with_snapshot, without] = ["velocity", "pairs"].map(|view| read_view.view(view).unwrap());
    assert!(with_snapshot.snapshot.is_some() && without.snapshot.is_none());
    let of_layers = |view: &LoadedView| view.layers.iter().map(|layer| layer.run.rows()).sum::<usize>();
    assert!(of_layers(with_snapshot) > 0 && state_rows(&read_view, with_snapshot) > of_layers(with_snapshot));
    assert!(of_layers(without) > 0 && state_rows(&read_view, without) == of_layers(without));
    let before = ["velocity", "pairs"].map(|view| state_rows(&read_view, read_view.view(view).unwrap()));
    harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    let read_view = harness.node.read_view().unwrap();
    let after = ["velocity", "pairs"].map(|view| state_rows(&read_view, read_view.view(view).unwrap()));
    assert_eq!(after, before.map(|rows| rows + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_parts_of_any_number_each_key_has_its_row_once() {
    let harness = Harness::filled().await;
    harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    let read_view = harness.node.read_view().unwrap();
    for view in ["velocity", "pairs", "totals"] {
        let loaded = read_view.view(view).unwrap();
        if let Some(snapshot) = &loaded.snapshot {
            snapshot.fetch_all().await.unwrap();
        }
        let whole = |part, parts| KeyPart { part, parts, range: KeyRange::default() };
        let expected = rows_in_parts(&read_view, loaded, &[whole(0, 1)]);
        assert!(!expected.is_empty());
        for count in [2, 3, 6, 7, 24] {
            let parts: Vec<KeyPart> = (0..count).map(|part| whole(part, count)).collect();
            assert_eq!(rows_in_parts(&read_view, loaded, &parts), expected, "{view} in {count} parts");
        }
        let mut counts = BTreeSet::new();
        for part_rows in [1, 2, 3, 5, 1_000] {
            let parts = parts_of_about(part_rows, &read_view, loaded).unwrap();
            assert_eq!(rows_in_parts(&read_view, loaded, &parts), expected, "{view} in {parts:?}");
            counts.insert(parts.len());
        }
        assert!(counts.len() > 1 || expected.len() == 1, "{view} in {counts:?} parts");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_has_few_rows_beside_those_of_one_key() {
    let harness = Harness::filled().await;
    let read_view = harness.node.read_view().unwrap();
    let loaded = read_view.view("pairs").unwrap();
    let rows_of = |part: &KeyPart| -> usize {
        let source = StateSource::new(&read_view, loaded, None);
        let grouped = grouped(&loaded.live).unwrap();
        let (_, pieces) = grouped.pieces_of_part(&source, part).unwrap();
        pieces.rows().map(|(_, rows)| rows.len()).sum()
    };
    let all = state_rows(&read_view, loaded);
    let of_one_key = parts_of_about(1, &read_view, loaded).unwrap().iter().map(rows_of).max().unwrap();
    assert!(of_one_key < all, "there are several keys");
    for part_rows in 1..=all {
        let parts = parts_of_about(part_rows, &read_view, loaded).unwrap();
        assert_eq!(parts.iter().map(rows_of).sum::<usize>(), all);
        for part in &parts {
            assert!(rows_of(part) < part_rows + of_one_key, "{} rows in {part:?} of {parts:?}", rows_of(part));
        }
    }
}

fn rows_in_parts(read_view: &ReadView, loaded: &LoadedView, parts: &[KeyPart]) -> BTreeMap<Vec<u8>, (bool, RecordBatch)> {
    let (plan, codec) = (&loaded.live.plan, &loaded.live.codec);
    let wanted: Vec<usize> = (0..plan.columns.len()).collect();
    let source = StateSource::new(read_view, loaded, None);
    let grouped = grouped(&loaded.live).unwrap();
    let mut found_in_parts = BTreeMap::new();
    for part in parts {
        let (keys, pieces) = grouped.pieces_of_part(&source, part).unwrap();
        let Answered { rows, found, .. } = answer(plan, codec, &keys, &pieces, NOW, &wanted).unwrap();
        for (index, key) in keys.iter().enumerate() {
            let row = (found[index], rows.slice(index, 1));
            assert!(found_in_parts.insert(key.to_vec(), row).is_none(), "a key is in two of {parts:?}");
        }
    }
    found_in_parts
}
