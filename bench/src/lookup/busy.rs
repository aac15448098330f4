//! The load during lookups: events arrive, mostly while batch runs.

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

/// Events arrive. `number` distinguishes them from those of other feeds.
pub(super) async fn feed(options: &Options, installed: &Installed, purchases: &Purchases, number: u64) -> Result<Feed> {
    let source = Arriving { purchases: purchases.clone(), number, next: 0 };
    Feed::start(installed.installation.log.clone(), source, options.rate).await
}

impl Busy {
    pub(super) async fn start(
        options: &Options,
        programs: &Programs,
        installed: &Installed,
        purchases: &Purchases,
        number: u64,
    ) -> Result<Busy> {
        let feed = feed(options, installed, purchases, number).await?;
        let views = purchases.views.iter().map(|(view, _)| view.clone()).collect();
        Ok(Busy { feed, runs: Runs::start(programs, installed.config(), views) })
    }

    pub(super) async fn finish(self, from: (u64, Instant), to: (u64, Instant)) -> Result<Meanwhile> {
        let fed = self.feed.finish(from, to).await?;
        let runs = tokio::task::spawn_blocking(|| self.runs.finish()).await??;
        Ok(Meanwhile { fed, runs })
    }
}
