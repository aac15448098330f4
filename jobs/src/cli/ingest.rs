//! `ingest`: appends files to a stream's log.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;
use types::Result;

use super::{Context, Done, progress};
use crate::ingest::{Format, IngestOptions, Input, NumberFormat, Shape, Summary};
use crate::output::{count_of, is_or_are};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream ingest orders orders.csv\n  basestream ingest orders day1.jsonl.gz day2.parquet\n  \
    kcat -C -t orders | basestream ingest orders -\n\n\
    A repeat continues where the last one ended. Records that are not events of the stream are left out and reported, \
    and the exit code is 1 while records of a file are not in the log. A repeat sends those that are events by now, \
    and with --produce-invalid all of them.")]
pub(super) struct IngestArgs {
    /// A stream in the catalog (created by `basestream apply`)
    stream: String,
    /// Files of JSON lines, CSV (each also .gz) or Parquet; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// The files' format [default: by the file's name; standard input is JSON lines]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// The delimiter of CSV [default: guessed from the header]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// How a CSV file writes numbers: 1,234.56 or 1.234,56 or "1 234,56" or "1'234.56" [default: 1234.56]
    #[arg(long, value_name = "EXAMPLE", value_parser = numbers)]
    numbers: Option<NumberFormat>,
    /// Also send records that are not events of the stream: they become dead letters
    #[arg(long)]
    produce_invalid: bool,
    /// Send all records, also those that an earlier run sent: after the log lost them, or was replaced. Where the
    /// stream has an id, those that are counted already are duplicates, within its dedup_within
    #[arg(long)]
    again: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum FormatArg {
    Jsonl,
    Csv,
    Parquet,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Format {
        match format {
            FormatArg::Jsonl => Format::JsonLines,
            FormatArg::Csv => Format::Csv,
            FormatArg::Parquet => Format::Parquet,
        }
    }
}

#[derive(Serialize)]
struct FileReport {
    file: String,
    records: i64,
    /// Already in the log, from an earlier run.
    skipped: i64,
    rejected: i64,
    /// Not in the log because they are not events of the stream, of this run and of earlier ones.
    left_out: i64,
    first_rejected: Vec<RejectedReport>,
    /// How many of the rejected have each reason, the most frequent first.
    reasons: Vec<ReasonReport>,
    /// How many of the rejected have none of these reasons.
    other_reasons: i64,
    /// The last line, if it is no event and has no line end: it is read again by a repeat.
    unfinished: Option<u64>,
    seconds: f64,
}

impl FileReport {
    /// The records rejected in this run that are in the log, to become dead letters.
    fn sent_to_dead_letters(&self, produce_invalid: bool) -> i64 {
        if produce_invalid { self.rejected - i64::from(self.unfinished.is_some()) } else { 0 }
    }

    /// Whether records of the file are not in the log.
    fn lacks_records(&self, produce_invalid: bool) -> bool {
        self.left_out > 0 || self.rejected > self.sent_to_dead_letters(produce_invalid)
    }
}

#[derive(Serialize)]
struct RejectedReport {
    line: u64,
    error: String,
}

#[derive(Serialize)]
struct ReasonReport {
    reason: String,
    count: i64,
}

pub(super) async fn ingest(context: &Context, args: IngestArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let options = IngestOptions {
        shape: Shape { format: args.format.map(Format::from), delimiter: args.delimiter, numbers: args.numbers },
        produce_invalid: args.produce_invalid,
        again: args.again,
        ..IngestOptions::default()
    };
    let mut reports = Vec::new();
    for file in &args.files {
        let input = Input::parse(file);
        let size = std::fs::metadata(file).ok().filter(|found| input != Input::Stdin && found.is_file()).map(|found| found.len());
        let bar = progress::bytes(file, size, !context.output.json);
        let shown = bar.clone();
        let summary = installation.ingest(&args.stream, &input, &options, |at| {
            shown.set_message(count_of(at.records, "record"));
            shown.set_position(at.bytes_done);
        });
        let summary = summary.await;
        bar.finish_and_clear();
        reports.push(report(file, summary?));
    }
    let something_missing = reports.iter().any(|report| report.lacks_records(args.produce_invalid));
    let value = serde_json::json!({ "stream": args.stream, "files": reports });
    context.output.print(&value, || text(&args.stream, &reports, args.produce_invalid))?;
    Ok(if something_missing { Done::Found } else { Done::Success })
}

fn report(file: &str, summary: Summary) -> FileReport {
    let reasons = summary.reasons.by_count().into_iter().map(|(reason, count)| ReasonReport { reason: reason.to_owned(), count });
    FileReport {
        file: file.to_owned(),
        records: summary.records,
        skipped: summary.skipped,
        rejected: summary.rejected,
        left_out: summary.left_out,
        reasons: reasons.collect(),
        other_reasons: summary.reasons.others(),
        first_rejected: summary.first_rejected.into_iter().map(|r| RejectedReport { line: r.number, error: r.error }).collect(),
        unfinished: summary.unfinished,
        seconds: summary.elapsed.as_secs_f64(),
    }
}

fn text(stream: &str, reports: &[FileReport], produce_invalid: bool) -> String {
    let mut text = String::new();
    for report in reports {
        counts_text(&mut text, report);
        rejected_text(&mut text, stream, report, produce_invalid);
        unsent_text(&mut text, report, produce_invalid);
        text.push('\n');
    }
    text.trim_end().to_owned()
}

/// Writes how many records were sent, were in the log already, and are not events.
fn counts_text(text: &mut String, report: &FileReport) {
    let _ = write!(text, "{}: {} in {:.1} s", report.file, count_of(report.records, "record"), report.seconds);
    if report.skipped > 0 {
        let verb = if report.skipped == 1 { "was" } else { "were" };
        let _ = write!(text, ", {} {verb} in the log already", report.skipped);
    }
    if report.rejected > 0 {
        let (verb, event) = (is_or_are(report.rejected), if report.rejected == 1 { "an event" } else { "events" });
        let _ = write!(text, ", {} {verb} not {event} of the stream", report.rejected);
    }
}

/// Writes the first records that are no events, and what becomes of those that were sent all the same.
fn rejected_text(text: &mut String, stream: &str, report: &FileReport, produce_invalid: bool) {
    for rejected in &report.first_rejected {
        let _ = write!(text, "\n  {}:{}: {}", report.file, rejected.line, rejected.error);
    }
    let more = report.rejected - report.first_rejected.len() as i64;
    if more > 0 {
        let _ = write!(text, "\n  and {more} more");
    }
    if report.rejected > 1 {
        reasons_text(text, report);
    }
    let sent_to_dead_letters = report.sent_to_dead_letters(produce_invalid);
    if sent_to_dead_letters > 0 {
        let sent = match (sent_to_dead_letters, report.unfinished) {
            (1, None) => "it was sent, and becomes a dead letter",
            (_, None) => "they were sent, and become dead letters",
            (1, Some(_)) => "the first was sent, and becomes a dead letter",
            (_, Some(_)) => "all but the last were sent, and become dead letters",
        };
        let _ = write!(text, "\n{sent}: `basestream dead-letters list {stream}`, once `basestream up` has read the log");
    }
}

/// Writes how many records have each reason.
fn reasons_text(text: &mut String, report: &FileReport) {
    let _ = write!(text, "\nby reason:");
    for ReasonReport { reason, count } in &report.reasons {
        let _ = write!(text, "\n  {}: {reason}", count_of(*count, "record"));
    }
    if report.other_reasons > 0 {
        let _ = write!(text, "\n  {}: other reasons", count_of(report.other_reasons, "record"));
    }
}

/// Writes which records are not in the log, and how they get there.
fn unsent_text(text: &mut String, report: &FileReport, produce_invalid: bool) {
    if let Some(line) = report.unfinished {
        let _ = write!(text, "\nline {line}, the last one, was not sent: it has no line end, so it may be incomplete");
        let _ = write!(text, "; end the line and run again");
    }
    if report.left_out > 0 {
        let (count, verb) = (count_of(report.left_out, "record"), is_or_are(report.left_out));
        let why = match produce_invalid {
            false => "not valid for the stream",
            true => "left out by an older version, which did not save which; send the lines in a file of their own",
        };
        let _ = write!(text, "\n{count} of this file {verb} not in the log: {why}");
        if report.file != "-" && !produce_invalid {
            let _ = write!(text, "; run again with --produce-invalid to send what was left out to the dead letters");
        }
    }
}

pub(super) fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "\\t" | "tab" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] => Ok(*byte),
            _ => Err("expected one character, or \\t".into()),
        },
    }
}

pub(super) fn numbers(text: &str) -> Result<NumberFormat, String> {
    text.parse().map_err(|error: types::Error| error.message().to_owned())
}
