//! `sink list` and `sink read`.

use catalog::DefinitionKind;
use clap::{Args, Subcommand};
use definitions::{Features, parse};
use serde_json::json;
use types::Result;

use super::records::{self, Reading};
use super::{Context, Done};
use crate::output::table;
use crate::outputs::{OutputReader, live_sink};

#[derive(Debug, Args)]
pub(super) struct SinkArgs {
    #[command(subcommand)]
    command: SinkCommand,
}

#[derive(Debug, Subcommand)]
enum SinkCommand {
    /// List the sinks of the catalog, with their topics
    List,
    /// Print the records of a sink, one JSON object a line
    #[command(
        after_help = "Examples:\n  basestream sink read scored_payments\n  basestream sink read scored_payments --follow | jq 'select(.decision == \"deny\")'\n\n\
        The records of one partition are in the order of their events. With --json each line has the key, the place and the event too."
    )]
    Read(ReadArgs),
}

#[derive(Debug, Args)]
struct ReadArgs {
    sink: String,
    #[command(flatten)]
    reading: Reading,
}

pub(super) async fn sink(context: &Context, args: SinkArgs) -> Result<Done> {
    match args.command {
        SinkCommand::List => list(context).await,
        SinkCommand::Read(args) => read(context, args).await,
    }
}

async fn list(context: &Context) -> Result<Done> {
    let installation = context.installation().await?;
    let state = installation.catalog.state().await?;
    let mut rows = Vec::new();
    for record in state.live(DefinitionKind::Sink) {
        let sink = parse::parse_sink(&record.sql)?;
        let features = if sink.features == Features::Inclusive { "inclusive" } else { "exclusive" };
        rows.push((sink, record.version, features));
    }
    let value: Vec<_> = rows
        .iter()
        .map(|(sink, version, features)| {
            json!({ "sink": sink.name, "version": version, "topic": sink.topic, "key": sink.key, "features": features })
        })
        .collect();
    context.output.print(&value, || {
        let cells = rows.iter().map(|(sink, version, features)| {
            vec![
                sink.name.to_string(),
                version.to_string(),
                sink.topic.to_string(),
                sink.key.clone().unwrap_or_default(),
                (*features).to_owned(),
            ]
        });
        match rows.is_empty() {
            true => "no sink is defined yet".to_owned(),
            false => table(&["sink", "version", "topic", "key", "features"], cells),
        }
    })?;
    Ok(Done::Success)
}

async fn read(context: &Context, args: ReadArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let sink = live_sink(&*installation.catalog.state().await?, &args.sink)?;
    let reader = OutputReader::of_sink(&*installation.log, &sink);
    let headers = [("_event", event_sinks::SOURCE_HEADER), ("_sink", event_sinks::SINK_HEADER)];
    records::print(context, reader, &args.reading, &headers).await
}
