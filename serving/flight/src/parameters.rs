//! The values of `$1`, `$2`, ..: bound as one row of Arrow, and carried as such by the handle of their statement.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures::{Stream, StreamExt, TryStreamExt};
use tonic::Status;
use types::{Error, Result};

/// All messages that bind parameters may have this many bytes.
const MAX_BYTES: usize = 2 << 20;

/// Numbers the parameters of a text that has `?` for each, as JDBC and Python's drivers write them: `$1`, `$2`, ..
pub(crate) fn numbered(sql: &str) -> String {
    let is_unnumbered = |token: &Token| matches!(token, Token::Placeholder(name) if name == "?");
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().unwrap_or_default();
    let mut places = tokens.iter().filter(|found| is_unnumbered(&found.token)).map(|found| found.span.start).peekable();
    if places.peek().is_none() {
        return sql.to_owned();
    }
    let (mut numbered, mut count) = (String::with_capacity(sql.len() + 8), 0);
    for (line, text) in (1..).zip(sql.split_inclusive('\n')) {
        for (column, character) in (1..).zip(text.chars()) {
            if places.next_if(|place| (place.line, place.column) == (line, column)).is_some() {
                count += 1;
                numbered.push_str(&format!("${count}"));
            } else {
                numbered.push(character);
            }
        }
    }
    numbered
}

/// Reads the one row that a client binds.
///
/// Errors: `Input` for another number of rows; `Limit`.
pub(crate) async fn bound(messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static) -> Result<Bytes> {
    let mut taken = 0;
    let counted = messages.map(move |message| {
        let message = message.map_err(FlightError::from)?;
        taken += message.data_body.len();
        match taken > MAX_BYTES {
            true => Err(FlightError::from_external_error(too_large().into())),
            false => Ok(message),
        }
    });
    // The command may come in a message without anything else.
    let with_data = counted.try_filter(|message| std::future::ready(!message.data_header.is_empty()));
    let mut batches = FlightRecordBatchStream::new_from_flight_data(with_data);
    let mut row = None;
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(not_understood)?;
        let rows = batch.num_rows() + usize::from(row.is_some());
        match rows {
            0 => {}
            1 => row = row.or(Some(batch)),
            _ => return Err(Error::input(format!("found {rows} rows of parameters: expected one, run the statement once for each"))),
        }
    }
    match row {
        Some(row) => Ok(encoded(&row).map_err(Error::from)?.into()),
        None => Err(Error::input("found no row of parameters: expected one")),
    }
}

/// The values that a handle or a ticket carries.
pub(crate) fn values(params: &Bytes) -> Result<Vec<ScalarValue>> {
    if params.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = |error: ArrowError| Error::input("the parameters of the ticket or handle are not understood").caused_by(error);
    let mut reader = StreamReader::try_new(&params[..], None).map_err(wrong)?;
    let row = reader.next().transpose().map_err(wrong)?.filter(|row| row.num_rows() == 1);
    let row = row.ok_or_else(|| Error::input("the parameters of the ticket or handle are not understood: expected one row"))?;
    row.columns().iter().map(|column| Ok(ScalarValue::try_from_array(column, 0)?)).collect()
}

/// The types of these values, as the planner takes them: it finds none for a NULL without a type.
pub(crate) fn types(values: &[ScalarValue]) -> Vec<Option<DataType>> {
    values.iter().map(|value| Some(value.data_type()).filter(|of| *of != DataType::Null)).collect()
}

/// The parameters of a statement, as clients get them.
pub(crate) fn schema(types: &[DataType]) -> Schema {
    Schema::new(types.iter().enumerate().map(|(index, of)| Field::new(format!("${}", index + 1), of.clone(), true)).collect::<Vec<_>>())
}

fn encoded(row: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    // Dictionaries would be carried whole.
    let columns = row.columns().iter().map(|column| match column.data_type() {
        DataType::Dictionary(_, values) => cast(column, values),
        _ => Ok(column.clone()),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let fields = row.schema_ref().fields().iter().zip(&columns);
    let fields: Vec<Field> = fields.map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true)).collect();
    let row = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    let mut writer = StreamWriter::try_new(Vec::new(), row.schema_ref())?;
    writer.write(&row)?;
    writer.into_inner()
}

fn too_large() -> Error {
    Error::limit(format!("found more than {MAX_BYTES} bytes of parameters"))
}

fn not_understood(error: FlightError) -> Error {
    match error {
        FlightError::ExternalError(error) => match error.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => Error::input("the parameters are not understood").caused_by(other),
        },
        error => Error::input("the parameters are not understood").caused_by(error),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, DictionaryArray, Int64Array, NullArray, StringArray};
    use arrow::datatypes::Int8Type;
    use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
    use futures::stream;

    use super::*;

    async fn bind(batches: Vec<RecordBatch>) -> Result<Vec<ScalarValue>> {
        let encoder = FlightDataEncoderBuilder::new().with_dictionary_handling(DictionaryHandling::Resend);
        let messages = encoder.build(stream::iter(batches.into_iter().map(Ok))).map_err(Status::from);
        let command = FlightData::new();
        values(&bound(stream::iter([Ok(command)]).chain(messages)).await?)
    }

    fn row(columns: Vec<ArrayRef>) -> RecordBatch {
        RecordBatch::try_from_iter(columns.into_iter().enumerate().map(|(index, column)| (index.to_string(), column))).unwrap()
    }

    #[test]
    fn question_marks_are_numbered_and_those_in_texts_are_not() {
        for (sql, expected) in [
            ("SELECT 1", "SELECT 1"),
            ("SELECT $1, '?'", "SELECT $1, '?'"),
            (
                "SELECT ?, '?', \"é?\"\nFROM t -- ?\nWHERE é = ? AND b IN (?,?)",
                "SELECT $1, '?', \"é?\"\nFROM t -- ?\nWHERE é = $2 AND b IN ($3,$4)",
            ),
            ("SELECT '", "SELECT '"),
        ] {
            assert_eq!(numbered(sql), expected);
        }
    }

    #[tokio::test]
    async fn one_row_is_carried_with_its_types() {
        let words: DictionaryArray<Int8Type> = ["x"].into_iter().collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![7])), Arc::new(words), Arc::new(NullArray::new(1))];
        let bound = bind(vec![row(columns)]).await.unwrap();
        assert_eq!(bound, [ScalarValue::Int64(Some(7)), ScalarValue::Utf8(Some("x".into())), ScalarValue::Null]);
        assert_eq!(types(&bound), [Some(DataType::Int64), Some(DataType::Utf8), None]);
        assert_eq!(values(&Bytes::new()).unwrap(), []);
    }

    #[tokio::test]
    async fn another_number_of_rows_is_refused() {
        let of = |values: Vec<i64>| row(vec![Arc::new(Int64Array::from(values))]);
        for (batches, expected) in [
            (vec![of(vec![1, 2])], "found 2 rows of parameters"),
            (vec![of(vec![1]), of(vec![2])], "found 2 rows of parameters"),
            (vec![of(vec![])], "found no row"),
            (vec![], "found no row"),
        ] {
            let error = bind(batches).await.unwrap_err();
            assert!(error.message().starts_with(expected), "{error}");
        }
        let long = row(vec![Arc::new(StringArray::from(vec!["x".repeat(MAX_BYTES + 1)]))]);
        assert_eq!(bind(vec![long]).await.unwrap_err().kind(), ::types::ErrorKind::Limit);
        assert!(values(&Bytes::from_static(b"no stream")).is_err());
    }
}
