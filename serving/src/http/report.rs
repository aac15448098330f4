//! `GET /v1/status`: what is wrong, and how far everything is, as `basestream status` reports it.
//!
//! One report serves all who ask within a few seconds, however many they are. What one takes depends on how many
//! definitions and partitions there are, and on what the catalog keeps; what takes long is made more rarely.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use types::{Error, Result};

use super::App;
use super::apart::apart;
use super::input::{Json, parameters};
use super::problem::HttpProblem;
use super::status::own_details;

/// A report is this old at most, if it takes little time.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// However long it takes: what waits for a service that does not answer takes long, and is worth knowing.
const LONGEST_KEPT: Duration = Duration::from_secs(15);
/// A report is kept for this many times as long as it took.
const PAUSES: u32 = 20;

/// Rows of each list.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// The lists that grow with what is defined, each with the member that names a row, if `name` chooses among its rows.
const LISTS: [(&str, Option<&str>); 7] = [
    ("problems", None),
    ("streams", Some("stream")),
    ("partitions", Some("stream")),
    ("views", Some("view")),
    ("queued", Some("view")),
    ("sinks", Some("sink")),
    ("alerts", Some("alert")),
];

/// `GET /v1/status[?limit=..][&name=..]`
pub(super) async fn status(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, HttpProblem> {
    let selection = Selection::read(query.as_deref().unwrap_or_default())?;
    apart(async move {
        let report = app.reports.recent(&app).await?;
        Ok(Json(selection.select(&report)).into_response())
    })
    .await
}

/// The last report.
#[derive(Default)]
pub(super) struct Reports(Mutex<Option<MadeReport>>);

struct MadeReport {
    report: Arc<Value>,
    at: Instant,
    took: Duration,
}

impl Reports {
    /// Who asks while a report is made waits for it.
    async fn recent(&self, app: &App) -> Result<Arc<Value>> {
        let mut last = self.0.lock().await;
        let begun = Instant::now();
        if let Some(made) = last.as_ref().filter(|made| begun.saturating_duration_since(made.at) < kept_for(made.took)) {
            return Ok(made.report.clone());
        }
        let reporter =
            app.node.status_reporter().ok_or_else(|| Error::unavailable("this process has no status to report yet: try again"))?;
        let read_view = app.node.read_view()?;
        let report = Arc::new(reporter.report(&read_view, own_details(app, &read_view)).await?);
        let at = Instant::now();
        *last = Some(MadeReport { report: report.clone(), at, took: at.saturating_duration_since(begun) });
        Ok(report)
    }
}

fn kept_for(took: Duration) -> Duration {
    took.saturating_mul(PAUSES).clamp(KEPT_FOR, LONGEST_KEPT)
}

/// Which rows of a report are asked for.
#[derive(Debug)]
struct Selection {
    /// The most of each list.
    limit: usize,
    /// What their names have in them.
    name: String,
}

impl Selection {
    fn read(query: &str) -> Result<Selection> {
        let mut selection = Selection { limit: DEFAULT_LIMIT, name: String::new() };
        for (name, value) in parameters(query)? {
            match &*name {
                "limit" => {
                    let wrong = || Error::input(format!("limit is '{value}': expected 1 to {MAX_LIMIT}"));
                    selection.limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit)).ok_or_else(wrong)?;
                }
                "name" => selection.name = value,
                other => return Err(Error::input(format!("there is no parameter '{other}': expected limit or name"))),
            }
        }
        Ok(selection)
    }

    /// Returns the report with these rows of its lists, and in `counts` how many rows each list would have.
    fn select(&self, report: &Value) -> Value {
        let (mut selected, mut counts) = (Map::new(), Map::new());
        for (member, value) in report.as_object().into_iter().flatten() {
            let list = LISTS.iter().find(|(list, _)| *list == member.as_str());
            let value = match (list, value) {
                (Some((_, name)), Value::Array(rows)) => {
                    let rows: Vec<&Value> = rows.iter().filter(|row| name.is_none_or(|name| self.chooses(&row[name]))).collect();
                    counts.insert(member.clone(), rows.len().into());
                    rows.into_iter().take(self.limit).cloned().collect()
                }
                _ => value.clone(),
            };
            selected.insert(member.clone(), value);
        }
        selected.insert("counts".to_owned(), counts.into());
        selected.into()
    }

    fn chooses(&self, name: &Value) -> bool {
        name.as_str().is_some_and(|name| name.contains(&self.name))
    }
}

#[cfg(test)]
mod tests;
