//! The modules of a crate import one another in one direction, and so do those in each module's folder. A module takes
//! no function from one that it is a part of.
//!
//! `crate::a::b::X` in `a/c.rs` is an import of b by c, in the folder `a`. A module's own file is no node of its
//! folder: what it declares may use it, and it uses them. `lib.rs` is a node of its crate. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::crates::members;
use crate::graph::{Graph, cycles, reached};
use crate::root;
use crate::source::{ModulePath, Source, place, read};

/// The node that `lib.rs` is.
const LIB: &str = "lib.rs";

/// How often in a row a name is followed to the module that it was taken from.
const MOST_TAKEN: usize = 8;

/// Of the modules in one folder: the others that each imports, and where it does so first.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn modules_have_no_cycle_in_any_folder() {
    let mut report = String::new();
    for member in members() {
        for (folder, imports) in imports(&root().join(&member).join("src")) {
            for cycle in cycles(&graph_of(&imports)) {
                let names: Vec<&str> = cycle.iter().map(String::as_str).collect();
                let place = [member.as_str(), "src"].into_iter().chain(folder.iter().map(String::as_str)).collect::<Vec<_>>().join("/");
                report.push_str(&format!("\n{place}: these modules import one another: {}\n", names.join(", ")));
                for from in &names {
                    for (to, at) in imports[*from].iter().filter(|(to, _)| cycle.contains(*to)) {
                        report.push_str(&format!("  {from} -> {to}  ({member}/src/{at})\n"));
                    }
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn imports_are_found_in_every_folder() {
    let graphs = |member: &str| -> BTreeMap<String, Graph> {
        let imports = imports(&root().join(member).join("src"));
        imports.into_iter().map(|(folder, imports)| (folder.join("/"), graph_of(&imports))).collect()
    };
    let speed = graphs("speed");
    assert!(reached(&speed[""], "subscriptions").contains("decide"), "{speed:?}");
    let jobs = &graphs("jobs")["ingest"];
    assert!(jobs["csv_rows"].contains("bytes") && reached(jobs, "input").contains("numbers"), "{jobs:?}");
    let sequences = &graphs("schemas/engine")["functions/sequences"];
    assert!(sequences["search"].contains("event"), "{sequences:?}");
    let definitions = &graphs("schemas/definitions")[""];
    assert!(definitions["parse"].contains(LIB) && definitions[LIB].contains("view"), "{definitions:?}");
    let log = &graphs("schemas/log")[""];
    assert!(log["opening"].contains("kafka") && log["kafka"].contains("topic"), "{log:?}");
}

/// A file may write methods of a type that the module above it declares. But where the module above uses it, and it
/// calls a function of that module, neither can be read without the other: such a function is moved below both, or its
/// result is an argument.
#[test]
fn a_module_takes_no_function_from_the_module_that_it_is_a_part_of() {
    let mut report = String::new();
    for member in members() {
        for (at, function) in taken_from_above(&Modules::load(&root().join(&member).join("src"))) {
            report.push_str(&format!("\n  {member}/src/{at}: {function}"));
        }
    }
    assert!(report.is_empty(), "these functions are of modules that use those that take them:{report}");
}

#[test]
fn a_function_that_is_taken_from_above_is_found_in_every_spelling() {
    let files = [
        ("", "mod a;\nfn of_lib() {}\n"),
        ("a", "mod b;\nmod leaf;\npub use leaf::near;\npub(crate) async fn f() {}\nfn g() {}\nfn b() {}\nimpl T {\n    fn near() {}\n}\n"),
        (
            "a::b",
            "mod c;\nuse super::{T, f as of_a, leaf::far, near};\nuse crate::{a::g, of_lib};\nfn h() {}\n#[cfg(test)]\nuse super::g;\n",
        ),
        ("a::b::c", "use super::super::b;\nfn i() {\n    super::super::f();\n    super::h();\n    super::T::f();\n}\n"),
        ("a::leaf", "pub fn near() {}\npub fn far() {}\n"),
    ];
    let sources = BTreeMap::from(files.map(|(path, text)| (place(path), Source::new(text))));
    let found = taken_from_above(&Modules { sources, taken: BTreeMap::new() });
    let expected = [("a/b.rs:2", "a::f"), ("a/b.rs:3", "a::g"), ("a/b/c.rs:3", "a::f"), ("a/b/c.rs:4", "a::b::h")];
    assert_eq!(found, BTreeSet::from(expected.map(|(at, function)| (at.to_owned(), function.to_owned()))));
}

/// The modules of a crate, by their paths from its root. `lib.rs` has the empty one.
struct Modules {
    sources: BTreeMap<ModulePath, Source>,
    /// What each takes from others of the crate: the name, and its path.
    taken: BTreeMap<ModulePath, BTreeMap<String, ModulePath>>,
}

impl Modules {
    fn load(src: &Path) -> Modules {
        let (mut sources, mut taken) = (BTreeMap::new(), BTreeMap::new());
        let mut next = vec![ModulePath::new()];
        while let Some(place) = next.pop() {
            let source = read(&src.join(file_of(&place)));
            next.extend(source.modules().into_iter().map(|module| [place.clone(), vec![module]].concat()));
            taken.insert(place.clone(), source.taken(&place));
            sources.insert(place, source);
        }
        Modules { sources, taken }
    }

    /// The modules that have what a path names: the one that the path leads to and, if that one has it from another,
    /// the other too. `lib.rs` only if the name is its own.
    fn owners(&self, path: &[String]) -> Vec<ModulePath> {
        let (mut owners, mut path) = (Vec::new(), path.to_vec());
        for _ in 0..MOST_TAKEN {
            let length = (1..=path.len()).take_while(|length| self.sources.contains_key(&path[..*length])).count();
            let owner = path[..length].to_vec();
            let taken = path.get(length).and_then(|name| self.taken[&owner].get(name));
            let Some(taken) = taken else {
                owners.push(owner);
                break;
            };
            if !owner.is_empty() {
                owners.push(owner);
            }
            path = [taken.as_slice(), &path[length + 1..]].concat();
        }
        owners
    }

    /// What `lib.rs` names in its items: its modules, and what it takes from them.
    fn named_in_lib(&self) -> Vec<ModulePath> {
        let lib = ModulePath::new();
        let mut named = Vec::new();
        for (name, goes_on) in self.sources[&lib].names_in_items() {
            let is_taken = self.taken[&lib].contains_key(&name);
            let path = vec![name];
            if is_taken || (goes_on && self.sources.contains_key(&path)) {
                named.push(path);
            }
        }
        named
    }
}

fn file_of(place: &[String]) -> PathBuf {
    if place.is_empty() { PathBuf::from(LIB) } else { PathBuf::from(format!("{}.rs", place.join("/"))) }
}

/// Of each folder of a crate, by the path of its module.
fn imports(src: &Path) -> BTreeMap<ModulePath, Imports> {
    let modules = Modules::load(src);
    let node = |place: &ModulePath| if place.is_empty() { vec![LIB.to_owned()] } else { place.clone() };
    let mut imports: BTreeMap<ModulePath, Imports> = BTreeMap::new();
    for (place, source) in &modules.sources {
        let mut named = source.paths(place);
        if place.is_empty() {
            named.extend(modules.named_in_lib().into_iter().map(|path| (path, 1)));
        }
        let from = node(place);
        for (path, line) in named {
            let at = format!("{}:{line}", file_of(place).display());
            for owner in modules.owners(&path) {
                let to = node(&owner);
                let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
                // Otherwise one is in the other's folder, or they are the same.
                if let (Some(importing), Some(imported)) = (from.get(shared), to.get(shared)) {
                    let of_folder = imports.entry(from[..shared].to_vec()).or_default();
                    of_folder.entry(importing.clone()).or_default().entry(imported.clone()).or_insert_with(|| at.clone());
                }
            }
        }
    }
    imports
}

/// The functions that modules take from those that they are a part of: where, and which. `lib.rs` is left out.
fn taken_from_above(modules: &Modules) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (place, source) in &modules.sources {
        for (path, line) in source.paths(place) {
            let Some((name, above)) = path.split_last() else { continue };
            if above.is_empty() || above.len() >= place.len() || !place.starts_with(above) {
                continue;
            }
            let above = &modules.sources[above];
            if above.functions().contains(name) && !above.modules().contains(name) {
                found.insert((format!("{}:{line}", file_of(place).display()), path.join("::")));
            }
        }
    }
    found
}

fn graph_of(imports: &Imports) -> Graph {
    imports.iter().map(|(module, to)| (module.clone(), to.keys().cloned().collect())).collect()
}
