//! The metrics that docs/reference/metrics.md names are those that the code records.

use std::collections::BTreeSet;

use crate::crates::members;
use crate::source::without_tests;
use crate::{files_below, root};

#[test]
fn the_reference_names_each_metric_and_no_other() {
    let page = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let documented: BTreeSet<String> = names(&page, '`').collect();
    let mut recorded = BTreeSet::new();
    for member in members().iter().filter(|member| !["tests", "bench"].contains(&member.as_str())) {
        let src = root().join(member).join("src");
        for file in files_below(&src, ".rs") {
            if without_tests(&src, file.strip_prefix(&src).unwrap()).is_some() {
                recorded.extend(names(&std::fs::read_to_string(&file).unwrap(), '"'));
            }
        }
    }
    assert!(recorded.len() > 60, "found {} metrics", recorded.len());
    let only = |these: &BTreeSet<String>, others: &BTreeSet<String>| these.difference(others).cloned().collect::<Vec<_>>();
    assert_eq!(only(&recorded, &documented), Vec::<String>::new(), "docs/reference/metrics.md does not name these");
    assert_eq!(only(&documented, &recorded), Vec::<String>::new(), "docs/reference/metrics.md names these, which no code records");
}

/// The names of metrics that stand between two of these quotes.
fn names(text: &str, quote: char) -> impl Iterator<Item = String> {
    let rests = text.split(quote).filter(|part| part.starts_with("basestream_"));
    let names = rests.filter(|part| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
    names.map(str::to_owned)
}

#[test]
fn names_between_quotes_are_found() {
    let text = "counter!(\"basestream_speed_records_total\", \"topic\" => topic); // basestream_other \"basestream_x {}\"";
    assert_eq!(names(text, '"').collect::<Vec<_>>(), ["basestream_speed_records_total"]);
}
