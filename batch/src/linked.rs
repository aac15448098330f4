//! The runs of linked views: the edges of a snapshot's tiers in local files, and the join over them.

use std::sync::Arc;

use committed::registry::LiveView;
use storage::{Manifest, MaterialisedJoin, Tier};
use types::Result;
use types::tiles::Micros;

use crate::attempt::Attempt;
use crate::join::{CopiedTier, Join, LocalEdges, LocalTier, WrittenJoin, changes_with_time, edges_of};
use crate::write::Written;

/// An incremental run of a linked view.
pub(crate) struct LinkedRun {
    pub(crate) local: LocalEdges,
    /// The tiers of the previous snapshot.
    pub(crate) before: Vec<CopiedTier>,
}

/// Where a linked view's edges are written locally; `None` for other views.
pub(crate) fn local_edges(attempt: &Attempt<'_>) -> Option<LocalEdges> {
    LocalEdges::for_linked_view(attempt.settings.temp_dir.clone(), &attempt.view, attempt.pool.clone())
}

impl LinkedRun {
    /// Copies those tiers of the previous snapshot of which this process has no copy. `None` for a view that is not
    /// linked.
    pub(crate) async fn begin(attempt: &Attempt<'_>, before: &Manifest) -> Result<Option<LinkedRun>> {
        let Some(local) = local_edges(attempt) else { return Ok(None) };
        let left = attempt.copies.as_ref().map_or_else(|| attempt.batch.copies.left_by_last_run(&attempt.view.view_version()), Vec::clone);
        let mut tiers = Vec::new();
        for tier in before.tiers() {
            let copy = match left.iter().find(|known| known.tier == *tier) {
                Some(known) => known.copy.clone(),
                None => Arc::new(local.copied(&attempt.batch.storage, tier, attempt.settings.thread_count()).await?),
            };
            tiers.push(CopiedTier { tier: tier.clone(), copy });
        }
        Ok(Some(LinkedRun { local, before: tiers }))
    }

    /// The copies of the tiers that the new snapshot shares with the previous one.
    pub(crate) fn kept_tiers(&self, count: usize) -> Vec<CopiedTier> {
        self.before[..count].to_vec()
    }

    /// Writes the join over the new snapshot's tiers, among which the run adds the `delta`.
    pub(crate) async fn join(
        &self,
        attempt: &Attempt<'_>,
        before: &Manifest,
        tiers: &[CopiedTier],
        delta: &LocalTier,
    ) -> Result<WrittenJoin> {
        let join = join_over(attempt, &self.local, tiers);
        let changes = join.changed_by(attempt.state, before, self.before.iter().map(|copied| &*copied.copy), delta).await?;
        join.write(&self.local, changes).await
    }
}

/// Writes the join over a recomputed snapshot, and also returns the copy of its tier.
pub(crate) async fn join_recomputed(
    attempt: &Attempt<'_>,
    local: &LocalEdges,
    base: &Tier,
    written: &mut Written,
) -> Result<(WrittenJoin, Vec<CopiedTier>)> {
    let copy = Arc::new(local.mapped(base.bucket_count, std::mem::take(&mut written.local)).await?);
    let tiers = vec![CopiedTier { tier: base.clone(), copy }];
    let join = join_over(attempt, local, &tiers);
    let changes = join.compared(attempt.state, attempt.before.as_ref()).await;
    Ok((join.write(local, changes).await?, tiers))
}

/// Whether the rows of a view's join may have changed since it was written even without events.
pub(crate) fn is_join_due(view: &LiveView, joined: Option<&MaterialisedJoin>, t: Micros) -> bool {
    let Some(links) = view.plan.links() else { return false };
    joined.is_none_or(|joined| changes_with_time(view, links, joined.t, t))
}

fn join_over(attempt: &Attempt<'_>, local: &LocalEdges, tiers: &[CopiedTier]) -> Join {
    Join {
        storage: attempt.batch.storage.clone(),
        view: attempt.view.clone(),
        links: local.links.clone(),
        edges: Arc::new(edges_of(tiers.iter().map(|copied| &*copied.copy))),
        t: attempt.inputs.t,
        run: attempt.run.id,
        is_concurrent: attempt.is_concurrent,
        threads: attempt.settings.thread_count(),
    }
}
