//! Rows as Arrow's messages: of the types that every client reads, and none larger than clients take by default.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::encode::{FlightDataEncoder, FlightDataEncoderBuilder};
use arrow_flight::error::{FlightError, Result as FlightResult};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tonic::Status;
use types::{Error, Result};

use crate::status::status;

/// A message has about this many bytes: many clients take no more than 4 MiB.
const MESSAGE_BYTES: usize = 2 << 20;

/// Encodes rows of this schema, which [`wire_schema`] made.
pub(crate) fn encode(schema: SchemaRef, batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static) -> FlightDataEncoder {
    let wire = schema.clone();
    let pieces = batches.flat_map(move |batch| stream::iter(pieces(batch.and_then(|batch| as_sent(&batch, &wire)))));
    // It would take the memory behind a slice for the size of the slice.
    FlightDataEncoderBuilder::new().with_max_flight_data_size(usize::MAX).with_schema(schema).build(pieces)
}

/// A schema as its rows are sent: dictionaries and views of texts are sent as texts, and every column may be NULL, for
/// the description of a query must not differ from its answer.
pub(crate) fn wire_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(|field| Arc::new(wire_field(field).with_nullable(true))).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A schema as a message.
pub(crate) fn schema_bytes(schema: &Schema) -> Result<Bytes> {
    static OPTIONS: LazyLock<IpcWriteOptions> = LazyLock::new(IpcWriteOptions::default);
    let message: arrow_flight::IpcMessage = arrow_flight::SchemaAsIpc::new(schema, &OPTIONS).try_into()?;
    Ok(message.0)
}

fn wire_field(field: &Field) -> Field {
    field.clone().with_data_type(wire_type(field.data_type()))
}

fn wire_type(data_type: &DataType) -> DataType {
    let inner = |field: &FieldRef| Arc::new(wire_field(field));
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => wire_type(values),
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(inner(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(inner(entries), *is_sorted),
        other => other.clone(),
    }
}

fn as_sent(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(column.clone()),
        false => cast(column, field.data_type()),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns.collect::<Result<Vec<_>, _>>()?, &options)?)
}

/// Halves a batch until each part fits into a message, or is one row.
fn pieces(batch: Result<RecordBatch>) -> Vec<FlightResult<RecordBatch>> {
    let batch = match batch {
        Ok(batch) => batch,
        Err(error) => return vec![Err(failed(error))],
    };
    let (mut pieces, mut rest) = (Vec::new(), vec![batch]);
    while let Some(batch) = rest.pop() {
        let rows = batch.num_rows();
        if rows < 2 || bytes(&batch) <= MESSAGE_BYTES {
            pieces.push(Ok(batch));
        } else {
            rest.extend([batch.slice(rows / 2, rows - rows / 2), batch.slice(0, rows / 2)]);
        }
    }
    pieces
}

fn bytes(batch: &RecordBatch) -> usize {
    let column_bytes =
        |column: &Arc<dyn Array>| column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_buffer_memory_size());
    batch.columns().iter().map(column_bytes).sum()
}

fn failed(error: Error) -> FlightError {
    Status::into(status(error))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayRef, AsArray, DictionaryArray, Int64Array, Int64Builder, MapBuilder, StringArray, StringViewArray, StringViewBuilder,
    };
    use arrow::datatypes::{Int8Type, Int64Type};
    use arrow_flight::decode::FlightRecordBatchStream;
    use futures::TryStreamExt;
    use prost::Message;

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[tokio::test]
    async fn large_batches_are_sent_in_messages_that_clients_take() {
        // A slice of something large: what is not in it does not count.
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000_000));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..1_000_000).map(|n| format!("number {n}"))));
        let whole = batch(vec![("n", numbers), ("text", texts)]);
        let batches = vec![Ok(whole.slice(10, 100)), Ok(whole.slice(0, 400_000))];
        let messages: Vec<_> = encode(wire_schema(&whole.schema()), stream::iter(batches)).try_collect().await.unwrap();
        assert!(messages.iter().all(|message| message.encoded_len() < 3 << 20), "{:?}", messages.iter().map(|m| m.encoded_len()).max());
        assert!((4..=12).contains(&messages.len()), "{}", messages.len());
        let decoded = FlightRecordBatchStream::new_from_flight_data(stream::iter(messages.into_iter().map(Ok)));
        let decoded: Vec<RecordBatch> = decoded.try_collect().await.unwrap();
        let found: Vec<i64> = decoded.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        assert_eq!(found, (10..110).chain(0..400_000).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn one_row_is_one_message_however_long() {
        let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(3 << 20), "y".to_owned()]));
        let long = batch(vec![("long", long)]);
        let messages: Vec<_> = encode(wire_schema(&long.schema()), stream::iter([Ok(long)])).try_collect().await.unwrap();
        assert_eq!(messages.len(), 3);
    }

    #[tokio::test]
    async fn types_that_not_every_client_reads_are_sent_as_plain_ones() {
        let words: DictionaryArray<Int8Type> = ["a", "b"].into_iter().collect();
        let views = StringViewArray::from(vec![Some("x"), None]);
        let found = batch(vec![("words", Arc::new(words)), ("views", Arc::new(views))]);
        let schema = wire_schema(&found.schema());
        assert!(schema.fields().iter().all(|field| *field.data_type() == DataType::Utf8 && field.is_nullable()), "{schema:?}");
        let sent = FlightRecordBatchStream::new_from_flight_data(encode(schema.clone(), stream::iter([Ok(found)])));
        let [sent] = <[RecordBatch; 1]>::try_from(sent.try_collect::<Vec<_>>().await.unwrap()).unwrap();
        assert_eq!(sent.schema(), schema);
        assert_eq!(sent.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[tokio::test]
    async fn the_texts_of_a_map_are_sent_as_plain_ones() {
        let mut maps = MapBuilder::new(None, StringViewBuilder::new(), Int64Builder::new());
        maps.keys().append_value("key");
        maps.values().append_value(7);
        maps.append(true).unwrap();
        maps.append(false).unwrap();
        let found = batch(vec![("maps", Arc::new(maps.finish()))]);
        let schema = wire_schema(&found.schema());
        let sent = FlightRecordBatchStream::new_from_flight_data(encode(schema.clone(), stream::iter([Ok(found)])));
        let [sent] = <[RecordBatch; 1]>::try_from(sent.try_collect::<Vec<_>>().await.unwrap()).unwrap();
        assert_eq!(sent.schema(), schema);
        let maps = sent.column(0).as_map();
        assert_eq!((maps.keys().as_string::<i32>().value(0), maps.is_null(1)), ("key", true));
    }
}
