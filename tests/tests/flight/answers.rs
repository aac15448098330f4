//! What clients get: values, parameters, the answer's meta, and at which time.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Schema, TimeUnit};
use arrow_flight::sql::client::PreparedStatement;
use futures::{StreamExt, TryStreamExt};
use serving::http::Protection;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::Channel;

use crate::server::{Client, SOON, Server, UNIT, batches, connect, fetch, one, refused, rows, serve, status_of, texts};

const COLUMNS: &str = "device, unit, ok, small, big, real, amount, day, raw, tags, ts";

#[tokio::test(flavor = "multi_thread")]
async fn values_of_every_type_come_as_arrow_has_them() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let sql = format!("SELECT {COLUMNS} FROM events WHERE device = 'a'");
    let found = batches(&mut client, &sql).await.unwrap();
    let types: Vec<DataType> = found[0].schema().fields().iter().map(|field| field.data_type().clone()).collect();
    assert_eq!(types[..2], [DataType::Utf8, DataType::Utf8]);
    assert_eq!(types[2..6], [DataType::Boolean, DataType::Int32, DataType::Int64, DataType::Float64]);
    assert_eq!(types[6..9], [DataType::Decimal128(18, 2), DataType::Date32, DataType::Binary]);
    assert!(matches!(&types[9], DataType::List(item) if *item.data_type() == DataType::Utf8), "{:?}", types[9]);
    assert_eq!(types[10], DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
    let expected =
        ["a", UNIT, "true", "-7", "9007199254740993", "1.5", "12.34", "2026-02-03", "00ff", "[x, y z, ]", "2026-03-01T10:01:00Z"];
    assert_eq!(rows(&found).concat(), expected);
    let nulls = texts(&mut client, &format!("SELECT {COLUMNS} FROM events WHERE device IS NULL")).await.concat();
    assert_eq!(nulls[..10], vec![""; 10]);

    // What is described first is what comes.
    for sql in [
        sql.as_str(),
        "SELECT count(*), sum(amount), 'x', NULL FROM per_device",
        "EXPLAIN SELECT n FROM per_device",
        "SELECT 1 WHERE false",
    ] {
        let info = client.execute(sql.to_owned(), None).await.unwrap();
        let described = info.clone().try_decode_schema().unwrap();
        let mut answer = fetch(&mut client, info).await.unwrap();
        while answer.try_next().await.unwrap().is_some() {}
        assert_eq!(answer.schema().unwrap().fields(), described.fields(), "{sql}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_names_its_position_and_time() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let info = client.execute("SELECT n FROM per_device WHERE device = 'a'".to_owned(), None).await.unwrap();
    let mut answer = fetch(&mut client, info).await.unwrap();
    assert_eq!(rows(&[answer.next().await.unwrap().unwrap()]).concat(), ["1"]);
    let meta = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
    let at_first = meta(answer.schema().unwrap().metadata()[flight_sql::META].as_bytes());
    assert_eq!(at_first["as_of"], "2026-03-01T10:03:00Z");
    assert_eq!(at_first["versions"]["per_device"], 1);
    assert_eq!(at_first["cut"], server.node.read_view().unwrap().vector.token());
    assert!(answer.next().await.is_none());
    let trailers = answer.trailers().unwrap();
    assert_eq!(meta(&trailers.get_bin("basestream-meta-bin").unwrap().to_bytes().unwrap()), at_first);
    server.stop().await;
}

fn row(columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_from_iter(columns.into_iter().enumerate().map(|(index, column)| (index.to_string(), column))).unwrap()
}

async fn run(client: &mut Client, statement: &mut PreparedStatement<Channel>, params: RecordBatch) -> Vec<Vec<String>> {
    statement.set_parameters(params).unwrap();
    let info = statement.execute().await.unwrap();
    rows(&fetch(client, info).await.unwrap().try_collect::<Vec<_>>().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_typed_by_the_plan_and_bound_by_a_row() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let sql = "SELECT device FROM events WHERE device = $1 AND big = $2 AND amount > $3 AND ts < $4";
    let mut statement = client.prepare(sql.to_owned(), None).await.unwrap();
    let types: Vec<DataType> = statement.parameter_schema().unwrap().fields().iter().map(|field| field.data_type().clone()).collect();
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    assert_eq!(types, [DataType::Utf8, DataType::Int64, DataType::Decimal128(18, 2), time]);
    assert_eq!(statement.dataset_schema().unwrap().fields().len(), 1);

    let params = |device: &str, big: i64| {
        let amount = Decimal128Array::from(vec![1200]).with_precision_and_scale(18, 2).unwrap();
        let at = TimestampMicrosecondArray::from(vec![1_790_000_000_000_000]).with_timezone("UTC");
        row(vec![Arc::new(StringArray::from(vec![device])), Arc::new(Int64Array::from(vec![big])), Arc::new(amount), Arc::new(at)])
    };
    assert_eq!(run(&mut client, &mut statement, params("a", 9_007_199_254_740_993)).await.concat(), ["a"]);
    assert_eq!(run(&mut client, &mut statement, params("a", 9_007_199_254_740_992)).await.concat(), [""; 0]);
    // The same handle again, with other values.
    assert_eq!(run(&mut client, &mut statement, params("a", 9_007_199_254_740_993)).await.concat(), ["a"]);

    // A type that only the client knows, and one that differs from the column's.
    let mut statement = client.prepare("SELECT $1, n FROM per_device WHERE device = $2 AND n = $3".to_owned(), None).await.unwrap();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![5])), Arc::new(StringArray::from(vec!["b"])), Arc::new(arrow::array::Int8Array::from(vec![1]))];
    assert_eq!(run(&mut client, &mut statement, row(columns)).await.concat(), ["5", "1"]);
    let columns = |device: ArrayRef| row(vec![Arc::new(arrow::array::NullArray::new(1)), device, Arc::new(Int64Array::from(vec![1]))]);
    assert_eq!(run(&mut client, &mut statement, columns(Arc::new(StringArray::from(vec!["b"])))).await.concat(), ["", "1"]);
    assert_eq!(run(&mut client, &mut statement, columns(Arc::new(arrow::array::NullArray::new(1)))).await.concat(), [""; 0]);
    statement.close().await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_the_schema_that_its_description_says_whatever_the_type_of_a_parameter() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let mut statement = client.prepare("SELECT n * $1 AS x FROM per_device WHERE device = 'a'".to_owned(), None).await.unwrap();
    let decimal = Decimal128Array::from(vec![25]).with_precision_and_scale(2, 1).unwrap();
    let params: [ArrayRef; 3] =
        [Arc::new(Int64Array::from(vec![2])), Arc::new(arrow::array::Float64Array::from(vec![2.5])), Arc::new(decimal)];
    for (param, expected) in params.into_iter().zip(["2", "2.5", "2.5"]) {
        statement.set_parameters(row(vec![param])).unwrap();
        let info = statement.execute().await.unwrap();
        let described = info.clone().try_decode_schema().unwrap();
        let answer = fetch(&mut client, info).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
        assert_eq!(described.fields(), answer[0].schema().fields());
        assert_eq!(rows(&answer).concat(), [expected]);
    }
    statement.close().await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_null_without_a_type_has_the_type_that_the_description_says() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    for (sql, expected) in [
        ("SELECT $1 AS x", DataType::Utf8),
        ("SELECT coalesce($1, n) AS x FROM per_device WHERE device = 'a'", DataType::Int64),
        ("SELECT $1::date AS x", DataType::Date32),
    ] {
        let mut statement = client.prepare(sql.to_owned(), None).await.unwrap();
        statement.set_parameters(row(vec![Arc::new(arrow::array::NullArray::new(1))])).unwrap();
        let info = statement.execute().await.unwrap();
        let described = info.clone().try_decode_schema().unwrap();
        let answer = fetch(&mut client, info).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
        assert_eq!(described.fields(), answer[0].schema().fields(), "{sql}");
        assert_eq!(*described.field(0).data_type(), expected, "{sql}");
        statement.close().await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_rows_of_parameters_and_missing_ones_are_refused() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let mut statement = client.prepare("SELECT n FROM per_device WHERE device = $1".to_owned(), None).await.unwrap();
    statement.set_parameters(row(vec![Arc::new(StringArray::from(vec!["a", "b"]))])).unwrap();
    let status = status_of(statement.execute().await.unwrap_err());
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("found 2 rows of parameters: expected one"), "{}", status.message());

    let (code, message) = refused(&mut client, "SELECT n FROM per_device WHERE device = $1").await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(message.contains("the query names the parameter $1, and 0 values are given"), "{message}");
    server.stop().await;
}

/// A node keeps nothing of a client: what one made, another answers.
#[tokio::test(flavor = "multi_thread")]
async fn tickets_and_handles_are_answered_by_any_server() {
    let mut server = Server::filled().await;
    let stop = CancellationToken::new();
    let (address, task) = serve(&server.node, &Protection::none(Arc::new(|| 0)).unwrap(), &stop);
    let (mut client, mut other) = (server.connect().await, connect(address).await);
    let mut statement = client.prepare("SELECT n FROM per_device WHERE device = $1".to_owned(), None).await.unwrap();
    statement.set_parameters(row(vec![Arc::new(StringArray::from(vec!["a"]))])).unwrap();
    let info = statement.execute().await.unwrap();
    let read =
        async |client: &mut Client| rows(&fetch(client, info.clone()).await.unwrap().try_collect::<Vec<_>>().await.unwrap()).concat();
    assert_eq!(read(&mut other).await, ["1"]);
    // Each fetch asks anew.
    server.append(&[r#""device":"a""#]).await;
    assert_eq!(read(&mut client).await, ["2"]);
    server.run("per_device").await;
    assert_eq!(read(&mut other).await, ["2"]);
    drop((client, other, statement));
    stop.cancel();
    tokio::time::timeout(SOON, task).await.expect("timed out: the server does not stop").unwrap().unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_names_the_time_of_queries_that_name_none() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let sql = "SELECT count(*) FROM per_device";
    assert_eq!(one(&mut client, sql).await, "3");
    client.set_header(flight_sql::AS_OF, "2026-03-01T10:01:30Z");
    assert_eq!(one(&mut client, sql).await, "1");
    assert_eq!(one(&mut client, &format!("SET as_of = '2026-03-01T10:02:30Z'; {sql}")).await, "2");
    let mut statement = client.prepare(sql.to_owned(), None).await.unwrap();
    // It is part of the statement.
    client.set_header(flight_sql::AS_OF, "");
    let info = statement.execute().await.unwrap();
    assert_eq!(rows(&fetch(&mut client, info).await.unwrap().try_collect::<Vec<_>>().await.unwrap()).concat(), ["1"]);
    client.set_header(flight_sql::AS_OF, "yesterday");
    let (code, message) = refused(&mut client, sql).await;
    assert!(code == Code::InvalidArgument && message.starts_with("as_of: found \"yesterday\""), "{message}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_is_made_as_it_is_read() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    // 48 GB, if it was made before it is sent.
    let info =
        client.execute("SELECT value, value * 2 AS double, value * 3 AS triple FROM range(0, 2000000000)".to_owned(), None).await.unwrap();
    let mut answer = fetch(&mut client, info).await.unwrap();
    let mut read = 0;
    let before = resident_bytes();
    for pause in [0, 1_500] {
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        for _ in 0..200 {
            read += answer.next().await.unwrap().unwrap().num_rows();
        }
    }
    assert!(read > 400_000, "{read}");
    let grown = resident_bytes().saturating_sub(before) >> 20;
    assert!(grown < 200, "{grown} MiB");
    // The client goes away.
    drop((answer, client));
    server.stop().await;
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse::<usize>().unwrap();
    pages * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_can_be_asked_alone() {
    use arrow_flight::FlightDescriptor;
    use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt};
    use prost::Message;
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let command = CommandStatementQuery { query: "SELECT n FROM per_device".to_owned(), transaction_id: None };
    let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
    let schema = client.inner_mut().get_schema(descriptor).await.unwrap().into_inner();
    let schema = Schema::try_from(&schema).unwrap();
    assert_eq!(schema.field(0).name(), "n");
    server.stop().await;
}
