//! `alert list`, `alert open` and `alert read`.

use std::sync::Arc;

use catalog::{DefinitionKind, DefinitionRecord, OpenAlert};
use clap::{Args, Subcommand, value_parser};
use definitions::durations::format_duration_parts;
use definitions::parse;
use engine::events::format_timestamp;
use serde_json::json;
use types::Result;

use super::records::{self, RecordsArgs};
use super::{Context, Done};
use crate::output::table;
use crate::outputs::{OutputReader, live_alert};

#[derive(Debug, Args)]
pub(super) struct AlertArgs {
    #[command(subcommand)]
    command: AlertCommand,
}

#[derive(Debug, Subcommand)]
enum AlertCommand {
    /// List the alerts of the catalog, with their topics
    List,
    /// List the keys that satisfy the condition of an alert now, and since when
    Open(OpenArgs),
    /// Print the records of an alert, one JSON object a line
    #[command(
        after_help = "Examples:\n  basestream alert read device_silent\n  basestream alert read device_silent --follow | jq 'select(._state == \"began\")'\n\n\
        Records are printed in the order in which they were put out."
    )]
    Read(ReadArgs),
}

#[derive(Debug, Args)]
struct OpenArgs {
    /// One alert; without it, all
    alert: Option<String>,
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Debug, Args)]
struct ReadArgs {
    /// An alert in the catalog
    alert: String,
    #[command(flatten)]
    reading: RecordsArgs,
}

pub(super) async fn alert(context: &Context, args: AlertArgs) -> Result<Done> {
    match args.command {
        AlertCommand::List => list(context).await,
        AlertCommand::Open(args) => open(context, args).await,
        AlertCommand::Read(args) => read(context, args).await,
    }
}

async fn list(context: &Context) -> Result<Done> {
    let installation = context.installation().await?;
    let state = installation.catalog.state().await?;
    let paused = |record: &DefinitionRecord| state.paused_since(DefinitionKind::Alert, &record.name).map(format_timestamp);
    let alerts = state.live(DefinitionKind::Alert);
    let alerts = alerts.map(|record| Ok((parse::parse_alert(&record.sql)?, record.version, paused(record))));
    let alerts = alerts.collect::<Result<Vec<_>>>()?;
    let value: Vec<_> = alerts
        .iter()
        .map(|(alert, version, paused_since)| {
            let repeat = alert.repeat.map(|repeat| repeat.as_secs_f64());
            json!({
                "alert": alert.name,
                "version": version,
                "topic": alert.topic,
                "repeat_seconds": repeat,
                "resolve": alert.resolve,
                "paused_since": paused_since,
            })
        })
        .collect();
    context.output.print(&value, || {
        let cells = alerts.iter().map(|(alert, version, paused_since)| {
            let repeat = alert.repeat.map_or("-".to_owned(), format_duration_parts);
            let paused_since = paused_since.as_deref().unwrap_or("-").to_owned();
            vec![alert.name.to_string(), version.to_string(), alert.topic.to_string(), repeat, alert.resolve.to_string(), paused_since]
        });
        match alerts.is_empty() {
            true => "no alert is defined yet".to_owned(),
            false => table(&["alert", "version", "topic", "repeat", "resolve", "paused since"], cells),
        }
    })?;
    Ok(Done::Success)
}

async fn open(context: &Context, args: OpenArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let state = installation.catalog.state().await?;
    let alert: Option<Arc<str>> = args.alert.map(|name| live_alert(&state, &name).map(|alert| alert.name)).transpose()?;
    let mut open = installation.catalog.open_alerts(alert.as_deref(), None, args.limit).await?;
    // What is left of versions that were replaced is removed a while later.
    let is_live =
        |open: &OpenAlert| state.served_or_building(DefinitionKind::Alert, &open.alert).is_some_and(|live| live.version == open.version);
    open.retain(is_live);
    let keys = |open: &OpenAlert| serde_json::from_str::<serde_json::Value>(&open.keys).unwrap_or_default();
    let value: Vec<_> = open
        .iter()
        .map(|open| json!({ "alert": open.alert, "version": open.version, "key": keys(open), "since": format_timestamp(open.since) }))
        .collect();
    context.output.print(&value, || {
        let cells = open.iter().map(|open| vec![open.alert.to_string(), open.keys.clone(), format_timestamp(open.since)]);
        match open.is_empty() {
            true => "no alert is open".to_owned(),
            false => table(&["alert", "key", "since"], cells),
        }
    })?;
    Ok(Done::Success)
}

async fn read(context: &Context, args: ReadArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let alert = live_alert(&*installation.catalog.state().await?, &args.alert)?;
    let reader = OutputReader::of_alert(&*installation.log, &alert);
    // The record itself says the rest.
    records::print(context, reader, &args.reading, &[("_version", event_alerts::ALERT_HEADER)]).await
}
