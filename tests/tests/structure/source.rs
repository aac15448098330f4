//! As much of Rust's syntax as says which modules a file names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A file's text without comments, texts and what only tests compile. Its lines are where they were.
pub struct Source(String);

pub fn read(path: &Path) -> Source {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Source::new(&text)
}

/// The file, unless it or a folder it is in belongs to tests: by its name, or because `#[cfg(test)]` is above its
/// declaration.
pub fn without_tests<'a>(src: &Path, relative: &'a Path) -> Option<&'a Path> {
    let mut parent = src.join("lib.rs");
    let mut folder = src.to_path_buf();
    for part in relative.with_extension("").iter() {
        let name = part.to_string_lossy();
        if name == "tests" {
            return None;
        }
        let is_declared = name == "lib" || read(&parent).declares(&name);
        if !is_declared {
            return None;
        }
        folder.push(part);
        parent = folder.with_extension("rs");
    }
    Some(relative)
}

impl Source {
    pub fn new(text: &str) -> Source {
        Source(without_test_items(&without_comments(text)))
    }

    /// The modules that this file declares.
    pub fn modules(&self) -> BTreeSet<String> {
        let declared = self.0.split(';').filter_map(|statement| statement.rsplit_once("mod ").map(|(_, name)| name.trim()));
        declared.filter(|name| !name.is_empty() && name.chars().all(is_name)).map(str::to_owned).collect()
    }

    fn declares(&self, module: &str) -> bool {
        self.modules().contains(module)
    }

    /// What `pub use` lines take from modules: the name, and the module.
    pub fn exports(&self) -> BTreeMap<String, String> {
        let mut exports = BTreeMap::new();
        for statement in self.0.split(';').filter_map(|statement| statement.split_once("use ").map(|(_, path)| path)) {
            let Some((module, names)) = statement.trim().split_once("::") else { continue };
            for name in names.split(|c: char| !is_name(c)).filter(|name| !name.is_empty()) {
                exports.insert(name.to_owned(), module.to_owned());
            }
        }
        exports
    }

    pub fn contains(&self, text: &str) -> bool {
        self.0.contains(text)
    }

    /// True where there is more than `mod` and `use`.
    pub fn has_items(&self) -> bool {
        ["fn ", "struct ", "enum ", "trait "].iter().any(|item| self.0.contains(item))
    }
}

/// The first name of each path that begins at the crate's root, with its line: `crate::a::B` and `super::a` of a file
/// in `a/` name a. `place` is the file's module path. In `lib.rs` itself paths begin with a module's name, or with an
/// exported one.
pub fn paths(source: &Source, place: &[String], modules: &BTreeSet<String>) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let line_of = |at: usize| source.0[..at].matches('\n').count() + 1;
    let mut add = |at: usize, rest: &str| found.extend(first_names(rest).into_iter().map(|name| (name, line_of(at))));
    for (at, _) in source.0.match_indices("crate::").filter(|(at, _)| !source.0[..*at].ends_with(is_name)) {
        add(at, &source.0[at + "crate::".len()..]);
    }
    // As many `super` as the file is deep lead to the root.
    if !place.is_empty() {
        through_super(source, place.len()).into_iter().for_each(|at| add(at, &source.0[at..]));
        return found;
    }
    found.extend(named_in_lib(source, modules).into_iter().map(|name| (name, 1)));
    found
}

/// The same for paths that begin in the crate's module `parent`, of a file in its folder.
pub fn paths_below(source: &Source, place: &[String], parent: &str) -> Vec<(String, usize)> {
    let from_root = format!("crate::{parent}::");
    let named = source.0.match_indices(&from_root).map(|(at, _)| at + from_root.len());
    let starts = named.chain(through_super(source, place.len().saturating_sub(1)));
    let line_of = |at: usize| source.0[..at].matches('\n').count() + 1;
    starts.flat_map(|at| first_names(&source.0[at..]).into_iter().map(move |name| (name, line_of(at)))).collect()
}

/// Where paths go on after exactly this many `super`.
fn through_super(source: &Source, count: usize) -> Vec<usize> {
    let supers = "super::".repeat(count);
    let places = source.0.match_indices(&supers).filter(|(at, _)| {
        let (before, after) = (&source.0[..*at], &source.0[at + supers.len()..]);
        count > 0 && !before.ends_with(is_name) && !before.ends_with("::") && !after.starts_with("super::")
    });
    places.map(|(at, _)| at + supers.len()).collect()
}

/// What `lib.rs` exports from its modules and also uses in its own items.
fn named_in_lib(source: &Source, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let exports = source.exports();
    let mut items = String::new();
    let mut is_inside_use = false;
    for line in source.0.lines() {
        is_inside_use |= ["use ", "pub use ", "mod ", "pub mod "].iter().any(|word| line.starts_with(word));
        if !is_inside_use {
            items.push_str(line);
            items.push('\n');
        }
        is_inside_use &= !line.ends_with(';');
    }
    let names = items.split(|c: char| !is_name(c));
    names.filter(|name| exports.get(*name).is_some_and(|module| modules.contains(module))).map(str::to_owned).collect()
}

/// The first name of a path, or of each path in its braces.
fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| is_name(*c)).collect::<String>();
    if !rest.starts_with('{') {
        return Vec::from_iter(Some(name(rest)).filter(|name| !name.is_empty()));
    }
    let mut names = Vec::new();
    let mut depth = 0;
    let mut is_first = true;
    for (at, letter) in rest.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => is_first = true,
            _ if is_name(letter) && is_first => {
                names.push(name(&rest[at..]));
                is_first = false;
            }
            _ => {}
        }
    }
    names
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Comments and texts become spaces; line ends stay.
fn without_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match &bytes[at..] {
            [b'/', b'/', ..] => at + text[at..].find('\n').unwrap_or(text.len() - at),
            [b'/', b'*', ..] => at + text[at..].find("*/").map_or(text.len() - at, |length| length + 2),
            [b'r', b'#', b'"', ..] => at + 3 + text[at + 3..].find("\"#").map_or(text.len() - at - 3, |length| length + 2),
            [b'"', ..] => end_of_text(bytes, at),
            [b'\'', b'\\', ..] => at + 3 + text[at + 3..].find('\'').map_or(0, |length| length + 1),
            [b'\'', _, b'\'', ..] => at + 3,
            _ => {
                out.push(bytes[at] as char);
                at += 1;
                continue;
            }
        };
        out.extend(text[at..end].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

fn end_of_text(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Items behind `#[cfg(test)]` become empty lines.
fn without_test_items(text: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let end = end_of_item(item);
        out.extend(item[..end].chars().filter(|letter| *letter == '\n'));
        rest = &item[end..];
    }
    out.push_str(rest);
    out
}

/// Up to the `;` or the closing brace that ends the item.
fn end_of_item(item: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in item.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    item.len()
}

#[test]
fn paths_from_the_root_are_found_in_every_spelling() {
    let text = "use crate::a::X;\nuse crate::{b::Y, c::{d, e}, F};\n// crate::no\nfn f() { super::super::g::h(); super::near(); crate::i::j(\"crate::no\"); }\n\
        #[cfg(test)]\nmod tests { use crate::no; }\n#[cfg(test)]\nuse crate::no;\n";
    let place = ["here".to_owned(), "below".to_owned()];
    let mut found = paths(&Source::new(text), &place, &BTreeSet::new());
    found.sort();
    let expected = [("F", 2), ("a", 1), ("b", 2), ("c", 2), ("g", 4), ("i", 4)].map(|(name, line)| (name.to_owned(), line));
    assert_eq!(found, expected);
}

#[test]
fn paths_from_a_module_are_found_in_its_folder() {
    let text = "use crate::a::b::X;\nuse crate::a::{c, d::Y};\nuse crate::e::f;\nuse super::{g::Z, W};\nfn f() { super::super::h(); }\n";
    let found = |place: [&str; 2]| -> Vec<String> {
        paths_below(&Source::new(text), &place.map(str::to_owned), "a").into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(found(["a", "here"]), ["b", "c", "d", "g", "W"]);
}

#[test]
fn a_file_says_its_modules_and_what_it_exports() {
    let lib = Source::new("mod a;\npub mod b;\n#[cfg(test)]\nmod c;\npub use a::{X, Y};\npub use b::Z;\npub struct W { x: X }\n");
    assert_eq!(lib.modules(), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert_eq!(lib.exports()["Y"], "a");
    assert_eq!(paths(&lib, &[], &lib.modules()), [("X".to_owned(), 1)]);
}
