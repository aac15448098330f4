//! Whether every event that arrived is counted once in the end.

use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::Programs;
use crate::measured_process::MeasuredProcess;
use crate::payments::{Payments, Project, VIEW};
use crate::probe::Http;

/// The longest time until everything is counted after the last event.
pub(super) const CATCH_UP: Duration = Duration::from_secs(120);

/// Checks that every event that arrived is counted once, probes included.
pub(super) async fn check(
    http: &Http,
    project: &Project,
    programs: &Programs,
    process: MeasuredProcess,
    arrived: &Payments,
    probes: u64,
) -> Result<()> {
    let began = Instant::now();
    let expected = arrived.records + probes;
    while http.counted().await? < expected {
        if began.elapsed() > CATCH_UP {
            return Err(Error::unavailable("not every event was counted").with("found", http.counted().await?).with("expected", expected));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    process.stop().await?;
    let row = project.query(programs, &format!("SELECT sum(events_1h) AS events FROM {VIEW}"))?;
    let expected = arrived.truth().events + probes;
    if row["events"].as_u64() == Some(expected) {
        return Ok(());
    }
    Err(Error::internal("the view counts other events than arrived").with("found", &row["events"]).with("expected", expected))
}
