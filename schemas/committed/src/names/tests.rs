use types::ErrorKind;

use super::*;

const VIEWS: [DefinedName<'_>; 3] =
    [(DefinitionKind::View, "velocity"), (DefinitionKind::View, "totals"), (DefinitionKind::View, "velocity")];

#[test]
fn a_name_that_no_view_has_is_reported_with_the_names_that_views_have() {
    let error = no_view("vlocity", VIEWS.into_iter().chain([(DefinitionKind::Stream, "payments")]));
    assert_eq!(error.to_string(), "there is no view \"vlocity\": did you mean \"velocity\"? expected one of totals, velocity");
}

#[test]
fn where_the_catalog_has_no_view_yet_the_error_names_what_puts_one_there() {
    let payments = [(DefinitionKind::Stream, "payments")];
    let error = no_view("x", payments);
    assert_eq!((error.message(), error.fact("help")), ("there is no view \"x\": no view is defined yet", Some(APPLY)));
    assert_eq!(no_view("x", VIEWS).fact("help"), None);
    assert_eq!(not_among(DefinitionKind::View, "x", payments).fact("help"), None, "files are not applied to themselves");
}

#[test]
fn a_name_of_another_kind_in_a_views_place_is_reported_as_one_with_how_it_is_read() {
    for (kind, found, help) in [
        (DefinitionKind::Stream, "a stream", "SQL reads its events: SELECT .. FROM payments"),
        (DefinitionKind::Sink, "a sink", "`basestream sink read payments` prints its records"),
        (
            DefinitionKind::Alert,
            "an alert",
            "`basestream alert open payments` lists the keys that satisfy it, `basestream alert read payments` prints its records",
        ),
        (DefinitionKind::Parameter, "a parameter", "`basestream parameters payments` prints its value"),
    ] {
        let error = no_view("payments", VIEWS.into_iter().chain([(kind, "payments")]));
        assert_eq!(error.message(), format!("\"payments\" is {found}, and this is about views: expected one of totals, velocity"));
        assert_eq!((error.fact("help"), error.kind()), (Some(help), ErrorKind::NotFound));
    }
}

#[test]
fn a_view_in_a_sinks_place_is_reported_as_one() {
    let error = not_defined(DefinitionKind::Sink, "totals", VIEWS);
    assert_eq!(error.message(), "\"totals\" is a view, and this is about sinks: no sink is defined yet");
    assert_eq!(error.fact("help"), Some("SQL reads its rows: SELECT .. FROM totals"));
}
