//! Opens an input, and finds its format and whether it is compressed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use definitions::StreamDefinition;
use flate2::bufread::MultiGzDecoder;
use types::{Error, Result};

use super::csv_rows::CsvRows;
use super::json_lines::JsonLines;
use super::numbers::NumberFormat;
use super::parquet_rows::ParquetRows;
use super::records::Records;

/// Where records come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    File(PathBuf),
    /// Standard input: JSON lines unless a format is given. It is read from its beginning each time, because it has no
    /// name.
    Stdin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    JsonLines,
    Csv,
    Parquet,
}

/// Options for reading a file, where its name and header are not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// If absent, chosen by the file's name.
    pub format: Option<Format>,
    /// The delimiter of CSV; guessed from the header if absent.
    pub delimiter: Option<u8>,
    /// How a CSV file writes numbers: plainly if absent, as far as that is certain.
    pub numbers: Option<NumberFormat>,
}

/// A byte stream, and what is known about it.
pub(super) struct ByteSource {
    pub(super) reader: BufReader<Box<dyn Read + Send>>,
    /// Bytes read of the stored (possibly compressed) input.
    pub(super) bytes_done: Arc<AtomicU64>,
    /// The input may be written right now, by a person or a program.
    pub(super) interactive: bool,
}

impl Input {
    /// `-` is standard input.
    pub fn parse(text: &str) -> Self {
        if text == "-" { Input::Stdin } else { Input::File(text.into()) }
    }

    /// Returns the requested format, or the one that the name implies.
    pub(super) fn format(&self, asked: Option<Format>) -> Result<Format> {
        match (asked, self) {
            (Some(format), _) => Ok(format),
            (None, Input::Stdin) => Ok(Format::JsonLines),
            (None, Input::File(path)) => Format::from_path(path),
        }
    }

    /// Returns the size in bytes, if it is known.
    pub(super) fn bytes_total(&self) -> Option<u64> {
        match self {
            Input::File(path) => std::fs::metadata(path).ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len()),
            Input::Stdin => None,
        }
    }

    /// Opens the input as records of a stream. `shape` is about CSV: its format is already chosen.
    pub(super) fn open(&self, format: Format, shape: Shape, stream: &StreamDefinition) -> Result<Box<dyn Records>> {
        let numbers = shape.numbers.unwrap_or(NumberFormat::Plain);
        match (format, self) {
            (Format::JsonLines, _) => Ok(Box::new(JsonLines::new(self.source()?)?)),
            (Format::Csv, _) => Ok(Box::new(CsvRows::new(self.source()?, shape.delimiter, numbers, stream)?)),
            (Format::Parquet, Input::File(path)) => Ok(Box::new(ParquetRows::new(open_file(path)?, stream)?)),
            (Format::Parquet, Input::Stdin) => Err(Error::input("Parquet cannot be read from standard input: give a file")),
        }
    }

    pub(super) fn source(&self) -> Result<ByteSource> {
        let bytes_done = Arc::new(AtomicU64::new(0));
        let (raw, interactive): (Box<dyn Read + Send>, bool) = match self {
            Input::File(path) => (Box::new(open_file(path)?), false),
            Input::Stdin => (Box::new(std::io::stdin()), true),
        };
        let counted = Counted { inner: raw, count: bytes_done.clone() };
        let named_gz = matches!(self, Input::File(path) if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")));
        let raw = Some(BufReader::with_capacity(BUFFER_BYTES, counted));
        let reader: Box<dyn Read + Send> = Box::new(Unpacked { raw, named_gz, reader: Box::new(std::io::empty()) });
        Ok(ByteSource { reader: BufReader::with_capacity(BUFFER_BYTES, reader), bytes_done, interactive })
    }
}

const BUFFER_BYTES: usize = 256 << 10;

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Input::File(path) => path.display().fmt(f),
            Input::Stdin => f.write_str("standard input"),
        }
    }
}

impl Format {
    /// Returns the format by the file's name: `.jsonl`, `.ndjson`, `.json`, `.csv`, `.tsv` (each also with `.gz`),
    /// `.parquet`.
    pub(super) fn from_path(path: &Path) -> Result<Format> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let (stem, compressed) = match name.strip_suffix(".gz") {
            Some(stem) => (stem, true),
            None => (name.as_str(), false),
        };
        match stem.rsplit_once('.').map(|(_, extension)| extension) {
            Some("jsonl" | "ndjson" | "json") => Ok(Format::JsonLines),
            Some("csv" | "tsv") => Ok(Format::Csv),
            Some("parquet" | "pq") if !compressed => Ok(Format::Parquet),
            _ => Err(Error::input("the file's name does not show its format: expected .jsonl, .ndjson, .json, .csv, .tsv (or those with .gz) or .parquet, or --format")
                .with("file", path.display())),
        }
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "jsonl" | "json" | "ndjson" => Ok(Format::JsonLines),
            "csv" | "tsv" => Ok(Format::Csv),
            "parquet" => Ok(Format::Parquet),
            _ => Err(Error::input(format!("\"{text}\" is not a format: expected jsonl, csv or parquet"))),
        }
    }
}

/// Returns true if the bytes begin like gzip.
pub(super) fn is_packed(start: &[u8]) -> bool {
    // No text begins with the first of the two bytes alone.
    matches!(start, [0x1f] | [0x1f, 0x8b, ..])
}

/// The error for an input that cannot be read after this many lines.
pub(super) fn broken(lines: u64, error: std::io::Error) -> Error {
    let broken = Error::input(format!("the input cannot be read past line {lines}"));
    let broken = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => broken.with("help", "the compressed file is truncated: fetch it again"),
        std::io::ErrorKind::InvalidData => {
            broken.with("help", "expected UTF-8: convert most other encodings with `iconv -f WINDOWS-1252 -t UTF-8`")
        }
        _ => broken,
    };
    broken.caused_by(error)
}

pub(super) fn open_file(path: &Path) -> Result<File> {
    let failed = |error: std::io::Error| {
        let message = format!("the file cannot be read: {error}");
        let error = if error.kind() == std::io::ErrorKind::NotFound { Error::not_found(message) } else { Error::input(message) };
        error.with("file", path.display())
    };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(Error::input("this is a folder: expected a file").with("file", path.display()));
    }
    Ok(file)
}

/// Decompresses input that begins like gzip, whatever its name. It looks at the first read: before that no bytes may be
/// available.
struct Unpacked<R> {
    /// The input before the first read.
    raw: Option<BufReader<R>>,
    /// The name ends in `.gz`: an empty file is truncated.
    named_gz: bool,
    reader: Box<dyn Read + Send>,
}

impl<R: Read + Send + 'static> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if let Some(raw) = &mut self.raw {
            let start = raw.fill_buf()?;
            let packed = is_packed(start) || (start.is_empty() && self.named_gz);
            if let Some(raw) = self.raw.take() {
                self.reader = if packed { Box::new(MultiGzDecoder::new(raw)) } else { Box::new(raw) };
            }
        }
        self.reader.read(buffer)
    }
}

/// Counts the bytes read through it.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
