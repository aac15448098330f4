//! The load during lookups: events arrive, and batch runs.

use std::time::Instant;

use types::Result;

use super::Options;
use crate::Programs;
use crate::feed::{Fed, Feed};
use crate::installed::Installed;
use crate::purchases::Purchases;
use crate::purchases::arriving::Arriving;
use crate::runs::Runs;

pub(super) struct Busy {
    feed: Feed,
    runs: Runs,
}

/// What happened during the lookups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meanwhile {
    pub(super) fed: Fed,
    /// Batch runs that succeeded.
    pub(super) runs: u64,
}

impl Busy {
    pub(super) async fn start(
        options: &Options,
        programs: &Programs,
        installed: &Installed,
        purchases: &Purchases,
        number: u64,
    ) -> Result<Busy> {
        let source = Arriving { purchases: purchases.clone(), number, next: 0 };
        let feed = Feed::start(installed.installation.log.clone(), source, options.rate).await?;
        let views = purchases.views.iter().map(|(view, _)| view.clone()).collect();
        Ok(Busy { feed, runs: Runs::start(programs, installed.config(), views) })
    }

    pub(super) async fn finish(self, from: (u64, Instant), to: (u64, Instant)) -> Result<Meanwhile> {
        let fed = self.feed.finish(from, to).await?;
        let runs = tokio::task::spawn_blocking(|| self.runs.finish()).await??;
        Ok(Meanwhile { fed, runs })
    }
}
