use clap::CommandFactory;

use super::*;

mod documented;
mod markdown;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

/// The commands and arguments below this command that say nothing of themselves in `--help`.
fn without_help(command: &clap::Command, path: &str) -> Vec<String> {
    let silent = command.get_arguments().filter(|argument| argument.get_help().is_none());
    let mut found: Vec<String> = silent.map(|argument| format!("{path} {}", argument.get_id())).collect();
    for below in command.get_subcommands() {
        let path = format!("{path} {}", below.get_name());
        found.extend(below.get_about().is_none().then(|| path.clone()));
        found.extend(without_help(below, &path));
    }
    found
}

#[test]
fn every_command_and_every_argument_has_its_line_of_help() {
    let found = without_help(&Cli::command(), "basestream");
    assert!(found.is_empty(), "these have no help:\n{}", found.join("\n"));
    let silent = clap::Command::new("a").subcommand(clap::Command::new("b").arg(clap::Arg::new("c")));
    assert_eq!(without_help(&silent, "a"), ["a b", "a b c"], "one without help is found");
}

/// The lines below the options of a command, and of those below it, that end within a sentence. In a narrower terminal
/// they are broken once more.
fn broken_sentences(command: &clap::Command) -> Vec<String> {
    let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines: Vec<&str> = below.lines().collect();
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with("  ");
    let is_broken = |pair: &&[&str]| is_prose(pair[0]) && is_prose(pair[1]) && !pair[0].ends_with(['.', ':']);
    let found = lines.windows(2).filter(is_broken).map(|pair| format!("{}: {}", command.get_name(), pair[0]));
    found.chain(command.get_subcommands().flat_map(broken_sentences)).collect()
}

#[test]
fn only_the_terminal_breaks_the_sentences_of_help() {
    let found = broken_sentences(&Cli::command());
    assert!(found.is_empty(), "{}", found.join("\n"));
    let broken = clap::Command::new("a").after_help("Example:\n  a\n\nIt ends.\nHere it\ngoes on.");
    assert_eq!(broken_sentences(&broken), ["a: Here it"]);
}

#[test]
fn whatever_can_be_listed_has_a_list() {
    for listing in ["view list", "batch list", "sink list", "alert list", "token list", "dead-letters list"] {
        Cli::try_parse_from(format!("basestream {listing}").split(' ')).unwrap();
    }
}

#[test]
fn a_limit_is_at_least_one() {
    let listing = [
        "sink read s",
        "sink switches",
        "alert read a",
        "alert open",
        "parameters --history",
        "dead-letters list",
        "dead-letters replay s",
        "batch history",
    ];
    let limits = listing.map(|command| (command, "--limit"));
    for (command, option) in limits.into_iter().chain([("lookup v k=1", "--paths")]) {
        let parsed = |limit: &str| Cli::try_parse_from(format!("basestream {command} {option} {limit}").split(' '));
        let refused = parsed("0").unwrap_err().to_string();
        assert!(refused.contains(&format!("invalid value '0' for '{option} <N>': 0 is not in 1..")), "{command}: {refused}");
        parsed("1").unwrap();
    }
}
