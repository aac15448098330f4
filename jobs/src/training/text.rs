//! Files of text as spines: CSV with a header, and JSON lines. A file is read twice: its columns and their types first,
//! then its rows.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use types::{Error, Result};

use crate::ingest::{Watched, guess_delimiter};
use crate::input_file::open_input_file;
use crate::output::count_of;

/// Rows that are read together.
const ROWS: usize = 4_096;
/// Every integer, and every decimal, of this many digits is a different double.
const DIGITS_OF_DOUBLE: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextFormat {
    Csv,
    JsonLines,
}

/// A file whose columns are known.
#[derive(Debug)]
pub(super) struct TextFile {
    path: PathBuf,
    form: TextFormat,
    /// In the order in which the file has them.
    pub(super) columns: Vec<String>,
    kinds: Vec<Kind>,
}

/// Some rows, as texts.
#[derive(Debug)]
pub(super) struct TextRows {
    pub(super) columns: Vec<ArrayRef>,
    /// The line of each row, counted from 1.
    pub(super) lines: Vec<u64>,
}

/// What all values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No row has a value.
    Nothing,
    Boolean,
    /// Each is a double of the same value.
    Integer,
    LongInteger,
    Double,
    Text,
}

impl TextFile {
    pub(super) fn survey(path: &Path, form: TextFormat) -> Result<TextFile> {
        let mut rows = Rows::open(path, form)?;
        let mut kinds = Vec::new();
        while let Some(row) = rows.next()? {
            kinds.resize(rows.columns().len(), Kind::Nothing);
            for (column, cell) in row.cells {
                kinds[column] = kinds[column].with(cell.kind());
            }
        }
        let columns = rows.columns().to_vec();
        if columns.is_empty() {
            return Err(Error::input("the file has no columns: expected rows with keys and a time").with("file", path.display()));
        }
        kinds.resize(columns.len(), Kind::Nothing);
        Ok(TextFile { path: path.to_path_buf(), form, columns, kinds })
    }

    /// The type in which a column is passed on.
    pub(super) fn data_type(&self, column: usize) -> DataType {
        match self.kinds[column] {
            Kind::Nothing | Kind::Text => DataType::Utf8,
            Kind::Boolean => DataType::Boolean,
            Kind::Integer | Kind::LongInteger => DataType::Int64,
            Kind::Double => DataType::Float64,
        }
    }

    /// Reads the rows.
    pub(super) fn rows(&self) -> Result<impl Iterator<Item = Result<TextRows>> + Send + use<>> {
        let (mut rows, count) = (Rows::open(&self.path, self.form)?, self.columns.len());
        let changed = Error::input(format!("{} changed while it was read", self.path.display()));
        Ok(std::iter::from_fn(move || some_rows(&mut rows, count, &changed).transpose()))
    }
}

fn some_rows(rows: &mut Rows, columns: usize, changed: &Error) -> Result<Option<TextRows>> {
    let mut lines = Vec::with_capacity(ROWS);
    let mut cells: Vec<Vec<Option<String>>> = vec![Vec::with_capacity(ROWS); columns];
    while lines.len() < ROWS
        && let Some(row) = rows.next()?
    {
        lines.push(row.line);
        cells.iter_mut().for_each(|column| column.push(None));
        for (column, cell) in row.cells {
            let place = cells.get_mut(column).and_then(|column| column.last_mut());
            *place.ok_or_else(|| Error::input(changed.message()))? = Some(cell.text);
        }
    }
    let columns = cells.into_iter().map(|column| Arc::new(StringArray::from(column)) as ArrayRef).collect();
    Ok((!lines.is_empty()).then_some(TextRows { columns, lines }))
}

/// A value that is not NULL.
struct TextCell {
    text: String,
    /// JSON says that it is a text.
    is_quoted: bool,
}

struct Row {
    line: u64,
    /// Each with the index of its column.
    cells: Vec<(usize, TextCell)>,
}

enum Rows {
    Csv(CsvTextRows),
    JsonLines(JsonRows),
}

impl Rows {
    fn open(path: &Path, form: TextFormat) -> Result<Rows> {
        let file = open_input_file(path)?;
        let path = path.to_path_buf();
        match form {
            TextFormat::Csv => Ok(Rows::Csv(CsvTextRows::new(path, file)?)),
            TextFormat::JsonLines => Ok(Rows::JsonLines(JsonRows::new(path, file))),
        }
    }

    /// The columns that were seen so far.
    fn columns(&self) -> &[String] {
        match self {
            Rows::Csv(rows) => &rows.columns,
            Rows::JsonLines(rows) => &rows.columns,
        }
    }

    fn next(&mut self) -> Result<Option<Row>> {
        match self {
            Rows::Csv(rows) => rows.next(),
            Rows::JsonLines(rows) => rows.next(),
        }
    }
}

struct CsvTextRows {
    path: PathBuf,
    reader: csv::Reader<Watched<BufReader<File>>>,
    columns: Vec<String>,
}

impl CsvTextRows {
    fn new(path: PathBuf, file: File) -> Result<CsvTextRows> {
        let mut file = BufReader::new(file);
        let start = file.fill_buf().map_err(|error| Error::from(error).with("file", path.display()))?;
        let delimiter = guess_delimiter(start);
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(Watched::new(file, delimiter));
        let header = reader.headers().map(|header| header.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned()).collect());
        let columns: Vec<String> = header.map_err(|error| unreadable(&path, &error, reader.get_mut()))?;
        reader.get_mut().next_line();
        Ok(CsvTextRows { path, reader, columns })
    }

    fn next(&mut self) -> Result<Option<Row>> {
        let mut record = csv::StringRecord::new();
        let read = self.reader.read_record(&mut record);
        if !read.map_err(|error| unreadable(&self.path, &error, self.reader.get_mut()))? {
            return Ok(None);
        }
        let line = self.reader.get_mut().next_line();
        let cells = record.iter().enumerate().filter(|(_, text)| !text.is_empty());
        let cells = cells.map(|(column, text)| (column, TextCell { text: text.to_owned(), is_quoted: false })).collect();
        Ok(Some(Row { line, cells }))
    }
}

struct JsonRows {
    path: PathBuf,
    file: BufReader<File>,
    /// The lines that were read.
    read: u64,
    columns: Vec<String>,
    /// The index of each column.
    known: HashMap<String, usize>,
}

impl JsonRows {
    fn new(path: PathBuf, file: File) -> JsonRows {
        JsonRows { path, file: BufReader::new(file), read: 0, columns: Vec::new(), known: HashMap::new() }
    }

    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            let mut line = String::new();
            let count = self.file.read_line(&mut line).map_err(|error| Error::from(error).with("file", self.path.display()))?;
            if count == 0 {
                return Ok(None);
            }
            self.read += 1;
            if !line.trim().is_empty() {
                return self.row(&line).map(Some);
            }
        }
    }

    fn row(&mut self, line: &str) -> Result<Row> {
        let (path, read) = (&self.path, self.read);
        let wrong = |error: serde_json::Error| {
            Error::input(format!("found no JSON object: {error}")).with("file", path.display()).with("line", read)
        };
        let members: Members<'_> = serde_json::from_str(line).map_err(wrong)?;
        let mut cells = Vec::with_capacity(members.0.len());
        for (name, value) in members.0 {
            let column = *self.known.entry(name.clone()).or_insert_with(|| {
                self.columns.push(name);
                self.columns.len() - 1
            });
            let text = value.get();
            if text.starts_with('"') {
                let text = serde_json::from_str(text).map_err(wrong)?;
                cells.push((column, TextCell { text, is_quoted: true }));
            } else if text != "null" {
                cells.push((column, TextCell { text: text.to_owned(), is_quoted: false }));
            }
        }
        Ok(Row { line: read, cells })
    }
}

/// The error for a record that cannot be read. `watched` has passed it on.
fn unreadable(path: &Path, error: &csv::Error, watched: &mut Watched<BufReader<File>>) -> Error {
    if let (csv::ErrorKind::Io(_), Some(stray)) = (error.kind(), watched.fault()) {
        return stray.with("file", path.display());
    }
    let message = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("found {}, expected {expected_len}, as many as the header has", count_of(*len, "cell"))
        }
        csv::ErrorKind::Utf8 { err, .. } => format!("cell {} is not UTF-8", err.field() + 1),
        _ => format!("the file is not CSV with a header: {error}"),
    };
    let error_in_file = Error::input(message).with("file", path.display());
    match error.position() {
        Some(_) => error_in_file.with("line", watched.next_line()),
        None => error_in_file,
    }
}

/// The members of an object, in its order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(InOrder).map(Members)
    }
}

impl TextCell {
    fn kind(&self) -> Kind {
        match self.text.as_str() {
            _ if self.is_quoted => Kind::Text,
            "true" | "false" => Kind::Boolean,
            text => number(text).unwrap_or(Kind::Text),
        }
    }
}

/// A number that is written as a program writes it: `7` and `0.50`, and not `007`, `+7` or `1e400`.
fn number(text: &str) -> Option<Kind> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let mantissa = unsigned.split(['e', 'E']).next().unwrap_or_default();
    let whole = mantissa.split('.').next().unwrap_or_default();
    let is_plain =
        !whole.is_empty() && (whole == "0" || !whole.starts_with('0')) && unsigned.starts_with(|first: char| first.is_ascii_digit());
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    if !is_plain || unsigned.ends_with('.') || text == "-0" {
        return None;
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        let kind = if digits <= DIGITS_OF_DOUBLE { Kind::Integer } else { Kind::LongInteger };
        return text.parse::<i64>().ok().map(|_| kind);
    }
    let keeps = |double: f64| double.is_finite() && (digits <= DIGITS_OF_DOUBLE || has_digits(double, mantissa));
    text.parse::<f64>().is_ok_and(keeps).then_some(Kind::Double)
}

/// Whether the shortest text of a double has the digits of this mantissa: it is what a program writes for the double.
fn has_digits(double: f64, mantissa: &str) -> bool {
    let shortest = format!("{double:e}");
    significant(shortest.split('e').next().unwrap_or_default()) == significant(mantissa)
}

/// The digits of a mantissa without the zeros at either end.
fn significant(mantissa: &str) -> String {
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}

impl Kind {
    /// What the values of both are.
    fn with(self, other: Kind) -> Kind {
        match (self, other) {
            (Kind::Nothing, kind) | (kind, Kind::Nothing) => kind,
            (one, other) if one == other => one,
            (Kind::Integer, Kind::LongInteger) | (Kind::LongInteger, Kind::Integer) => Kind::LongInteger,
            (Kind::Integer, Kind::Double) | (Kind::Double, Kind::Integer) => Kind::Double,
            _ => Kind::Text,
        }
    }
}

#[cfg(test)]
mod tests;
