//! A node that answers Flight SQL clients, with a stream and views over it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow_flight::FlightInfo;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use basestream_tests::{Harness, Worker};
use batch::RunTime;
use catalog::DefinitionKind::{Stream, View};
use engine::fresh::Fresh;
use futures::TryStreamExt;
use serving::http::Protection;
use serving::{Node, ServingClock};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const STREAM: &str = "CREATE STREAM events (
    id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, unit UUID, ok BOOLEAN, small INT, big BIGINT, real DOUBLE,
    amount DECIMAL(18,2), day DATE, raw BYTEA, tags TEXT[]
) WITH (topic = 'events', format = 'json', event_time = 'ts', id = 'id', key = 'device')";
const PER_DEVICE: &str = "CREATE VIEW per_device AS SELECT device, count(*) AS n, sum(amount) AS amount FROM events GROUP BY device";
const PER_UNIT: &str = "CREATE VIEW per_unit AS SELECT unit, big, count(*) AS n FROM events GROUP BY unit, big";

pub const UNIT: &str = "00112233-4455-6677-8899-aabbccddeeff";
/// A query that would take hours.
pub const ENDLESS: &str = "SELECT count(*) FROM range(1, 2000000000) a CROSS JOIN range(1, 2000000000) b WHERE a.value * b.value = 17";
/// No test waits longer for what is to happen soon.
pub const SOON: Duration = Duration::from_secs(60);

pub type Client = FlightSqlServiceClient<Channel>;

pub struct Server {
    harness: Harness,
    worker: Option<Worker>,
    pub node: Node,
    pub address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<types::Result<()>>,
    next: usize,
}

impl Server {
    pub async fn start() -> Server {
        Server::protected(&Protection::none(Arc::new(|| 0)).unwrap()).await
    }

    pub async fn protected(protection: &Protection) -> Server {
        let harness = Harness::new().await.unwrap();
        harness.define(&[(Stream, "events", STREAM), (View, "per_device", PER_DEVICE), (View, "per_unit", PER_UNIT)]).await.unwrap();
        let fresh = Fresh::default();
        let worker = harness.worker("one", Duration::from_millis(100), Some(fresh.clone()));
        let node = harness.node(ServingClock::Event, Some(fresh)).await.unwrap();
        let stop = CancellationToken::new();
        let (address, task) = serve(&node, protection, &stop);
        Server { harness, worker: Some(worker), node, address, stop, task, next: 0 }
    }

    /// With an event of every type, one of nulls, and one of another device.
    pub async fn filled() -> Server {
        let mut server = Server::start().await;
        let full = format!(
            r#""device":"a","unit":"{UNIT}","ok":true,"small":-7,"big":9007199254740993,"real":1.5,"amount":"12.34","day":"2026-02-03",
               "raw":"AP8=","tags":["x","y z",null]"#
        );
        server.append(&[&full, r#""device":null"#, r#""device":"b","amount":"0.50""#]).await;
        server
    }

    /// Appends events of these fields, and waits until they are committed and loaded.
    pub async fn append(&mut self, events: &[&str]) {
        let mut records = Vec::new();
        for fields in events {
            self.next += 1;
            let text = format!(r#"{{"id":"e{}","ts":"2026-03-01T10:{:02}:00Z",{fields}}}"#, self.next, self.next % 60);
            records.push((Some("k".to_owned()), text));
        }
        self.harness.append("events", 2, records).await.unwrap();
        self.harness.committed("events", "events").await.unwrap();
        self.node.refresh().await.unwrap();
    }

    /// A new snapshot of a view takes the place of the one before.
    pub async fn run(&self, view: &str) {
        self.harness.batch(view, RunTime::EventClock).await.unwrap();
        self.node.refresh().await.unwrap();
    }

    pub async fn connect(&self) -> Client {
        connect(self.address).await
    }

    /// Waits until every answer under way is over.
    pub async fn stop(mut self) {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.task).await.expect("timed out: the server does not stop").unwrap().unwrap();
        self.worker.take().unwrap().finish().await.unwrap();
    }

    /// Begins to stop.
    pub fn begin_to_stop(&self) {
        self.stop.cancel();
    }
}

/// Answers for this node at an address of its own.
pub fn serve(node: &Node, protection: &Protection, stop: &CancellationToken) -> (SocketAddr, JoinHandle<types::Result<()>>) {
    let bound = flight_sql::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = bound.address;
    (address, flight_sql::serve(node.clone(), protection, bound, stop.clone()))
}

pub async fn connect(address: SocketAddr) -> Client {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    FlightSqlServiceClient::new(channel)
}

/// Begins to fetch what a FlightInfo names.
pub async fn fetch(client: &mut Client, info: FlightInfo) -> Result<FlightRecordBatchStream, FlightError> {
    client.do_get(info.endpoint[0].ticket.clone().unwrap()).await
}

/// The rows of a query.
pub async fn batches(client: &mut Client, sql: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(sql.to_owned(), None).await?;
    fetch(client, info).await?.try_collect().await
}

/// The same as texts, row by row; NULL is nothing.
pub async fn texts(client: &mut Client, sql: &str) -> Vec<Vec<String>> {
    rows(&batches(client, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")))
}

pub fn rows(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let options = FormatOptions::default();
    let text = |column: &dyn Array, row: usize| ArrayFormatter::try_new(column, &options).unwrap().value(row).to_string();
    let of = |batch: &RecordBatch, row: usize| batch.columns().iter().map(|column| text(column, row)).collect();
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| of(batch, row))).collect()
}

/// The one text that a query answers.
pub async fn one(client: &mut Client, sql: &str) -> String {
    texts(client, sql).await.concat().into_iter().next().unwrap_or_else(|| panic!("{sql}"))
}

/// The status of an error. The client passes some of them on as texts alone.
pub fn status_of(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// The status of a query that fails, and its message.
pub async fn refused(client: &mut Client, sql: &str) -> (Code, String) {
    match batches(client, sql).await {
        Ok(rows) => panic!("{sql}: {rows:?}"),
        Err(error) => {
            let status = status_of(error);
            (status.code(), status.message().to_owned())
        }
    }
}
