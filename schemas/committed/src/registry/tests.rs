use super::*;

#[test]
fn a_name_that_no_view_has_is_told_with_the_names_that_views_have() {
    let error = no_view("vlocity", ["totals", "velocity"], ["payments"]);
    assert_eq!(error.to_string(), "there is no view \"vlocity\": did you mean \"velocity\"? expected one of totals, velocity");
    assert_eq!(no_view("x", [], []).to_string(), "there is no view \"x\": no view is defined yet");
}

#[test]
fn a_streams_name_in_a_views_place_is_told_as_one() {
    let error = no_view("payments", ["totals"], ["payments"]);
    assert_eq!(error.message(), "\"payments\" is a stream, and this is about views: expected one of totals");
    assert_eq!(error.fact("help"), Some("SQL reads its events: SELECT .. FROM payments"));
    assert_eq!(error.kind(), types::ErrorKind::NotFound);
}
