//! `sink list` and `sink read`.

use std::io::{ErrorKind, Write};

use catalog::DefinitionKind;
use clap::{Args, Subcommand};
use definitions::{Features, parse};
use serde_json::json;
use types::Result;
use types::record::Record;

use super::{Context, Done};
use crate::output::table;
use crate::sinks::{SinkReader, live_sink};

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
    /// Go on with what is put out from now on, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// End after this many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
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
    let (mut out, mut left) = (std::io::stdout().lock(), args.limit.unwrap_or(u64::MAX));
    let with_place = context.output.json;
    let mut take = |record: &Record| {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        let written = match with_place {
            true => writeln!(out, "{}", placed(record)),
            false => out.write_all(record.value.as_deref().unwrap_or_default()).and_then(|()| out.write_all(b"\n")),
        };
        match written.and_then(|()| out.flush()) {
            // Whoever reads our output wants no more of it.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| left > 0).map_err(Into::into),
        }
    };
    let mut reader = SinkReader::new(&*installation.log, &sink);
    match args.follow {
        true => reader.follow(&mut take).await?,
        false => drop(reader.read(&mut take).await?),
    }
    Ok(Done::Success)
}

/// The columns at the top level, with what else is known of the record beside them.
fn placed(record: &Record) -> serde_json::Value {
    let mut value: serde_json::Value = record.value.as_deref().and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default();
    let key = record.key.as_deref().map(|key| String::from_utf8_lossy(key).into_owned());
    let header =
        |name| record.headers.iter().find(|(known, _)| known == name).map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    if let Some(members) = value.as_object_mut() {
        let own = [("_key", key), ("_event", header(event_sinks::SOURCE_HEADER)), ("_sink", header(event_sinks::SINK_HEADER))];
        members.extend(own.map(|(name, value)| (name.to_owned(), json!(value))));
        members.insert("_offset".to_owned(), json!(record.offset.0));
    }
    value
}
