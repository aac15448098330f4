use std::path::Path;

use super::*;
use types::{ErrorKind, MessageForm};

#[test]
fn a_diagnostic_prints_its_place_its_message_and_its_help() {
    let diagnostic = Diagnostic::error(3, 14, "found 7x").help("write 7d").in_file(Some(Path::new("views/x.sql")));
    assert_eq!(diagnostic.to_string(), "views/x.sql:3:14: error: found 7x\n  help: write 7d");
}

#[test]
fn a_diagnostic_without_a_file_or_a_place_leaves_them_out() {
    assert_eq!(Diagnostic::warning(3, 14, "odd").to_string(), "3:14: warning: odd");
    assert_eq!(Diagnostic::note(0, 0, "empty").in_file(Some(Path::new("a.sql"))).to_string(), "a.sql: note: empty");
    assert_eq!(Diagnostic::error(0, 0, "empty").to_string(), "error: empty");
}

#[test]
fn only_errors_make_the_result_an_error() {
    let mut diagnostics = Diagnostics::new();
    diagnostics.push(Diagnostic::warning(1, 1, "odd"));
    assert!(!diagnostics.has_errors());
    assert!(diagnostics.clone().into_result().is_ok());

    diagnostics.push(Diagnostic::error(2, 1, "wrong"));
    let error = diagnostics.into_result().unwrap_err();
    assert_eq!((error.kind(), error.message_form()), (ErrorKind::Input, MessageForm::Diagnostics));
    assert_eq!(error.to_string(), "1:1: warning: odd\n2:1: error: wrong");
}

#[test]
fn sorting_keeps_files_together_in_the_order_they_came() {
    let at = |file: &str, line| Diagnostic::error(line, 1, "x").in_file(Some(Path::new(file)));
    let mut diagnostics = Diagnostics(vec![at("b.sql", 9), at("a.sql", 2), at("b.sql", 1)]);
    diagnostics.sort();
    assert_eq!(diagnostics, Diagnostics(vec![at("b.sql", 1), at("b.sql", 9), at("a.sql", 2)]));
}

#[test]
fn diagnostics_serialize_as_a_list_of_objects() {
    let diagnostics = Diagnostics(vec![Diagnostic::error(3, 14, "found 7x").in_file(Some(Path::new("views/x.sql")))]);
    assert_eq!(
        serde_json::to_value(&diagnostics).unwrap(),
        serde_json::json!([{"severity": "error", "file": "views/x.sql", "line": 3, "column": 14, "message": "found 7x", "help": null}])
    );
}
