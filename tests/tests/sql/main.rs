//! What SQL answers, as files anyone can read: `tests/slt/*.slt`, in the format of sqllogictest.
//!
//! Each file is played from top to bottom on an installation of its own. `CREATE` goes through `check` and `apply`;
//! what else a [`project`] understands is listed there. `BASESTREAM_SLT_SHOW=1` prints what was answered instead of
//! comparing it.
//!
//! Not the crate `sqllogictest`: it turns on features of md-5 and getrandom that lie below DataFusion, which would be
//! built once more. The format is its own, and its parser reads these files.

#![allow(clippy::unwrap_used)]

mod numerics;
mod project;
mod script;
mod spelled;

use std::path::Path;

use project::Project;
use script::{Expected, Record};

/// One test per file.
macro_rules! files {
    ($($name:ident),* $(,)?) => {
        const FILES: &[&str] = &[$(stringify!($name)),*];

        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                play(stringify!($name)).await;
            }
        )*
    };
}

files!(
    views,
    windows,
    as_of,
    linked_views,
    streams,
    layers,
    system_tables,
    lookups,
    spellings,
    functions,
    json,
    sequences,
    numbers,
    view_errors,
    limits,
    refused_definitions,
    refused_queries,
    postgresql,
    alerts,
    linked_alerts,
);

#[test]
fn every_file_is_played() {
    let found = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = found.filter_map(|name| name.strip_suffix(".slt").map(str::to_owned)).collect();
    let mut played: Vec<String> = FILES.iter().map(|name| (*name).to_owned()).collect();
    found.sort();
    played.sort();
    assert_eq!(found, played);
}

#[test]
fn every_file_begins_with_what_it_shows() {
    for name in FILES {
        let text = read(name);
        assert!(text.starts_with("# ") && text.lines().next().unwrap().len() > 20, "{name}.slt: the first line says what it shows");
    }
}

async fn play(name: &str) {
    let records = script::parse(&read(name)).unwrap_or_else(|error| panic!("tests/slt/{name}.slt:{error}"));
    let mut project = Project::new().await;
    let mut wrong = Vec::new();
    for record in records {
        let answer = project.run(&record.text).await;
        if std::env::var("BASESTREAM_SLT_SHOW").is_ok() {
            println!("@@ {name}.slt:{}\n{}", record.line, show(&record, &answer));
        } else if let Some(difference) = difference(&record, &answer) {
            wrong.push(format!("tests/slt/{name}.slt:{}\n{}\n{difference}", record.line, record.text));
        }
    }
    project.close().await;
    assert!(wrong.is_empty(), "{} of the answers differ:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// What is wrong with an answer.
fn difference(record: &Record, answer: &Result<Vec<String>, String>) -> Option<String> {
    let compared = |expected: &[String], found: &[String]| {
        (expected != found).then(|| format!("expected:\n  {}\nfound:\n  {}", expected.join("\n  "), found.join("\n  ")))
    };
    match (&record.expected, answer) {
        (Expected::Done, Ok(_)) => None,
        (Expected::Done | Expected::Rows { .. }, Err(error)) => Some(format!("refused: {error}")),
        (Expected::Rows { rows, is_sorted, .. }, Ok(found)) => compared(rows, &sorted(found, *is_sorted)),
        (Expected::Refusal(_), Ok(found)) => Some(format!("not refused:\n  {}", found.join("\n  "))),
        (Expected::Refusal(message), Err(error)) => compared(message, &script::lines(error)),
    }
}

fn show(record: &Record, answer: &Result<Vec<String>, String>) -> String {
    match (answer, &record.expected) {
        (Ok(found), Expected::Rows { is_sorted, .. }) => sorted(found, *is_sorted).join("\n"),
        (Ok(found), _) => found.join("\n"),
        (Err(error), _) => format!("error: {error}"),
    }
}

fn sorted(rows: &[String], is_sorted: bool) -> Vec<String> {
    let mut rows = rows.to_vec();
    if is_sorted {
        rows.sort();
    }
    rows
}

fn read(name: &str) -> String {
    let path = folder().join(name).with_extension("slt");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/slt"))
}
