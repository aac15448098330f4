use super::{LAYERS_MERGED, merged_from};

#[test]
fn an_epoch_has_few_layers_and_merges_a_row_seldom() {
    let (mut sizes, mut merged_rows) = (Vec::new(), 0);
    for _ in 0..4_096 {
        sizes.push(1);
        while merged_from(&sizes) < sizes.len() {
            let merged: usize = sizes.drain(merged_from(&sizes)..).sum();
            merged_rows += merged;
            sizes.push(merged);
        }
        assert!(sizes.len() < LAYERS_MERGED * 7, "{sizes:?}");
    }
    assert!(merged_rows <= 4_096 * 7, "{merged_rows}");
}
