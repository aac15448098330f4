use clap::CommandFactory;

use super::*;

mod documented;
mod markdown;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn whatever_can_be_listed_has_a_list() {
    for listing in ["view list", "batch list", "sink list", "alert list", "token list", "dead-letters list"] {
        Cli::try_parse_from(format!("basestream {listing}").split(' ')).unwrap();
    }
}

#[test]
fn a_limit_is_at_least_one() {
    let listing =
        ["sink read s", "sink switches", "alert read a", "alert open", "parameters --history", "dead-letters list", "batch history"];
    let limits = listing.map(|command| (command, "--limit"));
    for (command, option) in limits.into_iter().chain([("lookup v k=1", "--paths")]) {
        let parsed = |limit: &str| Cli::try_parse_from(format!("basestream {command} {option} {limit}").split(' '));
        let refused = parsed("0").unwrap_err().to_string();
        assert!(refused.contains(&format!("invalid value '0' for '{option} <N>': 0 is not in 1..")), "{command}: {refused}");
        parsed("1").unwrap();
    }
}
