//! `COPY .. TO STDOUT`: what is copied, and its rows as text, CSV and binary.

use std::fmt::Write;

use arrow::datatypes::Schema;
use bytes::{BufMut, BytesMut};
use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, ObjectNamePart, Statement,
};
use datafusion::sql::sqlparser::dialect::{GenericDialect, PostgreSqlDialect};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use definitions::keywords;
use types::sql_errors::{SqlPlace, parser_text};
use types::{Error, Result};

use crate::problem::{INVALID_PARAMETER_VALUE, NOT_SUPPORTED, READ_ONLY, SqlProblem};
use crate::rows::{BINARY, BatchWriter, TEXT};
use crate::statement::ByteFinder;

/// A COPY statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copy {
    /// The SELECT whose rows are copied.
    pub(crate) sql: String,
    /// The byte of the COPY at which it begins, if it stands there.
    pub(crate) start: Option<usize>,
    pub(crate) format: CopyFormat,
}

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyFormat {
    Text { delimiter: char, null: String, header: bool },
    Csv { delimiter: char, null: String, header: bool, quote: char, escape: char, always: Quoted },
    Binary,
}

/// The columns that are quoted also where they need not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Quoted {
    All,
    Columns(Vec<String>),
}

#[derive(Default)]
struct Options {
    format: Option<String>,
    delimiter: Option<char>,
    null: Option<String>,
    header: bool,
    quote: Option<char>,
    escape: Option<char>,
    always: Vec<String>,
}

/// Reads a COPY statement.
pub(crate) fn copy(sql: &str) -> Result<Copy, SqlProblem> {
    definitions::depth::check_depth(sql)?;
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).map_err(|error| {
        if let Some(keyword) = keywords::refusal(sql) {
            return SqlProblem::from(keyword);
        }
        let (message, place) = parser_text(&error.to_string()).clone();
        let error = Error::not_understood(message.trim_start_matches("sql parser error: "));
        SqlProblem::from(match place {
            Some(SqlPlace { line, column }) => error.with("line", line).with("column", column),
            None => error,
        })
    })?;
    let Some(Statement::Copy { source, to, target, options, legacy_options, .. }) = statements.into_iter().next() else {
        return Err(SqlProblem::new(NOT_SUPPORTED, "this COPY is not supported: expected COPY (SELECT ..) TO STDOUT"));
    };
    if !to {
        return Err(SqlProblem::new(READ_ONLY, "cannot execute COPY FROM in a read-only transaction"));
    }
    if target != CopyTarget::Stdout {
        return Err(SqlProblem::new("42501", "COPY to a file or a program is not allowed: expected COPY .. TO STDOUT")
            .with_hint("psql's \\copy writes a file where the client runs"));
    }
    let (sql, start) = match source {
        CopySource::Query(query) => match in_parentheses(sql) {
            Some((start, inside)) => (inside.to_owned(), Some(start)),
            None => (query.to_string(), None),
        },
        CopySource::Table { table_name, columns } => {
            let columns: Vec<String> = columns.iter().map(quoted_name).collect();
            let table: Vec<String> = table_name.0.iter().filter_map(ObjectNamePart::as_ident).map(quoted_name).collect();
            let columns = if columns.is_empty() { "*".to_owned() } else { columns.join(", ") };
            (format!("SELECT {columns} FROM {}", table.join(".")), None)
        }
    };
    let mut found = Options::default();
    options.iter().try_for_each(|option| found.take(option))?;
    legacy_options.iter().try_for_each(|option| found.take_older(option))?;
    Ok(Copy { sql, start, format: found.format()? })
}

/// In double quotes a keyword is a name too. Without them a name is in lower case.
fn quoted_name(name: &Ident) -> String {
    let written = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
    format!("\"{}\"", written.replace('"', "\"\""))
}

/// The text in the first parentheses, and the byte at which it begins.
fn in_parentheses(sql: &str) -> Option<(usize, &str)> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().ok()?;
    let mut finder = ByteFinder::new(sql);
    let (mut depth, mut start) = (0, None);
    for token in &tokens {
        match token.token {
            Token::LParen => {
                depth += 1;
                start = start.or_else(|| Some(finder.byte(token.span.end.line, token.span.end.column)));
            }
            Token::RParen => {
                depth -= 1;
                if depth == 0 {
                    let start = start?;
                    return Some((start, sql.get(start..finder.byte(token.span.start.line, token.span.start.column))?));
                }
            }
            _ => {}
        }
    }
    None
}

fn unsupported(option: &str) -> SqlProblem {
    SqlProblem::new(NOT_SUPPORTED, format!("the COPY option {option} is not supported"))
        .with_hint("expected FORMAT, DELIMITER, NULL, HEADER, QUOTE, ESCAPE, FORCE_QUOTE or ENCODING 'UTF8'")
}

impl Options {
    fn take(&mut self, option: &CopyOption) -> Result<(), SqlProblem> {
        match option {
            CopyOption::Format(format) => self.format = Some(format.value.to_lowercase()),
            CopyOption::Delimiter(delimiter) => self.delimiter = Some(*delimiter),
            CopyOption::Null(null) => self.null = Some(null.clone()),
            CopyOption::Header(header) => self.header = *header,
            CopyOption::Quote(quote) => self.quote = Some(*quote),
            CopyOption::Escape(escape) => self.escape = Some(*escape),
            CopyOption::ForceQuote(columns) => self.always = columns.iter().map(|column| column.value.clone()).collect(),
            CopyOption::Encoding(encoding) if ["utf8", "utf-8"].contains(&encoding.to_lowercase().as_str()) => {}
            CopyOption::Freeze(_) => {}
            other => return Err(unsupported(&other.to_string())),
        }
        Ok(())
    }

    fn take_older(&mut self, option: &CopyLegacyOption) -> Result<(), SqlProblem> {
        match option {
            CopyLegacyOption::Binary => self.format = Some("binary".into()),
            CopyLegacyOption::Delimiter(delimiter) => self.delimiter = Some(*delimiter),
            CopyLegacyOption::Null(null) => self.null = Some(null.clone()),
            CopyLegacyOption::Header => self.header = true,
            CopyLegacyOption::Csv(options) => {
                self.format = Some("csv".into());
                for option in options {
                    match option {
                        CopyLegacyCsvOption::Header => self.header = true,
                        CopyLegacyCsvOption::Quote(quote) => self.quote = Some(*quote),
                        CopyLegacyCsvOption::Escape(escape) => self.escape = Some(*escape),
                        CopyLegacyCsvOption::ForceQuote(columns) => {
                            self.always = columns.iter().map(|column| column.value.clone()).collect();
                        }
                        other => return Err(unsupported(&other.to_string())),
                    }
                }
            }
            other => return Err(unsupported(&other.to_string())),
        }
        Ok(())
    }

    fn format(self) -> Result<CopyFormat, SqlProblem> {
        let wrong = |message: String| Err(SqlProblem::new(INVALID_PARAMETER_VALUE, message));
        if let Some(delimiter) = self.delimiter.filter(|c| !c.is_ascii() || matches!(c, '\n' | '\r' | '\\') || c.is_ascii_alphanumeric()) {
            return wrong(format!("COPY delimiter {delimiter:?}: expected one character that is no letter, digit or end of line"));
        }
        if self.null.as_ref().is_some_and(|null| null.contains(['\n', '\r'])) {
            return wrong("COPY null representation: expected no end of line".into());
        }
        let header = self.header;
        match self.format.as_deref().unwrap_or("text") {
            "text" => Ok(CopyFormat::Text { delimiter: self.delimiter.unwrap_or('\t'), null: self.null.unwrap_or("\\N".into()), header }),
            "csv" => {
                let quote = self.quote.unwrap_or('"');
                let always = if self.always == ["*"] { Quoted::All } else { Quoted::Columns(self.always) };
                let (delimiter, null) = (self.delimiter.unwrap_or(','), self.null.unwrap_or_default());
                Ok(CopyFormat::Csv { delimiter, null, header, quote, escape: self.escape.unwrap_or(quote), always })
            }
            "binary" if self.delimiter.is_some() || self.null.is_some() || header => {
                wrong("COPY in binary has no delimiter, null and header".into())
            }
            "binary" => Ok(CopyFormat::Binary),
            other => wrong(format!("COPY format \"{other}\" not recognized: expected text, csv or binary")),
        }
    }
}

impl CopyFormat {
    /// The format of each value: [`TEXT`] or [`BINARY`].
    pub(crate) fn value_format(&self) -> i16 {
        if *self == CopyFormat::Binary { BINARY } else { TEXT }
    }

    /// What comes before the rows.
    pub(crate) fn begin(&self, schema: &Schema) -> Option<BytesMut> {
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        match self {
            CopyFormat::Binary => Some(BytesMut::from(&b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0"[..])),
            CopyFormat::Text { delimiter, header: true, .. } => {
                let mut line = BytesMut::new();
                for (index, name) in names().enumerate() {
                    if index > 0 {
                        put_char(&mut line, *delimiter);
                    }
                    escaped(&mut line, name.as_bytes(), *delimiter);
                }
                line.put_u8(b'\n');
                Some(line)
            }
            CopyFormat::Csv { delimiter, header: true, quote, escape, null, .. } => {
                let mut line = BytesMut::new();
                for (index, name) in names().enumerate() {
                    if index > 0 {
                        put_char(&mut line, *delimiter);
                    }
                    let marks = CsvMarks { delimiter: *delimiter, quote: *quote, escape: *escape };
                    quoted(&mut line, name.as_bytes(), marks, null, false);
                }
                line.put_u8(b'\n');
                Some(line)
            }
            _ => None,
        }
    }

    /// Appends a row. `writer` writes its values in [`CopyFormat::value_format`].
    pub(crate) fn row(&self, out: &mut BytesMut, writer: &BatchWriter<'_>, row: usize) -> Result<()> {
        if *self == CopyFormat::Binary {
            return writer.fields(out, row);
        }
        let BatchWriter { format: values, batch, .. } = writer;
        let mut value = BytesMut::new();
        for (index, column) in batch.columns().iter().enumerate() {
            let (delimiter, null) = match self {
                CopyFormat::Text { delimiter, null, .. } | CopyFormat::Csv { delimiter, null, .. } => (*delimiter, null),
                CopyFormat::Binary => continue,
            };
            if index > 0 {
                put_char(out, delimiter);
            }
            if column.is_null(row) || *column.data_type() == arrow::datatypes::DataType::Null {
                out.put_slice(null.as_bytes());
                continue;
            }
            value.clear();
            values.value(&mut value, index, column, row)?;
            match self {
                CopyFormat::Csv { quote, escape, always, .. } => {
                    let always = match always {
                        Quoted::All => true,
                        Quoted::Columns(names) => names.contains(batch.schema_ref().field(index).name()),
                    };
                    let only = batch.num_columns() == 1 && &value[..] == b"\\.";
                    let marks = CsvMarks { delimiter, quote: *quote, escape: *escape };
                    quoted(out, &value, marks, null, always || only);
                }
                _ => escaped(out, &value, delimiter),
            }
        }
        out.put_u8(b'\n');
        Ok(())
    }

    /// What comes after them.
    pub(crate) fn end(&self) -> Option<BytesMut> {
        (*self == CopyFormat::Binary).then(|| BytesMut::from(&(-1i16).to_be_bytes()[..]))
    }
}

fn put_char(out: &mut BytesMut, c: char) {
    // Memory takes everything.
    let _ = out.write_char(c);
}

fn escaped(out: &mut BytesMut, value: &[u8], delimiter: char) {
    for byte in value {
        let letter = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0b => b'v',
            0x0c => b'f',
            other if char::from(*other) == delimiter => *other,
            other => {
                out.put_u8(*other);
                continue;
            }
        };
        out.put_slice(&[b'\\', letter]);
    }
}

/// The characters of CSV that mean something.
struct CsvMarks {
    delimiter: char,
    quote: char,
    escape: char,
}

fn quoted(out: &mut BytesMut, value: &[u8], marks: CsvMarks, null: &str, always: bool) {
    let CsvMarks { delimiter, quote, escape } = marks;
    let special = |byte: &u8| matches!(byte, b'\n' | b'\r') || [delimiter, quote].contains(&char::from(*byte));
    // A value that reads as NULL is quoted, to be another.
    if !always && value != null.as_bytes() && !value.iter().any(special) {
        return out.put_slice(value);
    }
    put_char(out, quote);
    for byte in value {
        if [quote, escape].contains(&char::from(*byte)) {
            put_char(out, escape);
        }
        out.put_u8(*byte);
    }
    put_char(out, quote);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

    use super::*;
    use crate::columns::wire_types;
    use crate::rows::{RowFormat, Zone};

    fn copied(options: &str) -> Vec<u8> {
        let copy = copy(&format!("COPY v TO STDOUT {options}")).unwrap();
        assert_eq!((copy.sql.as_str(), copy.start), ("SELECT * FROM \"v\"", None));
        let texts = StringArray::from(vec![Some("plain"), None, Some(""), Some("a\tb\nc\\d"), Some("x,\"y\""), Some("\\N")]);
        let numbers = Int64Array::from(vec![Some(1), None, Some(3), Some(4), Some(5), Some(6)]);
        let batch = RecordBatch::try_from_iter([("t", Arc::new(texts) as ArrayRef), ("n,", Arc::new(numbers))]).unwrap();
        let types = wire_types(batch.schema_ref(), &[]);
        let values = RowFormat { types, formats: vec![copy.format.value_format(); 2], zone: Zone::default() };
        let mut out = copy.format.begin(batch.schema_ref()).unwrap_or_default();
        let writer = BatchWriter::new(&values, &batch);
        (0..batch.num_rows()).for_each(|row| copy.format.row(&mut out, &writer, row).unwrap());
        out.extend(copy.format.end().unwrap_or_default());
        out.to_vec()
    }

    #[test]
    fn rows_are_postgresqls() {
        // Each as PostgreSQL 15 copies the same rows.
        let text = "plain\t1\n\\N\t\\N\n\t3\na\\tb\\nc\\\\d\t4\nx,\"y\"\t5\n\\\\N\t6\n";
        assert_eq!(String::from_utf8(copied("")).unwrap(), text);
        let csv = "t,\"n,\"\nplain,1\n,\n\"\",3\n\"a\tb\nc\\d\",4\n\"x,\"\"y\"\"\",5\n\\N,6\n";
        assert_eq!(String::from_utf8(copied("WITH (FORMAT csv, HEADER)")).unwrap(), csv);
        assert_eq!(String::from_utf8(copied("CSV HEADER")).unwrap(), csv);
        let other = "plain|1\nnone|none\n''|3\n'a\tb\nc\\d'|4\nx,\"y\"|5\n\\N|6\n".replace("''|3", "|3");
        assert_eq!(String::from_utf8(copied("(FORMAT csv, DELIMITER '|', QUOTE '''', NULL 'none')")).unwrap(), other);
        let binary = copied("(FORMAT binary)");
        assert_eq!(&binary[..19], b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
        assert_eq!(&binary[19..19 + 2 + 9 + 12], b"\0\x02\0\0\0\x05plain\0\0\0\x08\0\0\0\0\0\0\0\x01");
        assert!(binary.ends_with(b"\xff\xff"));
    }

    #[test]
    fn what_is_no_copy_to_the_client_is_refused() {
        for (sql, state) in [
            ("COPY v FROM STDIN", READ_ONLY),
            ("COPY v TO '/tmp/x'", "42501"),
            ("COPY v TO PROGRAM 'sh'", "42501"),
            ("COPY v TO STDOUT (FORMAT parquet)", INVALID_PARAMETER_VALUE),
            ("COPY v TO STDOUT (DELIMITER 'a')", INVALID_PARAMETER_VALUE),
            ("COPY (SELECT 1 TO STDOUT", "42601"),
        ] {
            assert_eq!(copy(sql).unwrap_err().state, state, "{sql}");
        }
    }

    #[test]
    fn what_is_copied_is_the_text_in_parentheses_or_a_select_of_quoted_names() {
        let text = "COPY (SELECT a, ')' AS \"b)\" FROM (SELECT 'ä' AS a) v\n WHERE b = 'x' ) TO STDOUT";
        let of_text = copy(text).unwrap();
        assert_eq!(of_text.sql, "SELECT a, ')' AS \"b)\" FROM (SELECT 'ä' AS a) v\n WHERE b = 'x' ");
        assert_eq!(of_text.start, text.find("SELECT"));
        for (sql, select) in [
            ("COPY \"V\" (\"a b\", C) TO STDOUT", "SELECT \"a b\", \"c\" FROM \"V\""),
            ("COPY \"order\" (\"offset\", interval, \"from\") TO STDOUT", "SELECT \"offset\", \"interval\", \"from\" FROM \"order\""),
            ("COPY system.runs TO STDOUT", "SELECT * FROM \"system\".\"runs\""),
        ] {
            assert_eq!(copy(sql).unwrap().sql, select, "{sql}");
        }
    }

    #[test]
    fn a_keyword_in_the_place_of_a_name_is_named() {
        let problem = copy("COPY (SELECT a, from, b FROM v) TO STDOUT").unwrap_err();
        let expected = Error::not_understood("\"from\" is a keyword").with("line", 1).with("column", 17);
        let expected = expected.with("help", "to name a column, write it in double quotes: \"from\"");
        assert_eq!(problem, SqlProblem::from(expected));
    }
}
