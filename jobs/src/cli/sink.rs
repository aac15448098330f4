//! `sink list`, `sink read` and `sink switches`.

use catalog::DefinitionKind;
use clap::{Args, Subcommand, value_parser};
use definitions::{Features, parse};
use engine::events::format_timestamp;
use serde_json::json;
use types::Result;

use super::records::{self, RecordsArgs};
use super::{Context, Done};
use crate::output::table;
use crate::outputs::{OutputReader, SwitchReport, live_sink};

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
        Records are printed in the order in which they were put out, those with one key in the order of their events. \
        With --json each line has the key, the place and the event too."
    )]
    Read(ReadArgs),
    /// List from which event on which version of a sink makes the records, and the events of its pauses
    #[command(after_help = "Examples:\n  basestream sink switches scored_payments\n  basestream sink switches --limit 100\n\n\
        The newest come first. Each line is a range of offsets of one partition: its events are decided by one \
        version, or have no record because the sink was paused.")]
    Switches(SwitchesArgs),
}

#[derive(Debug, Args)]
struct SwitchesArgs {
    /// One sink; without it, all
    sink: Option<String>,
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Debug, Args)]
struct ReadArgs {
    /// A sink in the catalog
    sink: String,
    #[command(flatten)]
    reading: RecordsArgs,
}

pub(super) async fn sink(context: &Context, args: SinkArgs) -> Result<Done> {
    match args.command {
        SinkCommand::List => list(context).await,
        SinkCommand::Read(args) => read(context, args).await,
        SinkCommand::Switches(args) => switches(context, args).await,
    }
}

async fn switches(context: &Context, args: SwitchesArgs) -> Result<Done> {
    let installation = context.installation().await?;
    if let Some(name) = &args.sink {
        live_sink(&*installation.catalog.state().await?, name)?;
    }
    let mut ranges = installation.catalog.sink_ranges(args.sink.as_deref(), args.limit.saturating_add(1)).await?;
    let has_more = ranges.len() > args.limit as usize;
    ranges.truncate(args.limit as usize);
    let ranges: Vec<SwitchReport> = ranges.iter().map(SwitchReport::from).collect();
    context.output.print(&ranges, || {
        let cells = ranges.iter().map(|range| {
            let by = if range.paused { "paused".to_owned() } else { format!("version {}", range.version) };
            let to = range.to.map_or_else(|| "..".to_owned(), |to| to.to_string());
            vec![
                range.sink.to_string(),
                range.stream.to_string(),
                range.partition.to_string(),
                range.from.to_string(),
                to,
                by,
                range.at.clone(),
            ]
        });
        let table = table(&["sink", "stream", "partition", "from", "to", "by", "recorded at"], cells);
        match has_more {
            true => format!("{table}\n(the newest {}; --limit shows more)", ranges.len()),
            false if ranges.is_empty() => "no event was decided yet".to_owned(),
            false => table,
        }
    })?;
    Ok(Done::Success)
}

async fn list(context: &Context) -> Result<Done> {
    let installation = context.installation().await?;
    let state = installation.catalog.state().await?;
    let mut rows = Vec::new();
    for record in state.live(DefinitionKind::Sink) {
        let sink = parse::parse_sink(&record.sql)?;
        let features = if sink.features == Features::Inclusive { "inclusive" } else { "exclusive" };
        let paused_since = state.paused_since(DefinitionKind::Sink, &record.name).map(format_timestamp);
        rows.push((sink, record.version, features, paused_since));
    }
    let value: Vec<_> = rows
        .iter()
        .map(|(sink, version, features, paused_since)| {
            let (name, topic, key) = (&sink.name, &sink.topic, &sink.key);
            json!({ "sink": name, "version": version, "topic": topic, "key": key, "features": features, "paused_since": paused_since })
        })
        .collect();
    context.output.print(&value, || {
        let cells = rows.iter().map(|(sink, version, features, paused_since)| {
            vec![
                sink.name.to_string(),
                version.to_string(),
                sink.topic.to_string(),
                sink.key.as_deref().unwrap_or("-").to_owned(),
                (*features).to_owned(),
                paused_since.as_deref().unwrap_or("-").to_owned(),
            ]
        });
        match rows.is_empty() {
            true => "no sink is defined yet".to_owned(),
            false => table(&["sink", "version", "topic", "key", "features", "paused since"], cells),
        }
    })?;
    Ok(Done::Success)
}

async fn read(context: &Context, args: ReadArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let sink = live_sink(&*installation.catalog.state().await?, &args.sink)?;
    let reader = OutputReader::of_sink(&*installation.log, &sink);
    let headers =
        [("_event", event_sinks::SOURCE_HEADER), ("_sink", event_sinks::SINK_HEADER), ("_parameters", event_sinks::PARAMETERS_HEADER)];
    records::print(context, reader, &args.reading, &headers).await
}
