//! The limits that a view's definition sets for its runs: memory and time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catalog::{CatalogState, DefinitionKind, RunRecord};
use definitions::durations::{format_bytes, format_duration_parts};
use definitions::parse::parse_view;
use types::{Error, ErrorKind, Result};

use crate::layer::{Batch, RunSettings};
use crate::mode::RunMode;

/// The limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RunLimits {
    memory_bytes: Option<usize>,
    timeout: Option<Duration>,
}

impl RunLimits {
    /// Returns the limits of the run's view version. There are none if its definition does not parse, which the run
    /// reports. A requested replay has no time limit: its duration follows from its rate.
    pub(crate) fn from_definition(state: &CatalogState, run: &RunRecord, mode: RunMode) -> RunLimits {
        let mut views = state.live(DefinitionKind::View);
        let record = views.find(|record| record.name == run.view && record.version == run.version);
        let Some(definition) = record.and_then(|record| parse_view(&record.sql).ok()) else { return RunLimits::default() };
        let memory_bytes = definition.memory_limit.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let timeout = definition.timeout.filter(|_| !matches!(mode, RunMode::Replay(_)));
        RunLimits { memory_bytes, timeout }
    }

    /// Returns the batch layer under these limits. A view's memory limit lowers the process's and cannot raise it.
    pub(crate) fn applied_to(self, batch: &Batch) -> Batch {
        let memory_limit_bytes = self.memory_limit_bytes(&batch.settings);
        Batch { settings: RunSettings { memory_limit_bytes, ..batch.settings.clone() }, ..batch.clone() }
    }

    pub(crate) fn timeout(self) -> Option<Duration> {
        self.timeout
    }

    /// Waits until the run has taken too long, and returns the error that ends it. Waits for ever if there is no limit,
    /// or if the snapshot is `made` by then and only needs to be compared and published.
    pub(crate) async fn time_out(self, made: &AtomicBool) -> Error {
        let Some(timeout) = self.timeout else { return std::future::pending().await };
        tokio::time::sleep(timeout).await;
        if made.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        timed_out(timeout)
    }

    /// Limits a step to the time that the run had before it.
    ///
    /// Errors: that of [`RunLimits::time_out`], and those of the step.
    pub(crate) async fn in_time<T>(self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(timeout) = self.timeout else { return step.await };
        tokio::time::timeout(timeout, step).await.unwrap_or_else(|_| Err(timed_out(timeout)))
    }

    /// Adds the setting to raise to errors about memory, because DataFusion's errors name its own settings.
    pub(crate) fn with_help(self, error: Error, settings: &RunSettings) -> Error {
        if error.kind() != ErrorKind::Limit {
            return error;
        }
        let limit = format_bytes((self.memory_limit_bytes(settings) as u64 >> 20) << 20);
        match self.is_lower_than(settings) {
            true => error.with("help", format_args!("raise `memory_limit` in the view's options, which is {limit}")),
            false => error.with("help", format_args!("raise `memory_limit` in [batch]: this run may take {limit} of it")),
        }
    }

    fn memory_limit_bytes(self, settings: &RunSettings) -> usize {
        self.memory_bytes.map_or(settings.memory_limit_bytes, |bytes| bytes.min(settings.memory_limit_bytes))
    }

    fn is_lower_than(self, settings: &RunSettings) -> bool {
        self.memory_limit_bytes(settings) < settings.memory_limit_bytes
    }
}

fn timed_out(timeout: Duration) -> Error {
    let message = format!("timed out after {}: the run took longer than the view's timeout", format_duration_parts(timeout));
    Error::unavailable(message).with("help", "raise `timeout` in the view's options, or give its runs more memory or cores in [batch]")
}

#[cfg(test)]
mod tests;
