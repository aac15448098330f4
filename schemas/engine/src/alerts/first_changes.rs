//! Finds when comparisons with the time change. A comparison over one row changes at most once, and the time of the
//! change is found by evaluating it at several times.
//!
//! A bisection to the microsecond evaluates all rows some fifty times. But most comparisons change a fixed time after
//! a time in their row, such as 30 s after a device's last event. So the change of one row is bisected, and for the
//! others it is looked for as long after their own times: two evaluations show whether it is there.

use std::ops::Range;

use arrow::array::{Array, TimestampMicrosecondArray};
use types::Result;
use types::tiles::Micros;

/// No change is looked for later than this: 100 years.
const HORIZON: Micros = 100 * 366 * 86_400 * 1_000_000;
/// From this many rows that change, one is bisected alone before the others.
const GUESSED_FROM: usize = 32;

/// For each row, the first time after its own in `t` at which the comparison has another outcome than then; `None` if
/// there is none. `columns` are times of the rows. `outcomes` evaluates some of the rows, each at a time.
pub(super) fn first_changes(
    t: &[Micros],
    columns: &[&TimestampMicrosecondArray],
    mut outcomes: impl FnMut(Range<usize>, &[Micros]) -> Result<Vec<Option<bool>>>,
) -> Result<Vec<Option<Micros>>> {
    let all = 0..t.len();
    let end: Vec<Micros> = t.iter().map(|t| t.saturating_add(HORIZON)).collect();
    let (now, last) = (outcomes(all.clone(), t)?, outcomes(all.clone(), &end)?);
    let changes: Vec<bool> = now.iter().zip(&last).map(|(now, last)| now != last).collect();
    let before = t.iter().zip(&end).zip(&changes).map(|((t, end), changes)| if *changes { *t } else { *end }).collect();
    let mut search = ChangeSearch { now, before, after: end };
    let changing = changes.iter().filter(|changes| **changes).count();
    if let Some(sample) = changes.iter().position(|changes| *changes).filter(|_| changing >= GUESSED_FROM) {
        let mut alone = search.of_row(sample);
        while alone.is_open() {
            let times = alone.middles();
            alone.narrow(&times, &outcomes(sample..sample + 1, &times)?);
        }
        for column in columns {
            let Some(time) = time_in(column, sample) else { continue };
            let distance = alone.after[0].saturating_sub(time);
            for distance in [distance.saturating_sub(1), distance] {
                if search.is_open() {
                    let times = search.guesses(column, distance);
                    search.narrow(&times, &outcomes(all.clone(), &times)?);
                }
            }
        }
    }
    while search.is_open() {
        let times = search.middles();
        search.narrow(&times, &outcomes(all.clone(), &times)?);
    }
    Ok(changes.into_iter().zip(search.after).map(|(changes, at)| changes.then_some(at)).collect())
}

/// For each row, two times between which it changes. Those of a row that does not change are the same.
struct ChangeSearch {
    /// The outcomes before the change.
    now: Vec<Option<bool>>,
    before: Vec<Micros>,
    after: Vec<Micros>,
}

impl ChangeSearch {
    fn of_row(&self, row: usize) -> ChangeSearch {
        ChangeSearch { now: vec![self.now[row]], before: vec![self.before[row]], after: vec![self.after[row]] }
    }

    fn is_open(&self) -> bool {
        self.before.iter().zip(&self.after).any(|(before, after)| after - before > 1)
    }

    fn middles(&self) -> Vec<Micros> {
        self.before.iter().zip(&self.after).map(|(before, after)| before + (after - before) / 2).collect()
    }

    /// The times at this distance from those of a column.
    fn guesses(&self, column: &TimestampMicrosecondArray, distance: Micros) -> Vec<Micros> {
        let guess = |row: usize| {
            let (before, after) = (self.before[row], self.after[row]);
            time_in(column, row).map_or(before, |time| time.saturating_add(distance).clamp(before, after))
        };
        (0..self.now.len()).map(guess).collect()
    }

    /// Takes what was found at these times, each between those of its row.
    fn narrow(&mut self, times: &[Micros], found: &[Option<bool>]) {
        for (row, (time, found)) in times.iter().zip(found).enumerate() {
            match *found == self.now[row] {
                true => self.before[row] = *time,
                false => self.after[row] = *time,
            }
        }
    }
}

fn time_in(column: &TimestampMicrosecondArray, row: usize) -> Option<Micros> {
    column.is_valid(row).then(|| column.value(row))
}

#[cfg(test)]
mod tests;
