//! `storage`: prints where the bytes are.

use clap::Args;
use types::Result;

use super::{Context, Done};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream storage\n  basestream storage --json | jq '.streams[] | {stream, would_free}'\n\n\
    Sizes are those of the files that the catalog names, and of the slices that recomputations have saved before they \
    publish a snapshot. No file is read, and of the embedded log only how old its records are.")]
pub(super) struct StorageArgs {}

pub(super) async fn storage(context: &Context, _: StorageArgs) -> Result<Done> {
    let report = context.installation().await?.storage_report().await?;
    context.output.print(&report, || report.text())?;
    Ok(Done::Success)
}
