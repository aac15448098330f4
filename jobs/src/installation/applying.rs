//! Brings an installation's catalog to what definitions say.

use catalog::CatalogState;
use definitions::Definitions;
use types::Result;

use super::Installation;
use super::wall_clock::now;
use crate::apply::{self, ApplyOptions, Changes, Wanted};
use crate::backfill::OnProgress;
use crate::check;

impl Installation {
    /// Checks definitions, writes them to the catalog and creates their topics. With `prune`, definitions that are not
    /// among them are retired.
    ///
    /// Errors: `Input` with every mistake found, or for a change that archived events would not survive.
    pub async fn apply(&self, definitions: &Definitions, prune: bool) -> Result<Changes> {
        let checked = check::check_definitions(definitions.clone(), &self.functions, now()).await;
        let checked = checked.with_batch_memory(self.settings.batch.memory_limit).with_group(&self.settings.speed.group);
        checked.diagnostics.clone().into_result()?;
        let wanted = Wanted::Definitions { definitions: &checked.definitions, staging: &checked.staging };
        let changes = self.apply_with(wanted, ApplyOptions { prune, ..ApplyOptions::default() }, &|_| {}).await?;
        changes.misfits()?;
        Ok(changes)
    }

    /// Like [`Installation::apply`], for definitions that are already checked, or for one stream's archive. Records
    /// that do not fit are in the result: nothing was changed then. `progress` is called while archives are decoded.
    pub async fn apply_with(&self, wanted: Wanted<'_>, options: ApplyOptions, progress: &OnProgress<'_>) -> Result<Changes> {
        apply::apply(&self.apply_target(progress), wanted, options, now()).await
    }

    /// Returns what [`Installation::apply_with`] would change, with the cost of decoding archives again.
    pub async fn plan(&self, wanted: Wanted<'_>, options: ApplyOptions, state: &CatalogState) -> Result<Changes> {
        apply::plan(&self.apply_target(&|_| {}), wanted, options, state).await
    }

    fn apply_target<'a>(&'a self, progress: &'a OnProgress<'a>) -> apply::ApplyTarget<'a> {
        apply::ApplyTarget {
            catalog: &self.catalog,
            storage: &self.storage,
            log: &*self.log,
            partitions: self.settings.log.partitions,
            functions: &self.functions,
            progress,
        }
    }
}
