//! Logs on standard error, by RUST_LOG or --log-level.

use std::io::IsTerminal;

use clap::ValueEnum;
use schemas::{Error, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// Starts logging: `asked`, else RUST_LOG, else info for what runs long and warn for the rest.
pub(super) fn start(asked: Option<&str>, format: Format, runs_long: bool) -> Result<()> {
    let default = if runs_long { LevelFilter::INFO } else { LevelFilter::WARN };
    let from_environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = match asked.map(str::to_owned).or(from_environment) {
        Some(text) => EnvFilter::builder().parse(&text).map_err(|error| {
            Error::input(format!("the log level \"{text}\" is not understood: {error}"))
                .with("expected", "error, warn, info, debug, trace or a filter such as batch=debug")
        })?,
        None => EnvFilter::builder().with_default_directive(default.into()).parse_lossy(""),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    // A second start in one process (a test, a host with logs of its own) keeps the first.
    let _ = match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().try_init(),
    };
    Ok(())
}
