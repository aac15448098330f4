//! Decides which tiers of the snapshot before an incremental run merges: pure functions of its manifest.

use committed::registry::LiveView;
use storage::{Manifest, Tier};
use types::tiles::Micros;

/// The place of the oldest tier that a run at `t` merges with all newer ones; after the last tier if none is due.
pub(crate) fn first_due(before: &Manifest, view: &LiveView, t: Micros) -> usize {
    if is_outlived(&before.base, view, t) {
        return 0;
    }
    let tiers: Vec<&Tier> = before.tiers().collect();
    first_to_merge(&tiers).unwrap_or(tiers.len())
}

/// Whether everything that a tier held when it was pruned may have expired by `t`.
pub(crate) fn is_outlived(tier: &Tier, view: &LiveView, t: Micros) -> bool {
    tier.pruned_at.zip(view.plan.oldest_kept(t)).is_some_and(|(pruned_at, oldest)| pruned_at < oldest)
}

/// Returns the place of the oldest tier whose size makes it due, if any is. The base is at place 0.
///
/// A delta is due once the newer ones together are as large as it, the base once they are half as large. So
/// each tier is larger than all newer ones together, there are few of them, and a row is written again only when its
/// tier has doubled: about log2(snapshot / delta) times in all. The base is rewritten earlier than the others because
/// what has expired in it takes room until then.
fn first_to_merge(tiers: &[&Tier]) -> Option<usize> {
    let bytes: Vec<i64> = tiers.iter().map(|tier| tier.bytes()).collect();
    (0..bytes.len().saturating_sub(1)).find(|place| {
        let newer: i64 = bytes[place + 1..].iter().sum();
        if *place == 0 { newer.saturating_mul(2) >= bytes[0] } else { newer >= bytes[*place] }
    })
}

#[cfg(test)]
mod tests;
