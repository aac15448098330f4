//! Looking rows up by key, and scanning all of them: the same merge over the same layers. A lookup never scans.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use committed::registry::LiveView;
use engine::plan::ViewPlan;
use engine::states::{Pieces, SortedRun, StateRows, answer, bucket_of};
use engine::walk::{GoOn, Walked};
use types::tiles::Micros;
use types::{Error, Result};

use crate::archive::ArchiveLayer;
use crate::edges::{self, ViewEdges};
use crate::stand::{LoadedView, Stand};

/// Where an answer's states come from.
pub enum Source<'a> {
    /// Snapshot, checkpoints and fresh layers.
    Layers { stand: &'a Stand, view: &'a LoadedView },
    /// Recomputed from the archive, for a time that the states no longer (or not yet) answer.
    Archive(&'a ArchiveLayer),
}

/// Answers of a lookup, in the order of the keys asked.
pub struct Answers {
    pub rows: RecordBatch,
    pub found: Vec<bool>,
    /// Nodes had more neighbours than are followed: their values are estimates.
    pub estimated: bool,
    /// Linking paths, where they were asked for.
    pub paths: Option<RecordBatch>,
}

/// The rows of these encoded keys at `t`; `wanted` are indices of the plan's columns.
///
/// Errors: `Unavailable` where a bucket that is needed is not copied yet; of a view over a JOIN all are. Those of `go_on`, which is asked
/// again and again.
pub(crate) fn lookup(
    view: &LiveView,
    source: &Source<'_>,
    keys: &[&[u8]],
    t: Micros,
    wanted: &[usize],
    go_on: &GoOn<'_>,
) -> Result<Answers> {
    if let Some(links) = &view.plan.links {
        let groups = view.codec.nodes()?.groups_of(keys)?;
        let edges = ViewEdges::new(source, view)?;
        let Walked { rows, found, estimated } = view.walk(links, &edges, t).while_ok(go_on).rows(&groups, keys.len(), wanted)?;
        return Ok(Answers { rows, found, estimated: estimated.contains(&true), paths: None });
    }
    let mut pieces = Pieces::default();
    for (index, key) in keys.iter().enumerate() {
        go_on()?;
        source.add(view, key, index as u32, &mut pieces)?;
    }
    let (rows, found) = answer(&view.plan, &view.codec, keys, &pieces, t, wanted)?;
    Ok(Answers { rows, found, estimated: false, paths: None })
}

impl Source<'_> {
    fn add<'s>(&'s self, view: &'s LiveView, key: &'s [u8], index: u32, pieces: &mut Pieces<'s>) -> Result<()> {
        match self {
            Source::Archive(layer) => add_run(&layer.run, key, index, false, pieces),
            Source::Layers { stand, view: loaded } => {
                if let Some(snapshot) = &loaded.snapshot {
                    add_run(snapshot.bucket_of(key)?, key, index, true, pieces);
                }
                for layer in &loaded.layers {
                    add_run(&layer.run, key, index, false, pieces);
                }
                for rows in stand.fresh_of(view) {
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

/// The number of parts in which a view is scanned, one after the other: memory holds one part's keys at a time.
pub fn scan_parts(source: &Source<'_>) -> u32 {
    match source {
        Source::Layers { view, .. } => view.snapshot.as_ref().map_or(1, |snapshot| snapshot.manifest.bucket_count),
        Source::Archive(_) => 1,
    }
}

/// All rows of one part that exist at `t`.
///
/// Errors: `Unavailable` where the part's bucket is not copied yet; of a view over a JOIN all are needed.
pub fn scan(view: &LiveView, source: &Source<'_>, part: u32, t: Micros, wanted: &[usize]) -> Result<RecordBatch> {
    if let Some(links) = &view.plan.links {
        return edges::scan((view, links), source, part, t, wanted, &|| Ok(())).map(|(rows, _)| rows);
    }
    let parts = scan_parts(source);
    let mut keys = KeyIndex::default();
    let mut pieces = Pieces::default();
    match source {
        Source::Archive(layer) => add_all(layer.run.chunks(), (part, parts), false, &mut keys, &mut pieces),
        Source::Layers { stand, view: loaded } => {
            if let Some(snapshot) = &loaded.snapshot {
                add_all(snapshot.bucket(part)?.chunks(), (part, parts), true, &mut keys, &mut pieces);
            }
            for layer in &loaded.layers {
                add_all(layer.run.chunks(), (part, parts), false, &mut keys, &mut pieces);
            }
            for rows in stand.fresh_of(view) {
                add_all(std::slice::from_ref(&**rows), (part, parts), false, &mut keys, &mut pieces);
            }
        }
    }
    // The one row of a view without keys is in one part, as any other key's.
    if view.plan.keys.is_empty() && bucket_of(b"", parts) == part {
        keys.of(b"");
    }
    let (rows, found) = answer(&view.plan, &view.codec, &keys.list, &pieces, t, wanted)?;
    let found = arrow::array::BooleanArray::from(found);
    Ok(arrow::compute::filter_record_batch(&rows, &found)?)
}

/// Keys in the order they were met.
#[derive(Default)]
struct KeyIndex<'a> {
    list: Vec<&'a [u8]>,
    of: BTreeMap<&'a [u8], u32>,
}

impl<'a> KeyIndex<'a> {
    fn of(&mut self, key: &'a [u8]) -> u32 {
        let next = self.list.len() as u32;
        let index = *self.of.entry(key).or_insert(next);
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
                pieces.add(chunk.batch(), from..to, keys.of(key), laddered);
            }
            from = to;
        }
    }
}

/// The encoded keys of rows of key columns (in the order of the plan's keys).
pub fn encode_keys(view: &LiveView, columns: &[arrow::array::ArrayRef], rows: usize) -> Result<arrow::array::BinaryArray> {
    check_keys(&view.plan, columns)?;
    match view.plan.links {
        Some(_) => view.codec.nodes()?.near(columns, rows),
        None => view.codec.encode(columns, rows),
    }
}

fn check_keys(plan: &ViewPlan, columns: &[arrow::array::ArrayRef]) -> Result<()> {
    for (key, column) in plan.answer_keys().iter().zip(columns) {
        if key.data_type() != column.data_type() {
            return Err(Error::input(format!("the key \"{}\" is {}, found {}", key.name(), key.data_type(), column.data_type())));
        }
    }
    if plan.answer_keys().len() == columns.len() {
        Ok(())
    } else {
        Err(Error::input(format!("the view has {} keys, found {}", plan.answer_keys().len(), columns.len())))
    }
}
