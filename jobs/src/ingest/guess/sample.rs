//! Samples the first records of a file, column by column.

use std::borrow::Cow;
use std::io::BufRead;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};
use csv::ByteRecord;
use definitions::ColumnType;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use types::{Error, Result};

use super::seen::ColumnSummary;
use crate::ingest::arrow_json::{simplified, write_value};
use crate::ingest::bytes::broken;
use crate::ingest::csv_rows::CsvFile;
use crate::ingest::input::{Format, Input, Shape};
use crate::ingest::json_lines::an_array;
use crate::ingest::number_detection::{ColumnNumbers, Detected, detect};
use crate::ingest::numbers::NumberFormat;
use crate::ingest::parquet_rows;
use crate::input_file::open_input_file;

/// A column of a file.
#[derive(Debug)]
pub(super) struct Sampled {
    pub(super) path: Vec<String>,
    pub(super) seen: ColumnSummary,
    /// Absent or null in at least one record.
    pub(super) nullable: bool,
    /// The type that the file declares.
    pub(super) known_type: Option<ColumnType>,
    /// The file has only text values.
    pub(super) from_text: bool,
    /// Its times have no zone: the file's type says so, or a value does.
    pub(super) is_without_zone: bool,
}

/// The first records of a file.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) columns: Vec<Sampled>,
    pub(super) records: usize,
    /// The file has no more records.
    pub(super) is_whole: bool,
    /// How a CSV file writes numbers.
    pub(super) numbers: Detected,
}

/// Reads up to `limit` records; returns no columns if there are no records. Members whose names cannot be in a path are
/// left out.
pub(super) fn read(path: &Path, shape: Shape, limit: usize) -> Result<Sample> {
    let input = Input::File(path.to_path_buf());
    let mut sample = match input.format(shape.format)? {
        Format::JsonLines => json_lines(&input, limit)?,
        Format::Csv => csv(&input, shape, limit)?,
        Format::Parquet => parquet(path, limit)?,
    };
    sample.columns.retain(|column| column.path.iter().all(|name| !name.is_empty() && !name.contains('"')));
    Ok(sample)
}

/// Objects nested deeper than this stay JSON, and so do those with more members: their names are values.
const DEEPEST: usize = 4;
const MOST_MEMBERS: usize = 64;

/// A member of JSON objects.
#[derive(Debug, Default)]
struct Member {
    seen: ColumnSummary,
    /// How often its value was an object.
    objects: usize,
    children: Vec<(String, Member)>,
}

fn json_lines(input: &Input, limit: usize) -> Result<Sample> {
    let mut root = Member::default();
    let mut is_whole = true;
    for (index, line) in input.source()?.reader.lines().enumerate() {
        let line = line.map_err(|error| broken(index as u64, error))?;
        let text = line.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            continue;
        }
        if root.objects == limit {
            is_whole = false;
            break;
        }
        let wrong = || {
            Error::input("the line is not one JSON object")
                .with("line", index + 1)
                .with("help", "correct or remove the line; `ingest` leaves such lines out and reports them")
        };
        if text.starts_with('[') {
            return Err(an_array().with("line", index + 1));
        }
        if !text.starts_with('{') {
            return Err(wrong());
        }
        let value: &RawValue = serde_json::from_str(text).map_err(|error| wrong().caused_by(error))?;
        root.add(value.get(), index + 1, 0);
    }
    let mut columns = Vec::new();
    let records = root.objects;
    for (name, member) in root.children {
        member.list(vec![name], records, &mut columns);
    }
    Ok(Sample { columns, records, is_whole, numbers: Detected::default() })
}

impl Member {
    fn add(&mut self, json: &str, line: usize, depth: usize) {
        if json == "null" {
            return;
        }
        self.seen.note_kind(json, line);
        let members = match json.starts_with('{') && depth < DEEPEST {
            true => serde_json::from_str::<Members<'_>>(json).ok(),
            false => None,
        };
        let Some(Members(members)) = members else { return self.seen.add_json(json, Some(line)) };
        self.objects += 1;
        for (name, value) in members {
            if self.children.len() > MOST_MEMBERS && depth > 0 {
                return;
            }
            let at = self.children.iter().position(|(child, _)| *child == name).unwrap_or_else(|| {
                self.children.push((name, Member::default()));
                self.children.len() - 1
            });
            self.children[at].1.add(value.get(), line, depth + 1);
        }
    }

    /// Lists its columns: those of its members if it is always an object, else itself.
    fn list(mut self, path: Vec<String>, records: usize, columns: &mut Vec<Sampled>) {
        let is_group = self.objects > 0 && self.seen.values() == 0 && (1..=MOST_MEMBERS).contains(&self.children.len());
        if is_group {
            for (name, member) in self.children {
                member.list([path.as_slice(), &[name]].concat(), records, columns);
            }
            return;
        }
        let nullable = self.seen.values() + self.objects < records;
        if self.objects > 0 {
            self.seen.add_json("{}", None);
        }
        columns.push(Sampled { path, seen: self.seen, nullable, known_type: None, from_text: false, is_without_zone: false });
    }
}

/// The members of an object, in order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
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

fn csv(input: &Input, shape: Shape, limit: usize) -> Result<Sample> {
    let mut file = CsvFile::open(input.source()?.reader, shape.delimiter)?;
    let (mut rows, mut lines): (Vec<ByteRecord>, Vec<usize>) = Default::default();
    let mut row = ByteRecord::new();
    while rows.len() < limit && file.read(&mut row)? {
        rows.push(row.clone());
        lines.push(file.line as usize);
    }
    // A fault after the sample is found when the file is read.
    let is_whole = rows.len() < limit || !file.read(&mut row).unwrap_or(true);
    if rows.is_empty() {
        return Ok(Sample { columns: Vec::new(), records: 0, is_whole, numbers: Detected::default() });
    }
    let cells = |index: usize| rows.iter().map(move |row| row.get(index).filter(|cell| !cell.is_empty()).map(String::from_utf8_lossy));
    let numbers = match shape.numbers {
        Some(format) => Detected { format: Some(format), doubts: Vec::new() },
        None => detect(&file.names.iter().enumerate().map(|(index, name)| column_numbers(name, cells(index))).collect::<Vec<_>>()),
    };
    let format = numbers.format.unwrap_or(NumberFormat::Plain);
    let columns = file.names.iter().enumerate().map(|(index, name)| {
        let (mut seen, mut nullable) = (ColumnSummary::default(), false);
        for (cell, line) in cells(index).zip(&lines) {
            match cell {
                Some(cell) => seen.add_cell(&cell, *line, format),
                None => nullable = true,
            }
        }
        let is_without_zone = seen.is_without_zone();
        Sampled { path: vec![name.clone()], seen, nullable, known_type: None, from_text: true, is_without_zone }
    });
    Ok(Sample { columns: columns.collect(), records: rows.len(), is_whole, numbers })
}

fn column_numbers<'a>(name: &str, cells: impl Iterator<Item = Option<Cow<'a, str>>>) -> ColumnNumbers {
    let mut column = ColumnNumbers::new(name);
    cells.flatten().filter(|cell| !cell.trim().is_empty()).for_each(|cell| column.add(&cell));
    column
}

fn parquet(path: &Path, limit: usize) -> Result<Sample> {
    let builder = parquet_rows::open(open_input_file(path)?)?;
    let fields = builder.schema().fields().clone();
    let total = builder.metadata().file_metadata().num_rows();
    let (mut columns, mut records) = (Vec::new(), 0);
    for batch in builder.with_batch_size(limit).build().map_err(parquet_rows::unreadable)?.take(1) {
        let batch = batch.map_err(parquet_rows::unreadable)?;
        records = batch.num_rows();
        for (field, array) in fields.iter().zip(batch.columns()) {
            sample_array(field, &[simplified(array)?], &[], &mut columns)?;
        }
    }
    let is_whole = usize::try_from(total).is_ok_and(|total| total <= records);
    Ok(Sample { columns, records, is_whole, numbers: Detected::default() })
}

/// Samples a field. `arrays` are the field's own, innermost last, after the structures that contain it.
fn sample_array(field: &Field, arrays: &[ArrayRef], above: &[String], columns: &mut Vec<Sampled>) -> Result<()> {
    let path = [above, &[field.name().clone()]].concat();
    let Some(array) = arrays.last() else { return Ok(()) };
    if let DataType::Struct(members) = array.data_type() {
        for (member, values) in members.iter().zip(array.as_struct().columns()) {
            sample_array(member, &[arrays, &[simplified(values)?]].concat(), &path, columns)?;
        }
        return Ok(());
    }
    let is_without_zone = matches!(field.data_type(), DataType::Timestamp(_, None));
    let known_type = known_type(field.data_type());
    let mut column = Sampled { path, seen: ColumnSummary::default(), nullable: false, known_type, from_text: false, is_without_zone };
    let mut json = Vec::new();
    for row in 0..array.len() {
        json.clear();
        let is_value = arrays.iter().all(|array| !array.is_null(row)) && write_value(array, row, None, &mut json).map_err(Error::input)?;
        match std::str::from_utf8(&json) {
            Ok(json) if is_value => column.seen.add_json(json, None),
            _ => column.nullable = true,
        }
    }
    columns.push(column);
    Ok(())
}

/// Returns `None` where the values are more informative than the type: strings may be times or identifiers.
fn known_type(data_type: &DataType) -> Option<ColumnType> {
    Some(match data_type {
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => ColumnType::Int,
        DataType::Int64 | DataType::UInt32 => ColumnType::BigInt,
        DataType::UInt64 => ColumnType::Decimal { precision: 20, scale: 0 },
        DataType::Float16 | DataType::Float32 | DataType::Float64 => ColumnType::Double,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) | DataType::Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            ColumnType::Decimal { precision: *precision, scale: *scale }
        }
        DataType::Date32 | DataType::Date64 => ColumnType::Date,
        DataType::Timestamp(..) => ColumnType::TimestampTz,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => ColumnType::Bytea,
        DataType::FixedSizeBinary(16) => ColumnType::Uuid,
        DataType::FixedSizeBinary(_) => ColumnType::Bytea,
        DataType::Map(..) => ColumnType::Json,
        DataType::Dictionary(_, value) => return known_type(value),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => match known_type(item.data_type())? {
            ColumnType::Json => ColumnType::Json,
            item => ColumnType::Array(Box::new(item)),
        },
        _ => return None,
    })
}
