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
            let (part, parts) = if *is_of_part { (0, 1) } else { (part, parts) };
            self.each_key(rows, parts, |of_key, key| {
                if of_key == part {
                    insert(&mut keys, key);
                }
            })?;
        }
        Ok(keys)
    }

    /// The same for each of any number of parts.
    pub fn keys_by_part(&self, chunks: &[&StateRows], parts: u32) -> Result<Vec<BTreeSet<Vec<u8>>>> {
        let mut keys = vec![BTreeSet::new(); parts as usize];
        for rows in chunks {
            self.each_key(rows, parts, |part, key| insert(&mut keys[part as usize], key))?;
        }
        Ok(keys)
    }

    /// Hands on the key of each near edge, with the part that it is in.
    fn each_key(&self, rows: &StateRows, parts: u32, mut take: impl FnMut(u32, &[u8])) -> Result<()> {
        (self.cancel_check)()?;
        let codec = self.codec.nodes()?;
        let near = codec.near_rows(rows.batch())?;
        let groups: Vec<_> =
            rows.batch().columns()[self.links.layout.groups.clone()].iter().map(|key| key.slice(near.start, near.len())).collect();
        let prefixes = codec.near(&groups, near.len())?;
        let places = codec.near_places(&groups, near.len())?;
        for row in 0..near.len() {
            let part = if parts == 1 { 0 } else { bucket_of(places.value(row), parts) };
            take(part, prefixes.value(row));
        }
        Ok(())
    }
}

/// Many edges have the same key.
fn insert(keys: &mut BTreeSet<Vec<u8>>, key: &[u8]) {
    if !keys.contains(key) {
        keys.insert(key.to_vec());
    }
}
