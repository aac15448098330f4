//! Decides when the layers of an epoch are merged: by size, as in an LSM tree.

use std::collections::BTreeSet;

/// This many layers of similar size become one.
const LAYERS_MERGED: usize = 4;

/// Returns the index from which layers of these sizes, oldest first, are merged: the newest ones, up to a size class
/// that has four layers. Size classes are powers of four, so a row is merged once for every fourfold growth of its
/// epoch.
pub(super) fn merged_from(sizes: &[usize]) -> usize {
    let tier = |size: usize| size.max(1).ilog(LAYERS_MERGED);
    let newest = |most: u32| sizes.iter().rposition(|size| tier(*size) > most).map_or(0, |older| older + 1);
    let is_due = |most: &u32| {
        let newest = &sizes[newest(*most)..];
        newest.iter().filter(|size| tier(**size) == *most).count() >= LAYERS_MERGED || newest.len() >= LAYERS_MERGED * LAYERS_MERGED
    };
    let tiers: BTreeSet<u32> = sizes.iter().map(|size| tier(*size)).collect();
    tiers.into_iter().find(is_due).map_or(sizes.len(), newest)
}

#[cfg(test)]
mod tests;
