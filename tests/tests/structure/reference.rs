//! What the reference lists, against the code: the metrics in docs/reference/metrics.md, and the SQLSTATEs in
//! docs/reference/postgresql.md.

use std::collections::BTreeSet;
use std::path::Path;

use crate::crates::members;
use crate::source::without_tests;
use crate::{files_below, root};

#[test]
fn the_reference_names_each_metric_and_no_other() {
    let page = page("metrics.md");
    let documented: BTreeSet<String> = names(&page, '`').collect();
    let members = members();
    let product = members.iter().filter(|member| !["tests", "bench"].contains(&member.as_str()));
    let files: Vec<String> = product.flat_map(|member| product_files(&root().join(member).join("src"))).collect();
    let recorded: BTreeSet<String> = files.iter().flat_map(|file| names(file, '"')).collect();
    assert!(recorded.len() > 60, "found {} metrics", recorded.len());
    assert_same("metrics.md", &documented, &recorded);
}

#[test]
fn the_reference_names_each_sqlstate_and_no_other() {
    let page = page("postgresql.md");
    let errors = page.split("\n## Errors\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = errors.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let codes = cells.flat_map(|cell| cell.split(", "));
    let documented: BTreeSet<String> = codes.filter(|code| is_sqlstate(code)).map(str::to_owned).collect();
    let files = product_files(&root().join("serving/postgres/src"));
    let texts = files.iter().flat_map(|file| file.split('"'));
    let sent: BTreeSet<String> = texts.filter(|text| is_sqlstate(text)).map(str::to_owned).collect();
    assert!(sent.len() > 40, "found {} SQLSTATEs", sent.len());
    assert_same("postgresql.md", &documented, &sent);
}

fn assert_same(page: &str, documented: &BTreeSet<String>, there_are: &BTreeSet<String>) {
    let missing: Vec<&String> = there_are.difference(documented).collect();
    assert!(missing.is_empty(), "docs/reference/{page} does not name {missing:?}");
    let gone: Vec<&String> = documented.difference(there_are).collect();
    assert!(gone.is_empty(), "docs/reference/{page} names {gone:?}, which no code has");
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs/reference").join(name)).unwrap()
}

/// The texts of a crate's files without those of tests, and without the tests at the end of a file.
fn product_files(src: &Path) -> Vec<String> {
    let files = files_below(src, ".rs");
    let product = files.iter().filter(|file| without_tests(src, file.strip_prefix(src).unwrap()).is_some());
    product.map(|file| std::fs::read_to_string(file).unwrap().split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()).collect()
}

/// Five capital letters or digits of a class that we use: their first is a digit, or they begin with XX.
fn is_sqlstate(text: &str) -> bool {
    let is_of_class = text.starts_with(|first: char| first.is_ascii_digit()) || text.starts_with("XX");
    text.len() == 5 && is_of_class && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
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

#[test]
fn a_sqlstate_is_told_from_other_words() {
    assert!(["42601", "0A000", "57P01", "XX001"].into_iter().all(is_sqlstate));
    assert!(!["BEGIN", "RESET", "4260", "4260a", "426011"].into_iter().any(is_sqlstate));
}
