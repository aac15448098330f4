//! A node that answers PostgreSQL clients, with a stream of every type and views over it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use basestream_tests::{Harness, Worker};
use batch::RunTime;
use catalog::DefinitionKind::{self, Stream, View};
use catalog::{Add, Commit, DefinitionRecord, DefinitionStatus};
use engine::fresh::Fresh;
use serving::http::Protection;
use serving::{Node, ServingLimits};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const STREAM: &str = "CREATE STREAM events (
    id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, unit UUID, ok BOOLEAN, small INT, big BIGINT, real DOUBLE,
    amount DECIMAL(18,2), day DATE, raw BYTEA, tags TEXT[], marks BIGINT[], doc JSON
) WITH (topic = 'events', format = 'json', event_time = 'ts', id = 'id', key = 'device')";
const PER_DEVICE: &str = "CREATE VIEW per_device AS SELECT device, count(*) AS n, sum(amount) AS amount FROM events GROUP BY device";
const PER_UNIT: &str = "CREATE VIEW per_unit AS SELECT unit, big, count(*) AS n FROM events GROUP BY unit, big";

pub const UNIT: &str = "00112233-4455-6677-8899-aabbccddeeff";

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
        Server::limited(protection, ServingLimits::default()).await
    }

    pub async fn limited(protection: &Protection, limits: ServingLimits) -> Server {
        Server::over(&[(Stream, "events", STREAM), (View, "per_device", PER_DEVICE), (View, "per_unit", PER_UNIT)], protection, limits)
            .await
    }

    /// A server over other definitions.
    pub async fn over(definitions: &[(DefinitionKind, &str, &str)], protection: &Protection, limits: ServingLimits) -> Server {
        let harness = Harness::new().await.unwrap();
        harness.define(definitions).await.unwrap();
        let fresh = Fresh::default();
        let worker = harness.worker("one", Duration::from_millis(100), Some(fresh.clone()));
        let node = harness.node_with_limits(Some(fresh), limits).await.unwrap();
        let (bound, stop) = (postgres_wire::listen("127.0.0.1:0".parse().unwrap()).unwrap(), CancellationToken::new());
        let address = bound.address;
        let task = postgres_wire::serve(node.clone(), protection, bound, stop.clone()).unwrap();
        Server { harness, worker: Some(worker), node, address, stop, task, next: 0 }
    }

    /// With an event of every type, and one of nulls.
    pub async fn filled() -> Server {
        let mut server = Server::start().await;
        let full = format!(
            r#""device":"a","unit":"{UNIT}","ok":true,"small":-7,"big":9007199254740993,"real":1.5,"amount":"12.34","day":"2026-02-03",
               "raw":"AP8=","tags":["x","y z",null],"marks":[1,-2],"doc":{{"k":[1,2]}}"#
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
        self.append_to("events", records).await;
    }

    /// Appends records to a stream whose topic has its name, and waits until they are committed and loaded.
    pub async fn append_to(&self, stream: &str, records: Vec<(Option<String>, String)>) {
        self.harness.append(stream, 2, records).await.unwrap();
        self.harness.committed(stream, stream).await.unwrap();
        self.node.refresh().await.unwrap();
    }

    /// A new snapshot of a view takes the place of the one before.
    pub async fn run(&self, view: &str) {
        self.harness.batch(view, RunTime::EventClock).await.unwrap();
        self.node.refresh().await.unwrap();
    }

    /// The second version of a view takes the place of the first.
    pub async fn change(&self, view: &str, sql: &str) {
        let state = self.harness.catalog.state().await.unwrap();
        let first = state.definitions.live_versions(View, view).next().unwrap();
        let second = DefinitionRecord { version: 2, sql: sql.to_owned(), ..first.clone() };
        let first = DefinitionRecord { status: DefinitionStatus::Retired, ..first.clone() };
        let add = vec![Add::Definition(first), Add::Definition(second)];
        self.harness.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
        self.node.refresh().await.unwrap();
    }

    pub fn url(&self) -> String {
        format!("host=127.0.0.1 port={} user=ann dbname=basestream", self.address.port())
    }

    pub async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.worker.take().unwrap().finish().await.unwrap();
    }
}

/// The rows of a text of the simple protocol, each value as text.
pub async fn texts(client: &Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect()),
        _ => None,
    });
    rows.collect()
}

/// The one text that a query answers.
pub async fn one(client: &Client, sql: &str) -> String {
    texts(client, sql).await.concat().into_iter().next().flatten().unwrap_or_else(|| panic!("{sql}"))
}

/// The SQLSTATE of an error, its message, and the character it is at.
pub fn error_of(error: &tokio_postgres::Error) -> (String, String, Option<u32>) {
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
    let position = match error.position() {
        Some(tokio_postgres::error::ErrorPosition::Original(at)) => Some(*at),
        _ => None,
    };
    (error.code().code().to_owned(), error.message().to_owned(), position)
}
