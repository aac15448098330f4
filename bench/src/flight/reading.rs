//! Reads a whole answer as Arrow, and drops the rows as they come.

use std::time::Instant;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::Int64Type;
use arrow::ipc::reader::StreamDecoder;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::{StreamExt, TryStreamExt};
use tonic::transport::{Channel, Endpoint};
use types::{Error, Result};

/// Many clients raise it, for rows are large.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// One read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Read {
    pub(super) seconds: f64,
    pub(super) rows: u64,
    /// The sum of the column that counts events, where rows are decoded.
    pub(super) counted: Option<u64>,
    pub(super) wire_bytes: u64,
}

#[derive(Default)]
struct Sum {
    rows: u64,
    counted: u64,
}

impl Sum {
    fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        self.counted += batch.column(1).as_primitive::<Int64Type>().values().iter().sum::<i64>() as u64;
    }
}

/// Over Flight SQL.
pub(super) async fn flight(address: &str, sql: &str) -> Result<Read> {
    let mut client = connect(address).await?;
    let began = Instant::now();
    let info = client.execute(sql.to_owned(), None).await.map_err(failed)?;
    let ticket = info.endpoint.into_iter().next().and_then(|endpoint| endpoint.ticket);
    let ticket = ticket.ok_or_else(|| Error::internal("a FlightInfo has no ticket"))?;
    let messages = client.inner_mut().do_get(ticket).await.map_err(|status| failed(status.into()))?.into_inner();
    let wire = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counting = wire.clone();
    let messages = messages.map_err(FlightError::from).inspect_ok(move |message| {
        let bytes = message.data_header.len() + message.data_body.len();
        counting.fetch_add(bytes as u64, std::sync::atomic::Ordering::Relaxed);
    });
    let mut batches = FlightRecordBatchStream::new_from_flight_data(messages);
    let mut sum = Sum::default();
    while let Some(batch) = batches.next().await {
        sum.add(&batch.map_err(failed)?);
    }
    let wire_bytes = wire.load(std::sync::atomic::Ordering::Relaxed);
    Ok(Read { seconds: began.elapsed().as_secs_f64(), rows: sum.rows, counted: Some(sum.counted), wire_bytes })
}

/// As HTTP's Arrow stream.
pub(super) async fn http(address: &str, sql: &str) -> Result<Read> {
    let client = reqwest::Client::new();
    let began = Instant::now();
    let request = client.post(format!("http://{address}/v1/sql")).header("accept", "application/vnd.apache.arrow.stream");
    let answer = request.json(&serde_json::json!({ "query": sql })).send().await;
    let mut answer = answer.and_then(reqwest::Response::error_for_status).map_err(unavailable)?;
    let (mut decoder, mut sum, mut wire_bytes) = (StreamDecoder::new(), Sum::default(), 0);
    while let Some(chunk) = answer.chunk().await.map_err(unavailable)? {
        wire_bytes += chunk.len() as u64;
        let mut buffer = Buffer::from(chunk);
        while let Some(batch) = decoder.decode(&mut buffer)? {
            sum.add(&batch);
        }
    }
    decoder.finish()?;
    Ok(Read { seconds: began.elapsed().as_secs_f64(), rows: sum.rows, counted: Some(sum.counted), wire_bytes })
}

/// All rows of an answer.
pub(super) async fn batches(address: &str, sql: &str) -> Result<Vec<RecordBatch>> {
    let mut client = connect(address).await?;
    let info = client.execute(sql.to_owned(), None).await.map_err(failed)?;
    let ticket = info.endpoint.into_iter().next().and_then(|endpoint| endpoint.ticket).unwrap_or_default();
    let answer = client.do_get(ticket).await.map_err(failed)?;
    answer.try_collect().await.map_err(failed)
}

/// What the values of a batch take.
pub(super) fn bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum()
}

async fn connect(address: &str) -> Result<FlightSqlServiceClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(unavailable)?;
    let channel = endpoint.connect().await.map_err(unavailable)?;
    let inner = arrow_flight::flight_service_client::FlightServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
    Ok(FlightSqlServiceClient::new_from_inner(inner))
}

fn failed(error: FlightError) -> Error {
    Error::unavailable("a read over Flight SQL failed").caused_by(error)
}

fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::unavailable("a server does not answer").caused_by(error)
}
