//! When there were events, as spans of time without a longer pause: `session_count` and `longest_gap`.
//!
//! ```text
//! state: one Binary; NULL for no events
//!   format   1 (one byte)
//!   size     what the state counts for max_state_bytes: 8 bytes for each stretch of the pause's length (from
//!            1970-01-01) that a span touches
//!   spans    how many; of each, in their order:
//!              the time since the end of the span before (signed: its beginning, for the first)
//!              its length
//! ```
//!
//! Times are in microseconds, the numbers of variable length (`numbers.rs`). The spans of a set of events are the same
//! however it is merged: two events belong together if no pause between them is longer, and an event within a span is
//! nearer than the pause to one of the span's own. Neither does the size depend on it, and it only grows: within a span
//! every stretch has an event, and no two spans touch the same one.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, DurationMicrosecondArray, Int64Array};
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::{Result, exec_err};

use super::accumulate::{Collected, HeldBytes, group_number};
use super::numbers::{NumberReader, push, push_signed};
use crate::functions::room::{give_back, make_room};

/// What a stretch counts for `max_state_bytes`. A span takes about as much, encoded.
const STRETCH_BYTES: u64 = 8;

const FORMAT: u8 = 1;
/// The fewest bytes of a span.
const SHORTEST: u64 = 2;
/// As many spans are always sorted and joined at once.
const FEW: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    group: u32,
    start: i64,
    end: i64,
}

/// Which function computes its value from the spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanFunction {
    Sessions,
    LongestGap,
}

/// The spans of every group.
#[derive(Debug)]
pub(super) struct Spans {
    function: SpanFunction,
    /// The longest pause within a span.
    pause_us: i64,
    spans: Vec<Span>,
    /// How many spans there were when they were joined last.
    joined: usize,
}

impl Spans {
    pub(super) fn new(function: SpanFunction, pause_us: i64) -> Self {
        Self { function, pause_us, spans: Vec::new(), joined: 0 }
    }

    fn add(&mut self, span: Span) {
        if self.spans.len() >= 2 * self.joined.max(FEW) {
            self.settle();
        }
        make_room(&mut self.spans, 1);
        self.spans.push(span);
    }

    fn of_group(&self, group: u32) -> &[Span] {
        let from = self.spans.partition_point(|span| span.group < group);
        let spans = &self.spans[from..];
        &spans[..spans.partition_point(|span| span.group == group)]
    }

    fn size(&self, spans: &[Span]) -> u64 {
        let length = self.pause_us.max(1);
        let touched = |span: &Span| (span.end.div_euclid(length) - span.start.div_euclid(length)) as u64 + 1;
        spans.iter().map(touched).fold(0, u64::saturating_add).saturating_mul(STRETCH_BYTES)
    }
}

impl Collected for Spans {
    fn empty(&self) -> Self {
        Self::new(self.function, self.pause_us)
    }

    /// The columns: the time; of sessions their gap.
    fn update(&mut self, columns: &[ArrayRef], counts: &dyn Fn(usize) -> bool, groups: &[usize]) -> Result<()> {
        let Some(times) = columns.first().and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>()) else {
            return exec_err!("an aggregate of events got no times: expected a timestamp");
        };
        for (row, time) in times.iter().enumerate() {
            if let Some(time) = time.filter(|_| counts(row)) {
                self.add(Span { group: group_number(groups[row])?, start: time, end: time });
            }
        }
        Ok(())
    }

    fn merge(&mut self, state: &[u8], group: u32) -> Result<()> {
        let mut state = NumberReader(state);
        let (format, _size, spans) = (state.byte()?, state.number()?, state.number()?);
        if format != FORMAT || spans > state.0.len() as u64 / SHORTEST {
            return exec_err!("a state of spans has format {format} and {spans} spans: expected format {FORMAT}");
        }
        let mut end = 0i64;
        for number in 0..spans {
            let since = if number == 0 { state.signed()? } else { state.number()? as i64 };
            let start = end.wrapping_add(since);
            end = start.wrapping_add(state.number()? as i64);
            if end < start {
                return exec_err!("a state of spans has one that ends before it begins: it is damaged");
            }
            self.add(Span { group, start, end });
        }
        state.end()
    }

    fn settle(&mut self) {
        self.spans.sort_unstable();
        let pause_us = i128::from(self.pause_us);
        self.spans.dedup_by(|span, before| {
            let belongs = span.group == before.group && i128::from(span.start) - i128::from(before.end) <= pause_us;
            if belongs {
                before.end = before.end.max(span.end);
            }
            belongs
        });
        self.joined = self.spans.len();
        give_back(&mut self.spans);
    }

    fn push_state(&self, group: u32, bytes: &mut Vec<u8>) {
        let spans = self.of_group(group);
        if spans.is_empty() {
            return;
        }
        bytes.push(FORMAT);
        push(bytes, self.size(spans));
        push(bytes, spans.len() as u64);
        let mut before: Option<i64> = None;
        for span in spans {
            match before {
                None => push_signed(bytes, span.start),
                Some(before) => push(bytes, span.start.wrapping_sub(before) as u64),
            }
            push(bytes, span.end.wrapping_sub(span.start) as u64);
            before = Some(span.end);
        }
    }

    fn values(&self, groups: u32) -> Result<ArrayRef> {
        let gap = |pair: &[Span]| pair[1].start.saturating_sub(pair[0].end);
        Ok(match self.function {
            SpanFunction::Sessions => Arc::new((0..groups).map(|group| self.of_group(group).len() as i64).collect::<Int64Array>()),
            SpanFunction::LongestGap => {
                // Events of the same time are one span.
                let longest = |group| self.of_group(group).windows(2).map(gap).max();
                Arc::new((0..groups).map(longest).collect::<DurationMicrosecondArray>())
            }
        })
    }

    fn forget(&mut self, groups: u32) {
        let kept = self.spans.partition_point(|span| span.group < groups);
        self.spans.drain(..kept);
        self.spans.iter_mut().for_each(|span| span.group -= groups);
        self.joined = self.spans.len();
        give_back(&mut self.spans);
    }

    fn held_bytes(&self) -> HeldBytes {
        HeldBytes { heap: self.spans.capacity() * size_of::<Span>(), states: self.spans.len() * STRETCH_BYTES as usize }
    }
}

#[cfg(test)]
mod tests;
