//! The files and folders that the tables of `ARCHITECTURE.md` name: a reader who opens one finds it.

use std::path::{Path, PathBuf};

use crate::root;

#[test]
fn the_tables_of_the_architecture_name_files_that_are_there() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (mut checked, mut missing) = (0, Vec::new());
    for row in page.lines().filter(|line| line.starts_with('|')) {
        checked += places_of(row).count();
        missing.extend(missing_of(row, |path| root().join(path).exists()));
    }
    assert!(checked > 400, "found {checked} files and folders");
    assert!(missing.is_empty(), "the tables in ARCHITECTURE.md name what is not there: {missing:?}");
}

/// Returns the files and folders of a row that do not exist. A path without its beginning is below `schemas/`, below a
/// folder that a path before it in the row is in or names, or, in the tables about queries, below `serving/src/`.
fn missing_of(row: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let (mut found, mut missing) = (Vec::<PathBuf>::new(), Vec::new());
    for place in places_of(row) {
        let before = found.iter().rev().flat_map(|path| path.ancestors());
        let beginnings = ["", "schemas"].map(Path::new).into_iter().chain(before).chain([Path::new("serving/src")]);
        let path = beginnings.map(|beginning| beginning.join(place)).find(|path| exists(path.as_path()));
        match path {
            Some(path) => found.push(path),
            None => missing.push(place.to_owned()),
        }
    }
    missing
}

/// Code in a row that is a path to a file of Rust, or to a folder.
fn places_of(row: &str) -> impl Iterator<Item = &str> {
    let is_of_a_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let is_place = move |code: &&str| (code.ends_with(".rs") || code.ends_with('/')) && code.chars().all(is_of_a_path);
    row.split('`').skip(1).step_by(2).filter(is_place)
}

#[test]
fn a_path_is_looked_for_in_the_folders_of_the_paths_before_it() {
    let there = ["a/src/b.rs", "a/src/b/c.rs", "schemas/d/src/e.rs", "serving/src/f.rs"];
    let missing = |row| missing_of(row, |path| there.iter().any(|known| Path::new(known) == path));
    assert_eq!(missing("| x | `a/src/b.rs` (`b`), `b/c.rs`, `d/src/e.rs` and `f.rs` |"), Vec::<String>::new());
    assert_eq!(missing("| x | `b/c.rs`, `a/src/b.rs`, `g.rs`, `h/` |"), ["b/c.rs", "g.rs", "h/"]);
}
