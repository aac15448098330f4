//! Checks that what the README, `docs/` and the examples show is accepted: command lines by the command line's parser,
//! definitions and settings by their parsers.

use std::path::{Path, PathBuf};

use ::definitions::parse::parse_definitions;
use ::definitions::settings::{Settings, Variables};
use clap::{CommandFactory, Parser};

use super::markdown::{Block, blocks, commands};
use crate::cli::Cli;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the pages, each with its blocks.
fn pages() -> Vec<(PathBuf, Vec<Block>)> {
    let mut files = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs"), root().join("examples")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "md") => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    let page = |file: PathBuf| (file.strip_prefix(root()).unwrap().to_owned(), blocks(&std::fs::read_to_string(&file).unwrap()));
    files.into_iter().map(page).collect()
}

/// Returns the mistakes in blocks of the pages, each with its place. `check` returns how much it checked of a block,
/// and its mistakes.
fn mistakes(check: impl Fn(&Block) -> (usize, Vec<String>)) -> (usize, Vec<String>) {
    let (mut checked, mut found) = (0, Vec::new());
    for (page, blocks) in pages() {
        for block in blocks.iter().filter(|block| !block.is_fragment()) {
            let (count, wrong) = check(block);
            checked += count;
            found.extend(wrong.into_iter().map(|what| format!("{}:{}: {what}", page.display(), block.line)));
        }
    }
    (checked, found)
}

#[test]
fn every_command_line_that_is_shown_is_accepted() {
    let (checked, found) = mistakes(|block| {
        let commands = commands(&block.text);
        (commands.len(), commands.iter().filter_map(|words| mistake(words)).collect())
    });
    assert!(checked > 110, "{checked} command lines were found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_definition_that_is_shown_is_accepted() {
    let (checked, found) = mistakes(|block| {
        let is_definition = (block.language == "sql" || block.language.is_empty())
            && block.text.lines().any(|line| line.starts_with("CREATE STREAM ") || line.starts_with("CREATE VIEW "));
        if !is_definition {
            return (0, Vec::new());
        }
        let (_, diagnostics) = parse_definitions(&[(None, block.text.clone())]);
        (1, diagnostics.into_result().err().map(|error| error.to_string()).into_iter().collect())
    });
    assert!(checked >= 7, "{checked} definitions were found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_settings_file_that_is_shown_is_accepted() {
    let variables: Variables = ["KAFKA_PASSWORD", "PGPASSWORD"].into_iter().map(|name| (name.to_owned(), "secret".to_owned())).collect();
    let (checked, found) = mistakes(|block| {
        if block.language != "toml" {
            return (0, Vec::new());
        }
        let read = Settings::parse(&block.text, Path::new("basestream.toml"), &variables);
        (1, read.err().map(|error| error.to_string()).into_iter().collect())
    });
    assert!(checked >= 5, "{checked} settings were found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns why the command line does not accept these words. In a synopsis (`lookup VIEW KEY=VALUE.. [--as-of TIME]`)
/// each option must exist.
fn mistake(words: &[String]) -> Option<String> {
    let line = words.join(" ");
    if !line.contains(['[', '|']) {
        let error = Cli::try_parse_from(words).err()?;
        use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
        return (![DisplayHelp, DisplayVersion].contains(&error.kind())).then(|| format!("{line}\n  {error}"));
    }
    let mut command = Cli::command();
    command.build();
    let mut command = &command;
    for word in &words[1..] {
        let word = word.trim_matches(['[', ']', '.']);
        if let Some(found) = command.find_subcommand(word) {
            command = found;
        } else if let Some(option) = word.strip_prefix("--")
            && !command.get_arguments().any(|argument| argument.get_long() == Some(option))
        {
            return Some(format!("{line}\n  `{}` has no --{option}", command.get_name()));
        }
    }
    let is_whole = !command.has_subcommands();
    (!is_whole).then(|| format!("{line}\n  names no command"))
}

#[test]
fn a_wrong_line_is_found() {
    let words = |line: &str| commands(line).remove(0);
    assert_eq!(mistake(&words("basestream lookup velocity device=a --as-of 2026-05-01T12:00:00Z")), None);
    assert!(mistake(&words("basestream lookup velocity device=a --asof 2026-05-01T12:00:00Z")).is_some());
    assert_eq!(mistake(&words("basestream lookup VIEW KEY=VALUE.. [--as-of TIME] [--paths N [--of COLUMN]]")), None);
    assert!(mistake(&words("basestream lookup VIEW [--until TIME]")).is_some());
    assert!(mistake(&words("basestream look VIEW [--json]")).is_some());
}
