//! Finds the format in which a CSV file writes its numbers.

use csv::ByteRecord;
use definitions::{ColumnType, StreamDefinition};
use types::{Error, Result};

use super::csv_rows::CsvFile;
use super::input::Input;
use super::layout::match_columns;
use super::numbers::NumberFormat::{self, ApostrophePoint, CommaPoint, Plain, PointComma, SpaceComma};
use super::numbers::NumberParts;

/// How many rows show the format of a file.
const ROWS: usize = 1_000;

/// What the cells of one column show of the format of their numbers.
#[derive(Debug, Clone)]
pub(super) struct ColumnNumbers {
    name: String,
    /// The formats in which every cell so far is a number.
    formats: Vec<NumberFormat>,
    /// A cell that a plain number could not be, or that another format would read as another number.
    format_sample: Option<String>,
    /// Whether a cell has a mark that is not in doubt: texts such as `192.168.100.120` or `030 123 456` have none.
    is_number: bool,
    cells: usize,
    /// Of each of [`NumberFormat::ALL`].
    counted: [Counted; NumberFormat::ALL.len()],
}

/// The cells of a column that are numbers in one format.
#[derive(Debug, Clone, Default)]
struct Counted {
    numbers: usize,
    /// The first with a mark that is not in doubt.
    marked: Option<String>,
}

impl ColumnNumbers {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            formats: NumberFormat::ALL.to_vec(),
            format_sample: None,
            is_number: false,
            cells: 0,
            counted: Default::default(),
        }
    }

    /// Adds a cell that is not empty.
    pub(super) fn add(&mut self, cell: &str) {
        let cell = cell.trim();
        self.cells += 1;
        for (format, counted) in NumberFormat::ALL.into_iter().zip(&mut self.counted) {
            let Some(parts) = format.parts(cell) else { continue };
            counted.numbers += 1;
            if is_marked(format, &parts) {
                counted.marked.get_or_insert_with(|| cell.to_owned());
            }
        }
        self.formats.retain(|format| format.parts(cell).is_some());
        if self.formats.is_empty() || cell.bytes().all(|byte| byte.is_ascii_digit()) {
            return;
        }
        for format in &self.formats {
            let Some(parts) = format.parts(cell) else { continue };
            let has_groups = parts.groups.len() > 1;
            if *format != Plain && (has_groups || (parts.fraction.is_some() && format.decimal_mark() == ',')) {
                self.format_sample.get_or_insert_with(|| cell.to_owned());
            }
            self.is_number |= is_marked(*format, &parts);
        }
    }

    /// Whether the column holds numbers, and none of them are plain.
    fn is_decisive(&self) -> bool {
        !self.formats.is_empty() && !self.formats.contains(&Plain) && self.is_number
    }

    fn fits(&self, format: NumberFormat) -> bool {
        self.formats.contains(&format)
    }

    /// Returns the format in which most cells are numbers, though not all, if it is not the plain one; with a sample.
    fn mostly(&self) -> Option<(NumberFormat, &str)> {
        let [plain, others @ ..] = &self.counted;
        let [_, formats @ ..] = NumberFormat::ALL;
        // The first of equally likely ones.
        let (format, counted) = formats.into_iter().zip(others).rev().max_by_key(|(_, counted)| counted.numbers)?;
        let is_most = counted.numbers < self.cells && is_mostly(counted.numbers, self.cells) && counted.numbers > plain.numbers;
        Some((format, counted.marked.as_deref()?)).filter(|_| is_most)
    }

    /// The formats to choose from where the numbers are not plain, with a sample.
    fn not_plain(&self) -> Option<(Vec<NumberFormat>, &str)> {
        match self.is_decisive() {
            true => Some((self.formats.clone(), self.format_sample.as_deref().unwrap_or_default())),
            false => self.mostly().map(|(format, sample)| (vec![format], sample)),
        }
    }
}

/// Whether a number has a mark that a text is unlikely to have.
fn is_marked(format: NumberFormat, parts: &NumberParts<'_>) -> bool {
    parts.fraction.is_some() || (parts.groups.len() > 1 && matches!(format, CommaPoint | ApostrophePoint))
}

/// Whether most of a column's values are of one kind, so that the others may be mistakes.
pub(super) fn is_mostly(count: usize, values: usize) -> bool {
    count * 5 >= values * 4
}

/// Refuses a CSV file whose first rows write the numbers of a column in another format than the plain one. Otherwise
/// its records would be left out one by one, or some of them read as other numbers. What cannot be read twice, such as
/// standard input, is not looked at.
pub(super) fn refuse_other_formats(input: &Input, delimiter: Option<u8>, stream: &StreamDefinition) -> Result<()> {
    if input.bytes_total().is_none() {
        return Ok(());
    }
    let mut file = CsvFile::open(input.source()?.reader, delimiter)?;
    let sources = match_columns(stream, &file.names)?;
    let is_number = |of: &ColumnType| matches!(of, ColumnType::Int | ColumnType::BigInt | ColumnType::Decimal { .. } | ColumnType::Double);
    let numbers = stream.columns.iter().zip(sources).filter(|(column, _)| is_number(&column.column_type));
    let mut columns: Vec<(usize, ColumnNumbers)> =
        numbers.filter_map(|(column, source)| Some((source?, ColumnNumbers::new(&column.name)))).collect();
    let mut row = ByteRecord::new();
    for _ in 0..ROWS {
        // What cannot be read is reported when the records before it are in the log.
        if !file.read(&mut row).unwrap_or(false) {
            break;
        }
        for (source, column) in &mut columns {
            if let Some(cell) = row.get(*source).filter(|cell| !cell.trim_ascii().is_empty()) {
                column.add(&String::from_utf8_lossy(cell));
            }
        }
    }
    match columns.iter().find_map(|(_, column)| Some((column, column.not_plain()?))) {
        Some((column, (formats, found))) => {
            let formats: Vec<String> = formats.iter().map(|format| format!("--numbers \"{format}\"")).collect();
            Err(Error::input(format!("the numbers of the column \"{}\" are not written as {Plain}: found {found}", column.name))
                .with("expected", formats.join(" or ")))
        }
        None => Ok(()),
    }
}

/// The format of a file's numbers, and what cannot be known from them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Detected {
    /// `None` for plain numbers, and where nothing can be known.
    pub(super) format: Option<NumberFormat>,
    /// What the user should look at, for each column.
    pub(super) doubts: Vec<String>,
}

/// Finds the one format in which a file's columns are numbers.
pub(super) fn detect(columns: &[ColumnNumbers]) -> Detected {
    let decisive: Vec<&ColumnNumbers> = columns.iter().filter(|column| column.is_decisive()).collect();
    let common: Vec<NumberFormat> =
        NumberFormat::ALL.into_iter().filter(|format| decisive.iter().all(|column| column.fits(*format))).collect();
    if decisive.is_empty() {
        let format = mostly(columns);
        let of_plain = columns.iter().filter(|_| format.is_none()).filter_map(doubt_of_plain);
        return Detected { format, doubts: of_plain.chain(doubts_of_texts(columns, format)).collect() };
    }
    match common.as_slice() {
        // `12,5` is the same number in both.
        [format] | [format @ PointComma, SpaceComma] => {
            let others = columns.iter().filter(|column| column.fits(Plain) && !column.fits(*format));
            let doubts = others.map(|column| format!("{}: numbers that are not written as {format}: read as TEXT", column.name));
            let doubts = doubts.chain(doubts_of_texts(columns, Some(*format))).collect();
            Detected { format: Some(*format), doubts }
        }
        _ => Detected { format: None, doubts: decisive.iter().map(|column| doubt_of_decisive(column)).collect() },
    }
}

/// The format of columns that have a few texts among their numbers, unless a column contradicts it.
fn mostly(columns: &[ColumnNumbers]) -> Option<NumberFormat> {
    let mut formats = columns.iter().filter_map(ColumnNumbers::mostly).map(|(format, _)| format);
    let first = formats.next()?;
    let is_contradicted = formats.any(|other| other != first) || columns.iter().any(|column| column.fits(Plain) && !column.fits(first));
    (!is_contradicted).then_some(first)
}

/// Columns with a few texts among numbers in another format than the file's.
fn doubts_of_texts(columns: &[ColumnNumbers], of_file: Option<NumberFormat>) -> Vec<String> {
    let others = columns.iter().filter_map(|column| Some((column, column.mostly()?))).filter(|(_, (format, _))| Some(*format) != of_file);
    let said = others.map(|(column, (format, sample))| {
        format!("{}: most values are numbers written as {format}, such as {sample}, and some are not: read as TEXT", column.name)
    });
    said.collect()
}

/// `1.234` alone is a plain number, or one with a point between thousands.
fn doubt_of_plain(column: &ColumnNumbers) -> Option<String> {
    let sample = column.format_sample.as_deref().filter(|_| column.fits(Plain) && column.fits(PointComma))?;
    let (plain, grouped) = (Plain.plain(sample)?, PointComma.plain(sample)?);
    (plain != grouped)
        .then(|| format!("{}: {sample} is read as {plain}; if it is {grouped}, say so with --numbers {PointComma}", column.name))
}

/// `1,234` alone, or a column that contradicts another.
fn doubt_of_decisive(column: &ColumnNumbers) -> String {
    let sample = column.format_sample.as_deref().unwrap_or_default();
    let readings: Vec<String> = column
        .formats
        .iter()
        .filter(|format| **format != SpaceComma || !column.fits(PointComma))
        .filter_map(|format| Some(format!("{} with --numbers \"{format}\"", format.plain(sample)?)))
        .collect();
    format!("{}: {sample} is read as TEXT; it is {}", column.name, readings.join(", "))
}

#[cfg(test)]
mod tests;
