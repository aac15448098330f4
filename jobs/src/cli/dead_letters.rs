//! `dead-letters list`, `export` and `replay`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};
use definitions::durations::parse_duration;
use engine::events::parse_timestamp;
use serde_json::{Value, json};
use types::Result;
use types::files::FileKind;
use types::tiles::Micros;
use types::vector::Offset;

use super::{AuditedChange, Context, Done, progress};
use crate::dead_letters::{
    self, DamagedFile, DeadLetterListing, ExportSummary, ListedLetter, ReplayOptions, ReplaySummary, Selection, ViewErrors,
};
use crate::installation::{Installation, now};
use crate::output::{count_of, one_line, print_note, table};

#[derive(Debug, Args)]
pub(super) struct DeadLettersArgs {
    #[command(subcommand)]
    command: DeadLettersCommand,
}

#[derive(Debug, Subcommand)]
enum DeadLettersCommand {
    /// Show the newest dead letters, and how many there are of each reason
    #[command(
        after_help = "Examples:\n  basestream dead-letters list\n  basestream dead-letters list payments --since 2h --reason 'column amount'\n  \
            basestream dead-letters list --view velocity             # events on which the view fails"
    )]
    List(ListArgs),
    /// Write them as JSON lines, to read and to correct
    #[command(after_help = "Examples:\n  basestream dead-letters export payments --to dead.jsonl\n  \
        basestream dead-letters export payments --to - | jq .reason\n  \
        basestream dead-letters export --view velocity --to failing.jsonl\n\n\
        Keys and values are text, or base64 under key_base64 and value_base64.")]
    Export(ExportArgs),
    /// Append them to the log again, as new records
    #[command(after_help = "Examples:\n  basestream dead-letters replay payments --reason 'expected DECIMAL'\n  \
        basestream dead-letters replay payments --partition 0 --offset 17\n  \
        basestream dead-letters replay payments --limit 10             # the next ten\n  \
        basestream dead-letters replay payments --file dead.jsonl      # corrected lines of an export\n\n\
        Each new record has the header basestream-replayed-from: topic/partition/offset. A repeat sends nothing twice.\n\
        Records that are still not events of the stream are refused and reported.")]
    Replay(DeadLetterReplayArgs),
}

impl DeadLettersArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        match &self.command {
            DeadLettersCommand::Replay(args) if !args.dry_run => AuditedChange::new("replay dead letters of", "stream", &args.stream),
            DeadLettersCommand::Replay(_) | DeadLettersCommand::List(_) | DeadLettersCommand::Export(_) => None,
        }
    }
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only this stream
    stream: Option<String>,
    /// List the events that this view leaves out because it fails on them, instead of dead letters
    #[arg(long, value_name = "VIEW", conflicts_with_all = ["stream", "reason", "partition", "offset", "since"])]
    view: Option<String>,
    #[command(flatten)]
    selection: SelectionArgs,
    /// How many are shown; all are counted
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// The stream whose dead letters are exported
    #[arg(required_unless_present = "view")]
    stream: Option<String>,
    /// Export the events that this view leaves out because it fails on them, with their columns, instead of dead
    /// letters
    #[arg(long, value_name = "VIEW", conflicts_with_all = ["stream", "reason", "partition", "offset", "since"])]
    view: Option<String>,
    /// A file that does not exist yet; `-` is standard output
    #[arg(long, value_name = "FILE")]
    to: String,
    #[command(flatten)]
    selection: SelectionArgs,
}

#[derive(Debug, Args)]
struct DeadLetterReplayArgs {
    /// The stream whose dead letters are sent again
    stream: String,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Send the lines of this file, made by `export` and corrected, instead of the original bytes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["reason", "partition", "offset", "since"])]
    file: Option<PathBuf>,
    /// Also send records that are still not events of the stream: they become dead letters again
    #[arg(long)]
    produce_invalid: bool,
    /// Report what would be sent, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Send at most this many; a repeat sends the next ones
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

#[derive(Debug, Args)]
struct SelectionArgs {
    /// Those whose reason contains this text
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Those of one partition
    #[arg(long, value_name = "P")]
    partition: Option<i32>,
    /// The one at this offset of the partition
    #[arg(long, value_name = "O", requires = "partition")]
    offset: Option<i64>,
    /// Those that the log received since then: a time (RFC 3339 with a zone), or a duration before now such as 2h
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Micros>,
}

impl From<SelectionArgs> for Selection {
    fn from(args: SelectionArgs) -> Self {
        Selection { partition: args.partition, offset: args.offset.map(Offset), reason: args.reason, since: args.since }
    }
}

pub(super) async fn dead_letters(context: &Context, args: DeadLettersArgs) -> Result<Done> {
    match args.command {
        DeadLettersCommand::List(args) => list(context, args).await,
        DeadLettersCommand::Export(args) => export(context, args).await,
        DeadLettersCommand::Replay(args) => replay(context, args).await,
    }
}

async fn list(context: &Context, args: ListArgs) -> Result<Done> {
    let installation = context.installation().await?;
    if let Some(view) = &args.view {
        let errors = dead_letters::list_view(&installation, view, args.limit as usize).await?;
        context.output.print(&errors, || view_errors_text(&errors))?;
        return Ok(Done::Success);
    }
    let bar = bar(context, &installation, args.stream.as_deref()).await?;
    let listing =
        dead_letters::list(&installation, args.stream.as_deref(), &args.selection.into(), args.limit as usize, |n| bar.set_position(n))
            .await;
    bar.finish_and_clear();
    let listing = listing?;
    context.output.print(&listing, || list_text(&listing))?;
    Ok(done(&listing.damaged))
}

async fn export(context: &Context, args: ExportArgs) -> Result<Done> {
    let installation = context.installation().await?;
    if let Some(view) = &args.view {
        return export_view(context, &installation, view, &args.to).await;
    }
    let stream = args.stream.unwrap_or_default();
    let bar = bar(context, &installation, Some(&stream)).await?;
    let summary = dead_letters::export(&installation, &stream, &args.selection.into(), &args.to, |n| bar.set_position(n)).await;
    bar.finish_and_clear();
    let summary = summary?;
    if summary.exported == 0 && summary.damaged.is_empty() {
        let value = json!({ "stream": stream, "file": null, "exported": 0, "damaged": [] });
        return nothing_exported(context, &args.to, &value, &format!("the stream \"{stream}\" has no dead letters"));
    }
    if args.to == "-" {
        // Only the lines go to standard output.
        eprint!("{}", damaged_text(&summary.damaged));
    } else {
        let value = json!({ "stream": stream, "file": args.to, "exported": summary.exported, "damaged": summary.damaged });
        context.output.print(&value, || export_text(&args.to, &summary))?;
    }
    Ok(done(&summary.damaged))
}

async fn export_view(context: &Context, installation: &Installation, view: &str, to: &str) -> Result<Done> {
    let events = dead_letters::events_read(installation, view).await?;
    let bar = progress::things(view, events, !context.output.json);
    let summary = dead_letters::export_view(installation, view, to, |n| bar.set_position(n)).await;
    bar.finish_and_clear();
    let summary = summary?;
    if summary.exported == 0 {
        let value = json!({ "view": view, "file": null, "exported": 0 });
        return nothing_exported(context, to, &value, &format!("the view \"{view}\" fails on no event"));
    }
    if to != "-" {
        let value = json!({ "view": view, "file": to, "exported": summary.exported });
        context.output.print(&value, || format!("{} written to {to}", count_of(summary.exported, "event")))?;
    }
    Ok(Done::Success)
}

fn nothing_exported(context: &Context, to: &str, value: &Value, why: &str) -> Result<Done> {
    match to {
        // Only the lines go to standard output.
        "-" => print_note(why),
        _ => context.output.print(value, || format!("{why}: {to} is not written"))?,
    }
    Ok(Done::Success)
}

async fn replay(context: &Context, args: DeadLetterReplayArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let options = ReplayOptions {
        selection: args.selection.into(),
        file: args.file,
        produce_invalid: args.produce_invalid,
        dry_run: args.dry_run,
        limit: args.limit,
    };
    let bar = bar(context, &installation, Some(&args.stream)).await?;
    let summary = dead_letters::replay(&installation, &args.stream, &options, |n| bar.set_position(n)).await;
    bar.finish_and_clear();
    let summary = summary?;
    context.output.print(&json!({ "stream": args.stream, "dry_run": args.dry_run, "summary": summary }), || {
        replay_text(&args.stream, &options, &summary)
    })?;
    Ok(if each_was_refused(&summary) { Done::Found } else { done(&summary.damaged) })
}

/// Among the records that were not in the log yet.
fn each_was_refused(summary: &ReplaySummary) -> bool {
    summary.replayed == 0 && summary.recovered == 0 && summary.refused > 0
}

fn done(damaged: &[DamagedFile]) -> Done {
    if damaged.is_empty() { Done::Success } else { Done::Found }
}

/// Creates a progress bar over as many dead letters as the catalog counts.
async fn bar(context: &Context, installation: &Installation, stream: Option<&str>) -> Result<indicatif::ProgressBar> {
    let state = installation.catalog.state().await?;
    let files = state.readable(FileKind::DeadLetters);
    let rows =
        files.filter(|file| stream.is_none_or(|stream| file.subject.as_deref() == Some(stream))).map(|file| file.rows.max(0) as u64).sum();
    Ok(progress::things(stream.unwrap_or("dead letters"), rows, !context.output.json))
}

fn list_text(listing: &DeadLetterListing) -> String {
    let mut text = match listing.count {
        0 if listing.damaged.is_empty() => "no dead letters".to_owned(),
        _ => letters_text(&listing.dead_letters),
    };
    let shown = listing.dead_letters.len() as i64;
    if shown < listing.count {
        let _ = write!(text, "\n({shown} of {}; --limit shows more)", listing.count);
    }
    if !listing.reasons.is_empty() {
        let rows =
            listing.reasons.iter().map(|r| vec![r.count.to_string(), r.replayed.to_string(), r.stream.to_string(), r.reason.clone()]);
        let _ = write!(text, "\n\n{}", table(&["count", "replayed", "stream", "reason"], rows));
    }
    text + &damaged_text(&listing.damaged)
}

fn view_errors_text(errors: &ViewErrors) -> String {
    if errors.count == 0 {
        return format!("{}: fails on no event up to the last checkpoint", errors.view);
    }
    let rows = errors
        .events
        .iter()
        .map(|event| vec![event.stream.to_string(), event.partition.to_string(), event.offset.to_string(), one_line(&event.reason)]);
    let mut text = table(&["stream", "partition", "offset", "reason"], rows);
    let shown = errors.events.len() as u64;
    if shown < errors.count {
        let _ = write!(
            text,
            "\n({shown} of {}; --limit shows more, and `dead-letters export --view {}` writes all)",
            errors.count, errors.view
        );
    }
    text
}

/// Formats a row for each dead letter, with long values on lines below it.
fn letters_text(letters: &[ListedLetter]) -> String {
    let rows = letters.iter().map(|letter| {
        let timestamp = letter.timestamp.as_deref().unwrap_or("-");
        let replayed = if letter.replayed { "yes" } else { "-" };
        let key = letter.key.as_deref().unwrap_or("-");
        [&*letter.stream, &letter.partition.to_string(), &letter.offset.to_string(), timestamp, replayed, key].map(str::to_owned).to_vec()
    });
    let table = table(&["stream", "partition", "offset", "timestamp", "replayed", "key"], rows);
    let mut lines = table.lines();
    let mut text = lines.next().unwrap_or_default().to_owned();
    for (line, letter) in lines.zip(letters) {
        let _ = write!(text, "\n{line}\n    reason: {}", one_line(&letter.reason));
        let _ = letter.value.as_ref().map_or(Ok(()), |value| write!(text, "\n    value:  {value}"));
    }
    text
}

fn export_text(to: &str, summary: &ExportSummary) -> String {
    format!("{} written to {to}{}", count_of(summary.exported, "dead letter"), damaged_text(&summary.damaged))
}

fn replay_text(stream: &str, options: &ReplayOptions, summary: &ReplaySummary) -> String {
    if summary.is_empty() {
        return format!("{stream}: no dead letters to replay");
    }
    let of_all = count_of(summary.replayed + summary.refused, "dead letter");
    let mut text = format!("{stream}: {} of {of_all} ", summary.replayed);
    let _ = match options.dry_run {
        true => write!(text, "would be appended to the log"),
        false => write!(text, "appended to the log in {:.1} s", summary.seconds),
    };
    if summary.limit_reached {
        text.push_str("\nthe limit is reached: those that follow were not looked at");
    }
    if summary.recovered > 0 {
        let _ = write!(
            text,
            "\n{} were appended by an earlier replay that stopped before it finished; they are not sent again",
            summary.recovered
        );
    }
    if summary.already > 0 {
        let _ = write!(text, "\n{} more were replayed before", summary.already);
    }
    if summary.refused > 0 {
        let _ = match summary.refused {
            1 => write!(text, "\n1 is refused: it would become a dead letter again"),
            refused => write!(text, "\n{refused} are refused: they would become dead letters again"),
        };
        for (reason, count) in &summary.refused_reasons {
            let _ = write!(text, "\n  {}: {reason}", count_of(*count, "record"));
        }
        for refused in &summary.first_refused {
            let line = refused.line.map_or(String::new(), |line| format!("line {line}, "));
            let _ = write!(text, "\n  {line}partition {}, offset {}: {}", refused.partition, refused.offset, refused.reason);
        }
        let _ = write!(text, "\nchange the stream's definition, or export them, correct the values and replay with --file");
    }
    text + &damaged_text(&summary.damaged)
}

fn damaged_text(damaged: &[DamagedFile]) -> String {
    let mut text = String::new();
    for file in damaged {
        let _ = write!(text, "\nnot read: {} ({}): {}", file.file, count_of(file.rows, "dead letter"), file.error);
    }
    if !text.is_empty() {
        let _ = writeln!(text, "\nthe others were read; `basestream repair` rebuilds damaged files from the log, as far back as it goes");
    }
    text
}

fn since(text: &str) -> Result<Micros, String> {
    if let Ok(before) = parse_duration(text) {
        return Ok(now().saturating_sub(i64::try_from(before.as_micros()).unwrap_or(i64::MAX)));
    }
    parse_timestamp(text).map_err(|_| format!("found \"{text}\", expected a time such as 2026-05-01T12:00:00Z or a duration such as 2h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_and_a_value_stand_below_their_row_and_pad_nothing() {
        let listed = |offset, value: Option<&str>| ListedLetter {
            stream: "orders".into(),
            partition: 0,
            offset: Offset(offset),
            timestamp: None,
            reason: "x".repeat(190),
            key: Some("k".into()),
            value: value.map(str::to_owned),
            value_bytes: 3,
            replayed: false,
        };
        let text = letters_text(&[listed(17, Some("{}x")), listed(4, None)]);
        let reason = format!("    reason: {}", "x".repeat(190));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "stream  partition  offset  timestamp  replayed  key",
                "orders  0          17      -          -         k",
                reason.as_str(),
                "    value:  {}x",
                "orders  0          4       -          -         k",
                reason.as_str(),
            ]
        );
    }

    #[test]
    fn a_replay_fails_when_each_that_was_left_is_refused() {
        let summary = |replayed, already, recovered, refused| ReplaySummary { replayed, already, recovered, refused, ..Default::default() };
        let cases = [
            (summary(0, 0, 0, 3), true),
            (summary(0, 5, 0, 3), true),
            (summary(1, 0, 0, 3), false),
            (summary(0, 0, 2, 3), false),
            (summary(0, 5, 0, 0), false),
        ];
        for (summary, expected) in cases {
            assert_eq!(each_was_refused(&summary), expected, "{summary:?}");
        }
        let text = replay_text("orders", &ReplayOptions::default(), &summary(0, 5, 0, 3));
        assert!(text.starts_with("orders: 0 of 3 dead letters appended to the log"), "{text}");
        assert!(text.contains("\n5 more were replayed before\n3 are refused"), "{text}");
    }

    #[test]
    fn a_replay_says_how_many_records_have_a_reason_and_a_dry_run_takes_no_time() {
        let reasons = vec![("found ..".to_owned(), 2), ("found nothing".to_owned(), 1)];
        let summary = ReplaySummary { refused: 3, refused_reasons: reasons, ..Default::default() };
        let text = replay_text("orders", &ReplayOptions { dry_run: true, ..ReplayOptions::default() }, &summary);
        assert!(text.starts_with("orders: 0 of 3 dead letters would be appended to the log\n"), "{text}");
        assert!(text.contains("\n  2 records: found ..\n  1 record: found nothing\n"), "{text}");
    }
}
