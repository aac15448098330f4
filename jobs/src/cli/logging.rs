//! Logs to standard error, by RUST_LOG or --log-level. Passwords in URLs are removed, whichever library logs them.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use types::redact::redacted_text;
use types::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// Who changed what is logged at every level where it is logged at all, unless a filter names it.
const AUDIT: &str = "audit=info";
/// It logs each attempt of each request that it tries again, hundreds a minute while a bucket does not answer. The
/// storage itself warns of that once.
const QUIET: &str = "object_store=warn";

/// What is logged where neither `--log-level` nor RUST_LOG says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usual {
    /// By commands that run continuously: what they do, and who changed what.
    Work,
    /// By other commands: what may be wrong. Who changed what is a line of their log but on a terminal: its user reads
    /// on standard output what they did.
    Warnings,
    /// By the demo, whose project is its own: only what may be wrong.
    WarningsAlone,
}

/// Starts logging at the level `asked`, else RUST_LOG, else what is usual for the command.
pub(super) fn start(asked: Option<&str>, format: LogFormat, usual: Usual) -> Result<()> {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let is_read = std::io::stderr().is_terminal() && format == LogFormat::Text;
    let filter = filter(asked.map(str::to_owned).or(from_environment).as_deref(), is_read, usual)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Redacted(std::io::stderr()))
        // It would report what it cannot write to standard error, and panic there as that fails too.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start in one process (in a test, or where the host already logs) keeps the first logger.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}

/// `is_read`: by a user, on a terminal.
fn filter(text: Option<&str>, is_read: bool, usual: Usual) -> Result<EnvFilter> {
    let default = if usual == Usual::Work { LevelFilter::INFO } else { LevelFilter::WARN };
    let filter = match text {
        Some(text) => EnvFilter::builder().parse(text).map_err(|error| {
            Error::input(format!("the log level \"{text}\" is not understood: {error}"))
                .with("expected", "error, warn, info, debug, trace or a filter such as batch=debug")
        })?,
        None => EnvFilter::builder().with_default_directive(default.into()).parse_lossy(""),
    };
    let is_audited = match usual {
        Usual::Work => true,
        Usual::Warnings => text.is_some() || !is_read,
        Usual::WarningsAlone => false,
    };
    let audit = (is_audited && text.is_none_or(|text| !text.contains("audit"))).then_some(AUDIT);
    let quiet = logs_information(text, default).then_some(QUIET);
    audit.into_iter().chain(quiet).try_fold(filter, |filter, directive| {
        Ok(filter.add_directive(directive.parse().map_err(|_| Error::internal("a directive of the log is wrong"))?))
    })
}

/// Whether every crate logs at the level `info`, and none is named that says otherwise.
fn logs_information(text: Option<&str>, default: LevelFilter) -> bool {
    let Some(text) = text else { return default == LevelFilter::INFO };
    text.split(',').any(|directive| directive.eq_ignore_ascii_case("info")) && !text.contains("object_store")
}

/// Libraries log the URLs they are given. Each event arrives as one text, and passwords are removed from it.
struct Redacted<W>(W);

impl<W: Write> Write for Redacted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let shown = if text.contains("://") { redacted_text(&text).into_bytes() } else { bytes.to_vec() };
        self.0.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_logged_at_every_level_but_not_by_the_demo_unless_asked() {
        let has_audit_in = |text: Option<&str>, is_read, usual| filter(text, is_read, usual).unwrap().to_string().contains("audit=info");
        let has_audit = |text, usual| has_audit_in(text, true, usual);
        for usual in [Usual::Work, Usual::Warnings] {
            assert!(has_audit(Some("error"), usual) && has_audit_in(None, false, usual), "{usual:?}");
        }
        assert!(has_audit(None, Usual::Work) && !has_audit(None, Usual::Warnings), "a command that ends says on a terminal what it did");
        assert!(!has_audit(None, Usual::WarningsAlone) && !has_audit(Some("warn"), Usual::WarningsAlone));
        assert!(has_audit(Some("warn,audit=info"), Usual::WarningsAlone));
        assert!(!has_audit(Some("audit=off"), Usual::Work));
    }

    #[test]
    fn each_attempt_at_a_bucket_is_logged_only_if_somebody_asks() {
        let is_quiet = |text: Option<&str>, usual| filter(text, false, usual).unwrap().to_string().contains("object_store=warn");
        assert!(is_quiet(None, Usual::Work) && is_quiet(Some("info"), Usual::Work) && is_quiet(Some("batch=debug,INFO"), Usual::Warnings));
        for asked in ["debug", "warn", "error", "info,object_store=info", "object_store=debug"] {
            assert!(!is_quiet(Some(asked), Usual::Work), "{asked}");
        }
        assert!(!is_quiet(None, Usual::Warnings), "nothing of that level is logged");
    }

    #[test]
    fn a_url_that_a_library_logs_loses_its_password() {
        let mut out = Redacted(Vec::new());
        let line = "DEBUG reqwest::connect: starting new connection: http://key:hush@host:1/\n";
        assert_eq!(out.write(line.as_bytes()).unwrap(), line.len());
        out.write_all(b"{\"url\":\"s3://a:hush@b\",\"n\":1}\n").unwrap();
        assert_eq!(
            String::from_utf8(out.0).unwrap(),
            "DEBUG reqwest::connect: starting new connection: http://key:***@host:1/\n{\"url\":\"s3://a:***@b\",\"n\":1}\n"
        );
    }
}
