//! Reads by `COPY .. TO STDOUT (FORMAT binary)`: of the view over the PostgreSQL protocol, and of a table with its rows
//! in a database created for the run on a running PostgreSQL.

use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use types::{Error, Result};
use uuid::Uuid;

use super::Options;
use super::reading::Read;

/// The version of a running server.
pub(super) async fn version(url: &str) -> Result<String> {
    let mut connection = PgConnection::connect(url).await.map_err(failed)?;
    let row = sqlx::query("SHOW server_version").fetch_one(&mut connection).await.map_err(failed)?;
    row.try_get(0).map_err(failed)
}

/// Reads a table, or a query in brackets, that has `rows` rows.
pub(super) async fn copy(url: &str, from: &str, rows: u64) -> Result<Read> {
    let mut connection = PgConnection::connect(url).await.map_err(failed)?;
    let began = Instant::now();
    let sql = format!("COPY {from} TO STDOUT (FORMAT binary)");
    let (mut wire_bytes, mut parts) = (0, connection.copy_out_raw(&sql).await.map_err(failed)?);
    while let Some(part) = parts.try_next().await.map_err(failed)? {
        wire_bytes += part.len() as u64;
    }
    let seconds = began.elapsed().as_secs_f64();
    drop(parts);
    connection.close().await.map_err(failed)?;
    Ok(Read { seconds, rows, counted: None, wire_bytes })
}

pub(super) struct Database {
    server: String,
    name: String,
    url: String,
}

impl Database {
    pub(super) async fn create(url: &str) -> Result<Database> {
        let name = format!("bench_{}", Uuid::now_v7().simple());
        let base = url.rsplit_once('/').map_or(url, |(base, _)| base);
        let database = Database { server: url.to_owned(), url: format!("{base}/{name}"), name };
        database.administer("CREATE DATABASE").await?;
        Ok(database)
    }

    pub(super) async fn remove(&self) -> Result<()> {
        self.administer("DROP DATABASE").await
    }

    /// Fills a table with these rows, and reads it.
    pub(super) async fn read(&self, answer: &[RecordBatch], options: &Options) -> Result<Vec<Read>> {
        self.fill(answer).await?;
        let mut reads = Vec::new();
        for _ in 0..options.repeats {
            reads.push(copy(&self.url, "answer", options.rows).await?);
        }
        Ok(reads)
    }

    async fn fill(&self, answer: &[RecordBatch]) -> Result<()> {
        let Some(first) = answer.first() else { return Err(Error::internal("the answer has no rows")) };
        let mut connection = PgConnection::connect(&self.url).await.map_err(failed)?;
        execute(&mut connection, format!("CREATE TABLE answer ({})", columns(&first.schema()))).await?;
        let mut copied = connection.copy_in_raw("COPY answer FROM STDIN (FORMAT csv)").await.map_err(failed)?;
        let options = FormatOptions::default();
        for batch in answer {
            let values: Vec<ArrayFormatter<'_>> =
                batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options)).collect::<Result<_, _>>()?;
            let mut text = String::new();
            for row in 0..batch.num_rows() {
                let line: Vec<String> = values.iter().map(|value| value.value(row).to_string()).collect();
                text.push_str(&line.join(","));
                text.push('\n');
            }
            copied.send(text.into_bytes()).await.map_err(failed)?;
        }
        let filled = copied.finish().await.map_err(failed)?;
        let expected = answer.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        if filled != expected {
            return Err(Error::internal("PostgreSQL has other rows").with("found", filled).with("expected", expected));
        }
        execute(&mut connection, "VACUUM ANALYZE answer".to_owned()).await
    }

    async fn administer(&self, what: &str) -> Result<()> {
        let mut connection = PgConnection::connect(&self.server).await.map_err(failed)?;
        execute(&mut connection, format!("{what} {}", self.name)).await?;
        connection.close().await.map_err(failed)
    }
}

fn columns(schema: &Schema) -> String {
    let of = |data_type: &DataType| match data_type {
        DataType::Int64 => "bigint".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        DataType::Timestamp(..) => "timestamptz".to_owned(),
        DataType::Decimal128(precision, scale) => format!("numeric({precision}, {scale})"),
        _ => "text".to_owned(),
    };
    let columns: Vec<String> = schema.fields().iter().map(|field| format!("\"{}\" {}", field.name(), of(field.data_type()))).collect();
    columns.join(", ")
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<()> {
    sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop).map_err(failed)
}

fn failed(error: sqlx::Error) -> Error {
    Error::unavailable(format!("PostgreSQL failed: {error}"))
}
