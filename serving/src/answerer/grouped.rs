//! Answering a view with GROUP BY: each key's states in all layers, merged. A lookup finds a key's rows and scans
//! nothing.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, BinaryArray, BooleanArray};
use arrow::compute::filter_record_batch;
use committed::registry::LiveView;
use engine::states::SortedRun;
use engine::states::{Pieces, StateRows, answer, bucket_of};
use engine::walk::CancelCheck;
use types::{Error, Result};

use super::{Answerer, Answers, AskedKeys, AskedPart, NeededBuckets, Scanned, StateSource, scan_parts};

/// Lookups of more keys than this leave the asynchronous threads.
const QUICK_KEYS: usize = 16;

pub(super) struct Grouped<'v> {
    pub(super) view: &'v LiveView,
}

impl Answerer for Grouped<'_> {
    fn follows_links(&self) -> bool {
        false
    }

    fn needed_buckets(&self, columns: &[ArrayRef], keys: usize) -> Result<NeededBuckets> {
        self.encode(columns, keys).map(NeededBuckets::OfKeys)
    }

    fn rows(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>, cancel_check: &CancelCheck<'_>) -> Result<Answers> {
        let encoded = self.encode(asked.columns, asked.keys)?;
        let keys: Vec<&[u8]> = encoded.iter().flatten().collect();
        let mut pieces = Pieces::default();
        for (index, key) in keys.iter().enumerate() {
            cancel_check()?;
            self.add_key(source, key, index as u32, &mut pieces)?;
        }
        let (rows, found) = answer(&self.view.plan, &self.view.codec, &keys, &pieces, asked.t, asked.wanted)?;
        Ok(Answers { rows, found, estimated: false, paths: None })
    }

    fn rows_if_quick(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>) -> Result<Option<Answers>> {
        match asked.keys <= QUICK_KEYS {
            true => self.rows(source, asked, &|| Ok(())).map(Some),
            false => Ok(None),
        }
    }

    fn scan(&self, source: &StateSource<'_>, asked: &AskedPart<'_>, _: &CancelCheck<'_>) -> Result<Scanned> {
        let (part, parts) = (asked.part, scan_parts(source));
        let mut keys = KeyIndex::default();
        let mut pieces = Pieces::default();
        match source {
            StateSource::Archive(layer) => add_all(layer.run.chunks(), (part, parts), false, &mut keys, &mut pieces),
            StateSource::Layers { read_view, view: loaded } => {
                if let Some(snapshot) = &loaded.snapshot {
                    add_all(snapshot.bucket(part)?.chunks(), (part, parts), true, &mut keys, &mut pieces);
                }
                for layer in &loaded.layers {
                    add_all(layer.run.chunks(), (part, parts), false, &mut keys, &mut pieces);
                }
                for rows in read_view.fresh_of(self.view) {
                    add_all(std::slice::from_ref(&**rows), (part, parts), false, &mut keys, &mut pieces);
                }
            }
        }
        // The one row of a view without keys is in one part, as any other key's.
        if self.view.plan.keys.is_empty() && bucket_of(b"", parts) == part {
            keys.index_of(b"");
        }
        let (rows, found) = answer(&self.view.plan, &self.view.codec, &keys.list, &pieces, asked.t, asked.wanted)?;
        Ok(Scanned { rows: filter_record_batch(&rows, &BooleanArray::from(found))?, estimated: false })
    }
}

impl Grouped<'_> {
    fn encode(&self, columns: &[ArrayRef], keys: usize) -> Result<BinaryArray> {
        check_types(self.view, columns)?;
        self.view.codec.encode(columns, keys)
    }

    fn add_key<'s>(&'s self, source: &'s StateSource<'_>, key: &'s [u8], index: u32, pieces: &mut Pieces<'s>) -> Result<()> {
        match source {
            StateSource::Archive(layer) => add_run(&layer.run, key, index, false, pieces),
            StateSource::Layers { read_view, view: loaded } => {
                if let Some(snapshot) = &loaded.snapshot {
                    add_run(snapshot.bucket_of(key)?, key, index, true, pieces);
                }
                for layer in &loaded.layers {
                    add_run(&layer.run, key, index, false, pieces);
                }
                for rows in read_view.fresh_of(self.view) {
                    pieces.add(rows.batch(), rows.find(key), index, false);
                }
            }
        }
        Ok(())
    }
}

fn add_run<'s>(run: &'s SortedRun, key: &'s [u8], index: u32, laddered: bool, pieces: &mut Pieces<'s>) {
    for (chunk, rows) in run.find(key) {
        pieces.add(chunk.batch(), rows, index, laddered);
    }
}

/// Keys in the order they were met.
#[derive(Default)]
struct KeyIndex<'a> {
    list: Vec<&'a [u8]>,
    known: BTreeMap<&'a [u8], u32>,
}

impl<'a> KeyIndex<'a> {
    fn index_of(&mut self, key: &'a [u8]) -> u32 {
        let next = self.list.len() as u32;
        let index = *self.known.entry(key).or_insert(next);
        if index == next {
            self.list.push(key);
        }
        index
    }
}

fn add_all<'a>(chunks: &'a [StateRows], (part, parts): (u32, u32), laddered: bool, keys: &mut KeyIndex<'a>, pieces: &mut Pieces<'a>) {
    for chunk in chunks {
        let encoded = chunk.keys();
        let mut from = 0;
        while from < chunk.len() {
            let key = encoded.value(from);
            let to = (from + 1..chunk.len()).find(|row| encoded.value(*row) != key).unwrap_or(chunk.len());
            if laddered || parts == 1 || bucket_of(key, parts) == part {
                pieces.add(chunk.batch(), from..to, keys.index_of(key), laddered);
            }
            from = to;
        }
    }
}

/// Errors: `Input` for columns that are not those of the view's keys.
pub(super) fn check_types(view: &LiveView, columns: &[ArrayRef]) -> Result<()> {
    let keys = view.plan.answer_keys();
    for (key, column) in keys.iter().zip(columns) {
        if key.data_type() != column.data_type() {
            return Err(Error::input(format!("the key \"{}\" is {}, found {}", key.name(), key.data_type(), column.data_type())));
        }
    }
    if keys.len() == columns.len() {
        Ok(())
    } else {
        Err(Error::input(format!("the view has {} keys, found {}", keys.len(), columns.len())))
    }
}
