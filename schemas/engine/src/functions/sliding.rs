//! Accumulators of windows that slide, such as `ROWS BETWEEN 3 PRECEDING AND CURRENT ROW`, of floating point numbers.
//! DataFusion's subtract a row that leaves from a total: after a NaN or an infinity all that follows is NaN, and a
//! large number takes the digits of small ones with it. These join the rows that are in the window, and subtract
//! nothing.
//!
//! The rows are kept in two piles. One has the rows that came, and their total. When the other is empty, they move
//! there, each joined with all that came after it: its top is then the total of the pile, also once rows left it. Each
//! row is so joined three times at most, however large the window is.

use std::fmt::Debug;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::Accumulator;

/// What an aggregate makes of the rows of a window.
pub(super) trait WindowAggregate: Debug + Send + Sync + 'static {
    /// What is known of some rows. Its default is that of none.
    type Total: Copy + Debug + Default + Send + Sync + 'static;

    /// What is known of each row, also of one that does not count.
    fn rows(&self, values: &[ArrayRef]) -> Vec<Self::Total>;

    fn join(&self, earlier: Self::Total, later: Self::Total) -> Self::Total;

    fn value(&self, total: Self::Total) -> Result<ScalarValue>;
}

#[derive(Debug)]
pub(super) struct SlidingWindow<A: WindowAggregate> {
    aggregate: A,
    /// Of each row that leaves next, the total of it and of those after it in this pile. The first to leave is the
    /// last.
    leaving: Vec<A::Total>,
    /// The rows after those.
    came: Vec<A::Total>,
    came_total: A::Total,
}

impl<A: WindowAggregate> SlidingWindow<A> {
    pub(super) fn new(aggregate: A) -> Self {
        Self { aggregate, leaving: Vec::new(), came: Vec::new(), came_total: A::Total::default() }
    }

    fn turn_over(&mut self) {
        let mut total = A::Total::default();
        while let Some(row) = self.came.pop() {
            total = self.aggregate.join(row, total);
            self.leaving.push(total);
        }
        self.came_total = A::Total::default();
    }
}

impl<A: WindowAggregate> Accumulator for SlidingWindow<A> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in self.aggregate.rows(values) {
            self.came_total = self.aggregate.join(self.came_total, row);
            self.came.push(row);
        }
        Ok(())
    }

    /// The rows that leave are those that came first.
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values[0].len() {
            if self.leaving.is_empty() {
                self.turn_over();
            }
            if self.leaving.pop().is_none() {
                return exec_err!("a row leaves a window that it did not enter");
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let leaving = self.leaving.last().copied().unwrap_or_default();
        self.aggregate.value(self.aggregate.join(leaving, self.came_total))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        exec_err!("a window has no state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        exec_err!("a window has no state")
    }

    fn size(&self) -> usize {
        size_of_val(self) + (self.leaving.capacity() + self.came.capacity()) * size_of::<A::Total>()
    }
}

/// The sum of DOUBLEs, or their average.
#[derive(Debug, Clone, Copy)]
pub(super) enum DoublesInWindow {
    Sum,
    Average,
}

/// A sum, and of how many values.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CountedSum {
    sum: f64,
    count: u64,
}

impl WindowAggregate for DoublesInWindow {
    type Total = CountedSum;

    fn rows(&self, values: &[ArrayRef]) -> Vec<CountedSum> {
        let of_row = |value: Option<f64>| value.map_or_else(CountedSum::default, |sum| CountedSum { sum, count: 1 });
        values[0].as_primitive::<Float64Type>().iter().map(of_row).collect()
    }

    fn join(&self, earlier: CountedSum, later: CountedSum) -> CountedSum {
        CountedSum { sum: earlier.sum + later.sum, count: earlier.count + later.count }
    }

    fn value(&self, total: CountedSum) -> Result<ScalarValue> {
        let value = match self {
            DoublesInWindow::Sum => total.sum,
            DoublesInWindow::Average => total.sum / total.count as f64,
        };
        Ok(ScalarValue::Float64((total.count > 0).then_some(value)))
    }
}

#[cfg(test)]
mod tests;
