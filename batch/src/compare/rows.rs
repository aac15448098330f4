//! Compares two sorted streams of state rows, holding only a few rows of each in memory.

use std::cmp::Ordering;

use arrow::array::ArrayRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use catalog::StateDifference;
use engine::events::format_timestamp;
use engine::plan::{StateIndex, UseIndex, ViewPlan};
use engine::states::{Differing, StateRows, differing, levels, tiles};
use types::Result;
use types::tiles::Level;

/// How many differences are shown.
const SHOWN: usize = 5;
/// How much of a state is shown.
const SHOWN_CHARACTERS: usize = 200;

/// The findings of a comparison so far.
#[derive(Debug, Default)]
pub(super) struct ComparedRows {
    pub(super) rows: i64,
    pub(super) differences: i64,
    pub(super) first: Vec<StateDifference>,
}

impl ComparedRows {
    pub(super) fn add(&mut self, other: ComparedRows) {
        self.rows += other.rows;
        self.differences += other.differences;
        self.first.extend(other.first);
        self.first.truncate(SHOWN);
    }

    fn note(&mut self, difference: impl FnOnce() -> Result<StateDifference>) -> Result<()> {
        self.differences += 1;
        if self.first.len() < SHOWN {
            self.first.push(difference()?);
        }
        Ok(())
    }
}

/// Compares the buffered rows of both sides until one side is used up, and returns the rest. A side without buffered
/// rows has ended: then the other one is used up completely.
pub(super) fn compare_at_hand(
    plan: &ViewPlan,
    (mut kept, mut recomputed): (StateRows, StateRows),
    is_compared: impl Fn(StateIndex) -> bool,
    found: &mut ComparedRows,
) -> Result<(StateRows, StateRows)> {
    let one_has_ended = kept.is_empty() || recomputed.is_empty();
    let is_left = |kept: &StateRows, recomputed: &StateRows| match one_has_ended {
        true => !(kept.is_empty() && recomputed.is_empty()),
        false => !(kept.is_empty() || recomputed.is_empty()),
    };
    while is_left(&kept, &recomputed) {
        let (done, also_done) = compare_next(plan, (&kept, &recomputed), &is_compared, found)?;
        (kept, recomputed) = (kept.slice(done..kept.len()), recomputed.slice(also_done..recomputed.len()));
    }
    Ok((kept, recomputed))
}

/// Compares the next rows that both sides have, or the next row that one of them lacks, and returns how many rows of
/// each are done.
fn compare_next(
    plan: &ViewPlan,
    (kept, recomputed): (&StateRows, &StateRows),
    is_compared: impl Fn(StateIndex) -> bool,
    found: &mut ComparedRows,
) -> Result<(usize, usize)> {
    let same = same_places(kept, recomputed)?;
    if same > 0 {
        let (kept, recomputed) = (kept.slice(0..same), recomputed.slice(0..same));
        found.rows += same as i64;
        for Differing { row, state } in differing(plan, kept.batch(), recomputed.batch(), is_compared)? {
            found.note(|| state_difference(plan, (&kept, &recomputed), row, state))?;
        }
        return Ok((same, same));
    }
    let order = match (kept.is_empty(), recomputed.is_empty()) {
        (false, false) => place(kept, 0)?.cmp(&place(recomputed, 0)?),
        (true, true) => return Ok((0, 0)),
        (false, true) => Ordering::Less,
        (true, false) => Ordering::Greater,
    };
    found.rows += 1;
    match order {
        Ordering::Less => found.note(|| row_difference(plan, kept, ("a row", "no row")))?,
        _ => found.note(|| row_difference(plan, recomputed, ("no row", "a row")))?,
    }
    Ok(if order == Ordering::Less { (1, 0) } else { (0, 1) })
}

/// How many rows from the first on have the same keys, levels and tiles on both sides.
fn same_places(a: &StateRows, b: &StateRows) -> Result<usize> {
    let most = a.len().min(b.len());
    let (levels_of_a, levels_of_b) = (levels(a.batch())?.values(), levels(b.batch())?.values());
    let (tiles_of_a, tiles_of_b) = (tiles(a.batch())?, tiles(b.batch())?);
    let is_same = |row: usize| {
        levels_of_a[row] == levels_of_b[row] && tiles_of_a[row] == tiles_of_b[row] && a.keys().value(row) == b.keys().value(row)
    };
    Ok((0..most).find(|row| !is_same(*row)).unwrap_or(most))
}

/// The values by which rows are ordered in a snapshot.
fn place(rows: &StateRows, row: usize) -> Result<(&[u8], u8, i64)> {
    Ok((rows.keys().value(row), levels(rows.batch())?.value(row), tiles(rows.batch())?[row]))
}

fn state_difference(
    plan: &ViewPlan,
    (kept, recomputed): (&StateRows, &StateRows),
    row: usize,
    state: StateIndex,
) -> Result<StateDifference> {
    let expr = plan.state(state);
    let fields = |rows: &StateRows| {
        let fields = rows.batch().columns()[plan.state_columns(state)].iter();
        shortened(fields.map(|field| text(field, row)).collect::<Vec<_>>().join(", "))
    };
    let column = columns_of(plan, state).unwrap_or_else(|| expr.sql.clone());
    Ok(StateDifference {
        column,
        state: expr.sql.clone(),
        kept: fields(kept),
        recomputed: fields(recomputed),
        ..difference_at(plan, kept, row)?
    })
}

/// The first row of `rows`, which the other side lacks.
fn row_difference(plan: &ViewPlan, rows: &StateRows, (kept, recomputed): (&str, &str)) -> Result<StateDifference> {
    Ok(StateDifference { kept: kept.to_owned(), recomputed: recomputed.to_owned(), ..difference_at(plan, rows, 0)? })
}

fn difference_at(plan: &ViewPlan, rows: &StateRows, row: usize) -> Result<StateDifference> {
    let keys = plan.keys.iter().zip(rows.batch().columns());
    let key = keys.map(|(field, column)| format!("{}={}", field.name(), text(column, row))).collect::<Vec<_>>().join(", ");
    let code = levels(rows.batch())?.value(row);
    let level = Level::LEVELS.into_iter().find(|level| level.code() == code);
    let tile = tiles(rows.batch())?[row];
    Ok(StateDifference {
        key: shortened(key),
        column: "*".to_owned(),
        state: "*".to_owned(),
        level: level.map_or_else(|| code.to_string(), |level| level.to_string()),
        tile: if level == Some(Level::All) { "all time".to_owned() } else { format_timestamp(tile) },
        kept: String::new(),
        recomputed: String::new(),
    })
}

/// The view's columns that depend on a state. `None` if no column does.
fn columns_of(plan: &ViewPlan, state: StateIndex) -> Option<String> {
    let values = plan.values()?;
    let needs = |usage: &UseIndex| values.uses[usage.0].state == state;
    let columns = plan.columns.iter().filter(|column| column.uses().iter().any(needs));
    let names: Vec<&str> = columns.map(|column| column.field.name().as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn text(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::default().with_null("NULL");
    match ArrayFormatter::try_new(array.as_ref(), &options) {
        Ok(formatter) => formatter.value(row).try_to_string().unwrap_or_else(|error| error.to_string()),
        Err(error) => error.to_string(),
    }
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
