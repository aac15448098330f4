//! The collector: first marks in the catalog what nobody needs, then, a round later, deletes it. No transaction may name a marked file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use batch::Clock;
use schemas::catalog::{Catalog, CollectionPlan, DefinitionKind, DefinitionRecord, DefinitionStatus, collectable};
use schemas::definitions::parse::parse_stream;
use schemas::functions::Functions;
use schemas::registry::Registry;
use schemas::storage::ObjectStorage;
use schemas::{ErrorKind, Result};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use uuid::Uuid;

const EVERY: Duration = Duration::from_secs(60);

/// Collects until told to stop.
pub async fn run(catalog: Catalog, storage: ObjectStorage, functions: Functions, clock: Clock, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        match collect(&catalog, &storage, &functions, &clock).await {
            Ok(plan) if !plan.is_empty() => debug!(doomed = plan.doom.len(), deleted = plan.delete.len(), "files collected"),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => debug!("something was committed meanwhile; collecting later"),
            Err(error) => warn!(%error, "collection failed; trying again later"),
        }
    }
}

/// One round; answers what it did.
pub async fn collect(catalog: &Catalog, storage: &ObjectStorage, functions: &Functions, clock: &Clock) -> Result<CollectionPlan> {
    let mut state = catalog.state().await?;
    // A view without aggregate keeps nothing and has no snapshot to wait for.
    let registry = Registry::load(&state, functions).await?;
    let keeps = |view: &DefinitionRecord| view.status == DefinitionStatus::Retired || registry.view(&view.name, view.version).is_some();
    state.definitions.retain(|record| record.kind != DefinitionKind::View || keeps(record));
    let mut retention: BTreeMap<Arc<str>, Duration> = BTreeMap::new();
    for record in state.live(DefinitionKind::Stream) {
        if let Some(kept) = parse_stream(&record.sql)?.retention {
            retention.insert(record.name.clone(), kept);
        }
    }
    let plan = collectable(&state, &retention, clock());
    for path in &plan.delete {
        storage.delete(path).await?;
    }
    if !plan.delete.is_empty() {
        catalog.commit(plan.delete_commit(Uuid::now_v7())).await?;
    }
    let marks = !plan.doom.is_empty() || !plan.withdraw.is_empty() || !plan.forget.is_empty();
    if marks && plan.delete.is_empty() {
        catalog.commit(plan.doom_commit(Uuid::now_v7())).await?;
    }
    metrics::counter!("basestream_jobs_collected_files_total").increment(plan.delete.len() as u64);
    Ok(plan)
}
