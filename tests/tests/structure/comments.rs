//! Comments are at most [`WIDEST`] columns wide. rustfmt breaks code alone.

use std::path::PathBuf;

use crate::crates::members;
use crate::{files_below, root};

const WIDEST: usize = 120;

/// The folders of a crate that have sources.
const SOURCES: [&str; 5] = ["src", "tests", "benches", "examples", "fuzz_targets"];

#[test]
fn comments_are_at_most_120_columns_wide() {
    let files = sources();
    assert!(files.len() > 500, "found {} files", files.len());
    let mut report = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for line in wide_comments(&text) {
            report.push_str(&format!("\n  {}:{line}", file.strip_prefix(root()).unwrap().display()));
        }
    }
    assert!(report.is_empty(), "comments of more than {WIDEST} columns:{report}");
}

/// All sources of ours.
pub fn sources() -> Vec<PathBuf> {
    let crates = members().into_iter().chain(["fuzz".to_owned(), "bench/decoders".to_owned()]);
    let folders = crates.flat_map(|name| SOURCES.map(|folder| root().join(&name).join(folder)));
    folders.filter(|folder| folder.is_dir()).flat_map(|folder| files_below(&folder, ".rs")).collect()
}

/// The numbers of the lines that have nothing but a comment, and too much of it. Rows of tables and links do not break.
fn wide_comments(text: &str) -> Vec<usize> {
    let is_wide = |line: &str| {
        let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
        let breaks = !comment.trim_start_matches(['/', '!', ' ']).starts_with('|') && !comment.contains("://");
        breaks && line.chars().count() > WIDEST
    };
    text.lines().zip(1..).filter(|(line, _)| is_wide(line)).map(|(_, number)| number).collect()
}

#[test]
fn a_comment_that_is_too_wide_is_found() {
    let (word, wide) = ("a".repeat(WIDEST - 4), "a".repeat(WIDEST));
    let lines = [
        format!("//! {word}"),
        format!("//! {word}a"),
        format!("    // {word}"),
        format!("//! | {wide} |"),
        format!("/// <https://{wide}>"),
        format!("let text = \"{wide}\"; // {wide}"),
    ];
    assert_eq!(wide_comments(&lines.join("\n")), [2, 3]);
}
