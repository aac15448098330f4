//! Removes checks, one at a time: the simulation has to detect each.

use catalog::{Add, CatalogState, Commit, Expect};

/// The check that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A checkpoint advances its partitions from any position.
    NoCompareAndAdvance,
    /// A run publishes without holding its lease.
    NoLeaseAtPublishing,
    /// As above, and the files of closed runs are not collected: the check of the cut must be sufficient.
    OnlyTheCutCheck,
    /// As above without the check of the cut.
    NoCutCheck,
    /// A run does not take over the files that it carries over.
    CarriedFilesKeepTheirRun,
    /// Checkpoints are compacted across the cut of a snapshot.
    CompactionAcrossACut,
    /// A compaction marks the files that it replaces for deletion at once.
    CompactedFilesGoAtOnce,
    /// A compaction does not ask whether the files that it has read are still those of their checkpoints.
    CompactionOfReplacedFiles,
    /// Whoever finds checkpoints to compact does so, without a lease.
    CompactionWithoutLease,
    /// The log is trimmed up to the committed vector, whatever a replay pins.
    PinsAreTrimmed,
    /// A transaction may name files that are marked for deletion.
    NoCheckOfMarkedNames,
    /// A node merges states of both sides of a cut, and keeps using them.
    MergeAcrossACut,
    /// A worker that lost a partition commits the rest of its epoch.
    PartOfAnEpoch,
    /// A query over two views reads the catalog once for each.
    TwoStatesPerQuery,
    /// A linked view's far side is read from a later catalog state than its near side.
    SidesOfTwoStates,
    /// A rollback takes the served version away in a transaction of its own.
    RollbackInTwoCommits,
    /// A query reads what there is, also where an earlier one read more.
    NewestIsNotKept,
    /// A process that takes an alert over puts out what the catalog does not know to be in the topic.
    LogIsNotAsked,
    /// It evaluates at positions before the one from which the last transitions were made.
    AlertGoesBack,
    /// Transitions are noted as being in the topic before they are put out.
    NotedBeforePutOut,
    /// A worker that takes the output of a sink over does not ask what is out.
    OutputIsNotAsked,
    /// Whoever lost the output of a sink appends to it as before.
    OutputHasNoOwner,
    /// A checkpoint is committed before the records of its events are put out.
    RecordsAfterTheCheckpoint,
    /// Another version of a sink is recorded for events whose records are out.
    SwitchBeforeWhatIsOut,
}

impl Sabotage {
    /// Whether it shows only where there is a sink.
    pub fn is_of_sinks(self) -> bool {
        use Sabotage::{OutputHasNoOwner, OutputIsNotAsked, RecordsAfterTheCheckpoint, SwitchBeforeWhatIsOut};
        matches!(self, OutputHasNoOwner | OutputIsNotAsked | RecordsAfterTheCheckpoint | SwitchBeforeWhatIsOut)
    }

    /// Whether the collector leaves orphans alone.
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
            commit.expect.retain(|expect| !is_lease_of_run(expect));
        }
        Sabotage::NoCutCheck => {
            commit.expect.retain(|expect| !is_lease_of_run(expect) && !matches!(expect, Expect::CutNotBehind { .. }));
        }
        Sabotage::CarriedFilesKeepTheirRun => {
            commit.add.retain(|add| !matches!(add, Add::TakeOver { .. }));
        }
        // No other commit of the simulation expects named files.
        Sabotage::CompactionOfReplacedFiles => commit.expect.retain(|expect| !matches!(expect, Expect::Named { .. })),
        Sabotage::NoCheckOfMarkedNames => commit.expect.retain(|expect| !matches!(expect, Expect::NotMarkedForDeletion { .. })),
        _ => {}
    }
    commit
}

/// Alerts have leases too.
fn is_lease_of_run(expect: &Expect) -> bool {
    matches!(expect, Expect::Lease { name, .. } if name.starts_with("run/"))
}
