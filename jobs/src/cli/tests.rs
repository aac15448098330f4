use clap::CommandFactory;

use super::*;

mod documented;
mod markdown;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}
