//! Compares the decisions of an edited sink with those of the live one: counts by both verdicts, sums, examples.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int32Type, Int64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use batch::{CHANGED, CHANGED_VERDICT, NO_VERDICT, VERDICT};
use engine::events::format_timestamp;
use engine::sinks::SinkPlan;
use serde::Serialize;
use serde_json::{Value, json};
use types::{Error, Result};

use super::EditedSink;
use super::compared_columns::ComparedColumns;
use crate::mistakes::Mistakes;

/// Different pairs of verdicts that are counted.
const MAX_CELLS: usize = 1_000;
/// Events that are shown of each pair of different verdicts.
const EXAMPLES: usize = 3;
const DIGITS: u8 = 38;

/// How two definitions of a sink decide about the same events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerdictDifference {
    /// The column that is compared.
    pub verdict: String,
    /// The column that is summed.
    pub amount: Option<String>,
    /// Events about which the two decide differently.
    pub different: u64,
    /// In the order of the verdicts: numbers by value if all verdicts are numbers, else texts.
    pub cells: Vec<Cell>,
    /// Of events about which they decide differently, the first ones of each pair of verdicts.
    pub examples: Vec<VerdictExample>,
}

/// The events of one pair of verdicts. In the place of a verdict stand `(none)` where WHERE does not hold, `(error)`
/// where the SELECT fails, and `(null)`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    pub live: String,
    pub changed: String,
    pub events: u64,
    /// As in answers: decimals are strings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Value>,
}

/// An event of which two definitions decide differently.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerdictExample {
    pub live: String,
    pub changed: String,
    pub partition: i32,
    pub offset: i64,
    pub event_time: String,
    /// The event's id, where a definition selects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl VerdictDifference {
    /// The verdicts of the live and of the changed definition, in the order of the cells and each once.
    pub(crate) fn verdicts(&self) -> (Vec<&str>, Vec<&str>) {
        let are_numbers = are_numbers(self.cells.iter().flat_map(|cell| [&*cell.live, &*cell.changed]));
        let in_order = |verdict: fn(&Cell) -> &str| {
            let found: BTreeSet<&str> = self.cells.iter().map(verdict).collect();
            let mut verdicts: Vec<&str> = found.into_iter().collect();
            if are_numbers {
                verdicts.sort_by(|one, other| by_value(one, other));
            }
            verdicts
        };
        (in_order(|cell| &cell.live), in_order(|cell| &cell.changed))
    }
}

/// Counts rows as they come.
#[derive(Debug)]
pub(super) struct VerdictComparison {
    verdict: String,
    amount: Option<String>,
    /// The type in which amounts are added.
    amount_type: DataType,
    /// The stream's column with the event's id.
    id: Option<String>,
    cells: BTreeMap<Verdicts, Counted>,
}

/// How each definition decides about an event.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Verdicts {
    live: String,
    changed: String,
}

#[derive(Debug, Default)]
struct Counted {
    events: u64,
    exact: i128,
    double: f64,
    examples: Vec<VerdictExample>,
}

impl VerdictComparison {
    /// Returns `None` where no column says how a sink decides, or the amount is no number: each is noted as a mistake.
    pub(super) fn new(
        edited: &EditedSink,
        live: &SinkPlan,
        changed: &SinkPlan,
        mistakes: &mut Mistakes,
    ) -> Result<Option<VerdictComparison>> {
        let columns = ComparedColumns { live: &live.output, changed: &changed.output };
        let verdict = mistakes.noted(columns.verdict(edited.verdict.as_deref()))?;
        let amount = mistakes.noted(columns.amount(edited.amount.as_deref()))?;
        let Some((verdict, amount)) = verdict.zip(amount) else { return Ok(None) };
        let amount_type = amount.as_ref().map_or(DataType::Float64, |amount| sum_type(&amount.types));
        let (amount, id) = (amount.map(|amount| amount.name), live.stream.id.clone());
        Ok(Some(VerdictComparison { verdict, amount, amount_type, id, cells: BTreeMap::new() }))
    }

    pub(super) fn verdict(&self) -> &str {
        &self.verdict
    }

    pub(super) fn add(&mut self, rows: &RecordBatch) -> Result<()> {
        let (live, changed) = (texts(rows, VERDICT)?, texts(rows, CHANGED_VERDICT)?);
        // A value that does not fit is no NULL.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let amounts_of = |name: &str| {
            let amounts = cast_with_options(rows_of(rows, name)?, &self.amount_type, &options);
            amounts.map_err(|_| Error::input(format!("an amount has more than {DIGITS} digits")))
        };
        let amounts = match &self.amount {
            Some(amount) => Some([amounts_of(amount)?, amounts_of(&format!("{CHANGED}{amount}"))?]),
            None => None,
        };
        for row in 0..rows.num_rows() {
            let verdicts = Verdicts { live: live.value(row).to_owned(), changed: changed.value(row).to_owned() };
            if self.cells.len() == MAX_CELLS && !self.cells.contains_key(&verdicts) {
                return Err(Error::input(format!("the column \"{}\" has more than {MAX_CELLS} pairs of values", self.verdict))
                    .with("expected", "--verdict with a column of few values"));
            }
            let is_example =
                verdicts.live != verdicts.changed && self.cells.get(&verdicts).is_none_or(|cell| cell.examples.len() < EXAMPLES);
            let example = is_example.then(|| self.example(rows, row, &verdicts)).transpose()?;
            let is_live = verdicts.live != NO_VERDICT;
            let cell = self.cells.entry(verdicts).or_default();
            cell.events += 1;
            cell.examples.extend(example);
            if let Some([of_live, of_changed]) = &amounts {
                cell.add(if is_live { of_live } else { of_changed }, row)?;
            }
        }
        Ok(())
    }

    fn example(&self, rows: &RecordBatch, row: usize, Verdicts { live, changed }: &Verdicts) -> Result<VerdictExample> {
        let id = self.id.as_ref().and_then(|id| {
            let columns = [rows.column_by_name(id), rows.column_by_name(&format!("{CHANGED}{id}"))];
            columns.into_iter().flatten().find(|column| column.is_valid(row))
        });
        let text = |column: &ArrayRef| Ok::<_, Error>(ArrayFormatter::try_new(column, &FormatOptions::default())?.value(row).to_string());
        Ok(VerdictExample {
            live: live.clone(),
            changed: changed.clone(),
            partition: rows_of(rows, "_partition")?.as_primitive::<Int32Type>().value(row),
            offset: rows_of(rows, "_offset")?.as_primitive::<Int64Type>().value(row),
            event_time: format_timestamp(
                rows_of(rows, "_event_time")?.as_primitive::<arrow::datatypes::TimestampMicrosecondType>().value(row),
            ),
            id: id.map(text).transpose()?,
        })
    }

    pub(super) fn finish(self) -> VerdictDifference {
        let amount_type = self.amount.is_some().then_some(&self.amount_type);
        let (mut different, mut cells, mut examples) = (0, Vec::new(), Vec::new());
        let mut counted_by_verdicts: Vec<(Verdicts, Counted)> = self.cells.into_iter().collect();
        if are_numbers(counted_by_verdicts.iter().flat_map(|(verdicts, _)| [&*verdicts.live, &*verdicts.changed])) {
            counted_by_verdicts
                .sort_by(|(one, _), (other, _)| by_value(&one.live, &other.live).then_with(|| by_value(&one.changed, &other.changed)));
        }
        for (Verdicts { live, changed }, counted) in counted_by_verdicts {
            different += if live == changed { 0 } else { counted.events };
            let amount = amount_type.map(|amount_type| counted.sum(amount_type));
            cells.push(Cell { live, changed, events: counted.events, amount });
            examples.extend(counted.examples);
        }
        VerdictDifference { verdict: self.verdict, amount: self.amount, different, cells, examples }
    }
}

impl Counted {
    fn add(&mut self, amounts: &ArrayRef, row: usize) -> Result<()> {
        if amounts.is_null(row) {
            return Ok(());
        }
        match amounts.as_primitive_opt::<Decimal128Type>() {
            Some(amounts) => {
                let sum = self.exact.checked_add(amounts.value(row));
                self.exact = sum.ok_or_else(|| Error::input("the sum of amounts has more than 38 digits"))?;
            }
            None => self.double += amounts.as_primitive::<Float64Type>().value(row),
        }
        Ok(())
    }

    fn sum(&self, amount_type: &DataType) -> Value {
        match amount_type {
            DataType::Decimal128(_, 0) => match i64::try_from(self.exact) {
                Ok(whole) if whole.abs() <= 1 << 53 => json!(whole),
                _ => json!(self.exact.to_string()),
            },
            DataType::Decimal128(precision, scale) => {
                json!(<Decimal128Type as arrow::datatypes::DecimalType>::format_decimal(self.exact, *precision, *scale))
            }
            _ => json!(self.double),
        }
    }
}

/// Whether all verdicts are numbers, apart from the words that replace one.
fn are_numbers<'v>(mut verdicts: impl Iterator<Item = &'v str>) -> bool {
    verdicts.all(|verdict| verdict.starts_with('(') || number(verdict).is_some())
}

/// Numbers by value, after the words that replace a verdict.
fn by_value(one: &str, other: &str) -> Ordering {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (one, other) => one.is_some().cmp(&other.is_some()),
    }
    .then_with(|| one.cmp(other))
}

fn number(verdict: &str) -> Option<f64> {
    verdict.parse().ok()
}

/// Integers and decimals are added exactly.
fn sum_type(types: &[DataType]) -> DataType {
    let scales = types.iter().map(|data_type| match data_type {
        DataType::Decimal128(_, scale) => Some((*scale).max(0)),
        integer if integer.is_integer() => Some(0),
        _ => None,
    });
    let largest = scales.reduce(|one, other| Some(one?.max(other?))).flatten();
    largest.map_or(DataType::Float64, |scale| DataType::Decimal128(DIGITS, scale))
}

fn rows_of<'r>(rows: &'r RecordBatch, name: &str) -> Result<&'r ArrayRef> {
    rows.column_by_name(name).ok_or_else(|| Error::internal(format!("scored rows lack {name}")))
}

fn texts<'r>(rows: &'r RecordBatch, name: &str) -> Result<&'r arrow::array::StringArray> {
    Ok(rows_of(rows, name)?.as_string::<i32>())
}

#[cfg(test)]
mod tests;
