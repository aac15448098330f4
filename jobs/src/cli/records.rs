//! Printing the records that sinks and alerts put out.

use std::io::{ErrorKind, Write};

use clap::{Args, value_parser};
use serde_json::json;
use types::Result;
use types::record::Record;

use super::{Context, Done};
use crate::output::print_note;
use crate::outputs::OutputReader;

#[derive(Debug, Args)]
pub(super) struct RecordsArgs {
    /// Go on with what is put out from now on, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// End after this many records
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// Prints records, one JSON object a line. With `--json` each has its place and these headers as well.
pub(super) async fn print(context: &Context, mut reader: OutputReader<'_>, how: &RecordsArgs, headers: &[(&str, &str)]) -> Result<Done> {
    if let Some(deleted) = reader.deleted().await? {
        print_note(&deleted);
    }
    let (mut out, mut left) = (std::io::stdout().lock(), how.limit.unwrap_or(u64::MAX));
    let with_place = context.output.json;
    let mut take = |record: &Record| {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        let written = match with_place {
            true => writeln!(out, "{}", placed(record, headers)),
            false => out.write_all(record.value.as_deref().unwrap_or_default()).and_then(|()| out.write_all(b"\n")),
        };
        match written.and_then(|()| out.flush()) {
            // Whoever reads our output wants no more of it.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| left > 0).map_err(Into::into),
        }
    };
    match how.follow {
        true => reader.follow(&mut take).await?,
        false => drop(reader.read(&mut take).await?),
    }
    Ok(Done::Success)
}

/// The columns at the top level, with what else is known of the record beside them.
fn placed(record: &Record, headers: &[(&str, &str)]) -> serde_json::Value {
    let mut value: serde_json::Value = record.value.as_deref().and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default();
    let key = record.key.as_deref().map(|key| String::from_utf8_lossy(key).into_owned());
    let header =
        |name: &str| record.headers.iter().find(|(known, _)| known == name).map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    if let Some(members) = value.as_object_mut() {
        members.insert("_key".to_owned(), json!(key));
        members.extend(headers.iter().filter_map(|(member, name)| Some(((*member).to_owned(), json!(header(name)?)))));
        members.insert("_offset".to_owned(), json!(record.offset.0));
    }
    value
}
