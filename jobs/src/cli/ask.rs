//! `lookup` and `query`. They open a serving node in this process, next to any other processes.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use clap::{Args, value_parser};
use committed::names::live_names;
use committed::registry::{LiveView, Registry};
use definitions::parse;
use engine::events::format_timestamp;
use event_log::PartitionBounds;
use futures::TryStreamExt;
use serde_json::json;
use serving::{AskedPaths, Keys, Meta, Node, QueryResponse, WantedViews, parse_as_of, views_read};
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};
use types::{Error, Result};

use super::{Context, Done};
use crate::check::check_project;
use crate::installation::{Installation, now};
use crate::output::{OutputWriter, count_of, one_line, table};

/// How long a lookup waits for the log to say what it has.
const LOG_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream lookup device_velocity device_id=d17\n  \
    basestream lookup device_velocity device_id=d17 --as-of 2026-05-01T12:00:00Z --json\n  \
    basestream lookup device_links device_id=d17 --paths 20\n  \
    basestream lookup device_links device_id=d17 --paths 20 --of linked_devices_7d")]
pub(super) struct LookupArgs {
    /// A view in the catalog
    view: String,
    /// One value for each key column of the view
    #[arg(value_name = "KEY=VALUE", value_parser = key_value)]
    keys: Vec<(String, String)>,
    /// The answer as of this time (RFC 3339 with a zone)
    #[arg(long, value_name = "TIME", value_parser = time)]
    as_of: Option<Micros>,
    /// For a view over a JOIN: also the paths that link the key, at most N, each with the columns in which it counts.
    /// Those that count come first, then the newest
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    paths: Option<u32>,
    /// Only the paths that count in this column of the view
    #[arg(long, value_name = "COLUMN", requires = "paths")]
    of: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream query 'SELECT * FROM device_velocity ORDER BY txns_1h DESC LIMIT 10'\n  \
    basestream query \"SET as_of = '2026-05-01T12:00:00Z'; SELECT count(*) FROM device_velocity\"\n  \
    basestream query 'SELECT * FROM system.handover'\n\n\
    Tables: <view>, <view>__batch and <view>__speed (the states; of a linked view __batch is its join as of the \
    last run, and __edges the states), <stream> (accepted events), system.runs, system.checkpoints, \
    system.partitions, system.views, system.handover, system.view_errors, \
    system.sinks, system.alerts, system.parameters, system.hot_keys")]
pub(super) struct QueryArgs {
    /// One SELECT; `-` reads it from standard input
    sql: String,
}

pub(super) async fn lookup(context: &Context, args: LookupArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let node = node_of_lookup(&installation, &args.view).await?;
    let paths = AskedPaths { most: args.paths.unwrap_or_default() as usize, of: args.of };
    let response = match node.lookup_with_paths(&args.view, Keys::Text(vec![args.keys]), args.as_of, paths).await {
        Ok(response) => response,
        Err(error) => return Err(or_not_applied(context, &installation, std::slice::from_ref(&args.view), error).await),
    };
    let found = response.found.first().copied().unwrap_or_default();
    let row = serving::json::rows(&response.rows)?.into_iter().next();
    let mut value = json!({ "row": row, "found": found, "meta": response.meta });
    let mut not_counted = BTreeMap::new();
    if !found {
        not_counted = records_after(&installation, &args.view, &response.meta.cut).await?;
        value["not_counted"] = json!(not_counted);
    }
    let mut text = lookup_text(&response.rows, (found, &not_counted), &response.meta)?;
    if let Some(paths) = &response.paths {
        value["paths"] = json!(serving::json::rows(paths)?);
        text = format!("{text}\n\n{}", paths_text(paths)?);
    }
    context.output.print(&value, || text)?;
    Ok(Done::Success)
}

/// Loads nothing of the other views, however many there are.
async fn node_of_lookup(installation: &Installation, view: &str) -> Result<Node> {
    installation.node_of_at_once(WantedViews::one(view)).await
}

pub(super) async fn query(context: &Context, args: QueryArgs) -> Result<Done> {
    let sql = match args.sql.as_str() {
        "-" => read_standard_input()?,
        _ => args.sql,
    };
    let installation = context.installation().await?;
    let wanted = views_read(&sql);
    let node = installation.node_of_at_once(wanted.clone()).await?;
    let response = match (node.query(&sql, Vec::new()).await, wanted) {
        (Ok(response), _) => response,
        (Err(error), WantedViews::Named(names)) => {
            return Err(or_not_applied(context, &installation, &Vec::from_iter(names), error).await);
        }
        (Err(error), _) => return Err(error),
    };
    match context.output.json {
        true => print_json(response).await?,
        false => print_table(context, response).await?,
    }
    Ok(Done::Success)
}

/// Adds to an error without a help that one of these names is only in the project's files, if it is.
async fn or_not_applied(context: &Context, installation: &Installation, names: &[String], error: Error) -> Error {
    match not_applied(context, installation, names).await {
        Ok(Some(name)) if error.fact("help").is_none() => {
            error.with("help", format!("the project's files define \"{name}\", and `basestream apply` puts it into the catalog"))
        }
        // The error is about the query. What is wrong with the files is for `check` to say.
        _ => error,
    }
}

/// Returns the first of these names that a stream or a view of the project's files has, and nothing in the catalog.
async fn not_applied<'n>(context: &Context, installation: &Installation, names: &'n [String]) -> Result<Option<&'n String>> {
    let state = installation.catalog.state().await?;
    let project = context.settings()?.project;
    let (definitions, _) = parse::load_project(&project)?;
    let in_files = |name: &str| {
        definitions.views.iter().any(|view| *view.name == *name) || definitions.streams.iter().any(|stream| *stream.name == *name)
    };
    let is_only_in_files = |name: &&String| in_files(name) && live_names(&state).all(|(_, known)| known != name.as_str());
    let Some(name) = names.iter().find(is_only_in_files) else { return Ok(None) };
    // A view without an aggregate has no rows to ask for once it is applied either.
    let checked = check_project(&project, &context.functions, now()).await?;
    Ok((!checked.staging.contains(name.as_str())).then_some(name))
}

/// How many records of each of a view's streams the log has after what an answer counts. A stream is left out if there
/// are none, and if the log does not say in time.
async fn records_after(installation: &Installation, view: &str, cut: &Vector) -> Result<BTreeMap<Arc<str>, i64>> {
    let registry = Registry::load(&*installation.catalog.state().await?, &installation.functions).await?;
    let streams = registry.served(view).map(LiveView::streams).unwrap_or_default();
    let mut after = BTreeMap::new();
    for stream in streams {
        let Some(live) = registry.streams.get(&stream) else { continue };
        let bounds = tokio::time::timeout(LOG_ANSWERS_WITHIN, installation.log.bounds(&live.definition.topic)).await;
        let bounds = bounds.ok().and_then(Result::ok).unwrap_or_default();
        let of_partition = |bounds: &PartitionBounds| {
            let counted = cut.get(&PartitionId::new(stream.clone(), bounds.partition)).max(bounds.begin);
            (bounds.end.0 - counted.0).max(0)
        };
        let records: i64 = bounds.iter().map(of_partition).sum();
        if records > 0 {
            after.insert(stream, records);
        }
    }
    Ok(after)
}

/// Prints rows as they arrive: a result may be larger than memory.
async fn print_json(mut response: QueryResponse) -> Result<()> {
    let mut out = OutputWriter::default();
    let writer = serving::json::RowWriter::new(&response.schema);
    let mut buffer = b"{\"rows\":[".to_vec();
    let mut separator: &[u8] = b"\n";
    while let Some(batch) = response.batches.try_next().await? {
        for row in 0..batch.num_rows() {
            buffer.extend_from_slice(separator);
            separator = b",\n";
            writer.write(&mut buffer, &batch, row)?;
        }
        out.write(&buffer)?;
        buffer.clear();
        if out.is_closed() {
            return Ok(());
        }
    }
    buffer.extend_from_slice(b"],\n\"meta\":");
    let meta = serde_json::to_vec(&response.meta_so_far())
        .map_err(|error| Error::internal(format!("an answer's meta cannot be written as JSON: {error}")))?;
    buffer.extend_from_slice(&meta);
    buffer.extend_from_slice(b"}\n");
    out.write(&buffer)
}

async fn print_table(context: &Context, mut response: QueryResponse) -> Result<()> {
    let header: Vec<String> = response.schema.fields().iter().map(|field| field.name().clone()).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    // The plans of EXPLAIN are texts of many lines.
    let shown = if header == ["plan_type", "plan"] { str::to_owned } else { one_line };
    let mut rows: Vec<Vec<String>> = Vec::new();
    while let Some(batch) = response.batches.try_next().await? {
        for row in 0..batch.num_rows() {
            rows.push(values_text(&batch, row)?.iter().map(|value| shown(value)).collect());
        }
    }
    let (count, meta) = (rows.len(), response.meta_so_far());
    let text = format!("{}\n({}; {})", table(&header, rows), count_of(count, "row"), meta_text(&meta));
    context.output.print(&(), || text)
}

fn lookup_text(rows: &RecordBatch, (found, not_counted): (bool, &BTreeMap<Arc<str>, i64>), meta: &Meta) -> Result<String> {
    let values = if rows.num_rows() > 0 { values_text(rows, 0)? } else { Vec::new() };
    let schema = rows.schema();
    let error_of = |column: &str| meta.errors.iter().find(|error| error.column == column).map(|error| format!("error: {}", error.error));
    let pairs =
        schema.fields().iter().zip(values).map(|(field, value)| vec![field.name().clone(), error_of(field.name()).unwrap_or(value)]);
    let note = match (found, meta.unread.is_empty()) {
        (true, _) => String::new(),
        (false, true) if not_counted.is_empty() => "there is no such key; ".to_owned(),
        (false, true) => {
            let records = not_counted.iter().map(|(stream, records)| format!("{records} of {stream}")).collect::<Vec<_>>().join(", ");
            format!("there is no such key yet: records in the log that no checkpoint has counted: {records}; ")
        }
        (false, false) => "no key is known yet; ".to_owned(),
    };
    Ok(format!("{}\n({note}{})", table(&["column", "value"], pairs), meta_text(meta)))
}

fn paths_text(paths: &RecordBatch) -> Result<String> {
    let schema = paths.schema();
    let header: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let rows = (0..paths.num_rows()).map(|row| path_text(paths, row)).collect::<Result<Vec<_>>>()?;
    let paths = count_of(rows.len(), "path");
    let some_count_nowhere = rows.iter().any(|row| row.last().is_some_and(String::is_empty));
    let order = if some_count_nowhere { "newest first; those that count nowhere come last" } else { "newest first" };
    Ok(format!("{}\n({paths}, {order})", table(&header, rows)))
}

/// Returns a path's values; the last value is the names of the columns in which it counts.
fn path_text(paths: &RecordBatch, row: usize) -> Result<Vec<String>> {
    let mut values = values_text(paths, row)?;
    let counted_in = paths.columns().last().and_then(|column| column.as_list_opt::<i32>());
    if let (Some(text), Some(counted_in)) = (values.last_mut(), counted_in) {
        let names = counted_in.value(row);
        *text = names.as_string::<i32>().iter().flatten().collect::<Vec<_>>().join(", ");
    }
    Ok(values)
}

fn meta_text(meta: &Meta) -> String {
    let mut text = format!("as of {}", format_timestamp(meta.as_of));
    if let Some(complete_to) = meta.complete_to {
        text.push_str(&format!(", complete to {}", format_timestamp(complete_to)));
    }
    if !meta.unread.is_empty() {
        text.push_str(&format!(
            ", nothing of {} is committed yet (`basestream up` or `basestream speed` commits it, within speed.checkpoint_interval)",
            meta.unread.join(", ")
        ));
    }
    match meta.failed {
        0 => {}
        1 => text.push_str(", 1 event left out because the view fails on it"),
        failed => text.push_str(&format!(", {failed} events left out because the view fails on them")),
    }
    if meta.from_archive {
        text.push_str(", computed from the archive");
    }
    if !meta.past_retention.is_empty() {
        text.push_str(&format!(", past the retention of {}: events that counted may be deleted", meta.past_retention.join(", ")));
    }
    if let Some(reason) = &meta.degraded_reason {
        text.push_str(&format!(", degraded: {reason}"));
    }
    if !meta.approximate.is_empty() {
        text.push_str(&format!(", approximate: {}", meta.approximate.join(", ")));
    }
    text
}

/// Returns one row's values for display: as in JSON, but strings without quotes, and NaN and infinities as PostgreSQL
/// writes them.
fn values_text(batch: &RecordBatch, row: usize) -> Result<Vec<String>> {
    let text = |column| -> Result<String> {
        if let Some(name) = not_finite(column, row) {
            return Ok(name.to_owned());
        }
        let json = serving::json::value(column, row)?;
        Ok(match serde_json::from_str(json.get()) {
            Ok(serde_json::Value::String(text)) => text,
            Ok(serde_json::Value::Null) => "NULL".to_owned(),
            _ => json.get().to_owned(),
        })
    };
    batch.columns().iter().map(text).collect()
}

/// The name of a number that JSON has not.
fn not_finite(column: &ArrayRef, row: usize) -> Option<&'static str> {
    let value = match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).into(),
        _ => return None,
    };
    match value {
        _ if column.is_null(row) || value.is_finite() => None,
        _ if value.is_nan() => Some("NaN"),
        _ if value > 0.0 => Some("Infinity"),
        _ => Some("-Infinity"),
    }
}

fn read_standard_input() -> Result<String> {
    let mut sql = String::new();
    std::io::stdin().read_to_string(&mut sql).map_err(|error| Error::input(format!("standard input is not text: {error}")))?;
    Ok(sql)
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("found \"{text}\", expected column=value")),
    }
}

fn time(text: &str) -> Result<Micros, String> {
    parse_as_of(text).map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests;
