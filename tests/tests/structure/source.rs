//! As much of Rust's syntax as says which modules a file names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The names that lead from a crate's root to a module, or to what a module has.
pub type ModulePath = Vec<String>;

/// A file's text without comments and texts. Its lines are where they were.
pub struct Source(String);

/// The file without what only tests compile.
pub fn read(path: &Path) -> Source {
    Source::new(&text_of(path))
}

pub fn read_with_tests(path: &Path) -> Source {
    Source(without_comments(&text_of(path)))
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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
        Source(without_items(&without_comments(text), "#[cfg(test)]"))
    }

    /// The same without the items that begin so.
    pub fn without_items(&self, begin: &str) -> Source {
        Source(without_items(&self.0, begin))
    }

    /// The modules that this file declares.
    pub fn modules(&self) -> BTreeSet<String> {
        let declared = self.0.split(';').filter_map(|statement| statement.rsplit_once("mod ").map(|(_, name)| name.trim()));
        declared.filter(|name| !name.is_empty() && name.chars().all(is_name)).map(str::to_owned).collect()
    }

    fn declares(&self, module: &str) -> bool {
        self.modules().contains(module)
    }

    /// What `use` lines take from modules of the crate: the name, and its path from the root.
    pub fn taken(&self, place: &[String]) -> BTreeMap<String, ModulePath> {
        let modules = self.modules();
        let mut taken = BTreeMap::new();
        for (at, word) in self.0.match_indices("use ").filter(|(at, _)| !self.0[..*at].ends_with(is_name)) {
            for path in branches(self.0[at + word.len()..].trim_start()).0 {
                let Some(mut path) = from_root(&path, place, &modules) else { continue };
                if path.last().is_some_and(|name| name == "self") {
                    path.pop();
                }
                if let Some(name) = path.last().cloned() {
                    taken.insert(name, path);
                }
            }
        }
        taken
    }

    pub fn names(&self) -> BTreeSet<String> {
        self.0.split(|letter: char| !is_name(letter)).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// The names of its `pub` functions and methods.
    pub fn public_functions(&self) -> BTreeSet<String> {
        self.names_after(&["pub fn ", "pub async fn ", "pub const fn "])
    }

    /// The names of its `pub` constants and statics, without those of types: their lines are not indented.
    pub fn public_constants(&self) -> BTreeSet<String> {
        let constant = |line: &str| {
            let item = line.strip_prefix("pub const ").or_else(|| line.strip_prefix("pub static "))?;
            let name = name_at(item);
            item[name.len()..].starts_with(':').then_some(name)
        };
        self.0.lines().filter_map(constant).collect()
    }

    /// The names of its functions, public or not, without methods: their lines are not indented.
    pub fn functions(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for line in self.0.lines().filter(|line| !line.starts_with(' ')) {
            if let Some((before, after)) = line.split_once("fn ")
                && (before.is_empty() || before.ends_with(' '))
                && !before.contains('{')
            {
                names.insert(name_at(after));
            }
        }
        names
    }

    /// The names of the types and traits that it declares.
    pub fn types(&self) -> BTreeSet<String> {
        self.names_after(&["struct ", "enum ", "trait ", "type "])
    }

    /// The names of the types and traits among these that other modules see, be it only the one above.
    pub fn visible_types(&self) -> BTreeSet<String> {
        let declared = |line: &str| {
            let after = line.trim_start().strip_prefix("pub")?;
            let after = if after.starts_with('(') { after.split_once(')')?.1 } else { after };
            let item = after.strip_prefix(' ')?;
            ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| item.strip_prefix(word)).map(name_at)
        };
        self.0.lines().filter_map(declared).collect()
    }

    fn names_after(&self, words: &[&str]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for word in words.iter().copied() {
            names.extend(self.0.match_indices(word).map(|(at, _)| name_at(&self.0[at + word.len()..])));
        }
        names
    }

    pub fn contains(&self, text: &str) -> bool {
        self.0.contains(text)
    }

    /// The paths that go on after these words: `b` and `c::D` after `a::`, of `a::{b, c::D}`.
    pub fn paths_after(&self, words: &str) -> Vec<ModulePath> {
        self.0.match_indices(words).flat_map(|(at, _)| branches(&self.0[at + words.len()..]).0).collect()
    }

    /// The paths that begin with `crate` or `super`, as they are from the crate's root, each with its line. `place` is
    /// the file's own path.
    pub fn paths(&self, place: &[String]) -> Vec<(ModulePath, usize)> {
        let text = &self.0;
        let mut begins: Vec<(usize, &[String])> = Vec::new();
        for (at, word) in text.match_indices("crate::").filter(|(at, _)| !text[..*at].ends_with(is_name)) {
            begins.push((at + word.len(), &place[..0]));
        }
        for (at, word) in text.match_indices("super::").filter(|(at, _)| !text[..*at].ends_with(is_name)) {
            // The others of a chain are counted with its first.
            let supers = text[at..].split("::").take_while(|name| *name == "super").count();
            if let Some(depth) = place.len().checked_sub(supers).filter(|_| !text[..at].ends_with("::")) {
                begins.push((at + supers * word.len(), &place[..depth]));
            }
        }
        let mut found = Vec::new();
        for (at, parent) in begins {
            let line = text[..at].matches('\n').count() + 1;
            found.extend(branches(&text[at..]).0.into_iter().map(|path| ([parent, path.as_slice()].concat(), line)));
        }
        found
    }

    /// The names in the file's items, without its `mod` and `use` lines: those that begin a path or stand alone. True
    /// if a path goes on from it.
    pub fn names_in_items(&self) -> BTreeSet<(String, bool)> {
        const LEFT_OUT: [&str; 6] = ["use ", "pub use ", "pub(crate) use ", "mod ", "pub mod ", "pub(crate) mod "];
        let mut items = String::new();
        let mut is_left_out = false;
        for line in self.0.lines() {
            is_left_out |= LEFT_OUT.iter().any(|word| line.starts_with(word));
            if !is_left_out {
                items.push_str(line);
                items.push('\n');
            }
            is_left_out &= !line.ends_with(';');
        }
        let mut names = BTreeSet::new();
        let mut at = 0;
        while let Some(length) = items[at..].find(is_name) {
            let name = name_at(&items[at + length..]);
            let (begin, end) = (at + length, at + length + name.len());
            if !items[..begin].ends_with("::") {
                names.insert((name, items[end..].starts_with("::")));
            }
            at = end;
        }
        names
    }
}

/// A path as it is from the crate's root; `None` if it leads to another crate.
fn from_root(path: &[String], place: &[String], modules: &BTreeSet<String>) -> Option<ModulePath> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (parent, rest) = match path.first()?.as_str() {
        "crate" => (&place[..0], &path[1..]),
        "self" => (place, &path[1..]),
        "super" => (&place[..place.len().checked_sub(supers)?], &path[supers..]),
        name if modules.contains(name) => (place, path),
        _ => return None,
    };
    Some([parent, rest].concat())
}

/// The paths that begin here, `a::B` or `a::{B, c::D}`, and the length of their text.
fn branches(text: &str) -> (Vec<ModulePath>, usize) {
    let mut path = ModulePath::new();
    let mut at = 0;
    loop {
        if text[at..].starts_with('{') {
            let (below, length) = in_braces(&text[at..]);
            return (below.into_iter().map(|below| [path.clone(), below].concat()).collect(), at + length);
        }
        let name = name_at(&text[at..]);
        at += name.len();
        if !name.is_empty() {
            path.push(name);
            if text[at..].starts_with("::") {
                at += "::".len();
                continue;
            }
        }
        return (vec![path], at);
    }
}

fn in_braces(text: &str) -> (Vec<ModulePath>, usize) {
    let mut paths = Vec::new();
    let mut at = 1;
    loop {
        let is_path = |letter: char| !letter.is_whitespace() && letter != ',';
        at += text[at..].find(is_path).unwrap_or(text.len() - at);
        if at == text.len() || text[at..].starts_with('}') {
            return (paths, (at + 1).min(text.len()));
        }
        let (found, length) = branches(&text[at..]);
        paths.extend(found);
        at += length;
        // Past a `*`, or another name that it gets.
        at += text[at..].find([',', '}']).unwrap_or(text.len() - at);
    }
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|letter| is_name(*letter)).collect()
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

/// The items that begin so become empty lines.
fn without_items(text: &str, begin: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(begin) {
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

/// A path as it is written, of the crate's root if it is empty.
pub fn place(path: &str) -> ModulePath {
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn paths_from_the_root_are_found_in_every_spelling() {
    let text = "use crate::a::X;\nuse crate::{b::Y, c::{d, e as z, *}, F};\n// crate::no\n\
        fn f() { super::super::g::h(); super::near(); crate::i::j(\"crate::no\"); super::super::super::no(); }\n\
        #[cfg(test)]\nmod tests { use crate::no; }\n#[cfg(test)]\nuse crate::no;\n";
    let mut found = Source::new(text).paths(&place("here::below"));
    found.sort();
    let expected = [("F", 2), ("a::X", 1), ("b::Y", 2), ("c", 2), ("c::d", 2), ("c::e", 2), ("g::h", 4), ("here::near", 4), ("i::j", 4)];
    assert_eq!(found, expected.map(|(path, line)| (place(path), line)));
}

#[test]
fn a_file_says_its_public_functions_and_its_types() {
    let text = "pub struct A<'a>;\nenum B {}\nimpl B { pub async fn c() {} pub(crate) fn d() {} }\npub fn e<T>() {}\nfn f() {}\n// pub fn g\n\
        pub(in crate::a) type H = B;\npub use i::J;\nmod k {\n    pub(super) trait L {\n        type M;\n    }\n}\n// pub enum N\n\
        pub const O: u8 = 0;\npub static P: u8 = 0;\nconst Q: u8 = 0;\npub(crate) const R: u8 = 0;\nimpl B {\n    pub const S: u8 = 0;\n}\n\
        pub const fn t() {}\n";
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let source = Source::new(text);
    assert_eq!(source.public_functions(), set(&["c", "e", "t"]));
    assert_eq!(source.public_constants(), set(&["O", "P"]));
    assert_eq!(source.functions(), set(&["e", "f", "t"]));
    assert_eq!(source.types(), set(&["A", "B", "H", "L", "M"]));
    assert_eq!(source.visible_types(), set(&["A", "H", "L"]));
    assert!(source.names().contains("f") && !source.names().contains("g"));
    assert_eq!(source.without_items("impl B {").public_functions(), set(&["e", "t"]));
}

#[test]
fn a_file_says_its_modules_and_what_it_takes_from_others() {
    let text = "mod a;\npub mod b;\n#[cfg(test)]\nmod c;\npub use a::{X, d::{self, Y}};\nuse super::e::Z;\nuse std::fmt;\n\
        pub struct W { x: X }\nfn f() { b::g(fmt::h()) }\n";
    let source = Source::new(text);
    assert_eq!(source.modules(), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    let expected = [("X", "in::a::X"), ("Y", "in::a::d::Y"), ("Z", "e::Z"), ("d", "in::a::d")];
    assert_eq!(source.taken(&place("in")), BTreeMap::from(expected.map(|(name, path)| (name.to_owned(), place(path)))));
    let names = source.names_in_items();
    assert!(names.contains(&("X".to_owned(), false)) && names.contains(&("b".to_owned(), true)), "{names:?}");
    assert!(!names.iter().any(|(name, _)| ["a", "g", "Y"].contains(&name.as_str())), "{names:?}");
}
