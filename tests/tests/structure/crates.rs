//! The picture of the crates in `ARCHITECTURE.md`, against the Cargo.toml files, and the tree of their modules.
//!
//! An arrow `a --> b` means that b depends on a. The crates are those with a path in `[workspace.dependencies]`, by the
//! names under which code imports them; `tests` and `bench` are not among them. Dev-dependencies are no arrows, and an
//! arrow that follows from others is left out.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::graph::{Edge, Graph, cycles, reduced};
use crate::source::{ModulePath, read, without_tests};
use crate::{files_below, root};

#[test]
fn the_picture_shows_how_the_crates_depend() {
    let graph = dependencies();
    assert!(graph.len() >= 11, "found {} crates", graph.len());
    let expected: BTreeSet<Edge> = reduced(&graph).into_iter().map(|(crate_name, needs)| (needs, crate_name)).collect();
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let found = arrows(&text);
    let lines = |edges: &BTreeSet<Edge>, without: &BTreeSet<Edge>| {
        edges.difference(without).map(|(from, to)| format!("\n    {from} --> {to}")).collect::<String>()
    };
    assert!(
        found == expected,
        "the picture in ARCHITECTURE.md differs from the Cargo.toml files\n  missing:{}\n  too much:{}",
        lines(&expected, &found),
        lines(&found, &expected)
    );
}

#[test]
fn the_layers_do_not_depend_on_one_another() {
    let graph = dependencies();
    for layer in ["speed", "batch", "serving"] {
        let others: Vec<&String> =
            graph[layer].iter().filter(|name| ["speed", "batch", "serving", "jobs"].contains(&name.as_str())).collect();
        assert!(others.is_empty(), "{layer} depends on {others:?}: what two layers need belongs below both");
    }
    assert_eq!(cycles(&graph), BTreeSet::new());
}

/// It says less of tests and benchmarks.
#[test]
fn the_tree_names_every_module_of_the_product() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let tree = page.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    for member in members().iter().filter(|member| !["tests", "bench"].contains(&member.as_str())) {
        let lines = lines_of(tree, member);
        let words: BTreeSet<&str> = lines.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
        let modules = read(&root().join(member).join("src/lib.rs")).modules();
        let missing: Vec<&String> = modules.iter().filter(|module| !words.contains(module.as_str())).collect();
        assert!(missing.is_empty(), "the tree in ARCHITECTURE.md does not name {missing:?} of {member}");
    }
}

/// The lines of a tree that are of a folder: from its name to the next line that is not indented.
fn lines_of(tree: &str, folder: &str) -> String {
    let name = format!("{folder}/ ");
    let mut lines = tree.lines().skip_while(|line| !line.starts_with(&name));
    let first = lines.next().unwrap_or_default();
    std::iter::once(first).chain(lines.take_while(|line| line.starts_with(' '))).collect::<Vec<_>>().join("\n")
}

/// README's first command names no binary.
#[test]
fn cargo_run_has_one_binary_to_run() {
    let workspace = manifest("Cargo.toml");
    let built = workspace["workspace"]["default-members"].as_array().unwrap();
    let binaries = |member: &Value| match manifest(&format!("{}/Cargo.toml", member.as_str().unwrap())).get("bin") {
        Some(binaries) => binaries.as_array().unwrap().iter().map(|binary| binary["name"].as_str().unwrap().to_owned()).collect(),
        None => Vec::new(),
    };
    assert_eq!(built.iter().flat_map(binaries).collect::<Vec<_>>(), ["basestream"]);
}

/// `bench/decoders` compiles these files in a workspace of its own, which has no DataFusion.
#[test]
fn the_decoding_of_events_needs_no_datafusion() {
    let src = root().join("schemas/engine/src");
    let files = files_below(&src.join("events"), ".rs");
    let product: Vec<_> = files.iter().filter(|file| without_tests(&src, file.strip_prefix(&src).unwrap()).is_some()).collect();
    assert!(product.len() > 5, "found {} files", product.len());
    let needing: Vec<_> = product.into_iter().filter(|file| read(file).contains("datafusion")).collect();
    assert!(needing.is_empty(), "{needing:?}");
}

/// sqlparser's own traversal is generated again for each type of visitor.
#[test]
fn one_file_visits_the_syntax_trees_of_sql() {
    let generates = |path: &ModulePath| {
        let name = path.first().map_or("", String::as_str);
        ["Visit", "VisitMut"].contains(&name) || name.starts_with("visit_")
    };
    let files = members().into_iter().flat_map(|member| files_below(&root().join(member).join("src"), ".rs"));
    let found: Vec<_> = files.filter(|file| read(file).paths_after("ast::").iter().any(generates)).collect();
    assert_eq!(found, [root().join("schemas/definitions/src/syntax.rs")], "the others: definitions::syntax::SyntaxNode");
}

/// The folders of the workspace's crates.
pub fn members() -> Vec<String> {
    let workspace = manifest("Cargo.toml");
    let members = workspace["workspace"]["members"].as_array().unwrap();
    members.iter().flat_map(|member| folders(member.as_str().unwrap())).collect()
}

/// The folders that one entry names: itself, or all crates in a folder.
fn folders(entry: &str) -> Vec<String> {
    let Some(parent) = entry.strip_suffix("/*") else { return vec![entry.to_owned()] };
    let entries = std::fs::read_dir(root().join(parent)).unwrap();
    let folders = entries.map(|entry| format!("{parent}/{}", entry.unwrap().file_name().to_string_lossy()));
    folders.filter(|folder| root().join(folder).join("Cargo.toml").exists()).collect()
}

/// From each crate of ours to those that its Cargo.toml names.
pub fn dependencies() -> Graph {
    let workspace = manifest("Cargo.toml");
    let shared = workspace["workspace"]["dependencies"].as_table().unwrap();
    let ours = shared.iter().filter_map(|(name, value)| Some((name, value.get("path")?.as_str()?)));
    let ours: Vec<(String, String)> = ours.map(|(name, path)| (name.clone(), path.to_owned())).collect();
    let is_ours = |name: &&String| ours.iter().any(|(known, _)| known == *name);
    let needs = |path: &str| {
        let manifest = manifest(&format!("{path}/Cargo.toml"));
        manifest.get("dependencies").and_then(Value::as_table).unwrap().keys().filter(is_ours).cloned().collect()
    };
    ours.iter().map(|(name, path)| (name.clone(), needs(path))).collect()
}

fn manifest(path: &str) -> Table {
    std::fs::read_to_string(root().join(path)).unwrap().parse().unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines `a --> b` of the page's Mermaid blocks.
fn arrows(markdown: &str) -> BTreeSet<Edge> {
    let mut arrows = BTreeSet::new();
    let mut is_inside = false;
    for line in markdown.lines() {
        match (is_inside, line.trim()) {
            (false, "```mermaid") => is_inside = true,
            (true, "```") => is_inside = false,
            (true, line) => {
                if let Some((from, to)) = line.split_once("-->") {
                    arrows.insert((from.trim().to_owned(), to.trim().to_owned()));
                }
            }
            _ => {}
        }
    }
    arrows
}
