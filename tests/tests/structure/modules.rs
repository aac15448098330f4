//! The modules of a crate import one another in one direction.
//!
//! Nodes are the modules that `lib.rs` declares; what is in their folders belongs to them. `lib.rs` is a node too, where it holds
//! more than `mod` and `use` lines. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::graph::{Graph, cycles, reached};
use crate::source::{Source, paths, read, without_tests};
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
        let graph: Graph = imports.iter().map(|(module, to)| (module.clone(), to.keys().cloned().collect())).collect();
        for cycle in cycles(&graph) {
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

#[test]
fn every_crate_is_looked_at() {
    let manifests = files_below(&root().join("schemas"), "Cargo.toml");
    assert_eq!(manifests.len(), CRATES.iter().filter(|name| name.starts_with("schemas/")).count());
    let graph = imports(&root().join("speed/src"));
    assert!(
        reached(&graph.iter().map(|(from, to)| (from.clone(), to.keys().cloned().collect())).collect(), "subscriptions").contains("decide")
    );
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

/// The module that a path from the crate's root leads to: one that it names, one that `lib.rs` exports the name from, or `lib.rs`.
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
