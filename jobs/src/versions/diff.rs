//! `view diff`: two versions of a view, their texts and their values.
//!
//! Values are compared row by row at one position of the log and one time. Both versions are read in the order of their
//! keys, which the query's memory limit bounds, and merged: only one batch of each is in memory.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::utils::quote_identifier;
use datafusion::execution::SendableRecordBatchStream;
use engine::plan::{ColumnKind, ViewPlan};
use futures::TryStreamExt;
use serving::{Node, OnValueError, ReadView, WantedViews};
use types::sql_types::sql_name;
use types::vector::Vector;

use super::*;
use crate::pin::pinned;
use crate::verify::values::{Tolerance, equal};

/// How many of the rows that differ are shown.
const EXAMPLES: usize = 10;

/// Two versions of a view, compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VersionsDiff {
    pub view: Arc<str>,
    pub versions: [u32; 2],
    pub definition: Vec<DiffLine>,
    /// Null if only the definitions were compared.
    pub values: Option<ValuesDiff>,
}

impl VersionsDiff {
    /// Whether what was compared is equal: the values in all common columns, or else the definitions.
    pub fn is_equal(&self) -> bool {
        match &self.values {
            Some(values) => values.is_equal(),
            None => self.definition.iter().all(|line| matches!(line, DiffLine::Same(_))),
        }
    }
}

/// The values of two versions at one position and time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ValuesDiff {
    /// The events before it count.
    pub vector: Vector,
    /// The time of each version's answer; they differ only where answers follow the event time of different streams.
    pub t: [String; 2],
    pub rows: [u64; 2],
    /// How many keys only one of them has.
    pub keys_only: [u64; 2],
    /// How many rows differ in some common column.
    pub rows_different: u64,
    /// For each common column, how many rows differ.
    pub columns: BTreeMap<String, u64>,
    /// Columns that only one of them has.
    pub columns_only: [Vec<String>; 2],
    /// The first rows that differ.
    pub examples: Vec<ValueExample>,
    pub seconds: f64,
}

impl ValuesDiff {
    /// Whether both versions have the same rows.
    pub fn is_equal(&self) -> bool {
        self.keys_only == [0, 0] && self.rows_different == 0
    }

    fn note(&mut self, example: impl FnOnce() -> ValueExample) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// A key whose rows differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueExample {
    pub key: BTreeMap<String, Option<String>>,
    /// The version that alone has the key; null if both do.
    pub only_in: Option<u32>,
    /// The values of both, of the columns that differ.
    pub columns: BTreeMap<String, [Option<String>; 2]>,
}

impl Installation {
    /// Compares two versions of a view; `with_values` also their rows. `progress` is called with the rows compared so
    /// far.
    ///
    /// Errors: `NotFound` for a version that there is not (or, with values, no longer), `Unavailable` for one that
    /// cannot answer yet, `Input` for versions with other keys, and for two views.
    pub async fn diff_versions(
        &self,
        (one, other): (&VersionName, &VersionName),
        with_values: bool,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<VersionsDiff> {
        if one.view != other.view {
            let message = format!("found \"{}\" and \"{}\": two versions of one view are compared", one.view, other.view);
            return Err(Error::input(message).with("expected", format!("{one} {}@N", one.view)));
        }
        let state = self.catalog.state().await?;
        let (one, other) = (version_of(&state, one)?, version_of(&state, other)?);
        let versions = [one.version, other.version];
        let values = match with_values {
            false => None,
            true => {
                refuse_dropped(&[one, other])?;
                // Boxed: the future is large, and would take that much of the stack in every caller.
                let compared = Box::pin(self.compare_values(&one.name, versions, progress));
                Some(pinned(&self.catalog, "view", compared).await?)
            }
        };
        let definition = line_diff(&normalised(&one.sql), &normalised(&other.sql));
        Ok(VersionsDiff { view: one.name.clone(), versions, definition, values })
    }

    async fn compare_values(&self, view: &str, versions: [u32; 2], progress: &(dyn Fn(u64) + Send + Sync)) -> Result<ValuesDiff> {
        let node = self.node_of(WantedViews::Versions(view.to_owned())).await?;
        compare_values(&node, &node.read_view()?, view, versions, progress).await
    }
}

fn refuse_dropped(records: &[&DefinitionRecord]) -> Result<()> {
    let Some(dropped) = records.iter().find(|record| !record.status.is_live()) else { return Ok(()) };
    let (view, version) = (&dropped.name, dropped.version);
    Err(Error::not_found(format!("version {version} of the view \"{view}\" was dropped and has no values any more"))
        .with("dropped_at", format_timestamp(dropped.since))
        .with("help", "`--definitions` compares the texts alone"))
}

/// Compares the rows of two versions at a read view.
async fn compare_values(
    node: &Node,
    read_view: &ReadView,
    view: &str,
    versions: [u32; 2],
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<ValuesDiff> {
    let started = Instant::now();
    let (one, other) = (read_view.with_version(view, versions[0])?, read_view.with_version(view, versions[1])?);
    let plans = [&one.view(view)?.live.plan, &other.view(view)?.live.plan];
    let keys = common_keys(view, versions, plans)?;
    let fields =
        keys.iter().map(|key| plans[0].output_schema().field_with_name(key).map(|field| SortField::new(field.data_type().clone())));
    let converter = RowConverter::new(fields.collect::<Result<Vec<_>, _>>()?)?;
    let mut sides = [
        VersionRows::open(node, (one.clone(), view, versions[0]), &keys).await?,
        VersionRows::open(node, (other.clone(), view, versions[1]), &keys).await?,
    ];
    let mut diff = ValuesDiff {
        vector: read_view.vector.clone(),
        t: [&one, &other]
            .map(|read_view| read_view.view(view).map(|view| format_timestamp(read_view.t_of(&view.live))).unwrap_or_default()),
        ..ValuesDiff::default()
    };
    let common = common_columns(plans, &keys, &mut diff);
    merge(&mut sides, &converter, &keys, &common, &mut diff, progress).await?;
    diff.seconds = started.elapsed().as_secs_f64();
    Ok(diff)
}

/// Returns the names of the key columns, which have to be the same in both versions.
fn common_keys(view: &str, versions: [u32; 2], plans: [&Arc<ViewPlan>; 2]) -> Result<Vec<String>> {
    let named = |plan: &ViewPlan| -> Vec<(String, String)> {
        let keys = plan.columns.iter().filter(|column| matches!(column.kind, ColumnKind::Key(_)));
        keys.map(|column| (column.field.name().clone(), sql_name(column.field.data_type()))).collect()
    };
    let mut keys = plans.map(|plan| named(plan));
    keys.iter_mut().for_each(|keys| keys.sort());
    let text = |keys: &[(String, String)]| keys.iter().map(|(name, of)| format!("{name} {of}")).collect::<Vec<_>>().join(", ");
    let has_all = |at: usize| plans[at].answer_keys().len() == keys[at].len();
    if keys[0] == keys[1] && has_all(0) && has_all(1) {
        return Ok(keys[0].iter().map(|(name, _)| name.clone()).collect());
    }
    let message = format!("the rows of two versions of the view \"{view}\" are compared by their keys, which differ or are not selected");
    Err(Error::input(message)
        .with("keys of the first", format!("version {}: {}", versions[0], text(&keys[0])))
        .with("keys of the second", format!("version {}: {}", versions[1], text(&keys[1])))
        .with("help", "`--definitions` compares the texts alone"))
}

fn common_columns(plans: [&Arc<ViewPlan>; 2], keys: &[String], diff: &mut ValuesDiff) -> Vec<String> {
    let names = plans.map(|plan| -> Vec<String> { plan.columns.iter().map(|column| column.field.name().clone()).collect() });
    let of_both: Vec<String> = names[0].iter().filter(|name| names[1].contains(name) && !keys.contains(name)).cloned().collect();
    for (at, names) in names.iter().enumerate() {
        diff.columns_only[at] = names.iter().filter(|name| !of_both.contains(name) && !keys.contains(name)).cloned().collect();
    }
    diff.columns = of_both.iter().map(|name| (name.clone(), 0)).collect();
    of_both
}

/// One version's rows in the order of their keys.
struct VersionRows {
    version: u32,
    batches: SendableRecordBatchStream,
    current: Option<CurrentRow>,
}

/// The row that a side has come to.
struct CurrentRow {
    batch: RecordBatch,
    keys: Option<Rows>,
    at: usize,
}

impl VersionRows {
    async fn open(node: &Node, (read_view, view, version): (ReadView, &str, u32), keys: &[String]) -> Result<VersionRows> {
        let order: Vec<String> = keys.iter().map(|key| format!("{} ASC NULLS FIRST", quote_identifier(key))).collect();
        let order = if order.is_empty() { String::new() } else { format!(" ORDER BY {}", order.join(", ")) };
        let sql = format!("SELECT * FROM {}{order}", quote_identifier(view));
        let answer = node.query_at(read_view, &sql, OnValueError::List).await?;
        Ok(VersionRows { version, batches: answer.batches, current: None })
    }

    /// Goes to a row that was not looked at yet; returns its key, or `None` after the last.
    async fn next(&mut self, converter: &RowConverter, keys: &[String]) -> Result<Option<Key>> {
        if let Some(current) = self.current.as_mut().filter(|current| current.at + 1 < current.batch.num_rows()) {
            current.at += 1;
            return Ok(Some(current.key()));
        }
        loop {
            let Some(batch) = self.batches.try_next().await? else {
                self.current = None;
                return Ok(None);
            };
            if batch.num_rows() > 0 {
                let columns: Vec<ArrayRef> = keys.iter().filter_map(|key| batch.column_by_name(key).cloned()).collect();
                let keys = if columns.is_empty() { None } else { Some(converter.convert_columns(&columns)?) };
                let current = self.current.insert(CurrentRow { batch, keys, at: 0 });
                return Ok(Some(current.key()));
            }
        }
    }
}

/// A key in its order; `None` where a view has no keys, and one row.
type Key = Option<OwnedRow>;

impl CurrentRow {
    fn key(&self) -> Key {
        self.keys.as_ref().map(|keys| keys.row(self.at).owned())
    }

    fn column(&self, name: &str) -> Option<&ArrayRef> {
        self.batch.column_by_name(name)
    }

    fn value(&self, name: &str) -> Option<String> {
        let column = self.column(name)?;
        if column.is_null(self.at) {
            return None;
        }
        let formatter = ArrayFormatter::try_new(column, &FormatOptions::default()).ok()?;
        Some(formatter.value(self.at).to_string())
    }

    fn key_values(&self, keys: &[String]) -> BTreeMap<String, Option<String>> {
        keys.iter().map(|key| (key.clone(), self.value(key))).collect()
    }
}

/// Goes through both sides in the order of their keys.
async fn merge(
    sides: &mut [VersionRows; 2],
    converter: &RowConverter,
    keys: &[String],
    common: &[String],
    diff: &mut ValuesDiff,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<()> {
    let mut heads = [sides[0].next(converter, keys).await?, sides[1].next(converter, keys).await?];
    loop {
        let order = match (&heads[0], &heads[1]) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => one.cmp(other),
        };
        match order {
            Ordering::Equal => compare_row(&sides[0], &sides[1], keys, common, diff),
            Ordering::Less => note_alone(&sides[0], 0, keys, diff),
            Ordering::Greater => note_alone(&sides[1], 1, keys, diff),
        }
        for (at, is_passed) in [order != Ordering::Greater, order != Ordering::Less].into_iter().enumerate() {
            if is_passed {
                diff.rows[at] += 1;
                heads[at] = sides[at].next(converter, keys).await?;
            }
        }
        progress(diff.rows[0].max(diff.rows[1]));
    }
}

fn note_alone(side: &VersionRows, at: usize, keys: &[String], diff: &mut ValuesDiff) {
    let Some(current) = &side.current else { return };
    diff.keys_only[at] += 1;
    diff.note(|| ValueExample { key: current.key_values(keys), only_in: Some(side.version), columns: BTreeMap::new() });
}

fn compare_row(one: &VersionRows, other: &VersionRows, keys: &[String], common: &[String], diff: &mut ValuesDiff) {
    let (Some(one), Some(other)) = (&one.current, &other.current) else { return };
    let is_different = |name: &&String| match (one.column(name), other.column(name)) {
        (Some(a), Some(b)) => !equal(a, one.at, b, other.at, Tolerance::EXACT),
        _ => true,
    };
    let different: Vec<&String> = common.iter().filter(is_different).collect();
    if different.is_empty() {
        return;
    }
    diff.rows_different += 1;
    for name in &different {
        *diff.columns.entry((*name).clone()).or_default() += 1;
    }
    diff.note(|| ValueExample {
        key: one.key_values(keys),
        only_in: None,
        columns: different.into_iter().map(|name| (name.clone(), [one.value(name), other.value(name)])).collect(),
    });
}
