//! How fast the speed layer takes a backlog of which half is of one key, and one of keys alike.

use std::path::Path;
use std::time::{Duration, Instant};

use chrono::Utc;
use futures::{StreamExt, TryStreamExt};
use types::{Error, Result};

use super::visits::{HOT, STREAM, Visits, row_of};
use super::{Options, listed};
use crate::Programs;
use crate::asking::Http;
use crate::installed::Installed;
use crate::measured_process::MeasuredProcess;

/// In the speed layer's log, once it has its partitions.
const BEGUN: &str = "partitions taken over";
const LIMIT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(20);
/// Records that are appended together, and how many such parts are made ahead.
const APPENDED: u64 = 10_000;
const AHEAD: usize = 4;

/// One backlog.
pub(super) struct Taken {
    /// Whether half of it is of one key.
    pub(super) is_skewed: bool,
    pub(super) events: u64,
    pub(super) per_second: f64,
    /// What `GET /v1/hot-keys` said of that key.
    pub(super) share: Option<f64>,
}

/// Two backlogs, one after the other.
pub(super) async fn measure(options: &Options, programs: &Programs, folder: &Path) -> Result<Vec<Taken>> {
    let mut taken = Vec::new();
    for hot in [options.backlog / 2, 0].into_iter().take(if options.backlog > 0 { 2 } else { 0 }) {
        let visits = Visits { hot, others: options.backlog - hot, keys: options.keys };
        let folder = folder.join("backlog");
        taken.push(one(&visits, programs, &folder).await?);
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(taken)
}

async fn one(visits: &Visits, programs: &Programs, folder: &Path) -> Result<Taken> {
    let (events, is_skewed) = (visits.hot + visits.others, visits.hot > 0);
    let installed = Installed::create(folder, visits).await?;
    append(&installed, visits, events).await?;
    let mut up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;
    let begun = up.wait_for(BEGUN, LIMIT).await?.timestamp;
    let mut http = Http::connect(&installed.http)?;
    let (waiting, mut share) = (Instant::now(), None);
    loop {
        let (counted, _) = http.counted(&row_of(HOT))?;
        if counted > 0 {
            share = listed::share_of_events(&installed.http)?.or(share);
        }
        // A layer's keys are counted right after answers have it.
        if counted >= events && (!is_skewed || share.is_some()) {
            break;
        }
        up.check()?;
        if waiting.elapsed() > LIMIT {
            return Err(Error::internal("the backlog is not taken in time").with("counted", counted).with("of", events));
        }
        tokio::time::sleep(POLL).await;
    }
    let seconds = (Utc::now() - begun).num_microseconds().unwrap_or_default() as f64 / 1e6;
    up.stop().await?;
    if share.is_some() != is_skewed {
        return Err(Error::internal("a key is hot if it has half of the events, and else none is").with("found", format!("{share:?}")));
    }
    Ok(Taken { is_skewed, events, per_second: events as f64 / seconds.max(1e-6), share })
}

async fn append(installed: &Installed, visits: &Visits, events: u64) -> Result<()> {
    let parts = (0..events.div_ceil(APPENDED)).map(|part| {
        let (visits, numbers) = (visits.clone(), part * APPENDED..((part + 1) * APPENDED).min(events));
        tokio::task::spawn_blocking(move || visits.records(numbers))
    });
    let mut ready = std::pin::pin!(futures::stream::iter(parts).buffered(AHEAD));
    while let Some(records) = ready.try_next().await? {
        installed.installation.log.append(STREAM, records).await?;
    }
    Ok(())
}
