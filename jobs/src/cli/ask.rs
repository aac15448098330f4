//! `lookup` and `query`. They open a serving node in this process, next to any other processes.

use std::io::Read;

use arrow::array::{AsArray, RecordBatch};
use clap::Args;
use engine::events::format_timestamp;
use futures::TryStreamExt;
use serde_json::json;
use serving::{AskedPaths, Keys, Meta, QueryResponse, WantedViews, parse_as_of, views_read};
use types::tiles::Micros;
use types::{Error, Result};

use super::{Context, Done};
use crate::output::{OutputWriter, one_line, table};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream lookup device_velocity device_id=d17\n  \
    basestream lookup device_velocity device_id=d17 --as-of 2026-05-01T12:00:00Z --json\n  \
    basestream lookup device_links device_id=d17 --paths 20\n  \
    basestream lookup device_links device_id=d17 --paths 20 --of linked_devices_7d")]
pub(super) struct LookupArgs {
    view: String,
    /// One value for each key column of the view
    #[arg(value_name = "KEY=VALUE", value_parser = key_value)]
    keys: Vec<(String, String)>,
    /// The answer as of this time (RFC 3339 with a zone)
    #[arg(long, value_name = "TIME", value_parser = time)]
    as_of: Option<Micros>,
    /// For a view over a JOIN: also the newest paths that link the key, at most N, each with the columns in which it
    /// counts
    #[arg(long, value_name = "N")]
    paths: Option<usize>,
    /// Only the paths that count in this column of the view
    #[arg(long, value_name = "COLUMN", requires = "paths")]
    of: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream query 'SELECT * FROM device_velocity ORDER BY txns_1h DESC LIMIT 10'\n  \
    basestream query \"SET as_of = '2026-05-01T12:00:00Z'; SELECT count(*) FROM device_velocity\"\n  \
    basestream query 'SELECT * FROM system.handover'\n\n\
    Tables: <view>, <view>__batch and <view>__speed (the states; of a linked view __batch is its join as of the\n\
    last run, and __edges the states), <stream> (accepted events), system.runs, system.checkpoints,\n\
    system.partitions, system.views, system.handover, system.view_errors,\n\
    system.sinks, system.hot_keys")]
pub(super) struct QueryArgs {
    /// One SELECT; `-` reads it from standard input
    sql: String,
}

pub(super) async fn lookup(context: &Context, args: LookupArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let node = installation.node_of_at_once(WantedViews::one(&args.view)).await?;
    let paths = AskedPaths { most: args.paths.unwrap_or_default(), of: args.of };
    let response = node.lookup_with_paths(&args.view, Keys::Text(vec![args.keys]), args.as_of, paths).await?;
    let found = response.found.first().copied().unwrap_or_default();
    let row = serving::json::rows(&response.rows)?.into_iter().next();
    let mut value = json!({ "row": row, "found": found, "meta": response.meta });
    let mut text = lookup_text(&response.rows, found, &response.meta)?;
    if let Some(paths) = &response.paths {
        value["paths"] = json!(serving::json::rows(paths)?);
        text = format!("{text}\n\n{}", paths_text(paths)?);
    }
    context.output.print(&value, || text)?;
    Ok(Done::Success)
}

pub(super) async fn query(context: &Context, args: QueryArgs) -> Result<Done> {
    let sql = match args.sql.as_str() {
        "-" => read_standard_input()?,
        _ => args.sql,
    };
    let installation = context.installation().await?;
    let node = installation.node_of_at_once(views_read(&sql)).await?;
    let response = node.query(&sql, Vec::new()).await?;
    match context.output.json {
        true => print_json(response).await?,
        false => print_table(context, response).await?,
    }
    Ok(Done::Success)
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
    let text = format!("{}\n({count} row{}; {})", table(&header, rows), if count == 1 { "" } else { "s" }, meta_text(&meta));
    context.output.print(&(), || text)
}

fn lookup_text(rows: &RecordBatch, found: bool, meta: &Meta) -> Result<String> {
    let values = if rows.num_rows() > 0 { values_text(rows, 0)? } else { Vec::new() };
    let schema = rows.schema();
    let error_of = |column: &str| meta.errors.iter().find(|error| error.column == column).map(|error| format!("error: {}", error.error));
    let pairs =
        schema.fields().iter().zip(values).map(|(field, value)| vec![field.name().clone(), error_of(field.name()).unwrap_or(value)]);
    let note = match (found, meta.unread.is_empty()) {
        (true, _) => "",
        (false, true) => "there is no such key; ",
        (false, false) => "no key is known yet; ",
    };
    Ok(format!("{}\n({note}{})", table(&["column", "value"], pairs), meta_text(meta)))
}

fn paths_text(paths: &RecordBatch) -> Result<String> {
    let schema = paths.schema();
    let header: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let rows = (0..paths.num_rows()).map(|row| path_text(paths, row)).collect::<Result<Vec<_>>>()?;
    let count = rows.len();
    Ok(format!("{}\n({count} path{}, newest first)", table(&header, rows), if count == 1 { "" } else { "s" }))
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
            ", nothing of {} has been read yet (`basestream up` or `basestream speed` reads it)",
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
    if let Some(reason) = &meta.degraded_reason {
        text.push_str(&format!(", degraded: {reason}"));
    }
    if !meta.approximate.is_empty() {
        text.push_str(&format!(", approximate: {}", meta.approximate.join(", ")));
    }
    text
}

/// Returns one row's values for display: as in JSON, but strings without quotes.
fn values_text(batch: &RecordBatch, row: usize) -> Result<Vec<String>> {
    let text = |column| -> Result<String> {
        let json = serving::json::value(column, row)?;
        Ok(match serde_json::from_str(json.get()) {
            Ok(serde_json::Value::String(text)) => text,
            Ok(serde_json::Value::Null) => "NULL".to_owned(),
            _ => json.get().to_owned(),
        })
    };
    batch.columns().iter().map(text).collect()
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
