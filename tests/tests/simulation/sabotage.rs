//! Checks taken out, one at a time: the simulation has to notice each.

use catalog::{CatalogState, Commit, Expect};

/// The check that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A checkpoint advances its partitions from wherever they stand.
    NoCompareAndAdvance,
    /// A run publishes without holding its lease.
    NoLeaseAtPublishing,
    /// As above, and nobody takes the files of runs that were closed: the check of the cut has to suffice.
    OnlyTheCutCheck,
    /// As above without the check of the cut.
    NoCutCheck,
    /// A transaction may name files that the collector has given up.
    NoDoomedNames,
    /// A node merges states of both sides of a cut, and goes on using them.
    MergeAcrossACut,
    /// A worker that lost a partition commits what is left of its unit.
    PartOfAUnit,
    /// A query over two views reads the catalog once for each.
    TwoStatesPerQuery,
    /// A linked view's far side is read of a later catalog state than its near side.
    SidesOfTwoStates,
}

impl Sabotage {
    /// Whether the collector looks for orphans.
    pub fn leaves_orphans(self) -> bool {
        matches!(self, Sabotage::OnlyTheCutCheck | Sabotage::NoCutCheck)
    }
}

/// The commit as it would be without the check.
pub fn sabotaged(mut commit: Commit, sabotage: Sabotage, state: &CatalogState) -> Commit {
    match sabotage {
        Sabotage::NoCompareAndAdvance => {
            commit.expect.retain(|expect| !matches!(expect, Expect::NextOffset { .. }));
            for advance in &mut commit.advance {
                advance.start = state.vector().get(&advance.partition);
                advance.end = advance.end.max(advance.start);
            }
        }
        Sabotage::NoLeaseAtPublishing | Sabotage::OnlyTheCutCheck => {
            commit.expect.retain(|expect| !matches!(expect, Expect::Lease { .. }));
        }
        Sabotage::NoCutCheck => {
            commit.expect.retain(|expect| !matches!(expect, Expect::Lease { .. } | Expect::CutNotBehind { .. }));
        }
        Sabotage::NoDoomedNames => commit.expect.retain(|expect| !matches!(expect, Expect::NotMarkedForDeletion { .. })),
        _ => {}
    }
    commit
}
