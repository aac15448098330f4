//! Detects stray quotes in a CSV file before its reader sees them: for the reader, an unclosed quote opens a cell that
//! reaches to the end of the file. Reading ends before the record with the stray quote is complete.

use std::collections::VecDeque;
use std::io::{Error as IoError, Read};

use types::Error;

/// A record cannot be longer: Kafka has the same limit for a message.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// A record with more lines has a stray quote.
const MAX_RECORD_LINES: u64 = 1_000;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Passes a CSV file through, up to a stray quote.
pub(crate) struct Watched<R> {
    inner: R,
    delimiter: u8,
    at: At,
    /// The number of bytes passed through, and the line of the next one.
    bytes: u64,
    line: u64,
    /// Where the current record begins.
    record_at: u64,
    record_line: u64,
    /// Where the quote of the current cell was opened.
    quote_line: u64,
    /// The first lines of the records that were not requested yet. The reader's own count is too low where lines end in
    /// CRLF.
    lines: VecDeque<u64>,
    fault: Option<QuoteFault>,
}

/// What the next byte may begin or end: the same states as the reader's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Record,
    Cell,
    Plain,
    Quoted,
    /// After a quote in a quoted cell, which ends the cell unless another quote follows.
    AfterQuote,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuoteFault {
    NeverClosed,
    /// A quoted cell of several lines, with text after its closing quote.
    ClosedInText,
    TooManyLines,
    TooLong,
}

impl<R> Watched<R> {
    pub(crate) fn new(inner: R, delimiter: u8) -> Self {
        Self {
            inner,
            delimiter,
            at: At::Record,
            bytes: 0,
            line: 1,
            record_at: 0,
            record_line: 1,
            quote_line: 1,
            lines: VecDeque::new(),
            fault: None,
        }
    }

    /// Returns the first line of the record that was just read. Must be called once for each record.
    pub(crate) fn next_line(&mut self) -> u64 {
        self.lines.pop_front().unwrap_or(self.line)
    }

    /// Returns the last line whose records have all been passed to the reader.
    pub(super) fn last_line(&self) -> u64 {
        if self.at == At::Record { self.line - 1 } else { self.record_line - 1 }
    }

    /// Returns how many bytes precede the record with a stray quote; `None` if there is none.
    pub(super) fn sound_bytes(&self) -> Option<u64> {
        self.fault.map(|_| self.record_at)
    }

    /// Returns why reading ended, if a stray quote or an oversized record is the reason.
    pub(crate) fn fault(&self) -> Option<Error> {
        let (record, quote, line) = (self.record_line, self.quote_line, self.line);
        let message = match self.fault? {
            QuoteFault::NeverClosed => format!("the quote opened on line {quote} is never closed"),
            QuoteFault::ClosedInText => {
                format!("the quote opened on line {quote} is closed in the middle of a cell on line {line}: one of the two is stray")
            }
            QuoteFault::TooManyLines => {
                format!("the record has more than {MAX_RECORD_LINES} lines: the quote opened on line {quote} may be stray")
            }
            QuoteFault::TooLong if self.at == At::Quoted => {
                format!("the record is longer than {} MiB: the quote opened on line {quote} may be stray", MAX_RECORD_BYTES >> 20)
            }
            QuoteFault::TooLong => format!("the record is longer than {} MiB", MAX_RECORD_BYTES >> 20),
        };
        let help = "close the quote, take it out, or write it twice inside of a quoted cell";
        Some(Error::input(message).with("line", record).with("help", help))
    }

    /// Tracks the bytes; returns how many precede a fault.
    fn follow(&mut self, chunk: &[u8]) -> usize {
        for (index, byte) in chunk.iter().enumerate() {
            if let Err(fault) = self.step(*byte, self.bytes + index as u64) {
                self.fault = Some(fault);
                self.bytes += index as u64;
                return index;
            }
        }
        self.bytes += chunk.len() as u64;
        if self.at != At::Record && self.is_too_long(self.bytes) {
            self.fault = Some(QuoteFault::TooLong);
        }
        chunk.len()
    }

    #[inline]
    fn step(&mut self, byte: u8, offset: u64) -> Result<(), QuoteFault> {
        if self.at == At::Record {
            let is_mark = offset < BYTE_ORDER_MARK.len() as u64 && byte == BYTE_ORDER_MARK[offset as usize];
            if !is_mark && !matches!(byte, b'\n' | b'\r') {
                (self.at, self.record_at, self.record_line) = (At::Cell, offset, self.line);
                self.lines.push_back(self.line);
            }
        }
        match (self.at, byte) {
            (At::Record, _) => {}
            (At::Quoted, b'"') => self.at = At::AfterQuote,
            (At::Quoted, b'\n') if self.line + 1 - self.record_line >= MAX_RECORD_LINES => return Err(QuoteFault::TooManyLines),
            (At::Quoted, _) => {}
            (At::AfterQuote, b'"') => self.at = At::Quoted,
            (At::Cell, b'"') => (self.at, self.quote_line) = (At::Quoted, self.line),
            (_, b'\n' | b'\r') if self.is_too_long(offset) => return Err(QuoteFault::TooLong),
            (_, b'\n' | b'\r') => self.at = At::Record,
            (_, byte) if byte == self.delimiter => self.at = At::Cell,
            (At::AfterQuote, byte) if self.line > self.quote_line && byte != b' ' => return Err(QuoteFault::ClosedInText),
            (At::Cell | At::Plain | At::AfterQuote, _) => self.at = At::Plain,
        }
        self.line += u64::from(byte == b'\n');
        Ok(())
    }

    fn is_too_long(&self, end: u64) -> bool {
        end - self.record_at > MAX_RECORD_BYTES
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, IoError> {
        let stray = || IoError::other("a quote is stray");
        if self.fault.is_some() {
            return Err(stray());
        }
        let read = self.inner.read(buffer)?;
        if read == 0 && self.at == At::Quoted && !buffer.is_empty() {
            self.fault = Some(QuoteFault::NeverClosed);
        }
        match self.follow(&buffer[..read]) {
            0 if self.fault.is_some() => Err(stray()),
            sound => Ok(sound),
        }
    }
}

#[cfg(test)]
mod tests;
