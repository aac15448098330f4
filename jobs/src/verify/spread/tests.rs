use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// A key whose near nodes contribute these weights, through separate end points.
fn spread(weights: &[f64]) -> Spread {
    let squares = |weights: &[f64]| vec![(weights.iter().map(|w| w * w).sum(), weights.iter().fold(0.0f64, |most, w| most.max(w.abs())))];
    let mut spread = Spread::default();
    spread.add(WeightPart::Nodes, squares(weights));
    spread.add(WeightPart::Ends, squares(weights));
    spread.add(WeightPart::Pairs, squares(weights));
    spread.add(WeightPart::NearDegree, vec![(weights.len() as f64, 0.0)]);
    spread.add(WeightPart::FarDegree, vec![(1.0, 0.0)]);
    spread
}

/// Returns the estimate of a walk: the sum of the weights with the smallest hashes, divided by the greatest of these
/// hashes.
fn estimate(weights: &[f64], followed: usize, random: &mut StdRng) -> f64 {
    let mut hashed: Vec<(f64, f64)> = weights.iter().map(|weight| (random.random(), *weight)).collect();
    let (smaller, greatest, _) = hashed.select_nth_unstable_by(followed - 1, |a, b| a.0.total_cmp(&b.0));
    (smaller.iter().map(|(_, weight)| weight).sum::<f64>() + greatest.1) / greatest.0
}

fn kinds() -> [(&'static str, Vec<f64>); 4] {
    let alike = vec![3.0; 2_000];
    let skewed = (1..=2_000).map(|rank| 40_000.0 / f64::from(rank)).collect();
    let mut one = vec![1.0; 2_000];
    one[7] = 5_000.0;
    let both_signs = (0..2_000).map(|at| if at % 2 == 0 { 50.0 } else { -49.0 }).collect();
    [("alike", alike), ("skewed", skewed), ("one has most", one), ("both signs", both_signs)]
}

#[test]
fn right_estimates_lie_within_the_bound_whatever_the_weights() {
    let mut random = StdRng::seed_from_u64(7);
    for (kind, weights) in kinds() {
        let total: f64 = weights.iter().sum();
        for followed in [2usize, 20, 200, 1_000, 1_999] {
            let bound = spread(&weights).bound(0, followed as u32);
            let worst = (0..400).map(|_| (estimate(&weights, followed, &mut random) - total).abs()).fold(0.0, f64::max);
            assert!(worst <= bound, "{kind}, {followed} followed: off by {worst}, bound {bound}");
        }
    }
}

#[test]
fn one_that_has_nearly_all_and_is_seldom_followed_is_no_difference_when_it_is() {
    let mut random = StdRng::seed_from_u64(8);
    let mut weights = vec![1.0; 20_000];
    weights[7] = 1e7;
    let (total, bound) = (weights.iter().sum::<f64>(), spread(&weights).bound(0, 200));
    let worst = (0..400).map(|_| (estimate(&weights, 200, &mut random) - total).abs()).fold(0.0, f64::max);
    assert!(worst > 50.0 * total && worst <= bound, "off by {worst}, bound {bound}");
}

/// A bound that depends only on the number of neighbours would report these as wrong.
#[test]
fn the_bound_is_that_of_the_weights() {
    let of_number_alone = |total: f64, followed: f64| 12.0 / followed.sqrt() * total;
    let [(_, alike), (_, skewed), (_, one), (_, both)] = kinds();
    let bound = |weights: &[f64], followed: u32| spread(weights).bound(0, followed);
    assert!(bound(&alike, 400) < of_number_alone(6_000.0, 400.0));
    assert!(bound(&one, 1_000) > of_number_alone(7_000.0, 1_000.0));
    assert!(bound(&both, 1_000) > of_number_alone(1_000.0, 1_000.0));
    let mut random = StdRng::seed_from_u64(9);
    let total: f64 = skewed.iter().sum();
    let worst = (0..400).map(|_| (estimate(&skewed, 1_000, &mut random) - total).abs()).fold(0.0, f64::max);
    assert!(worst > bound(&skewed, 1_000) / 20.0, "{worst} is far below {}", bound(&skewed, 1_000));
}

#[test]
fn where_all_are_followed_nothing_may_be_off() {
    assert_eq!(spread(&[1.0, 2.0, 3.0]).bound(0, 3), 0.0);
    assert!(spread(&[1.0, 2.0, 3.0]).bound(0, 2) > 0.0);
}
