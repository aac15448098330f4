//! Rows of many groups, for aggregates that keep some of their rows or all: `last_n`, `array_agg`, `string_agg`.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::mem::{size_of, size_of_val};

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use arrow_row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::MOST_AT_ONCE;
use super::room::{give_back, make_room};

/// The types of the columns that an aggregate orders by; `None` if one of them is nested: such values have no total
/// order.
pub(super) fn ordering_types(args: &AccumulatorArgs<'_>) -> Result<Option<Vec<DataType>>> {
    let types = args.order_bys.iter().map(|sort| sort.expr.data_type(args.schema)).collect::<Result<Vec<_>>>()?;
    Ok(if types.iter().any(DataType::is_nested) { None } else { Some(types) })
}

/// Which of a group's rows comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Ascending,
    Descending,
}

/// What is handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handed {
    State,
    Values,
}

/// Rows with their groups.
///
/// A row is kept in row format, whose bytes sort like the row: some fifty bytes, where scalars take five hundred.
#[derive(Debug)]
pub(super) struct GroupRows {
    /// The function whose rows these are, for messages.
    name: &'static str,
    fields: Vec<SortField>,
    direction: Direction,
    converter: RowConverter,
    bytes: Vec<u8>,
    rows: Vec<RowSpan>,
    /// How many rows each group has.
    counts: Vec<u32>,
}

/// Where a row's bytes are.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowSpan {
    start: usize,
    len: u32,
    group: u32,
}

impl RowSpan {
    pub(super) fn bytes<'b>(&self, all: &'b [u8]) -> &'b [u8] {
        &all[self.start..self.start + self.len as usize]
    }

    pub(super) fn group(&self) -> usize {
        self.group as usize
    }
}

/// The rows of some groups as columns, one for each field, and where each group ends in them.
pub(super) struct GroupColumns {
    pub(super) columns: Vec<ArrayRef>,
    pub(super) offsets: OffsetBuffer<i32>,
    /// Groups without rows are NULL.
    pub(super) nulls: Option<NullBuffer>,
}

impl GroupRows {
    pub(super) fn new(name: &'static str, fields: Vec<SortField>, direction: Direction) -> Result<Self> {
        let converter = RowConverter::new(fields.clone())?;
        Ok(Self { name, fields, direction, converter, bytes: Vec::new(), rows: Vec::new(), counts: Vec::new() })
    }

    /// The same, of no rows.
    pub(super) fn empty(&self) -> Result<Self> {
        Self::new(self.name, self.fields.clone(), self.direction)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn count(&self, group: usize) -> usize {
        self.counts[group] as usize
    }

    /// Brings the columns of a batch, one for each field, into row format.
    pub(super) fn encode(&self, columns: &[ArrayRef]) -> Result<Rows> {
        Ok(self.converter.convert_columns(columns)?)
    }

    pub(super) fn push(&mut self, bytes: &[u8], group: usize) -> Result<()> {
        let (Ok(group_number), Ok(len)) = (u32::try_from(group), u32::try_from(bytes.len())) else {
            return exec_err!("{} has a row of {} bytes in group {group}: expected at most {} of each", self.name, bytes.len(), u32::MAX);
        };
        make_room(&mut self.bytes, bytes.len());
        make_room(&mut self.rows, 1);
        self.rows.push(RowSpan { start: self.bytes.len(), len, group: group_number });
        self.bytes.extend_from_slice(bytes);
        self.counts[group] += 1;
        Ok(())
    }

    /// Sorts the rows of each group, and keeps the first of them: as many as `keep` says, which may move them.
    pub(super) fn thin_out(&mut self, keep: impl Fn(&mut [RowSpan], &[u8]) -> usize) {
        let Self { direction, bytes, rows, counts, .. } = self;
        rows.sort_unstable_by(|left, right| direction.compare(left, right, bytes));
        let (mut from, mut end) = (0, 0);
        while from < rows.len() {
            let group = rows[from].group();
            let of_group = counts[group] as usize;
            let kept = keep(&mut rows[from..from + of_group], bytes);
            rows.copy_within(from..from + kept, end);
            counts[group] = kept as u32;
            from += of_group;
            end += kept;
        }
        rows.truncate(end);
        self.close_gaps();
    }

    /// Moves the bytes of all rows together.
    fn close_gaps(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.start);
        let mut end = 0;
        for row in &mut self.rows {
            let len = row.len as usize;
            self.bytes.copy_within(row.start..row.start + len, end);
            row.start = end;
            end += len;
        }
        self.bytes.truncate(end);
        give_back(&mut self.bytes);
        give_back(&mut self.rows);
    }

    /// The rows of the first groups, in the order of the groups, and in each in their own order.
    fn columns(&mut self, groups: usize) -> Result<GroupColumns> {
        let Self { direction, bytes, rows, .. } = self;
        rows.sort_unstable_by(|left, right| direction.compare(left, right, bytes));
        let taken = &self.rows[..self.rows.partition_point(|row| row.group() < groups)];
        let total: usize = taken.iter().map(|row| row.len as usize).sum();
        if i32::try_from(total).is_err() {
            return exec_err!("{} has {total} bytes to return at once: expected at most {}", self.name, i32::MAX);
        }
        let parser = self.converter.parser();
        let columns = self.converter.convert_rows(taken.iter().map(|row| parser.parse(row.bytes(&self.bytes))))?;
        let counts = &self.counts[..groups];
        let valid: NullBuffer = counts.iter().map(|count| *count > 0).collect::<Vec<bool>>().into();
        let offsets = OffsetBuffer::from_lengths(counts.iter().map(|count| *count as usize));
        Ok(GroupColumns { columns, offsets, nulls: Some(valid).filter(|valid| valid.null_count() > 0) })
    }

    /// Forgets the first groups. The others are numbered from 0.
    fn forget(&mut self, groups: usize) {
        if groups == self.counts.len() {
            (self.bytes, self.rows, self.counts) = (Vec::new(), Vec::new(), Vec::new());
            return;
        }
        self.counts.drain(..groups);
        self.rows.retain(|row| row.group() >= groups);
        self.rows.iter_mut().for_each(|row| row.group -= groups as u32);
        self.close_gaps();
    }

    /// What is held, and what it takes to hand on all rows but `surplus`. More than any limit once it approaches what
    /// Arrow's lists hold: when memory is refused, operators emit everything at once.
    fn held_bytes(&self, surplus: usize) -> usize {
        if self.bytes.len() > MOST_AT_ONCE {
            return usize::MAX / 64;
        }
        let held = self.bytes.capacity() + self.rows.capacity() * size_of::<RowSpan>() + self.counts.capacity() * size_of::<u32>();
        let bytes_of_a_row = self.bytes.len().div_ceil(self.rows.len().max(1));
        // The columns, and where each row is read from.
        let returned = (self.rows.len() - surplus) * (bytes_of_a_row + size_of::<&[u8]>());
        size_of_val(self) + held + returned
    }
}

impl Direction {
    /// By group, then in this direction.
    fn compare(self, left: &RowSpan, right: &RowSpan, bytes: &[u8]) -> Ordering {
        left.group.cmp(&right.group).then_with(|| match self {
            Self::Ascending => left.bytes(bytes).cmp(right.bytes(bytes)),
            Self::Descending => right.bytes(bytes).cmp(left.bytes(bytes)),
        })
    }
}

/// An aggregate that keeps rows.
pub(super) trait KeepsRows: Debug + Send + Sync + Sized + 'static {
    /// The same, of no rows.
    fn empty(&self) -> Result<Self>;

    fn rows(&self) -> &GroupRows;

    fn rows_mut(&mut self) -> &mut GroupRows;

    /// Adds the events that count, each to its group. The columns: the arguments, then the ordering columns.
    fn update(&mut self, columns: &[ArrayRef], counts: impl Fn(usize) -> bool, groups: &[usize]) -> Result<()>;

    /// Adds the rows of states.
    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()>;

    /// Drops the rows that do not count in the end.
    fn settle(&mut self);

    /// How many rows are known to be dropped.
    fn surplus(&self) -> usize;

    /// The state's columns, or one column of values, of the rows of some groups.
    fn columns(&self, rows: GroupColumns, handed: Handed) -> Result<Vec<ArrayRef>>;

    /// The states or the values of the first groups, which stay.
    fn of_first(&mut self, groups: usize, handed: Handed) -> Result<Vec<ArrayRef>> {
        self.settle();
        let rows = self.rows_mut().columns(groups)?;
        self.columns(rows, handed)
    }

    /// The states or the values of groups, which go.
    fn hand_on(&mut self, emit_to: EmitTo, handed: Handed) -> Result<Vec<ArrayRef>> {
        let groups = match emit_to {
            EmitTo::All => self.rows().counts.len(),
            EmitTo::First(groups) => groups,
        };
        let columns = self.of_first(groups, handed)?;
        self.rows_mut().forget(groups);
        Ok(columns)
    }
}

/// The rows of every group.
#[derive(Debug)]
pub(super) struct Groups<K>(pub(super) K);

impl<K: KeepsRows> GroupsAccumulator for Groups<K> {
    fn update_batch(&mut self, columns: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.0.rows_mut().counts.resize(total_groups, 0);
        self.0.update(columns, |row| only.is_none_or(|only| only.is_valid(row) && only.value(row)), groups)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.0.rows_mut().counts.resize(total_groups, 0);
        self.0.merge(states, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.0.hand_on(emit_to, Handed::Values)?.swap_remove(0))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.hand_on(emit_to, Handed::State)
    }

    fn convert_to_state(&self, columns: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each = Self(self.0.empty()?);
        let rows = columns.first().map_or(0, |column| column.len());
        let groups: Vec<usize> = (0..rows).collect();
        each.update_batch(columns, &groups, only, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.0.rows().held_bytes(self.0.surplus())
    }
}

/// One group alone, which may be asked again and again.
#[derive(Debug)]
pub(super) struct OneGroup<K>(K);

impl<K: KeepsRows> OneGroup<K> {
    pub(super) fn new(mut kept: K) -> Self {
        kept.rows_mut().counts.resize(1, 0);
        Self(kept)
    }
}

impl<K: KeepsRows> Accumulator for OneGroup<K> {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |column| column.len());
        self.0.update(columns, |_| true, &vec![0; rows])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |column| column.len());
        self.0.merge(states, &vec![0; rows])
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let columns = self.0.of_first(1, Handed::State)?;
        columns.iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.of_first(1, Handed::Values)?[0], 0)
    }

    fn size(&self) -> usize {
        self.0.rows().held_bytes(self.0.surplus())
    }
}
