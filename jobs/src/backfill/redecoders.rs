//! What decodes the events of each version of a stream's definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord};
use definitions::parse;
use engine::events::Redecoder;
use storage::ArchiveFacts;
use types::files::FileRecord;
use types::{Error, Result};

use super::BackfillTarget;

/// Returns what decodes the events of each version.
pub(super) fn redecoders(state: &CatalogState, target: &BackfillTarget) -> Result<BTreeMap<u32, Arc<Redecoder>>> {
    let redecoder = |record: &DefinitionRecord| {
        let before = parse::parse_stream(&record.sql)?;
        Ok((record.version, Arc::new(Redecoder::new(&before, &target.definition, target.on_misfit))))
    };
    let mut redecoders: BTreeMap<u32, Arc<Redecoder>> =
        state.definitions.versions(DefinitionKind::Stream, target.stream()).map(redecoder).collect::<Result<_>>()?;
    let same = || Arc::new(Redecoder::new(&target.definition, &target.definition, target.on_misfit));
    redecoders.entry(target.version).or_insert_with(same);
    Ok(redecoders)
}

pub(super) fn redecoder_of<'r>(
    redecoders: &'r BTreeMap<u32, Arc<Redecoder>>,
    file: &FileRecord,
    facts: ArchiveFacts,
) -> Result<&'r Arc<Redecoder>> {
    let version = facts.versions.decoded_by;
    redecoders.get(&version).ok_or_else(|| {
        Error::corrupt("the catalog does not have the version of the definition that an archive file names")
            .with("file", &file.path)
            .with("version", version)
    })
}
