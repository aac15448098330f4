//! Reads JSON lines: each line is one record, unchanged. Blank lines are skipped.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{Error, Result};

use super::bytes::{ByteSource, broken};
use super::records::{InputRecord, Records};

/// A longer line is rejected, so a file without line ends cannot use up all memory.
const MAX_LINE_BYTES: usize = 16 << 20;

pub(super) struct JsonLines {
    reader: BufReader<Box<dyn Read + Send>>,
    bytes_done: Arc<AtomicU64>,
    line: u64,
    interactive: bool,
}

impl JsonLines {
    /// Errors: `Input` if the file is one JSON array.
    pub(super) fn new(source: ByteSource) -> Result<Self> {
        let mut reader = source.reader;
        if !source.interactive {
            let start = reader.fill_buf()?;
            if start.trim_ascii_start().first() == Some(&b'[') {
                return Err(an_array());
            }
        }
        Ok(Self { reader, bytes_done: source.bytes_done, line: 0, interactive: source.interactive })
    }

    /// Returns the next line without its end, and whether it had one; `None` at the end of the input.
    fn read_line(&mut self) -> std::io::Result<Option<(Vec<u8>, bool)>> {
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        let terminated = line.last() == Some(&b'\n');
        if !terminated && line.len() > MAX_LINE_BYTES {
            self.discard_line()?;
        }
        if self.line == 1 && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        Ok(Some((line, terminated)))
    }

    /// Skips to the end of the line.
    fn discard_line(&mut self) -> std::io::Result<()> {
        let mut rest = Vec::new();
        loop {
            rest.clear();
            let read = self.reader.by_ref().take(1 << 20).read_until(b'\n', &mut rest)?;
            if read == 0 || rest.last() == Some(&b'\n') {
                return Ok(());
            }
        }
    }
}

/// The error for a file with one array, where lines of objects are expected.
pub(super) fn an_array() -> Error {
    Error::input("found a JSON array, expected one JSON object on each line").with("help", "convert the file with `jq -c '.[]' FILE`")
}

impl Records for JsonLines {
    fn next(&mut self) -> Result<Option<InputRecord>> {
        loop {
            let line = self.read_line().map_err(|error| broken(self.line, error))?;
            let Some((mut value, terminated)) = line else { return Ok(None) };
            if value.trim_ascii().is_empty() {
                continue;
            }
            let mut error = None;
            if value.len() > MAX_LINE_BYTES {
                error = Some(format!("found a line of more than {} MiB, expected one JSON object", MAX_LINE_BYTES >> 20));
                value.truncate(1024);
            }
            return Ok(Some(InputRecord { number: self.line, unterminated: !terminated && error.is_none(), value: value.into(), error }));
        }
    }

    fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }

    fn may_wait(&self) -> bool {
        let at_hand = self.reader.buffer().trim_ascii_start();
        self.interactive && !at_hand.contains(&b'\n')
    }
}
