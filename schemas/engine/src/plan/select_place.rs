//! Positions in the text of a SELECT, as positions in its file.

use datafusion::common::Span;

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

    /// The same for what DataFusion or the parser points at; without it, the beginning of the SELECT.
    pub(crate) fn at_span(self, span: Option<Span>) -> (usize, usize) {
        span.map_or((self.line, self.column), |span| self.at(span.start.line, span.start.column))
    }
}

#[cfg(test)]
mod tests;
