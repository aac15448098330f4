//! Decides which local copies a node deletes when they take more than `serving.cache_bytes`. The copies of served
//! versions always stay. A version that is kept is queried rarely, if ever: its buckets are fetched again when a query
//! needs them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalog::DefinitionStatus;
use engine::fresh::ViewVersion;
use tracing::{info, warn};

use super::Follower;
use crate::copy::SnapshotCopy;
use crate::read_view::LoadedView;

/// What is known of a local copy of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CopySize {
    bytes: u64,
    /// Whether a served version needs it.
    is_needed: bool,
    /// The last query that asked for it; 0: none did.
    asked: u64,
}

/// Returns which copies to give up so that all take at most `most` bytes, as far as those that are not needed do: first
/// those that were not asked for longest.
fn to_give_up(copies: &[CopySize], most: u64) -> Vec<usize> {
    let mut bytes: u64 = copies.iter().map(|copy| copy.bytes).sum();
    let mut others: Vec<usize> = (0..copies.len()).filter(|at| !copies[*at].is_needed && copies[*at].bytes > 0).collect();
    others.sort_by_key(|at| copies[*at].asked);
    let mut given_up = Vec::new();
    for at in others {
        if bytes <= most {
            break;
        }
        bytes -= copies[at].bytes;
        given_up.push(at);
    }
    given_up
}

impl Follower {
    /// Whether a view version's copy is fetched only as far as it is asked for.
    pub(super) fn is_fetched_as_asked(&self, status: DefinitionStatus) -> bool {
        self.0.settings.cache_bytes.is_some() && status == DefinitionStatus::Kept
    }

    /// Gives up copies of these views, which take the place of those that queries read now.
    pub(super) fn give_up_copies(&self, views: &mut BTreeMap<ViewVersion, LoadedView>) {
        let copies: Vec<CopySize> = views.values().map(copy_size).collect();
        let needed: u64 = copies.iter().filter(|copy| copy.is_needed).map(|copy| copy.bytes).sum();
        metrics::gauge!("basestream_serving_cache_bytes").set(copies.iter().map(|copy| copy.bytes).sum::<u64>() as f64);
        metrics::gauge!("basestream_serving_cache_needed_bytes").set(needed as f64);
        let Some(most) = self.0.settings.cache_bytes else { return };
        if self.0.is_cache_small.swap(needed > most, Ordering::Relaxed) != (needed > most) && needed > most {
            warn!(needed, most, "the local copies of the views that are served take more than serving.cache_bytes: they stay");
        }
        let given_up = to_give_up(&copies, most);
        for (_, (version, view)) in views.iter_mut().enumerate().filter(|(at, _)| given_up.contains(at)) {
            let Some(copy) = &view.snapshot else { continue };
            info!(view = %version.name, version = version.version, bytes = copy.local_bytes(), "the local copy of a kept version is given up");
            let again = SnapshotCopy::begin(&self.0.storage, copy.manifest.clone(), &view.live, &self.0.settings.cache, None);
            view.snapshot = Some(Arc::new(again));
        }
    }
}

fn copy_size(view: &LoadedView) -> CopySize {
    let (bytes, asked) = view.snapshot.as_ref().map_or((0, 0), |copy| (copy.local_bytes(), copy.asked()));
    // The copy of a snapshot whose successor cannot be loaded may be all that is left of it.
    CopySize { bytes, is_needed: view.live.status != DefinitionStatus::Kept || view.lost.is_some(), asked }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn copies() -> impl Strategy<Value = Vec<CopySize>> {
        let copy = (0u64..100, any::<bool>(), 0u64..9).prop_map(|(bytes, is_needed, asked)| CopySize { bytes, is_needed, asked });
        prop::collection::vec(copy, 0..9)
    }

    proptest! {
        /// What is needed stays. The rest goes until all fit, none in vain, and none while one stays that was asked
        /// earlier.
        #[test]
        fn what_is_given_up_was_asked_longest_ago_and_is_not_needed(copies in copies(), most in 0u64..400) {
            let given_up = to_give_up(&copies, most);
            let stays: Vec<&CopySize> = (0..copies.len()).filter(|at| !given_up.contains(at)).map(|at| &copies[at]).collect();
            let bytes: u64 = stays.iter().map(|copy| copy.bytes).sum();
            prop_assert!(given_up.iter().all(|at| !copies[*at].is_needed));
            prop_assert!(bytes <= most || stays.iter().all(|copy| copy.is_needed || copy.bytes == 0));
            if let Some(last) = given_up.last() {
                prop_assert!(bytes + copies[*last].bytes > most);
                let stays_longer = |copy: &&CopySize| !copy.is_needed && copy.bytes > 0 && copy.asked < copies[*last].asked;
                prop_assert!(!stays.into_iter().any(|copy| stays_longer(&copy)));
            }
        }
    }
}
