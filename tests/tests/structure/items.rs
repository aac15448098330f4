//! What crates make public, and how items are named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::comments::sources;
use crate::crates::{dependencies, members};
use crate::source::{Source, read, read_with_tests, without_tests};
use crate::{files_below, root};

/// Functions that are public for the examples in their documentation.
const EXAMPLES: [&str; 1] = ["state_stamp"];

/// What the command line does, programs can do too: by these, and by the methods of `Installation`.
const COMMANDS: [&str; 7] = ["check_project", "export", "export_view", "init", "list_view", "status_of_settings", "translate"];

/// Words of our own for which the field has one, as the glossary says.
const REPLACED: [&str; 30] = [
    "Apart",
    "Aside",
    "AtHand",
    "Beside",
    "Door",
    "Fan",
    "Fanned",
    "GoOn",
    "Greeted",
    "Ground",
    "Held",
    "Lab",
    "Lacking",
    "LetGo",
    "Looks",
    "NodeAt",
    "Only",
    "Over",
    "Passing",
    "Question",
    "Said",
    "Scatter",
    "Stand",
    "Standing",
    "ToldApart",
    "Under",
    "Unwelcome",
    "Waiting",
    "What",
    "Wrong",
];

#[test]
fn each_public_item_has_one_path() {
    let crates: BTreeSet<String> = dependencies().into_keys().collect();
    let mut report = String::new();
    for file in product().iter().flat_map(|member| files_of(member)) {
        let source = read(&file);
        for path in source.paths_after("pub use ") {
            let Some(first) = path.first() else { continue };
            let why = match () {
                () if is_public_module(&source, first) => "its module is public too",
                () if crates.contains(first) && !source.modules().contains(first) => "it is another crate's",
                () => continue,
            };
            report.push_str(&format!("\n  {}: {}: {why}", shown(&file), path.join("::")));
        }
    }
    assert!(report.is_empty(), "these have a second path:{report}");
}

/// Left out are [`EXAMPLES`] and [`COMMANDS`], and methods of a type whose own module is private. Where another crate
/// has the same name for something else, it counts as a call.
#[test]
fn a_public_function_is_called_by_another_crate() {
    let callers = callers();
    let mut report = String::new();
    for member in &product() {
        for file in files_of(member) {
            for name in read(&file).without_items("impl Installation {").public_functions() {
                let is_called = callers.get(&name).is_some_and(|callers| callers.iter().any(|caller| caller != member));
                let is_left_out = EXAMPLES.contains(&name.as_str()) || COMMANDS.contains(&name.as_str());
                if !is_called && !is_left_out && is_reached(member, &file, &name) {
                    report.push_str(&format!("\n  {}: {name}", shown(&file)));
                }
            }
        }
    }
    assert!(report.is_empty(), "only their own crates call these, for which pub(crate) is enough:{report}");
}

/// Left out are those to which their crate's documentation links, such as the most keys of a lookup. Where another
/// crate has the same name for something else, it counts as naming it.
#[test]
fn a_public_constant_is_named_by_another_crate() {
    let callers = callers();
    let mut report = String::new();
    for member in &product() {
        let files = files_of(member);
        let documentation: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        for file in &files {
            for name in read(file).public_constants() {
                let is_named = callers.get(&name).is_some_and(|callers| callers.iter().any(|caller| caller != member));
                let is_linked = documentation.contains(&format!("[`{name}`]"));
                if !is_named && !is_linked && is_reached(member, file, &name) {
                    report.push_str(&format!("\n  {}: {name}", shown(file)));
                }
            }
        }
    }
    assert!(report.is_empty(), "only their own crates name these, for which pub(crate) is enough:{report}");
}

#[test]
fn names_say_what_they_stand_for() {
    let mut report = String::new();
    for file in sources() {
        let source = read_with_tests(&file);
        if source.contains("fn of(") || source.contains("fn of<") {
            report.push_str(&format!("\n  {}: a function is called `of`", shown(&file)));
        }
        for name in source.types().iter().filter(|name| REPLACED.contains(&name.as_str())) {
            report.push_str(&format!("\n  {}: {name}", shown(&file)));
        }
    }
    assert!(report.is_empty(), "these names have better ones in the glossary:{report}");
}

/// Whoever reads a name in another module, or searches for it, finds one type.
#[test]
fn a_type_that_other_modules_see_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in product().iter().flat_map(|member| files_of(member)) {
        for name in read(&file).visible_types() {
            places.entry(name).or_default().push(shown(&file));
        }
    }
    assert!(places.len() > 900, "found {} types", places.len());
    let mut report = String::new();
    for (name, files) in places.iter().filter(|(_, files)| files.len() > 1) {
        report.push_str(&format!("\n  {name}: {}", files.join(", ")));
    }
    assert!(report.is_empty(), "each of these names stands for several types:{report}");
}

/// `cargo test` prints the reason, and `.ci/run` lists it.
#[test]
fn an_ignored_test_says_why() {
    let says_nothing = |file: &PathBuf| std::fs::read_to_string(file).unwrap().lines().any(|line| line.trim() == "#[ignore]");
    let found: Vec<String> = sources().iter().filter(|file| says_nothing(file)).map(|file| shown(file)).collect();
    assert!(found.is_empty(), "ignored without a reason: {found:?}");
}

fn product() -> Vec<String> {
    members().into_iter().filter(|member| !["tests", "bench"].contains(&member.as_str())).collect()
}

/// The files of a crate, without its tests.
fn files_of(member: &str) -> Vec<PathBuf> {
    let src = root().join(member).join("src");
    let is_product = |file: &PathBuf| without_tests(&src, file.strip_prefix(&src).unwrap()).is_some();
    files_below(&src, ".rs").into_iter().filter(is_product).collect()
}

/// Of each name, where it occurs: the crates, and the folders of what is compiled apart from them.
fn callers() -> BTreeMap<String, BTreeSet<String>> {
    let mut callers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in sources() {
        let path = shown(&file);
        let caller = path.split_once("/src/").map_or(path.as_str(), |(member, _)| member);
        for name in read_with_tests(&file).names() {
            callers.entry(name).or_default().insert(caller.to_owned());
        }
    }
    callers
}

/// Whether another crate can name what a file has: all modules down to the file are public, or the first that is not
/// has its name handed on.
fn is_reached(member: &str, file: &Path, name: &str) -> bool {
    let src = root().join(member).join("src");
    let (mut parent, mut folder) = (src.join("lib.rs"), src.clone());
    for part in file.strip_prefix(&src).unwrap().with_extension("").iter() {
        let module = part.to_string_lossy();
        if module == "lib" {
            return true;
        }
        let source = read(&parent);
        if !is_public_module(&source, &module) {
            let is_it =
                |path: &Vec<String>| path.first().is_some_and(|first| *first == module) && path.last().is_some_and(|last| last == name);
            return source.paths_after("pub use ").iter().any(is_it);
        }
        folder.push(part);
        parent = folder.with_extension("rs");
    }
    true
}

fn is_public_module(source: &Source, name: &str) -> bool {
    source.paths_after("pub mod ").iter().any(|path| path.first().is_some_and(|module| module == name))
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}
