//! `storage`: prints where the bytes are. `storage forget-group`.

use clap::{Args, Subcommand};
use serde_json::json;
use types::{Error, Result};

use super::{AuditedChange, Context, Done};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream storage\n  basestream storage --json | jq '.streams[] | {stream, would_free}'\n\n\
    Sizes are those of the files that the catalog names, and of the slices that recomputations have saved before they \
    publish a snapshot. No file is read, and of the embedded log only how old its records are.")]
pub(super) struct StorageArgs {
    #[command(subcommand)]
    command: Option<StorageCommand>,
}

#[derive(Debug, Subcommand)]
enum StorageCommand {
    /// Forget a consumer group that has read the embedded log and never will again: it holds no records back any more
    #[command(after_help = "Example:\n  basestream storage forget-group before\n\n\
        `basestream status` names groups without a worker. It is refused while a worker of the group is running.\n\
        If workers of an installation are only stopped, what they have yet to read may be deleted then.")]
    ForgetGroup {
        /// The name of the group: what `speed.group` was
        group: String,
    },
}

impl StorageArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        let Some(StorageCommand::ForgetGroup { group }) = &self.command else { return None };
        AuditedChange::new("forget", "consumer group", group)
    }
}

pub(super) async fn storage(context: &Context, args: StorageArgs) -> Result<Done> {
    let installation = context.installation().await?;
    match args.command {
        None => {
            let report = installation.storage_report().await?;
            context.output.print(&report, || report.text())?;
        }
        Some(StorageCommand::ForgetGroup { group }) => {
            let of_kafka = || Error::input("the log is Kafka, which deletes records by settings of its own: no group holds them back");
            installation.trimming().ok_or_else(of_kafka)?.forget_group(&group).await?;
            let text = || format!("the consumer group \"{group}\" is forgotten: what it held back is deleted as `log.retention` says");
            context.output.print(&json!({ "forgotten": group }), text)?;
        }
    }
    Ok(Done::Success)
}
