//! Waits for what has to happen.

use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::Programs;
use crate::payments::Project;

/// The longest time to wait for something that has to happen.
const STALLED: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);

/// Waits until a query finds as many rows; its only column is `found`.
pub(super) async fn counted(programs: &Programs, project: &Project, sql: &str, expected: u64) -> Result<()> {
    let began = Instant::now();
    loop {
        let found = project.query(programs, sql)?["found"].as_u64();
        if found == Some(expected) {
            return Ok(());
        }
        stalled(began, sql).map_err(|error| error.with("expected", expected).with("found", found.unwrap_or_default()))?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !is_so() {
        stalled(began, what)?;
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn stalled(began: Instant, what: &str) -> Result<()> {
    match began.elapsed() > STALLED {
        true => Err(Error::unavailable(format!("it did not happen within {} s: {what}", STALLED.as_secs()))),
        false => Ok(()),
    }
}
