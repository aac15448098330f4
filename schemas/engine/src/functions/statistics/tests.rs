use proptest::prelude::*;

use super::*;

/// P(X >= k), by summing the probabilities with 60 digits (mpmath).
const KNOWN: &[(i64, f64, f64)] = &[
    (1, 1.0, 0.6321205588285577),
    (1, 0.001, 0.0009995001666250082),
    (5, 2.0, 0.05265301734371116),
    (10, 3.0, 0.0011024881301154798),
    (3, 10.0, 0.9972306042844884),
    (20, 1.0, 1.587527601073263e-19),
    (50, 2.0, 5.214301903317168e-51),
    (100, 10.0, 5.398589728139581e-63),
    (150, 1.0, 6.481830476248712e-264),
    (200, 100.0, 9.34315007298839e-19),
    (1_000, 500.0, 3.2982727970671e-86),
    (1_000, 1_000.0, 0.5042052441802155),
    (99_999, 98_000.0, 9.893238036481577e-11),
    (100_001, 98_000.0, 9.492480337405818e-11),
    (100_001, 100_001.0, 0.5004205200077702),
    (30, 0.0001, 3.769622808974691e-153),
    (100_000, 89_000.0, 1.9914234652538268e-286),
    (100_001, 89_000.0, 1.7722060105332994e-286),
    (100_001, 100_900.0, 0.9977119557417544),
    (150_000, 149_000.0, 0.004842354337899345),
    (200_000, 150_000.0, 0.0),
    (1_000_000, 999_000.0, 0.15865521357430365),
    (1_000_000, 990_000.0, 5.446644693010809e-24),
    (1_000_000, 970_000.0, 4.920908778591162e-202),
    (1_000_000, 1_003_000.0, 0.9986382593537824),
    (1_000_000_000, 999_900_000.0, 0.0007824461399627836),
    (1_000_000_000, 1_000_000_000.0, 0.5000042052208701),
    (1_000_000_000, 1_000_100_000.0, 0.9992170438380417),
];

#[test]
fn the_chance_of_so_many_events_agrees_with_known_values_into_the_far_tail() {
    for &(k, lambda, expected) in KNOWN {
        let found = poisson_upper_tail(k, lambda).unwrap();
        assert!((found - expected).abs() <= expected * 1e-9, "k {k}, lambda {lambda}: {found:e}, expected {expected:e}");
    }
}

#[test]
fn the_edges_have_the_documented_values() {
    assert_eq!(poisson_upper_tail(0, 3.0), Some(1.0));
    assert_eq!(poisson_upper_tail(-4, 0.0), Some(1.0));
    assert_eq!(poisson_upper_tail(1, 0.0), Some(0.0));
    assert_eq!(poisson_upper_tail(1, f64::INFINITY), Some(1.0));
    assert_eq!(poisson_upper_tail(1, -1.0), None);
    assert_eq!(poisson_upper_tail(0, f64::NAN), None);
}

proptest! {
    #[test]
    fn every_chance_is_a_chance_and_falls_with_k(k in prop_oneof![0..2_000i64, any::<i64>()], lambda in prop_oneof![0.0..3_000.0, 0.0..1e300]) {
        let at_least = |k| poisson_upper_tail(k, lambda).unwrap();
        prop_assert!((0.0..=1.0).contains(&at_least(k)));
        prop_assert!(at_least(k.saturating_add(1)) <= at_least(k) * (1.0 + 1e-9));
    }
}
