//! `verify`: compares what is served with plain SQL over the archive.

use std::fmt::Write;
use std::sync::Arc;

use clap::Args;
use committed::registry::Registry;
use serde_json::json;
use serving::WantedViews;
use types::Result;

use super::{Context, Done, progress};
use crate::installation::{Installation, now};
use crate::output::{count_of, is_or_are, table};
use crate::served::{JoinedServed, NodeServed};
use crate::verify::{EventsScanned, HttpServed, LogReport, Served, Verifier, VerifyReport, verify_log, verify_view_counting};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream verify device_velocity\n  basestream verify device_velocity --log\n  \
    basestream verify device_links --batch\n  \
    basestream verify device_velocity --url http://127.0.0.1:8080")]
pub(super) struct VerifyArgs {
    /// A view in the catalog
    view: String,
    /// Also compare the archive with the log, record by record, as far back as the log goes
    #[arg(long)]
    log: bool,
    /// Compare what the last batch run of a linked view joined (`<view>__batch`), as of its cut and time
    #[arg(long, conflicts_with = "url")]
    batch: bool,
    /// Compare with the running node at this URL instead of one in this process; BASESTREAM_TOKEN is sent to it
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

pub(super) async fn verify(context: &Context, args: VerifyArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let verifier = Verifier {
        catalog: installation.catalog.clone(),
        storage: installation.storage.clone(),
        functions: installation.functions.clone(),
        memory_limit: installation.settings.batch.memory_limit as usize,
        temp_dir: installation.settings.batch.temp_dir.clone(),
    };
    let views = WantedViews::one(&args.view);
    let served: Box<dyn Served> = match &args.url {
        Some(url) => Box::new(HttpServed::new(url, crate::tokens::from_environment())?),
        None if args.batch => Box::new(JoinedServed(installation.node_of_at_once(views).await?)),
        None => Box::new(NodeServed(installation.node_of(views).await?)),
    };
    let (bar, read) = (progress::counter(&args.view, !context.output.json), EventsScanned::default());
    let verifying = verify_view_counting(&verifier, &args.view, &*served, now(), &read);
    let report = progress::watched(verifying, || bar.set_position(read.count())).await;
    bar.finish_and_clear();
    let report = report?;
    let log = if args.log { compare_log(context, &installation, &verifier, &args.view).await? } else { Vec::new() };
    let equal = report.is_equal() && log.iter().all(LogReport::is_equal);
    let value = json!({ "equal": equal, "view": report, "log": if args.log { Some(&log) } else { None } });
    context.output.print(&value, || verify_text(&report, &log))?;
    Ok(if equal { Done::Success } else { Done::Found })
}

/// Compares the archive of the view's streams with the log.
async fn compare_log(context: &Context, installation: &Installation, verifier: &Verifier, view: &str) -> Result<Vec<LogReport>> {
    let streams = streams_of(installation, view).await?;
    let clock = progress::clock(&format!("the log of {}", streams.join(", ")), !context.output.json);
    let reports = verify_log(verifier, &*installation.log, &streams, now()).await;
    clock.finish_and_clear();
    reports
}

/// Returns the streams of a live view.
async fn streams_of(installation: &Installation, view: &str) -> Result<Vec<Arc<str>>> {
    let state = installation.catalog.state().await?;
    let registry = Registry::load(&state, &installation.functions).await?;
    let plan = registry.served(view).map(|view| view.plan.clone());
    Ok(plan.map(|plan| plan.streams.iter().map(|stream| stream.name.clone()).collect()).unwrap_or_default())
}

fn verify_text(report: &VerifyReport, log: &[LogReport]) -> String {
    let mut text = String::new();
    let _ = write!(text, "{} (version {}) at {}: {}", report.view, report.version, report.t, outcome_text(report));
    if !report.unread.is_empty() && !report.nothing_committed {
        let _ = write!(text, "\n  nothing is committed yet of {}", report.unread.join(", "));
    }
    if !report.approximate.is_empty() {
        let _ = write!(text, "\n  compared with a tolerance: {}", report.approximate.join(", "));
    }
    if report.past > 0 {
        let (values, verb) = (count_of(report.past, "value"), is_or_are(report.past));
        let _ = write!(text, "\n  {values} {verb} past a limit: both sides have an error there");
    }
    if report.crowded > 0 {
        let (rows, verb) = (count_of(report.crowded, "row"), if report.crowded == 1 { "has" } else { "have" });
        let _ = write!(text, "\n  {rows} {verb} more links than max_degree: compared by the bound of an estimate");
    }
    if report.failed > 0 {
        let _ = write!(text, "\n  left out on both sides because the view fails on them: {}", count_of(report.failed, "event"));
    }
    for gap in &report.gaps {
        let _ = write!(text, "\n  accepted as lost: {gap}");
    }
    for difference in &report.differences {
        let _ = write!(text, "\n  {}", serde_json::to_string(difference).unwrap_or_default());
    }
    if !log.is_empty() {
        let _ = write!(text, "\n\n{}", log_table(log));
    }
    text
}

fn outcome_text(report: &VerifyReport) -> String {
    let rows = count_of(report.rows, "row");
    if report.is_equal() && report.nothing_committed {
        let streams = report.unread.join(", ");
        return format!(
            "nothing of {streams} is committed yet, so there was nothing to compare (`basestream up` or `basestream speed` commits it)"
        );
    }
    if report.is_equal() {
        let columns = count_of(report.columns, "column");
        return format!("equal to plain SQL over the archive, {rows} and {columns} in {:.1} s", report.seconds);
    }
    format!("{} from plain SQL over the archive ({rows})", count_of(report.difference_count, "difference"))
}

fn log_table(log: &[LogReport]) -> String {
    let header = [
        "stream",
        "partition",
        "offsets",
        "records",
        "archived",
        "dead letters",
        "duplicates",
        "compacted",
        "lost",
        "missing",
        "extra",
        "different",
    ];
    let rows = log.iter().map(|r| {
        let numbers = [
            r.records,
            r.archived,
            r.dead_lettered,
            r.duplicates,
            r.compacted,
            r.lost.count,
            r.missing.count,
            r.extra.count,
            r.different.count,
        ];
        let head = [r.stream.to_string(), r.partition.to_string(), format!("{}..{}", r.start, r.end)];
        head.into_iter().chain(numbers.iter().map(ToString::to_string)).collect()
    });
    table(&header, rows)
}
