//! The answer: state rows merged over each range of a view, and the view's columns above the merged values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt32Array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::logical_expr::EmitTo;

use crate::error::{Error, Result};
use crate::plan::{ColumnKind, ViewPlan};
use crate::states::merge::accumulator;
use crate::states::rows::{KeyCodec, levels, tiles};
use crate::tiles::{Level, Micros, TileRun, cover};

/// The state rows that hold what is asked, from any number of layers, each row with the index of its key.
///
/// A layer is *laddered* when it holds every level of the view's ladder (a snapshot), else it holds the finest alone.
#[derive(Default)]
pub struct Pieces<'a> {
    batches: Vec<&'a RecordBatch>,
    /// The place of each batch, by its address.
    places: std::collections::HashMap<*const RecordBatch, usize>,
    rows: Vec<Piece>,
}

struct Piece {
    batch: usize,
    from: usize,
    to: usize,
    key: u32,
    laddered: bool,
}

impl<'a> Pieces<'a> {
    /// Adds rows `from..to` of a batch, all of the key of this index.
    pub fn add(&mut self, batch: &'a RecordBatch, rows: std::ops::Range<usize>, key: u32, laddered: bool) {
        if rows.is_empty() {
            return;
        }
        let next = self.batches.len();
        let place = *self.places.entry(batch).or_insert(next);
        if place == next {
            self.batches.push(batch);
        }
        self.rows.push(Piece { batch: place, from: rows.start, to: rows.end, key, laddered });
    }
}

/// Answers the columns `wanted` (indices into the plan's columns) for each of `keys` (encoded) at time `t`, in the order of `keys`,
/// with whether the key has a row: an event in the view's longest window (a view without keys always has its row).
pub fn answer(
    plan: &ViewPlan,
    codec: &KeyCodec,
    keys: &[&[u8]],
    pieces: &Pieces<'_>,
    t: Micros,
    wanted: &[usize],
) -> Result<(RecordBatch, Vec<bool>)> {
    let need = Need::of(plan, wanted);
    let selections = need.ranges.iter().map(|range| select(plan, *range, pieces, t)).collect::<Result<Vec<_>>>()?;
    let values = merge_values(plan, codec, keys, pieces, &need, &selections, t)?;
    let existence = need.events_of(&values, plan, plan.existence)?;
    let found = (0..keys.len()).map(|key| plan.keys.is_empty() || existence.value(key) > 0).collect();
    Ok((project(plan, &values, wanted)?, found))
}

/// The merged values of these `uses` (indices into the plan's) for each of so many keys, a column each: what a walk along edges asks.
pub fn merged(plan: &ViewPlan, pieces: &Pieces<'_>, keys: usize, t: Micros, uses: &[usize]) -> Result<Vec<ArrayRef>> {
    let mut selections: Vec<Selection> = Vec::new();
    let mut columns = Vec::with_capacity(uses.len());
    for index in uses {
        let usage = plan.uses[*index];
        if !selections.iter().any(|selection| selection.range == usage.range) {
            selections.push(select(plan, usage.range, pieces, t)?);
        }
        let selection = selections.iter().find(|selection| selection.range == usage.range);
        let selection = selection.ok_or_else(|| Error::internal("a range was not selected"))?;
        columns.push(merge_state(plan, usage.state, selection, pieces, keys)?);
    }
    Ok(columns)
}

/// A state merged over one range, as a state: its fields, a row for each key that has rows in the range, and the row of each key.
pub fn merged_states(
    plan: &ViewPlan,
    pieces: &Pieces<'_>,
    t: Micros,
    state: usize,
    range: usize,
    keys: usize,
) -> Result<(Vec<ArrayRef>, Vec<Option<u32>>)> {
    let selection = select(plan, range, pieces, t)?;
    let mut row_of_key = vec![None; keys];
    for (row, key) in selection.key_of_group.iter().enumerate() {
        row_of_key[*key as usize] = Some(row as u32);
    }
    if selection.key_of_group.is_empty() {
        let fields = plan.states[state].fields.iter();
        return Ok((fields.map(|field| arrow::array::new_empty_array(field.data_type())).collect(), row_of_key));
    }
    let mut accumulator = accumulator(&plan.states[state])?;
    accumulator.merge_batch(&state_columns(plan, state, &selection, pieces)?, &selection.group, selection.key_of_group.len())?;
    Ok((accumulator.state(EmitTo::All)?, row_of_key))
}

/// The fields of a state, in the selected rows.
fn state_columns(plan: &ViewPlan, state: usize, selection: &Selection, pieces: &Pieces<'_>) -> Result<Vec<ArrayRef>> {
    let from = plan.state_offset(state);
    (from..from + plan.states[state].fields.len())
        .map(|column| {
            let arrays: Vec<&dyn Array> = pieces.batches.iter().map(|batch| batch.column(column).as_ref()).collect();
            Ok(interleave(&arrays, &selection.rows)?)
        })
        .collect()
}

/// The ranges and uses that the wanted columns touch.
struct Need {
    ranges: Vec<usize>,
    uses: Vec<usize>,
}

impl Need {
    fn of(plan: &ViewPlan, wanted: &[usize]) -> Need {
        let (mut ranges, mut uses) = (vec![plan.existence], Vec::new());
        for column in wanted {
            if let ColumnKind::Value(value) = &plan.columns[*column].kind {
                ranges.extend_from_slice(&value.ranges);
                uses.extend_from_slice(&value.uses);
            }
        }
        for list in [&mut ranges, &mut uses] {
            list.sort_unstable();
            list.dedup();
        }
        Need { ranges, uses }
    }

    fn events_of<'a>(&self, values: &'a RecordBatch, plan: &ViewPlan, range: usize) -> Result<&'a Int64Array> {
        let column = values.column(plan.keys.len() + 1 + range);
        column.as_any().downcast_ref::<Int64Array>().ok_or_else(|| Error::internal("the count of events changed its type"))
    }
}

/// The rows of one range, numbered by key in the order of their first row.
struct Selection {
    range: usize,
    rows: Vec<(usize, usize)>,
    group: Vec<usize>,
    key_of_group: Vec<u32>,
}

impl Selection {
    /// Then the groups are the keys.
    fn has_each_key_in_order(&self, keys: usize) -> bool {
        self.key_of_group.len() == keys && self.key_of_group.iter().enumerate().all(|(group, key)| group == *key as usize)
    }
}

fn select(plan: &ViewPlan, range: usize, pieces: &Pieces<'_>, t: Micros) -> Result<Selection> {
    let span = plan.ranges[range].at(t);
    let laddered = cover(span, &plan.ladder);
    let finest: &[Level] = &plan.ladder[..1];
    let fresh = match plan.finest() {
        Level::All => cover(span, &plan.ladder),
        _ => cover(span, finest),
    };
    let mut selection = Selection { range, rows: Vec::new(), group: Vec::new(), key_of_group: Vec::new() };
    let mut group_of_key: std::collections::HashMap<u32, usize> = std::collections::HashMap::new();
    for piece in &pieces.rows {
        let batch = pieces.batches[piece.batch];
        let (level_of, tile_of) = (levels(batch)?, tiles(batch)?);
        let runs: &[TileRun] = if piece.laddered { &laddered } else { &fresh };
        for row in piece.from..piece.to {
            let level = Level::from_code(level_of.value(row))
                .ok_or_else(|| Error::corrupt(format!("unknown tile level {}", level_of.value(row))))?;
            if !runs.iter().any(|run| run.contains(level, tile_of[row])) {
                continue;
            }
            let group = *group_of_key.entry(piece.key).or_insert_with(|| {
                selection.key_of_group.push(piece.key);
                selection.key_of_group.len() - 1
            });
            selection.rows.push((piece.batch, row));
            selection.group.push(group);
        }
    }
    Ok(selection)
}

fn merge_values(
    plan: &ViewPlan,
    codec: &KeyCodec,
    keys: &[&[u8]],
    pieces: &Pieces<'_>,
    need: &Need,
    selections: &[Selection],
    t: Micros,
) -> Result<RecordBatch> {
    let schema = plan.value_schema();
    let mut columns: Vec<ArrayRef> = codec.decode(keys.iter().copied())?;
    columns.push(Arc::new(TimestampMicrosecondArray::from_value(t, keys.len()).with_timezone("UTC")));
    for range in 0..plan.ranges.len() {
        columns.push(match selections.iter().find(|selection| selection.range == range) {
            Some(selection) => merge_state(plan, 0, selection, pieces, keys.len())?,
            None => Arc::new(Int64Array::from_value(0, keys.len())),
        });
    }
    for (index, usage) in plan.uses.iter().enumerate() {
        let selection = selections.iter().find(|selection| selection.range == usage.range && need.uses.contains(&index));
        columns.push(match selection {
            Some(selection) => merge_state(plan, usage.state, selection, pieces, keys.len())?,
            None => arrow::array::new_null_array(schema.field(columns.len()).data_type(), keys.len()),
        });
    }
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// One state merged over one range: a value per key, the aggregate's value of no rows where a key has none.
fn merge_state(plan: &ViewPlan, state: usize, selection: &Selection, pieces: &Pieces<'_>, keys: usize) -> Result<ArrayRef> {
    let expr = &plan.states[state];
    let groups = selection.key_of_group.len();
    if groups == 0 {
        return Ok(take(&expr.nothing, &UInt32Array::from_value(0, keys), None)?);
    }
    let mut accumulator = accumulator(expr)?;
    accumulator.merge_batch(&state_columns(plan, state, selection, pieces)?, &selection.group, groups)?;
    let merged = accumulator.evaluate(EmitTo::All)?;
    if selection.has_each_key_in_order(keys) {
        return Ok(merged);
    }
    let mut of_key = vec![groups as u32; keys];
    for (group, key) in selection.key_of_group.iter().enumerate() {
        of_key[*key as usize] = group as u32;
    }
    let values = concat(&[merged.as_ref(), arrow::compute::cast(&expr.nothing, merged.data_type())?.as_ref()])?;
    Ok(take(&values, &UInt32Array::from(of_key), None)?)
}

/// The view's columns above the merged values.
pub fn project(plan: &ViewPlan, values: &RecordBatch, wanted: &[usize]) -> Result<RecordBatch> {
    let columns = wanted
        .iter()
        .map(|column| match &plan.columns[*column].kind {
            ColumnKind::Key(key) => Ok(values.column(*key).clone()),
            ColumnKind::Value(value) => Ok(value.expr.evaluate(values)?.into_array(values.num_rows())?),
        })
        .collect::<Result<Vec<_>>>()?;
    let fields: Vec<_> = wanted.iter().map(|column| plan.columns[*column].field.clone()).collect();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(values.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}
