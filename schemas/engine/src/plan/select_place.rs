//! Positions in the text of a SELECT, as positions in its file, and errors with one.

use datafusion::common::Span;
use datafusion::error::DataFusionError;
use types::Error;

/// Where a SELECT begins in its file, counted from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelectPlace {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl SelectPlace {
    /// Returns the line and the column in the file of a position in the SELECT's text.
    pub(crate) fn at(self, line: u64, column: u64) -> (usize, usize) {
        let (line, column) = (line.max(1) as usize, column.max(1) as usize);
        if line == 1 { (self.line, self.column + column - 1) } else { (self.line + line - 1, column) }
    }

    /// The same for the beginning of a span from DataFusion or the parser; without a span, the beginning of the SELECT.
    pub(crate) fn at_span(self, span: Option<Span>) -> (usize, usize) {
        span.map_or((self.line, self.column), |span| self.at(span.start.line, span.start.column))
    }
}

/// An error about a SELECT, with its position in the text if that is known.
#[derive(Debug)]
pub(crate) struct SelectError {
    pub(crate) error: Error,
    pub(crate) span: Option<Span>,
}

impl From<DataFusionError> for SelectError {
    fn from(error: DataFusionError) -> Self {
        let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
        SelectError { error: Error::from(error), span }
    }
}

#[cfg(test)]
mod tests;
