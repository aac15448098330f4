//! The two accumulators of DataFusion, for what is collected of many groups in one list.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::super::MOST_AT_ONCE;

/// What a state has before its events, and its place in a column.
const HEAD_BYTES: usize = 8;
const PLACE_BYTES: usize = size_of::<usize>() + size_of::<i32>();

/// What is collected of many groups.
pub(super) trait Collected: Debug + Send + Sync + Sized + 'static {
    /// The same, of no rows.
    fn empty(&self) -> Self;

    /// Adds the rows that count, each to its group.
    fn update(&mut self, columns: &[ArrayRef], counts: &dyn Fn(usize) -> bool, groups: &[usize]) -> Result<()>;

    fn merge(&mut self, state: &[u8], group: u32) -> Result<()>;

    /// Brings all groups into their one order. The states and values are those of settled groups.
    fn settle(&mut self);

    /// Appends the state of a group, or nothing if it has no rows.
    fn push_state(&self, group: u32, bytes: &mut Vec<u8>);

    /// The values of these groups, also of those without rows.
    fn values(&self, groups: u32) -> Result<ArrayRef>;

    /// Forgets the first groups. The others are numbered from 0.
    fn forget(&mut self, groups: u32);

    fn held_bytes(&self) -> HeldBytes;
}

/// What is collected, in bytes.
pub(super) struct HeldBytes {
    /// On the heap.
    pub(super) heap: usize,
    /// About how long the states are beside their heads.
    pub(super) states: usize,
}

/// The rows of every group.
#[derive(Debug)]
pub(super) struct CollectedGroups<C> {
    collected: C,
    groups: usize,
}

/// One group alone, which may be asked again and again.
#[derive(Debug)]
pub(super) struct CollectedGroup<C>(C);

pub(super) fn groups<C: Collected>(collected: C) -> Box<dyn GroupsAccumulator> {
    Box::new(CollectedGroups { collected, groups: 0 })
}

pub(super) fn one_group<C: Collected>(collected: C) -> Box<dyn Accumulator> {
    Box::new(CollectedGroup(collected))
}

impl<C: Collected> CollectedGroups<C> {
    fn emitted(&self, emit_to: EmitTo) -> Result<u32> {
        let groups = match emit_to {
            EmitTo::All => self.groups,
            EmitTo::First(groups) => groups,
        };
        match u32::try_from(groups) {
            Ok(groups) => Ok(groups),
            Err(_) => exec_err!("{groups} groups are aggregated at once: expected at most {}", u32::MAX),
        }
    }

    fn forget(&mut self, groups: u32) {
        self.groups -= groups as usize;
        self.collected.forget(groups);
    }
}

impl<C: Collected> GroupsAccumulator for CollectedGroups<C> {
    fn update_batch(&mut self, columns: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.groups = total_groups;
        self.collected.update(columns, &|row| only.is_none_or(|only| only.is_valid(row) && only.value(row)), groups)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.groups = total_groups;
        merge(&mut self.collected, states, |row| groups[row])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.emitted(emit_to)?;
        self.collected.settle();
        let values = self.collected.values(groups)?;
        self.forget(groups);
        Ok(values)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.emitted(emit_to)?;
        let states = states(&mut self.collected, groups)?;
        self.forget(groups);
        Ok(vec![states])
    }

    fn convert_to_state(&self, columns: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = columns.first().map_or(0, |column| column.len());
        let groups: Vec<usize> = (0..rows).collect();
        let mut each = CollectedGroups { collected: self.collected.empty(), groups: 0 };
        each.update_batch(columns, &groups, only, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of_val(self) + said_bytes(&self.collected, self.groups)
    }
}

impl<C: Collected> Accumulator for CollectedGroup<C> {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |column| column.len());
        self.0.update(columns, &|_| true, &vec![0; rows])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        merge(&mut self.0, states, |_| 0)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.settle();
        ScalarValue::try_from_array(&self.0.values(1)?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::try_from_array(&states(&mut self.0, 1)?, 0)?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + said_bytes(&self.0, 1)
    }
}

/// Numbers a group. There are never as many as this refuses: each takes memory.
pub(super) fn group_number(group: usize) -> Result<u32> {
    match u32::try_from(group) {
        Ok(number) => Ok(number),
        Err(_) => exec_err!("a row is of group {group}: expected at most {}", u32::MAX),
    }
}

fn merge<C: Collected>(collected: &mut C, states: &[ArrayRef], group: impl Fn(usize) -> usize) -> Result<()> {
    let Some(states) = states.first().and_then(|state| state.as_binary_opt::<i32>()) else {
        return exec_err!("a state of events is not binary");
    };
    for (row, state) in states.iter().enumerate() {
        if let Some(state) = state {
            collected.merge(state, group_number(group(row))?)?;
        }
    }
    Ok(())
}

fn states<C: Collected>(collected: &mut C, groups: u32) -> Result<ArrayRef> {
    collected.settle();
    let mut bytes = Vec::with_capacity(collected.held_bytes().states + groups as usize * HEAD_BYTES);
    let mut lengths = Vec::with_capacity(groups as usize);
    for group in 0..groups {
        let before = bytes.len();
        collected.push_state(group, &mut bytes);
        lengths.push(bytes.len() - before);
    }
    if i32::try_from(bytes.len()).is_err() {
        return exec_err!("the states of {groups} groups have {} bytes together: expected at most {}", bytes.len(), i32::MAX);
    }
    let valid: NullBuffer = lengths.iter().map(|length| *length > 0).collect();
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(BinaryArray::try_new(offsets, Buffer::from_vec(bytes), Some(valid).filter(|valid| valid.null_count() > 0))?))
}

/// What is held, and the states that are made of it when it is handed on. More than any limit once the states approach
/// what an Arrow column holds: when memory is refused, operators emit everything at once.
fn said_bytes<C: Collected>(collected: &C, groups: usize) -> usize {
    let held = collected.held_bytes();
    let states = held.states + groups * HEAD_BYTES;
    if states > MOST_AT_ONCE { usize::MAX / 64 } else { held.heap + states + groups * PLACE_BYTES }
}
