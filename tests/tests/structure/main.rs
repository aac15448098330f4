//! The shape of the code, held against what is written of it: crates depend as `ARCHITECTURE.md` shows, the modules of
//! each folder import one another in one direction and take no function from the module above them, public items have
//! one path and a use, types that other modules see have names of their own, links of pages and paths in the tables of
//! `ARCHITECTURE.md` lead somewhere, the reference lists metrics and SQLSTATEs, and comments are not too wide.

#![allow(clippy::unwrap_used)]

mod comments;
mod crates;
mod graph;
mod items;
mod links;
mod modules;
mod places;
mod reference;
mod source;

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The files below a folder whose names end so, in order.
fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.to_string_lossy().ends_with(ending) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}
