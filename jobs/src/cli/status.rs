//! `status`: prints progress, what views are served from, and problems.

use clap::Args;
use types::Result;

use super::{Context, Done};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  basestream status\n  basestream status --exit-code > status.txt || cat status.txt\n  basestream status --json | jq '.partitions[].lag'\n  basestream status --json | jq '.problems[] | {what, next_step}'\n\n\
    Each problem is printed with its cause, its effect and the next step.\n\
    Exits with 0 even with problems, unless --exit-code is given, and with 1 when the catalog does not answer."
)]
pub(super) struct StatusArgs {
    /// Exit with 1 if there is a problem or a warning; notices are none
    #[arg(long)]
    exit_code: bool,
}

pub(super) async fn status(context: &Context, args: StatusArgs) -> Result<Done> {
    let status = crate::status::status_of_settings(&context.settings()?, &context.functions).await;
    context.output.print(&status, || status.text())?;
    let is_wrong = !status.is_known() || (args.exit_code && status.has_problems());
    Ok(if is_wrong { Done::Found } else { Done::Success })
}
