use std::collections::BTreeMap;

use super::*;

fn values(keys_only: [u64; 2], rows_different: u64) -> ValuesDiff {
    let key = BTreeMap::from([("k".to_owned(), Some("a".to_owned()))]);
    let columns = BTreeMap::from([("n".to_owned(), [Some("1".to_owned()), None])]);
    ValuesDiff {
        t: ["2026-03-01T10:00:00Z".to_owned(), "2026-03-01T10:00:00Z".to_owned()],
        rows: [1_200, 1_201],
        keys_only,
        rows_different,
        columns: BTreeMap::from([("n".to_owned(), rows_different), ("x".to_owned(), 0)]),
        columns_only: [vec![], vec!["total".to_owned()]],
        examples: vec![
            ValueExample { key: key.clone(), only_in: None, columns },
            ValueExample { key, only_in: Some(2), columns: BTreeMap::new() },
        ],
        ..ValuesDiff::default()
    }
}

#[test]
fn a_difference_is_shown_by_key_and_column() {
    let definition =
        vec![DiffLine::Same("CREATE VIEW v AS".into()), DiffLine::Removed("SELECT 1".into()), DiffLine::Added("SELECT 2".into())];
    let diff = VersionsDiff { view: "v".into(), versions: [1, 2], definition, values: Some(values([0, 1], 3)) };
    let expected = "\
v: version 1 -> 2
    CREATE VIEW v AS
  - SELECT 1
  + SELECT 2
different: 1,200 and 1,201 rows at 2026-03-01T10:00:00Z, in 0.0 s
  1 key only in version 2
  n: differs in 3 rows
  only in version 2: total
  k=a: n 1 -> NULL
  k=a: only in version 2";
    assert_eq!(diff_text(&diff), expected);
    assert!(!diff.is_equal());
}

#[test]
fn a_column_more_is_no_difference_of_values() {
    let diff =
        VersionsDiff { view: "v".into(), versions: [1, 2], definition: vec![DiffLine::Added("x".into())], values: Some(values([0, 0], 0)) };
    assert!(diff.is_equal());
    assert!(!VersionsDiff { values: None, ..diff }.is_equal(), "the texts differ");
}

#[test]
fn what_was_switched_says_what_becomes_of_the_version_before() {
    let switched = Switched { view: "v".into(), from: Some(1), version: 2, kept_until: Some("T".into()), changed: true };
    assert_eq!(switched_text(&switched), "v is answered by version 2 from now on; version 1 is kept until T");
    let none = Switched { kept_until: None, ..switched.clone() };
    assert_eq!(switched_text(&none), "v is answered by version 2 from now on; version 1 is dropped");
    assert_eq!(switched_text(&Switched { changed: false, ..switched }), "version 2 of v is served already");
}
