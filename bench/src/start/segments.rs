//! Creates checkpoints after a snapshot by a worker of the speed layer, faster than in real time.

use std::time::Duration;

use catalog::CatalogState;
use jobs::Installation;
use tokio_util::sync::CancellationToken;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};
use types::{Error, Result};

use crate::events::END;
use crate::feed::Source;
use crate::purchases::arriving::Arriving;
use crate::purchases::{FOUR_WINDOWS, Purchases, STREAM, Window};

/// The number of checkpoints and events created.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Segments {
    pub(super) checkpoints: u64,
    pub(super) events: u64,
}

/// Short, so that what is appended is committed soon.
const INTERVAL: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(60);

/// Makes segments of events that arrive after the purchases.
pub(super) async fn make(installation: &Installation, purchases: &Purchases, times: u64, events: u64) -> Result<Segments> {
    let mut source = Arriving { purchases: purchases.clone(), number: 1, next: 0 };
    let checkpoints = commit(installation, &mut source, (times, events), INTERVAL).await?;
    Ok(Segments { checkpoints, events: times * events })
}

/// Appends events repeatedly, waiting each time until they are committed. Returns the number of checkpoints: a worker
/// may make two of what was appended at once.
pub(super) async fn commit(
    installation: &Installation,
    source: &mut Arriving,
    (times, events): (u64, u64),
    interval: Duration,
) -> Result<u64> {
    let before = installation.catalog.state().await?.checkpoints.len() as u64;
    let mut often = installation.clone();
    often.settings.speed.checkpoint_interval = interval;
    let speed = often.speed(&format!("{}-segments", often.worker), None);
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let stop = stop.clone();
        async move { speed.run(stop).await }
    });
    for _ in 0..times {
        for (topic, records) in source.take(events) {
            installation.log.append(&topic, records).await?;
        }
        committed(installation).await?;
    }
    stop.cancel();
    working.await??;
    Ok(installation.catalog.state().await?.checkpoints.len() as u64 - before)
}

/// The window that shows whether all events are counted.
pub(super) const WINDOW: Window = FOUR_WINDOWS[3];

/// Events of an account in that window, after this many have arrived.
pub(super) fn counted(purchases: &Purchases, arrived: u64, account: u64) -> u64 {
    let start = WINDOW.start(END + arrived as Micros - 1);
    let is_own = |number: &u64| purchases.purchase(*number).account == account;
    let before = (0..purchases.events).filter(is_own).filter(|number| purchases.purchase(*number).ts >= start);
    (before.count() + (0..arrived).filter(is_own).count()) as u64
}

async fn committed(installation: &Installation) -> Result<()> {
    let began = std::time::Instant::now();
    while began.elapsed() < LONGEST {
        let bounds = installation.log.bounds(STREAM).await?;
        let vector: Vector = CatalogState::vector(&*installation.catalog.state().await?);
        if bounds.iter().all(|bound| vector.get(&PartitionId::new(STREAM, bound.partition)) >= bound.end) {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    Err(Error::unavailable(format!("what was appended was not committed within {} s", LONGEST.as_secs())))
}
