//! `replay`.

use std::num::NonZeroU32;

use batch::{REPLAYED_A_SECOND, ReplayFrom, ReplayRequest};
use clap::{Args, ValueEnum};
use types::Result;

use super::batch::run_text;
use super::{AuditedChange, Context, Done, progress};
use crate::installation::Installation;
use crate::status::RunReport;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  basestream replay device_velocity\n  basestream replay device_velocity --from archive --rate unlimited\n\n\
    A version that is being built is replayed first, and served from then on. Answers go on meanwhile."
)]
pub(super) struct ReplayArgs {
    /// A view in the catalog
    view: String,
    /// Read the log's records again, or the accepted events as they are archived
    /// [default: log; archive if the log no longer has all of them]
    #[arg(long, value_enum)]
    from: Option<ReplaySource>,
    /// At most this many events a second, or `unlimited`
    #[arg(long, value_name = "EVENTS", default_value_t = Rate(Some(REPLAYED_A_SECOND)))]
    rate: Rate,
    /// Do not compare the states with those that runs had kept
    #[arg(long)]
    no_compare: bool,
}

impl ReplayArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        AuditedChange::new("replay", "view", &self.view)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReplaySource {
    Log,
    Archive,
}

/// Events a second; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate(Option<NonZeroU32>);

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "unlimited" {
            return Ok(Rate(None));
        }
        text.parse().map(|rate| Rate(Some(rate))).map_err(|_| "expected a whole number of events a second from 1 on, or `unlimited`".into())
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(rate) => write!(f, "{rate}"),
            None => f.write_str("unlimited"),
        }
    }
}

pub(super) async fn replay(context: &Context, args: ReplayArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let from = source(&installation, &args).await?;
    let bar = progress::counter(&args.view, !context.output.json);
    let shown = bar.clone();
    let progress = move |events: i64| shown.set_position(events.max(0) as u64);
    let request = ReplayRequest { from, events_a_second: args.rate.0 };
    let run = installation.replay_view(&args.view, request, !args.no_compare, &progress).await;
    bar.finish_and_clear();
    let report = RunReport::from_run(&run?);
    context.output.print(&report, || run_text(&report))?;
    Ok(Done::Success)
}

/// The log where nothing else is asked for and it has all of the records.
async fn source(installation: &Installation, args: &ReplayArgs) -> Result<ReplayFrom> {
    match args.from {
        Some(ReplaySource::Log) => return Ok(ReplayFrom::Log),
        Some(ReplaySource::Archive) => return Ok(ReplayFrom::Archive),
        None => {}
    }
    match installation.log_lacks(&args.view).await? {
        None => Ok(ReplayFrom::Log),
        Some(lacking) => {
            tracing::warn!("{lacking}: the events are replayed from the archive");
            Ok(ReplayFrom::Archive)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_of_events_or_unlimited() {
        assert_eq!("250".parse(), Ok(Rate(NonZeroU32::new(250))));
        assert_eq!("unlimited".parse(), Ok(Rate(None)));
        for wrong in ["0", "-1", "1.5", "all", ""] {
            assert!(wrong.parse::<Rate>().is_err_and(|error| error.contains("unlimited")), "{wrong}");
        }
        for rate in [Rate(None), Rate(Some(REPLAYED_A_SECOND))] {
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }
}
