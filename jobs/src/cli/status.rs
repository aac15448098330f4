//! `status`.

use clap::Args;
use schemas::Result;

use super::{Context, Done};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream status\n  basestream status --json | jq '.partitions[].lag'")]
pub(super) struct StatusArgs {}

pub(super) async fn status(context: &Context, _: StatusArgs) -> Result<Done> {
    let status = crate::status::status(&context.installation().await?).await?;
    context.output.print(&status, || status.text())?;
    Ok(Done::Success)
}
