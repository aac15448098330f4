//! `status`: prints progress, what views are served from, and problems.

use clap::Args;
use types::Result;

use super::{Context, Done};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  basestream status\n  basestream status --json | jq '.partitions[].lag'\n  basestream status --json | jq '.problems[] | {what, next_step}'\n\n\
    Each problem is printed with its cause, its effect and the next step.\n\
    Exits with 0 even with problems, and with 1 when the catalog does not answer."
)]
pub(super) struct StatusArgs {}

pub(super) async fn status(context: &Context, _: StatusArgs) -> Result<Done> {
    let status = crate::status::status_of_settings(&context.settings()?, &context.functions).await;
    context.output.print(&status, || status.text())?;
    Ok(if status.is_known() { Done::Success } else { Done::Found })
}
