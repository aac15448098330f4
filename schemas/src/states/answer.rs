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
        if !self.batches.last().is_some_and(|last| std::ptr::eq(*last, batch)) {
            self.batches.push(batch);
        }
        self.rows.push(Piece { batch: self.batches.len() - 1, from: rows.start, to: rows.end, key, laddered });
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
    let nothing = expr.aggregate.create_accumulator()?.evaluate()?.to_array()?;
    let groups = selection.key_of_group.len();
    let mut of_key = vec![groups as u32; keys];
    for (group, key) in selection.key_of_group.iter().enumerate() {
        of_key[*key as usize] = group as u32;
    }
    let values = if groups == 0 {
        nothing
    } else {
        let from = plan.state_offset(state);
        let states = (from..from + expr.fields.len())
            .map(|column| {
                let arrays: Vec<&dyn Array> = pieces.batches.iter().map(|batch| batch.column(column).as_ref()).collect();
                Ok(interleave(&arrays, &selection.rows)?)
            })
            .collect::<Result<Vec<_>>>()?;
        let mut accumulator = accumulator(expr)?;
        accumulator.merge_batch(&states, &selection.group, groups)?;
        let merged = accumulator.evaluate(EmitTo::All)?;
        concat(&[merged.as_ref(), arrow::compute::cast(&nothing, merged.data_type())?.as_ref()])?
    };
    Ok(take(&values, &UInt32Array::from(of_key), None)?)
}

fn project(plan: &ViewPlan, values: &RecordBatch, wanted: &[usize]) -> Result<RecordBatch> {
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
