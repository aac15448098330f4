use super::*;

#[test]
fn a_snapshots_floors_are_the_greatest_of_its_tiers() {
    let before: Floors = vec![(Level::Minute1, Some(60)), (Level::Hour1, Some(30)), (Level::All, None)];
    let now: Floors = vec![(Level::Minute1, Some(120)), (Level::Hour1, Some(10)), (Level::All, None)];
    assert_eq!(greater(&before, &now), [(Level::Minute1, Some(120)), (Level::Hour1, Some(30)), (Level::All, None)]);
}
