use super::*;

/// Adds `parts` parts of `size` rows each. Returns how often a row was merged on average, and the greatest number of
/// parts that were kept at a time.
fn merged(parts: usize, size: usize) -> (f64, usize) {
    let (mut sizes, mut rows_merged, mut most) = (Vec::new(), 0, 0_usize);
    for _ in 0..parts {
        sizes.push(size);
        while let Some(from) = similar_from(&sizes) {
            let together: usize = sizes.split_off(from).iter().sum();
            rows_merged += together;
            sizes.push(together);
        }
        most = most.max(sizes.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), parts * size);
    (rows_merged as f64 / (parts * size) as f64, most)
}

#[test]
fn a_row_is_merged_once_for_every_eightfold_growth() {
    assert_eq!(merged(7, 500), (0.0, 7));
    assert_eq!(merged(8, 500), (1.0, 7));
    assert_eq!(merged(64, 500), (2.0, 14));
    assert_eq!(merged(512, 1), (3.0, 21));
}

/// Parts that become smaller when they are merged, because they have the same keys, stay few too.
#[test]
fn parts_of_the_same_keys_stay_few() {
    let (mut sizes, mut most) = (Vec::new(), 0_usize);
    for _ in 0..1_000 {
        sizes.push(100);
        while let Some(from) = similar_from(&sizes) {
            sizes.truncate(from);
            sizes.push(100);
        }
        most = most.max(sizes.len());
    }
    assert_eq!(most, PARTS_MERGED - 1);
    assert_eq!(similar_from(&[0; PARTS_MERGED]), Some(0), "empty ones too");
}
