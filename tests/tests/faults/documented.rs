//! Checks that each test that docs/operations/faults.md names for a fault exists.

use std::path::Path;

/// Pairs of a test's name and its file, as in "`one`, `two` (tests/tests/faults/random.rs)".
fn named(table: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let Some(cell) = row.trim_end_matches(" |").rsplit(" | ").next() else { continue };
        let mut names = Vec::new();
        for part in cell.split([',', '(']).map(str::trim) {
            if let Some(name) = part.strip_prefix('`') {
                names.push(name.trim_end_matches('`').to_owned());
            } else if let Some(file) = part.strip_suffix(')') {
                pairs.extend(names.drain(..).map(|name| (name, file.to_owned())));
            }
        }
        assert!(names.is_empty(), "{names:?} have no file: {row}");
    }
    pairs
}

#[test]
fn every_test_that_the_table_of_faults_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pairs = named(&std::fs::read_to_string(root.join("docs/operations/faults.md")).unwrap());
    assert!(pairs.len() > 40, "the table was read: {}", pairs.len());
    for (name, file) in pairs {
        let source = std::fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(source.contains(&format!("fn {name}(")), "{file} has no test {name}");
    }
}
