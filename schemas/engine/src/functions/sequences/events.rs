//! The events of a sequence, as they are kept: when each was, and which of the conditions it holds.
//!
//! ```text
//! state: one Binary; NULL for no events
//!   format   1 (one byte)
//!   size     what the state counts for max_state_bytes: 16 bytes for each event
//!   places   how many; of each: the length of its source, its source, its partition (signed)
//!   events   of each, in their order:
//!              the time since the event before (signed: the time, for the first)
//!              the mask: bit n - 1 for condition n
//!              the place, counted from 0
//!              the event time since the time (signed)
//!              the offset since the event before of the same place (signed; since 0 for the first)
//! ```
//!
//! Times are in microseconds. Places are in the order of their source, then their partition, and each has an event. The
//! numbers are of variable length (`numbers.rs`). Events are in the order of time, event time, source, partition,
//! offset: the bytes depend on the set of events alone, however they were merged.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType};
use datafusion::common::{Result, exec_err};
use types::sql_types::timestamp_type;

use super::accumulate::{Collected, HeldBytes, group_number};
use super::event::MarkedEvent;
use super::funnel::Funnel;
use super::numbers::{NumberReader, push, push_signed};
use super::pattern::Pattern;
use super::search::Search;
use crate::functions::room::{give_back, make_room};

/// What an event counts for `max_state_bytes`. Encoded it takes some ten bytes.
pub(super) const EVENT_BYTES: u64 = 16;

const FORMAT: u8 = 1;
/// The fewest bytes of an event, and of a place.
const SHORTEST_EVENT: u64 = 5;
const SHORTEST_PLACE: u64 = 2;

/// Which function computes its value from the events of a group.
#[derive(Debug, Clone)]
pub(super) enum SequenceFunction {
    Match(Pattern),
    Count(Pattern),
    Funnel(Funnel),
}

impl SequenceFunction {
    /// Whether events that hold no condition matter.
    fn needs_all(&self) -> bool {
        matches!(self, SequenceFunction::Funnel(funnel) if funnel.modes().order)
    }
}

/// The columns that an aggregate of events gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventColumns {
    /// The index of the time. The conditions follow.
    pub(super) time: usize,
    pub(super) conditions: usize,
}

/// The events of every group.
#[derive(Debug)]
pub(super) struct Events {
    function: SequenceFunction,
    columns: EventColumns,
    places: Places,
    events: Vec<MarkedEvent>,
}

impl Events {
    pub(super) fn new(function: SequenceFunction, columns: EventColumns) -> Self {
        Self { function, columns, places: Places::default(), events: Vec::new() }
    }

    fn push(&mut self, event: MarkedEvent) {
        make_room(&mut self.events, 1);
        self.events.push(event);
    }

    fn of_group(&self, group: u32) -> &[MarkedEvent] {
        let from = self.events.partition_point(|event| event.group < group);
        let events = &self.events[from..];
        &events[..events.partition_point(|event| event.group == group)]
    }
}

impl Collected for Events {
    fn empty(&self) -> Self {
        Self::new(self.function.clone(), self.columns)
    }

    /// The columns: texts, time, conditions; then event time, source, partition and offset, or nothing.
    fn update(&mut self, columns: &[ArrayRef], counts: &dyn Fn(usize) -> bool, groups: &[usize]) -> Result<()> {
        let EventColumns { time, conditions } = self.columns;
        let Some(times) = columns.get(time).and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>()) else {
            return exec_err!("an aggregate of events got no times: expected a timestamp in column {time}");
        };
        let masks = masks(&columns[time + 1..][..conditions], times.len())?;
        let position = EventPositions::from_columns(&columns[time + 1 + conditions..])?;
        let keeps_all = self.function.needs_all();
        for (row, mask) in masks.into_iter().enumerate() {
            if times.is_null(row) || (mask == 0 && !keeps_all) || !counts(row) {
                continue;
            }
            let time = times.value(row);
            let (event_time, place, offset) = match &position {
                Some(position) => {
                    (position.time(row), self.places.number(position.source(row), position.partition(row)), position.offset(row))
                }
                None => (time, self.places.number("", 0), 0),
            };
            self.push(MarkedEvent { time, mask, group: group_number(groups[row])?, event_time, offset, place });
        }
        Ok(())
    }

    fn merge(&mut self, state: &[u8], group: u32) -> Result<()> {
        let mut state = NumberReader(state);
        let (format, size, places) = (state.byte()?, state.number()?, state.number()?);
        if format != FORMAT || size % EVENT_BYTES != 0 || places > state.0.len() as u64 / SHORTEST_PLACE {
            return exec_err!("a state of events has format {format}, {size} bytes and {places} places: expected format {FORMAT}");
        }
        let mut numbers = Vec::with_capacity(places as usize);
        for _ in 0..places {
            let length = state.number()?;
            let Ok(source) = std::str::from_utf8(state.bytes(length)?) else {
                return exec_err!("a state of events names a source that is not UTF-8: it is damaged");
            };
            numbers.push((self.places.number(source, state.signed()?), 0i64));
        }
        let events = size / EVENT_BYTES;
        if events > state.0.len() as u64 / SHORTEST_EVENT {
            return exec_err!("a state of {events} events has {} bytes for them: it is damaged", state.0.len());
        }
        make_room(&mut self.events, events as usize);
        let mut time = 0i64;
        for number in 0..events {
            let since = if number == 0 { state.signed()? } else { state.number()? as i64 };
            time = time.wrapping_add(since);
            let (mask, place) = (state.number()?, state.number()?);
            let event_time = time.wrapping_add(state.signed()?);
            let last = usize::try_from(place).ok().and_then(|place| numbers.get_mut(place));
            let (Some((place, offset)), Ok(mask)) = (last, u32::try_from(mask)) else {
                return exec_err!("a state of events has an event with the mask {mask} of place {place}: it is damaged");
            };
            *offset = offset.wrapping_add(state.signed()?);
            let (place, offset) = (*place, *offset);
            self.events.push(MarkedEvent { time, mask, group, event_time, offset, place });
        }
        state.end()
    }

    fn settle(&mut self) {
        let Self { events, places, .. } = self;
        let in_order = |left: &MarkedEvent, right: &MarkedEvent| places.order(left, right);
        if !events.is_sorted_by(|left, right| in_order(left, right) != Ordering::Greater) {
            events.sort_unstable_by(in_order);
        }
    }

    fn push_state(&self, group: u32, bytes: &mut Vec<u8>) {
        let events = self.of_group(group);
        if events.is_empty() {
            return;
        }
        let mut is_used = vec![false; self.places.known.len()];
        events.iter().for_each(|event| is_used[event.place as usize] = true);
        let mut used: Vec<u32> = (0..is_used.len() as u32).filter(|place| is_used[*place as usize]).collect();
        used.sort_unstable_by(|left, right| self.places.known[*left as usize].cmp(&self.places.known[*right as usize]));
        bytes.push(FORMAT);
        push(bytes, events.len() as u64 * EVENT_BYTES);
        push(bytes, used.len() as u64);
        for place in &used {
            let (source, partition) = &self.places.known[*place as usize];
            push(bytes, source.len() as u64);
            bytes.extend_from_slice(source.as_bytes());
            push_signed(bytes, *partition);
        }
        // Of each place known, its number in the state, and the offset of its event before.
        let mut numbered = vec![(0u64, 0i64); self.places.known.len()];
        used.iter().enumerate().for_each(|(number, place)| numbered[*place as usize].0 = number as u64);
        let mut before: Option<i64> = None;
        for event in events {
            match before {
                None => push_signed(bytes, event.time),
                Some(before) => push(bytes, event.time.wrapping_sub(before) as u64),
            }
            before = Some(event.time);
            let (place, offset) = &mut numbered[event.place as usize];
            push(bytes, u64::from(event.mask));
            push(bytes, *place);
            push_signed(bytes, event.event_time.wrapping_sub(event.time));
            push_signed(bytes, event.offset.wrapping_sub(*offset));
            *offset = event.offset;
        }
    }

    fn values(&self, groups: u32) -> Result<ArrayRef> {
        let numbered = 0..groups;
        Ok(match &self.function {
            SequenceFunction::Match(pattern) => {
                let mut search = Search::new(pattern);
                let values = numbered.map(|group| Some(search.matches(self.of_group(group))));
                Arc::new(values.collect::<BooleanArray>())
            }
            SequenceFunction::Count(pattern) => {
                let mut search = Search::new(pattern);
                Arc::new(numbered.map(|group| search.count(self.of_group(group))).collect::<Int64Array>())
            }
            SequenceFunction::Funnel(funnel) => Arc::new(numbered.map(|group| funnel.level(self.of_group(group))).collect::<Int64Array>()),
        })
    }

    fn forget(&mut self, groups: u32) {
        let kept = self.events.partition_point(|event| event.group < groups);
        self.events.drain(..kept);
        self.events.iter_mut().for_each(|event| event.group -= groups);
        give_back(&mut self.events);
        if self.events.is_empty() {
            (self.events, self.places) = (Vec::new(), Places::default());
        }
    }

    fn held_bytes(&self) -> HeldBytes {
        let heap = self.events.capacity() * size_of::<MarkedEvent>() + self.places.bytes;
        HeldBytes { heap, states: self.events.len() * EVENT_BYTES as usize }
    }
}

/// Which conditions each row holds. NULL does not hold.
pub(super) fn masks(conditions: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
    let mut masks = vec![0u32; rows];
    for (number, condition) in conditions.iter().enumerate() {
        let Some(condition) = condition.as_boolean_opt() else {
            return exec_err!("condition {} is {}: expected BOOLEAN", number + 1, condition.data_type());
        };
        for (mask, holds) in masks.iter_mut().zip(condition) {
            *mask |= u32::from(holds == Some(true)) << number;
        }
    }
    Ok(masks)
}

/// Where each row's event is: what orders events of the same time.
struct EventPositions {
    times: ArrayRef,
    sources: ArrayRef,
    partitions: ArrayRef,
    offsets: ArrayRef,
}

impl EventPositions {
    fn from_columns(columns: &[ArrayRef]) -> Result<Option<Self>> {
        match columns {
            [] => Ok(None),
            [times, sources, partitions, offsets] => Ok(Some(Self {
                times: cast(times, &timestamp_type())?,
                sources: cast(sources, &DataType::Utf8)?,
                partitions: cast(partitions, &DataType::Int64)?,
                offsets: cast(offsets, &DataType::Int64)?,
            })),
            other => exec_err!("an aggregate of events is ordered by {} columns: expected none or four", other.len()),
        }
    }

    // A FILTER may leave NULLs, where the row does not count.

    fn time(&self, row: usize) -> i64 {
        self.times.as_primitive::<TimestampMicrosecondType>().value(row)
    }

    fn source(&self, row: usize) -> &str {
        self.sources.as_string::<i32>().value(row)
    }

    fn partition(&self, row: usize) -> i64 {
        self.partitions.as_primitive::<Int64Type>().value(row)
    }

    fn offset(&self, row: usize) -> i64 {
        self.offsets.as_primitive::<Int64Type>().value(row)
    }
}

/// The sources and partitions that events are of, each with a number in the order in which they were seen.
#[derive(Debug, Default)]
struct Places {
    known: Vec<(Arc<str>, i64)>,
    numbers: HashMap<(Arc<str>, i64), u32>,
    last: u32,
    bytes: usize,
}

impl Places {
    fn number(&mut self, source: &str, partition: i64) -> u32 {
        if let Some((known, of)) = self.known.get(self.last as usize)
            && *of == partition
            && **known == *source
        {
            return self.last;
        }
        let place = (Arc::<str>::from(source), partition);
        self.last = *self.numbers.entry(place).or_insert_with_key(|place| {
            self.known.push(place.clone());
            self.bytes += source.len() + 4 * size_of::<(Arc<str>, i64)>();
            (self.known.len() - 1) as u32
        });
        self.last
    }

    fn order(&self, left: &MarkedEvent, right: &MarkedEvent) -> Ordering {
        let of_time = |event: &MarkedEvent| (event.group, event.time, event.event_time);
        let by_place = || match left.place == right.place {
            true => Ordering::Equal,
            false => self.known[left.place as usize].cmp(&self.known[right.place as usize]),
        };
        let by_offset = || (left.offset, left.mask).cmp(&(right.offset, right.mask));
        of_time(left).cmp(&of_time(right)).then_with(by_place).then_with(by_offset)
    }
}

#[cfg(test)]
mod tests;
