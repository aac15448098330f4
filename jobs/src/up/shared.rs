//! Warns when another process also reads partitions and this one does not follow it. Two `up` on the same URLs then
//! each answer half of the events late, although neither has a fault.

use std::time::Duration;

use definitions::durations::format_duration;
use feed::LinkState;
use serving::Node;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::parts::{Parts, Stage};
use crate::installation::{Installation, now};
use crate::readers::read_elsewhere;

/// How often to look for checkpoints of other processes.
const LOOK: Duration = Duration::from_secs(5);
/// Checkpoints committed within this many intervals after the start may be the last ones of a process that has ended.
const INTERVALS: u32 = 2;

/// Starts [`watch`] as a part.
pub(super) fn start(parts: &mut Parts, installation: &Installation, node: Node) {
    let (worker, interval) = (installation.worker.clone(), installation.settings.speed.checkpoint_interval);
    parts.start(Stage::Node, "shared", move |stop| async move {
        watch(node, worker, interval, stop).await;
        Ok(())
    });
}

/// Until `stop` is cancelled, checks the node's loaded catalog state; warns once when another process that is not
/// followed starts to read partitions.
async fn watch(node: Node, worker: String, checkpoint_interval: Duration, stop: CancellationToken) {
    let begun = now().saturating_add(i64::try_from((checkpoint_interval * INTERVALS).as_micros()).unwrap_or(i64::MAX));
    let mut is_reported = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let Some(loaded) = node.loaded() else { continue };
        // The node answers as freshly from the processes that it follows as from its own.
        let followed = node.workers().into_iter().filter(|link| link.state == LinkState::Followed).map(|link| link.worker);
        let fresh: Vec<String> = followed.chain([worker.clone()]).collect();
        let partitions = read_elsewhere(&loaded.state, &fresh, checkpoint_interval, begun, now());
        if partitions > 0 && !is_reported {
            let (of, behind) = (loaded.state.partitions.len(), format_duration(checkpoint_interval));
            warn!(partitions, of, "another process reads these partitions: answers here are up to {behind} behind for them");
        }
        if partitions == 0 && is_reported {
            info!("no other process reads partitions now");
        }
        is_reported = partitions > 0;
    }
}
