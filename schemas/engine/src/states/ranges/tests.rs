use super::*;
use crate::states::testing::planned;

#[test]
fn only_rows_that_follow_one_another_in_one_batch_are_consecutive() {
    assert_eq!(consecutive(&[(1, 4)]), Some((1, 4..5)));
    assert_eq!(consecutive(&[(0, 2), (0, 3), (0, 4)]), Some((0, 2..5)));
    for copied in [vec![], vec![(0, 2), (0, 4)], vec![(0, 2), (0, 2)], vec![(0, 3), (0, 2)], vec![(0, 2), (1, 3)]] {
        assert_eq!(consecutive(&copied), None, "{copied:?}");
    }
}

#[test]
fn plain_aggregates_of_a_view_are_merged_without_accumulators() {
    let plan = planned(
        "CREATE VIEW v AS SELECT k, count(*) AS n, count(x) AS xs, sum(x) AS total, sum(CAST(x AS DOUBLE) / 7) AS f, avg(x) AS mean, \
         min(x) AS least, max(ts) AS last, count(DISTINCT x) AS d, count(DISTINCT id) AS ids, median(x) AS m FROM s GROUP BY k",
    );
    for state in &plan.states {
        assert_eq!(state.direct.is_none(), state.function == "median", "{}", state.sql);
    }
    assert!(plan.states.iter().any(|state| state.direct.is_none() && state.function == "median"));
}
