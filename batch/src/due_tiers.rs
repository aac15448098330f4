//! Decides which tiers of the previous snapshot an incremental run merges: pure functions of its manifest.

use committed::registry::LiveView;
use storage::{Manifest, Tier};
use types::tiles::Micros;

/// The base is rewritten once 1/`EXPIRED_PART` of what it held when it was pruned may have expired. With a smaller
/// part, the base of a steady stream would be rewritten too often.
const EXPIRED_PART: Micros = 3;

/// Returns the place of the oldest tier that a run at `t` merges with all newer ones; the number of tiers if none is
/// due.
pub(crate) fn first_due(before: &Manifest, view: &LiveView, t: Micros) -> usize {
    if is_outlived(before, view, t) {
        return 0;
    }
    let tiers: Vec<&Tier> = before.tiers().collect();
    first_to_merge(&tiers).unwrap_or(tiers.len())
}

/// Whether so much of a snapshot may have expired by `t` that its base is rewritten, however little is new. Otherwise
/// the base of a stream that slows down would keep expired rows for as long as its longest window.
pub(crate) fn is_outlived(before: &Manifest, view: &LiveView, t: Micros) -> bool {
    let Some(pruned_at) = before.base.pruned_at else { return false };
    let oldest = view.plan.oldest_kept(pruned_at);
    before.state_files().next().is_some() && oldest.is_some_and(|oldest| is_part_expired(pruned_at, oldest, t))
}

/// Whether too large a part may have expired by `t` of the rows that a tier had from `oldest` on when it was pruned.
fn is_part_expired(pruned_at: Micros, oldest: Micros, t: Micros) -> bool {
    t.saturating_sub(pruned_at) > pruned_at.saturating_sub(oldest) / EXPIRED_PART
}

/// Returns the place of the oldest tier whose size makes it due, if any is. The base is at place 0.
///
/// A delta is due once the newer ones together are as large as it, the base once they are half as large. So each tier
/// is larger than all newer ones together, there are few of them, and a row is written again only when its tier has
/// doubled: about log2(snapshot / delta) times in all. The base is rewritten earlier than the others because its
/// expired rows take room until then.
fn first_to_merge(tiers: &[&Tier]) -> Option<usize> {
    let bytes: Vec<i64> = tiers.iter().map(|tier| tier.bytes()).collect();
    (0..bytes.len().saturating_sub(1)).find(|place| {
        let newer: i64 = bytes[place + 1..].iter().sum();
        if *place == 0 { newer.saturating_mul(2) >= bytes[0] } else { newer >= bytes[*place] }
    })
}

#[cfg(test)]
mod tests;
