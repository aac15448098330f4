//! Where records come from, and in which format.

use std::path::{Path, PathBuf};

use definitions::StreamDefinition;
use types::{Error, Result};

use super::bytes::ByteSource;
use super::csv_rows::CsvRows;
use super::json_lines::JsonLines;
use super::numbers::NumberFormat;
use super::parquet_rows::ParquetRows;
use super::records::Records;
use crate::input_file::open_input_file;

/// Where records come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    File(PathBuf),
    /// Standard input: JSON lines unless a format is given. It is read from its beginning each time, because it has no
    /// name.
    Stdin,
}

/// The format of the records of a file.
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
            (Format::Parquet, Input::File(path)) => Ok(Box::new(ParquetRows::new(open_input_file(path)?, stream)?)),
            (Format::Parquet, Input::Stdin) => Err(Error::input("Parquet cannot be read from standard input: give a file")),
        }
    }

    pub(super) fn source(&self) -> Result<ByteSource> {
        match self {
            Input::File(path) => ByteSource::file(path),
            Input::Stdin => Ok(ByteSource::stdin()),
        }
    }
}

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
            _ => Err(Error::input(
                "the file's name does not show its format: expected .jsonl, .ndjson, .json, .csv, \
                .tsv (or those with .gz) or .parquet, or --format",
            )
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
