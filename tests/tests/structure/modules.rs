//! The modules of a crate import one another in one direction, and so do those in a module's folder.
//!
//! Nodes are the modules that `lib.rs` declares; what is in their folders belongs to them. `lib.rs` is a node too,
//! where it holds more than `mod` and `use` lines. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::graph::{Graph, cycles, reached};
use crate::source::{Source, paths, paths_below, read, without_tests};
use crate::{files_below, root};

const CRATES: [&str; 13] = [
    "schemas/types",
    "schemas/definitions",
    "schemas/log",
    "schemas/catalog",
    "schemas/access",
    "schemas/storage",
    "schemas/engine",
    "schemas/feed",
    "schemas/committed",
    "speed",
    "batch",
    "serving",
    "jobs",
];

/// Cycles that are known and not undone yet. The list only gets shorter: the test fails when one is not there any more.
const KNOWN: &[(&str, &[&str])] = &[];

/// The same of the modules in a module's folder.
const KNOWN_BELOW: &[(&str, &str, &[&str])] = &[
    ("schemas/catalog", "sql", &["meta", "migrations"]),
    ("schemas/engine", "functions", &["calls", "last_n", "top_k"]),
    // A view's codec of keys has that of the nodes, which encodes parts of keys.
    ("schemas/engine", "states", &["nodes", "rows"]),
];

/// The node that `lib.rs` is.
const LIB: &str = "lib.rs";

#[test]
fn the_modules_of_a_crate_have_no_cycle() {
    let known: BTreeSet<(String, BTreeSet<String>)> =
        KNOWN.iter().map(|(name, modules)| ((*name).to_owned(), modules.iter().map(|module| (*module).to_owned()).collect())).collect();
    let mut found = BTreeSet::new();
    let mut report = String::new();
    for name in CRATES {
        let imports = imports(&root().join(name).join("src"));
        for cycle in cycles(&graph_of(&imports)) {
            let entry = (name.to_owned(), cycle);
            if !known.contains(&entry) {
                report.push_str(&explained(&entry, &imports));
            }
            found.insert(entry);
        }
    }
    for (name, modules) in known.difference(&found) {
        report.push_str(&format!("\n{name}: the cycle of {modules:?} is not there any more: take it out of KNOWN\n"));
    }
    assert!(report.is_empty(), "{report}");
}

/// One level below: what a module's folder has. The module itself is no node: what it declares may use it, and it uses
/// them.
#[test]
fn the_modules_in_a_folder_have_no_cycle() {
    let mut known: BTreeSet<(String, BTreeSet<String>)> = BTreeSet::new();
    for (name, parent, modules) in KNOWN_BELOW {
        known.insert((format!("{name}/src/{parent}"), modules.iter().map(|module| (*module).to_owned()).collect()));
    }
    let (mut found, mut report) = (BTreeSet::new(), String::new());
    for name in CRATES {
        let src = root().join(name).join("src");
        for parent in read(&src.join("lib.rs")).modules() {
            let imports = imports_below(&src, &parent);
            for cycle in cycles(&graph_of(&imports)) {
                let entry = (format!("{name}/src/{parent}"), cycle.clone());
                if !known.contains(&entry) {
                    report.push_str(&explained(&(name.to_owned(), cycle), &imports));
                }
                found.insert(entry);
            }
        }
    }
    for (folder, modules) in known.difference(&found) {
        report.push_str(&format!("\n{folder}: the cycle of {modules:?} is not there any more: take it out of KNOWN_BELOW\n"));
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn every_folder_is_looked_at() {
    let graph = graph_of(&imports_below(&root().join("speed/src"), "worker"));
    assert!(graph.len() >= 3, "{graph:?}");
    let graph = graph_of(&imports_below(&root().join("jobs/src"), "ingest"));
    assert!(graph["csv_rows"].contains("bytes") && reached(&graph, "input").contains("numbers"), "{graph:?}");
}

#[test]
fn every_crate_is_looked_at() {
    let manifests = files_below(&root().join("schemas"), "Cargo.toml");
    assert_eq!(manifests.len(), CRATES.iter().filter(|name| name.starts_with("schemas/")).count());
    assert!(reached(&graph_of(&imports(&root().join("speed/src"))), "subscriptions").contains("decide"));
}

/// Each module's imports of others: the other module, and where it is imported first.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

fn imports(src: &Path) -> Imports {
    let lib = read(&src.join("lib.rs"));
    let modules = lib.modules();
    let mut imports: Imports = modules.iter().map(|module| (module.clone(), BTreeMap::new())).collect();
    for file in files_below(src, ".rs") {
        let relative = file.strip_prefix(src).unwrap();
        let place: Vec<String> = relative.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if place == ["main"] || without_tests(src, relative).is_none() {
            continue;
        }
        let source = read(&file);
        let place = if place == ["lib"] { Vec::new() } else { place };
        let from = place.first().cloned().unwrap_or_else(|| LIB.to_owned());
        for (path, line) in paths(&source, &place, &modules) {
            let to = owner(&path, &modules, &lib);
            if to != from && (to != LIB || lib.has_items()) {
                let at = format!("{}:{line}", relative.display());
                imports.entry(from.clone()).or_default().entry(to).or_insert(at);
            }
        }
    }
    imports
}

/// The same among the modules that a module of the crate declares.
fn imports_below(src: &Path, parent: &str) -> Imports {
    let declaring = read(&src.join(parent).with_extension("rs"));
    let modules = declaring.modules();
    let mut imports: Imports = modules.iter().map(|module| (module.clone(), BTreeMap::new())).collect();
    if !src.join(parent).is_dir() {
        return imports;
    }
    for file in files_below(&src.join(parent), ".rs") {
        let relative = file.strip_prefix(src).unwrap();
        let place: Vec<String> = relative.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let Some(from) = place.get(1).filter(|from| modules.contains(*from)) else { continue };
        if without_tests(src, relative).is_none() {
            continue;
        }
        for (path, line) in paths_below(&read(&file), &place, parent) {
            let to = if modules.contains(&path) { path } else { declaring.exports().get(&path).cloned().unwrap_or_default() };
            if to != *from && modules.contains(&to) {
                let at = format!("{}:{line}", relative.display());
                imports.entry(from.clone()).or_default().entry(to).or_insert(at);
            }
        }
    }
    imports
}

fn graph_of(imports: &Imports) -> Graph {
    imports.iter().map(|(module, to)| (module.clone(), to.keys().cloned().collect())).collect()
}

/// The module that a path from the crate's root leads to: one that it names, one that `lib.rs` exports the name from,
/// or `lib.rs`.
fn owner(path: &str, modules: &BTreeSet<String>, lib: &Source) -> String {
    if modules.contains(path) {
        return path.to_owned();
    }
    lib.exports().get(path).cloned().unwrap_or_else(|| LIB.to_owned())
}

fn explained((name, cycle): &(String, BTreeSet<String>), imports: &Imports) -> String {
    let mut text = format!("\n{name}: these modules import one another: {}\n", cycle.iter().cloned().collect::<Vec<_>>().join(", "));
    for from in cycle {
        for (to, at) in imports[from].iter().filter(|(to, _)| cycle.contains(*to)) {
            text.push_str(&format!("  {from} -> {to}  ({name}/src/{at})\n"));
        }
    }
    text
}
