//! Scans a linked view: walks from every group key that has near edges, a few keys at a time.

use std::collections::BTreeSet;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter, filter_record_batch};

use crate::states::bucket_of;
use crate::states::{FailedRows, StateRows};
use crate::walk::{PartChunk, Walk, Walked};
use types::Result;

/// Keys that are walked together.
const KEYS: usize = 1_024;

impl Walk<'_> {
    /// Hands on the rows of one part that exist, some keys at a time, which of them are estimated, and what could not
    /// be computed. `only` says which keys, by how their near edges begin.
    pub fn scan(
        &self,
        part: u32,
        wanted: &[usize],
        only: &dyn Fn(&[u8]) -> bool,
        take: &mut dyn FnMut(RecordBatch, BooleanArray, FailedRows) -> Result<()>,
    ) -> Result<()> {
        let keys: Vec<Vec<u8>> = self.keys_of(part)?.into_iter().filter(|key| only(key)).collect();
        for keys in keys.chunks(KEYS) {
            let prefixes: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let groups = self.codec.nodes()?.groups_of(&prefixes)?;
            let Walked { rows, found, estimated, failed } = self.rows(&groups, keys.len(), wanted)?;
            let found = BooleanArray::from(found);
            let estimated = filter(&BooleanArray::from(estimated), &found)?.as_boolean().clone();
            let failed = FailedRows::among(&groups, failed)?;
            take(filter_record_batch(&rows, &found)?, estimated, failed)?;
        }
        Ok(())
    }

    /// How the near edges of this part's group keys begin.
    fn keys_of(&self, part: u32) -> Result<BTreeSet<Vec<u8>>> {
        self.keys_among(&self.layers.chunks(part), part, self.layers.parts())
    }

    /// The same for one of any number of parts, in whose chunks its keys are.
    pub fn keys_among(&self, chunks: &[PartChunk<'_>], part: u32, parts: u32) -> Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        for PartChunk { rows, is_of_part } in chunks {
            self.add_keys(rows, part, if *is_of_part { 1 } else { parts }, &mut keys)?;
        }
        Ok(keys)
    }

    /// Adds the keys of the rows that are in one of `parts` parts.
    fn add_keys(&self, rows: &StateRows, part: u32, parts: u32, keys: &mut BTreeSet<Vec<u8>>) -> Result<()> {
        let codec = self.codec.nodes()?;
        let near = codec.near_rows(rows.batch())?;
        let groups: Vec<_> =
            rows.batch().columns()[self.links.layout.groups.clone()].iter().map(|key| key.slice(near.start, near.len())).collect();
        let prefixes = codec.near(&groups, near.len())?;
        let places = codec.near_places(&groups, near.len())?;
        for row in 0..near.len() {
            if (parts == 1 || bucket_of(places.value(row), parts) == part) && !keys.contains(prefixes.value(row)) {
                keys.insert(prefixes.value(row).to_vec());
            }
        }
        Ok(())
    }
}
