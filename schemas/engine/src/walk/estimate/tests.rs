use super::different;

#[test]
fn end_points_of_one_neighbour_each_are_counted_by_the_share_that_was_followed() {
    assert_eq!(different(100.0, 100.0, 0.0, 0.1), 1000.0);
}

#[test]
fn end_points_that_every_neighbour_has_are_all_seen() {
    assert_eq!(different(100.0, 0.0, 0.0, 0.1), 100.0);
    assert_eq!(different(100.0, 50.0, 25.0, 1.0), 100.0);
}
