use super::*;

#[test]
fn only_rows_that_follow_one_another_in_one_batch_are_consecutive() {
    assert_eq!(consecutive(&[(1, 4)]), Some((1, 4..5)));
    assert_eq!(consecutive(&[(0, 2), (0, 3), (0, 4)]), Some((0, 2..5)));
    for copied in [vec![], vec![(0, 2), (0, 4)], vec![(0, 2), (0, 2)], vec![(0, 3), (0, 2)], vec![(0, 2), (1, 3)]] {
        assert_eq!(consecutive(&copied), None, "{copied:?}");
    }
}
