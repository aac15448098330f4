//! The fuzz targets (`fuzz/`) on their seeds. That is a workspace of its own, built for coverage, which no other test
//! compiles.

#![allow(clippy::unwrap_used)]

use std::path::Path;

#[path = "../../fuzz/src/definitions.rs"]
mod definitions;
#[path = "../../fuzz/src/events.rs"]
mod events;
#[path = "../../fuzz/src/installation.rs"]
mod installation;
#[path = "../../fuzz/src/lookups.rs"]
mod lookups;
#[path = "../../fuzz/src/sql.rs"]
mod sql;

/// Runs a target on an input.
type Run = fn(&[u8]);

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz"))
}

#[test]
fn what_a_target_checks_holds_for_each_of_its_seeds() {
    let targets: [(&str, Run); 4] =
        [("definitions", definitions::run), ("events", events::run), ("lookups", lookups::run), ("sql", sql::run)];
    for (target, run) in targets {
        let seeds: Vec<_> = std::fs::read_dir(fuzz().join("corpus-seeds").join(target)).unwrap().collect();
        assert!(seeds.len() >= 5, "{target} has {} seeds", seeds.len());
        for seed in seeds {
            let path = seed.unwrap().path();
            println!("{}", path.display());
            run(&std::fs::read(&path).unwrap());
        }
    }
    std::fs::remove_dir_all(installation::folder()).unwrap();
}

/// What compiles here with the dependencies of the tests has to compile with those of `fuzz/Cargo.toml`.
#[test]
fn the_fuzz_workspace_has_every_crate_that_its_targets_use() {
    let table = |path: &Path| std::fs::read_to_string(path).unwrap().parse::<toml::Table>().unwrap();
    let (product, own) = (table(&fuzz().join("../Cargo.toml")), table(&fuzz().join("Cargo.toml")));
    let known = product["workspace"]["dependencies"].as_table().unwrap().keys();
    let (known, own): (Vec<&String>, _) = (known.collect(), own["dependencies"].as_table().unwrap());
    let mut used = 0;
    for file in std::fs::read_dir(fuzz().join("src")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for name in &known {
            let named = format!("{}::", name.replace('-', "_"));
            let mut places = text.match_indices(&named).map(|(at, _)| text[..at].chars().next_back());
            let is_used = places.any(|before| before.is_none_or(|c| !c.is_alphanumeric() && !['_', ':'].contains(&c)));
            used += usize::from(is_used);
            assert!(
                !is_used || own.contains_key(*name),
                "{} uses {name}: it is not among the dependencies of fuzz/Cargo.toml",
                path.display()
            );
        }
    }
    assert!(used > 0, "the targets were read");
}
