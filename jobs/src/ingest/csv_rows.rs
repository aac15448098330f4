//! Reads CSV: a header row, then one record per row. The delimiter is guessed from the header unless it is given.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use csv::ByteRecord;
use definitions::StreamDefinition;
use engine::events::Decoder;
use types::{Error, Result};

use super::bytes::{ByteSource, broken};
use super::cell::{write_cell, write_string};
use super::layout::Layout;
use super::numbers::NumberFormat;
use super::quotes::Watched;
use super::records::{InputRecord, Records};

/// The rows of a CSV file, before they are typed by a stream.
pub(super) struct CsvFile {
    reader: csv::Reader<Watched<BufReader<Box<dyn Read + Send>>>>,
    pub(super) names: Vec<String>,
    /// The first line of the last row read.
    pub(super) line: u64,
}

pub(super) struct CsvRows {
    file: CsvFile,
    numbers: NumberFormat,
    layout: Layout,
    decoder: Decoder,
    bytes_done: Arc<AtomicU64>,
    row: ByteRecord,
    /// The size of the last record, so the buffer of the next one is allocated once.
    value_bytes: usize,
}

impl CsvFile {
    pub(super) fn open(mut reader: BufReader<Box<dyn Read + Send>>, delimiter: Option<u8>) -> Result<Self> {
        let delimiter = match delimiter {
            Some(delimiter) => delimiter,
            None => guess_delimiter(reader.fill_buf()?),
        };
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(Watched::new(reader, delimiter));
        let headers = reader.headers().map(|names| names.iter().map(|name| name.trim().to_string()).collect());
        let names: Vec<String> = headers.map_err(|error| unreadable(reader.get_ref(), error))?;
        if names.iter().all(String::is_empty) {
            return Err(Error::input("the CSV file is empty: expected a header row with the columns' names"));
        }
        let line = reader.get_mut().next_line();
        Ok(Self { reader, names, line })
    }

    /// Reads the next row; false at the end. Errors: `Input` where the file cannot be read further, also because of a
    /// stray quote.
    pub(super) fn read(&mut self, row: &mut ByteRecord) -> Result<bool> {
        let is_row = self.reader.read_byte_record(row).map_err(|error| unreadable(self.reader.get_ref(), error))?;
        if is_row {
            self.line = self.reader.get_mut().next_line();
        }
        Ok(is_row)
    }
}

impl CsvRows {
    pub(super) fn new(source: ByteSource, delimiter: Option<u8>, numbers: NumberFormat, stream: &StreamDefinition) -> Result<Self> {
        let file = CsvFile::open(source.reader, delimiter)?;
        let layout = Layout::new(stream, &file.names, |index| !file.names[index].is_empty())?;
        let decoder = Decoder::new(Arc::new(stream.clone()))?;
        Ok(Self { file, numbers, layout, decoder, bytes_done: source.bytes_done, row: ByteRecord::new(), value_bytes: 256 })
    }

    /// Writes the row's record, or returns why the row is not a record. `as_text` keeps cells that cannot be converted.
    fn record(&self, as_text: bool, out: &mut Vec<u8>) -> Result<(), String> {
        let (found, expected) = (self.row.len(), self.file.names.len());
        if found != expected {
            return Err(format!("found {found} cells, expected {expected} as in the header"));
        }
        self.layout.write_record(out, &mut |index, column_type, out| {
            let bytes = self.row.get(index).unwrap_or_default();
            let text =
                std::str::from_utf8(bytes).map_err(|error| format!("found invalid UTF-8 at byte {} of the cell", error.valid_up_to()))?;
            match column_type {
                Some(column_type) => match write_cell(column_type, self.numbers, text, out) {
                    Err(_) if as_text => {
                        write_string(text, out);
                        Ok(true)
                    }
                    written => written,
                },
                None if text.is_empty() => Ok(false),
                None => {
                    write_string(text, out);
                    Ok(true)
                }
            }
        })
    }

    /// Writes a row that is no record, so that it becomes a dead letter: with its cells that cannot be converted as
    /// text, or as an array of all cells where the stream would take that for an event.
    fn write_invalid(&self, out: &mut Vec<u8>) {
        if self.record(true, out).is_err() || self.decoder.decode(Some(out.as_slice())).is_ok() {
            out.clear();
            write_cells(&self.row, out);
        }
    }
}

impl Records for CsvRows {
    fn next(&mut self) -> Result<Option<InputRecord>> {
        if !self.file.read(&mut self.row)? {
            return Ok(None);
        }
        let number = self.file.line;
        let mut value = Vec::with_capacity(self.value_bytes);
        let error = self.record(false, &mut value).err();
        if error.is_some() {
            value.clear();
            self.write_invalid(&mut value);
        }
        self.value_bytes = value.len() + 16;
        Ok(Some(InputRecord { number, value: value.into(), error, unterminated: false }))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        for skipped in 0..count {
            if !self.file.read(&mut self.row)? {
                return Ok(skipped);
            }
        }
        Ok(count)
    }

    fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }

    fn sound_bytes(&self) -> Option<u64> {
        self.file.reader.get_ref().sound_bytes()
    }
}

/// Writes a row as an array of its cells, so it can be read among the dead letters.
fn write_cells(row: &ByteRecord, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, cell) in row.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(&String::from_utf8_lossy(cell), out);
    }
    out.push(b']');
}

/// Returns the one of `,`, `;` and tab that is most frequent in the header.
pub(crate) fn guess_delimiter(start: &[u8]) -> u8 {
    let header = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut quoted = false;
    let mut counts = [(b',', 0), (b';', 0), (b'\t', 0)];
    for byte in header {
        quoted ^= *byte == b'"';
        for (delimiter, count) in &mut counts {
            *count += usize::from(!quoted && byte == delimiter);
        }
    }
    let [comma, semicolon, tab] = counts;
    [semicolon, tab].into_iter().fold(comma, |best, other| if other.1 > best.1 { other } else { best }).0
}

fn unreadable<R>(watched: &Watched<R>, error: csv::Error) -> Error {
    if let Some(fault) = watched.fault() {
        return fault;
    }
    match error.into_kind() {
        csv::ErrorKind::Io(error) => broken(watched.last_line(), error),
        csv::ErrorKind::Utf8 { err, .. } => {
            let help = "expected UTF-8: convert most other encodings with `iconv -f WINDOWS-1252 -t UTF-8`";
            Error::input("the CSV file's header is not UTF-8").with("help", help).caused_by(err)
        }
        other => Error::input("the CSV file cannot be read further").caused_by(format!("{other:?}")),
    }
}
