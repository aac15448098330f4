//! Answering a view with GROUP BY: each key's states in all layers, merged. A lookup finds a key's rows and scans
//! nothing. What was merged of a hot key is kept ([`KeptKeys`](crate::kept_keys::KeptKeys)).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use committed::registry::LiveView;
use engine::plan::StateIndex;
use engine::states::{
    Answered, FailedRows, FailedValue, KeptKey, KeyPieces, Pieces, Probe, SeenBy, SortedRun, StateRows, answer, answer_kept, answer_key,
    bucket_of, cost_of_key, rows_seen, spans_of,
};
use engine::walk::CancelCheck;
use types::{Error, Result};

use crate::copy::PartRun;
use crate::kept_keys::KeyName;
use crate::row_cache::{Part, RowBasis, RowInputs, RowValidity};

use super::key_range::KeyRange;
use super::{Answerer, Answers, AskedKeys, AskedPart, KeyPart, NeededBuckets, Scanned, StateSource, scan_parts};

/// Lookups of more keys than this leave the threads that answer HTTP.
const QUICK_KEYS: usize = 16;
/// Likewise lookups that merge more values than this, which takes about a millisecond.
const QUICK_VALUES: usize = 16_384;
/// A key that merges more values than this is a hot one: what was merged is kept.
const HOT_FROM: usize = 4_096;

pub(super) struct Grouped<'v> {
    pub(super) view: &'v LiveView,
}

impl Answerer for Grouped<'_> {
    fn follows_links(&self) -> bool {
        false
    }

    fn encode(&self, columns: &[ArrayRef], keys: usize) -> Result<BinaryArray> {
        check_types(self.view, columns)?;
        self.view.codec.encode(columns, keys)
    }

    fn needed_buckets(&self, columns: &[ArrayRef], keys: usize) -> Result<NeededBuckets> {
        self.encode(columns, keys).map(NeededBuckets::OfKeys)
    }

    fn rows(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>, cancel_check: &CancelCheck<'_>) -> Result<Answers> {
        let encoded = self.encoded(asked)?;
        let keys = self.keys(source, asked, &encoded, cancel_check)?;
        self.answer(asked, &keys, cancel_check)
    }

    fn rows_if_quick(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>) -> Result<Option<Answers>> {
        if asked.keys > QUICK_KEYS {
            return Ok(None);
        }
        let encoded = self.encoded(asked)?;
        let keys = self.keys(source, asked, &encoded, &|| Ok(()))?;
        match keys.iter().map(|key| key.cost).fold(0, usize::saturating_add) <= QUICK_VALUES {
            true => self.answer(asked, &keys, &|| Ok(())).map(Some),
            false => Ok(None),
        }
    }

    fn kept_key(&self, asked: &AskedKeys<'_>) -> Result<Option<KeyName>> {
        match asked.keys {
            1 => self.encoded(asked).map(|encoded| Some(self.name_of(encoded.value(0)))),
            _ => Ok(None),
        }
    }

    fn row_validity(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>, known: Option<&RowBasis>) -> Result<RowValidity> {
        let plan = &self.view.plan;
        if matches!(source, StateSource::Archive(_)) || asked.keys != 1 || plan.reads_time(asked.wanted) {
            return Ok(RowValidity::NotCacheable);
        }
        let encoded = self.encoded(asked)?;
        let mut pieces = Pieces::default();
        self.add_keys(source, &[Probe::new(encoded.value(0))], &mut pieces)?;
        let rows = pieces.rows().map(|(batch, rows)| Part::Rows { column: batch.column(plan.state_offset(StateIndex::EVENTS)), rows });
        Ok(RowInputs { spans: spans_of(plan, asked.wanted, asked.t), parts: rows.collect() }.compared(known))
    }

    /// Each key's layers are found once, whatever the number of its events.
    fn rows_seen(&self, source: &StateSource<'_>, by: &SeenBy<'_>) -> Result<RecordBatch> {
        let encoded = self.encode(by.keys, by.t.len())?;
        rows_seen((&self.view.plan, &self.view.codec), &encoded, by, &mut |keys, before| self.add_keys(source, keys, before))
    }

    fn scan(&self, source: &StateSource<'_>, asked: &AskedPart<'_>, _: &CancelCheck<'_>) -> Result<Scanned> {
        let (keys, Answered { rows, found, failed }) = self.answer_part(source, asked)?;
        let failed = FailedRows::new(failed, |rows| self.view.codec.decode(rows.iter().map(|row| keys[*row])))?;
        Ok(Scanned { rows: filter_record_batch(&rows, &BooleanArray::from(found))?, estimated: false, failed })
    }
}

/// A key that is asked, with what its row is merged from.
struct AskedKey<'s> {
    encoded: &'s [u8],
    pieces: Pieces<'s>,
    /// What it costs, in values, with what is kept.
    cost: usize,
    /// Of a hot key: what is kept, and its name.
    kept: Option<(KeyName, Arc<KeptKey>)>,
}

impl Grouped<'_> {
    fn keys<'s>(
        &'s self,
        source: &'s StateSource<'_>,
        asked: &AskedKeys<'_>,
        encoded: &'s BinaryArray,
        cancel_check: &CancelCheck<'_>,
    ) -> Result<Vec<AskedKey<'s>>> {
        let mut keys = Vec::with_capacity(asked.keys);
        for encoded in encoded.iter().flatten() {
            cancel_check()?;
            keys.push(self.key(source, asked, encoded)?);
        }
        Ok(keys)
    }

    fn key<'s>(&'s self, source: &'s StateSource<'_>, asked: &AskedKeys<'_>, encoded: &'s [u8]) -> Result<AskedKey<'s>> {
        let mut pieces = Pieces::default();
        self.add_keys(source, &[Probe::new(encoded)], &mut pieces)?;
        let cost = |kept: Option<&KeptKey>| cost_of_key(&self.view.plan, &pieces, asked.t, asked.wanted, kept);
        let anew = cost(None)?;
        // The archive's states are computed for one query.
        let Some(kept_keys) = asked.kept.filter(|_| anew > HOT_FROM && matches!(source, StateSource::Layers { .. })) else {
            return Ok(AskedKey { encoded, pieces, cost: anew, kept: None });
        };
        let name = self.name_of(encoded);
        let kept = kept_keys.get(&name).unwrap_or_default();
        let cost = cost(Some(&kept))?;
        Ok(AskedKey { encoded, pieces, cost, kept: Some((name, kept)) })
    }

    /// The rows in the order of the keys.
    fn answer(&self, asked: &AskedKeys<'_>, keys: &[AskedKey<'_>], cancel_check: &CancelCheck<'_>) -> Result<Answers> {
        let Answered { rows, found, failed } = match keys {
            [AskedKey { pieces, kept: None, .. }] => {
                let of_key = KeyPieces { key: asked.columns, pieces };
                answer_key(&self.view.plan, &self.view.codec, of_key, asked.t, asked.wanted)?
            }
            _ => self.answer_several(asked, keys, cancel_check)?,
        };
        Ok(Answers { rows, found, estimated: false, paths: None, failed: FailedRows::among(asked.columns, failed)? })
    }

    /// Hot keys are answered one by one, the others together.
    fn answer_several(&self, asked: &AskedKeys<'_>, keys: &[AskedKey<'_>], cancel_check: &CancelCheck<'_>) -> Result<Answered> {
        let (hot, others): (Vec<usize>, Vec<usize>) = (0..keys.len()).partition(|index| keys[*index].kept.is_some());
        let mut parts = Vec::with_capacity(hot.len() + 1);
        if hot.is_empty() || !others.is_empty() {
            let others: Vec<&AskedKey<'_>> = others.iter().map(|index| &keys[*index]).collect();
            parts.push(self.answer_together(asked, &others)?);
        }
        for index in &hot {
            cancel_check()?;
            parts.push(self.answer_hot(asked, *index, &keys[*index])?);
        }
        in_order(parts, &[others, hot].concat())
    }

    fn answer_together(&self, asked: &AskedKeys<'_>, keys: &[&AskedKey<'_>]) -> Result<Answered> {
        let encoded: Vec<&[u8]> = keys.iter().map(|key| key.encoded).collect();
        let mut pieces = Pieces::default();
        for (index, key) in keys.iter().enumerate() {
            pieces.add_key(&key.pieces, index as u32);
        }
        answer(&self.view.plan, &self.view.codec, &encoded, &pieces, asked.t, asked.wanted)
    }

    fn answer_hot(&self, asked: &AskedKeys<'_>, index: usize, key: &AskedKey<'_>) -> Result<Answered> {
        let Some((name, kept)) = &key.kept else { return Err(Error::internal("nothing is kept of a key")) };
        let (plan, codec) = (&self.view.plan, &self.view.codec);
        let columns: Vec<ArrayRef> = asked.columns.iter().map(|column| column.slice(index, 1)).collect();
        let of_key = KeyPieces { key: &columns, pieces: &key.pieces };
        let answered = answer_kept(plan, codec, of_key, asked.t, asked.wanted, kept)?;
        if let Some(kept_keys) = asked.kept.filter(|_| key.cost > 0) {
            kept_keys.put(name.clone(), kept);
        }
        Ok(answered)
    }

    /// All keys of one part, with or without a row, and their rows.
    fn answer_part<'s>(&'s self, source: &'s StateSource<'s>, asked: &AskedPart<'_>) -> Result<(Vec<&'s [u8]>, Answered)> {
        let (keys, pieces) =
            self.pieces_of_part(source, &KeyPart { part: asked.part, parts: scan_parts(source), range: KeyRange::default() })?;
        let answered = answer(&self.view.plan, &self.view.codec, &keys, &pieces, asked.t, asked.wanted)?;
        Ok((keys, answered))
    }

    /// All keys of one part, and what their rows are merged from.
    pub(super) fn pieces_of_part<'s>(&'s self, source: &'s StateSource<'s>, of_part: &KeyPart) -> Result<(Vec<&'s [u8]>, Pieces<'s>)> {
        let KeyPart { part, parts, ref range } = *of_part;
        let hashed = if parts == 1 { HashedKeys::All } else { HashedKeys::OfPart { part, parts } };
        let of_layer = ScannedKeys { hashed, range };
        let mut keys = KeyIndex::default();
        let mut pieces = Pieces::default();
        match source {
            StateSource::Archive(layer) => add_all(layer.run.chunks(), of_layer, false, &mut keys, &mut pieces),
            StateSource::Layers { read_view, view: loaded } => {
                if let Some(snapshot) = &loaded.snapshot {
                    for PartRun { run, is_of_part } in snapshot.runs_of_part(part, parts)? {
                        let hashed = if is_of_part { HashedKeys::All } else { hashed };
                        add_all(run.chunks(), ScannedKeys { hashed, range }, true, &mut keys, &mut pieces);
                    }
                }
                for layer in &loaded.layers {
                    add_all(layer.run.chunks(), of_layer, false, &mut keys, &mut pieces);
                }
                for rows in read_view.fresh_of(self.view) {
                    add_all(std::slice::from_ref(&**rows), of_layer, false, &mut keys, &mut pieces);
                }
            }
        }
        // The one row of a view without keys is in one part, as any other key's.
        if self.view.plan.keys.is_empty() && hashed.contain(b"") && range.contains(b"") {
            keys.index_of(b"");
        }
        Ok((keys.list, pieces))
    }

    /// What the rows of these encoded keys are merged from.
    pub(super) fn pieces_of_keys<'s>(&'s self, source: &'s StateSource<'_>, keys: &[&'s [u8]]) -> Result<Pieces<'s>> {
        let mut pieces = Pieces::default();
        let keys: Vec<Probe<'_>> = keys.iter().copied().map(Probe::new).collect();
        self.add_keys(source, &keys, &mut pieces)?;
        Ok(pieces)
    }

    fn name_of(&self, encoded: &[u8]) -> KeyName {
        KeyName { view: self.view.view_version(), key: encoded.into() }
    }

    /// Adds what these keys have in all layers, each under its index.
    fn add_keys<'s>(&'s self, source: &'s StateSource<'_>, keys: &[Probe<'_>], pieces: &mut Pieces<'s>) -> Result<()> {
        match source {
            StateSource::Archive(layer) => add_run(&layer.run, keys, pieces),
            StateSource::Layers { read_view, view: loaded } => {
                for (index, key) in keys.iter().enumerate() {
                    for run in loaded.snapshot.iter().flat_map(|snapshot| snapshot.runs_of(key.bytes())) {
                        run?.find_keys(&[*key], |_, chunk, rows| pieces.add(chunk.batch(), rows, index as u32, true));
                    }
                }
                loaded.layers.iter().for_each(|layer| add_run(&layer.run, keys, pieces));
                for fresh in read_view.fresh_of(self.view) {
                    fresh.find_keys(keys, |index, rows| pieces.add_fresh(fresh.batch(), rows, index as u32));
                }
            }
        }
        Ok(())
    }
}

/// Parts of rows as one batch, where `order` says for which key each row is.
fn in_order(mut parts: Vec<Answered>, order: &[usize]) -> Result<Answered> {
    if parts.len() == 1 {
        return parts.pop().ok_or_else(|| Error::internal("an answer has a part"));
    }
    let schema = parts.first().map(|part| part.rows.schema()).ok_or_else(|| Error::internal("an answer has a part"))?;
    let mut place_of_key = vec![0; order.len()];
    for (place, key) in order.iter().enumerate() {
        place_of_key[*key] = place;
    }
    let rows = concat_batches(&schema, parts.iter().map(|part| &part.rows))?;
    let (mut found, mut failed) = (Vec::with_capacity(order.len()), Vec::new());
    for part in parts {
        failed.extend(part.failed.into_iter().map(|value| FailedValue { row: order[found.len() + value.row], ..value }));
        found.extend(part.found);
    }
    let found = place_of_key.iter().map(|place| found[*place]).collect();
    if rows.num_columns() == 0 {
        return Ok(Answered { rows, found, failed });
    }
    let places = UInt32Array::from_iter_values(place_of_key.iter().map(|place| *place as u32));
    Ok(Answered { rows: take_record_batch(&rows, &places)?, found, failed })
}

/// Of a layer that holds the finest level only.
fn add_run<'s>(run: &'s SortedRun, keys: &[Probe<'_>], pieces: &mut Pieces<'s>) {
    run.find_keys(keys, |index, chunk, rows| pieces.add(chunk.batch(), rows, index as u32, false));
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

/// Which keys of some rows are scanned.
#[derive(Clone, Copy)]
struct ScannedKeys<'a> {
    hashed: HashedKeys,
    range: &'a KeyRange,
}

#[derive(Clone, Copy)]
enum HashedKeys {
    All,
    /// Those that hash to one of several parts.
    OfPart {
        part: u32,
        parts: u32,
    },
}

impl HashedKeys {
    fn contain(self, key: &[u8]) -> bool {
        match self {
            HashedKeys::All => true,
            HashedKeys::OfPart { part, parts } => bucket_of(key, parts) == part,
        }
    }
}

fn add_all<'a>(chunks: &'a [StateRows], wanted: ScannedKeys<'_>, laddered: bool, keys: &mut KeyIndex<'a>, pieces: &mut Pieces<'a>) {
    for chunk in chunks {
        let encoded = chunk.keys();
        let std::ops::Range { start: mut from, end } = wanted.range.rows_in(chunk);
        while from < end {
            let key = encoded.value(from);
            let to = (from + 1..end).find(|row| encoded.value(*row) != key).unwrap_or(end);
            if wanted.hashed.contain(key) {
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
