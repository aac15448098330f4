use super::*;

#[test]
fn only_times_before_those_that_are_answered_are_examined() {
    let tiles = KeptTiles::default();
    assert!(!tiles.suffice(Micros::MAX, || false));
    assert!(tiles.suffice(20, || true));
    assert!(tiles.suffice(20, || panic!("it was examined before")));
    assert!(tiles.suffice(21, || panic!("it is later")));
    assert!(!tiles.suffice(19, || false));
    assert!(tiles.suffice(10, || true));
    assert!(tiles.suffice(19, || panic!("it is later")));
    assert!(tiles.suffice(Micros::MIN, || true));
    assert!(!tiles.clone().suffice(Micros::MAX, || false));
}
