//! PostgreSQL with the final rows in a table with the view's primary key, in a database created for the run on a
//! running server.

use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serving::Node;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Row};
use types::{Error, Result};
use uuid::Uuid;

use super::ask::Ask;
use super::check::{Expected, has_row};
use super::final_rows;
use crate::asking::{Client, Connected, failed};
use crate::latencies::Latencies;
use crate::purchases::Window;
use crate::purchases::question::{KEY, shape};

pub(super) struct Database {
    server: String,
    name: String,
    url: String,
}

/// The version of a running server, and the memory it may use for pages.
pub(super) async fn version(url: &str) -> Result<String> {
    let mut connection = PgConnection::connect(url).await.map_err(failed)?;
    let mut reported = Vec::new();
    for setting in ["SHOW server_version", "SHOW shared_buffers"] {
        reported.push(sqlx::query(setting).fetch_one(&mut connection).await.and_then(|row| row.try_get::<String, _>(0)).map_err(failed)?);
    }
    connection.close().await.map_err(failed)?;
    Ok(reported.join(", shared_buffers "))
}

impl Database {
    pub(super) async fn create(url: &str) -> Result<Database> {
        let name = format!("bench_{}", Uuid::now_v7().simple());
        let base = url.rsplit_once('/').map_or(url, |(base, _)| base);
        let database = Database { server: url.to_owned(), url: format!("{base}/{name}"), name };
        database.administer("CREATE DATABASE").await?;
        Ok(database)
    }

    /// Measures requests for one key, and for many.
    pub(super) async fn fill_and_ask(&self, asking: &Ask, node: &Node, expected: &Expected) -> Result<(Vec<Latencies>, Vec<Latencies>)> {
        self.fill(asking, node).await?;
        check(&self.url, ONE, asking.purchases.windows(), expected).await?;
        Ok((self.ask(asking).await?, self.ask_batch(asking).await?))
    }

    pub(super) async fn remove(&self) -> Result<()> {
        self.administer("DROP DATABASE").await
    }

    async fn administer(&self, what: &str) -> Result<()> {
        let mut connection = PgConnection::connect(&self.server).await.map_err(failed)?;
        sqlx::query(AssertSqlSafe(format!("{what} {}", self.name))).execute(&mut connection).await.map_err(failed)?;
        connection.close().await.map_err(failed)
    }

    async fn fill(&self, asking: &Ask, node: &Node) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url).await.map_err(failed)?;
        let shape = shape(&asking.purchases);
        let column = |(name, data_type): &(String, DataType)| match data_type {
            DataType::Int64 => format!("\"{name}\" bigint"),
            _ => format!("\"{name}\" numeric(20, 2)"),
        };
        let columns: Vec<String> = shape.values.iter().map(column).collect();
        let names: Vec<String> = shape.values.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        execute(&mut connection, format!("CREATE TABLE answer ({KEY} text NOT NULL, {})", columns.join(", "))).await?;
        let copy = format!("COPY answer ({KEY}, {}) FROM STDIN (FORMAT csv)", names.join(", "));
        let mut copied = connection.copy_in_raw(&copy).await.map_err(failed)?;
        final_rows::each(node, async |part| {
            let options = FormatOptions::default();
            let of = |(name, _): &(String, DataType)| {
                let column = part.rows.column_by_name(name).ok_or_else(|| Error::internal("a row lacks a column").with("column", name))?;
                Ok(ArrayFormatter::try_new(column, &options)?)
            };
            let values: Vec<ArrayFormatter<'_>> = shape.values.iter().map(of).collect::<Result<_>>()?;
            let mut text = String::new();
            for (row, key) in part.keys.iter().enumerate() {
                text.push_str(key);
                values.iter().for_each(|value| text.push_str(&format!(",{}", value.value(row))));
                text.push('\n');
            }
            copied.send(text.into_bytes()).await.map(drop).map_err(failed)
        })
        .await?;
        copied.finish().await.map_err(failed)?;
        execute(&mut connection, format!("ALTER TABLE answer ADD PRIMARY KEY ({KEY})")).await?;
        execute(&mut connection, "VACUUM ANALYZE answer".to_owned()).await?;
        // COPY and VACUUM use a small ring of buffers: without this the first lookups would read the rest from the
        // file.
        execute(&mut connection, "CREATE EXTENSION pg_prewarm".to_owned()).await?;
        execute(&mut connection, "SELECT pg_prewarm('answer'), pg_prewarm('answer_pkey')".to_owned()).await
    }

    async fn ask(&self, asking: &Ask) -> Result<Vec<Latencies>> {
        let client = || -> Result<Box<dyn Client>> {
            let (mut connected, key) = (Connected::new(&self.url), asking.key());
            Ok(Box::new(move |nth| {
                let key = key(nth);
                let row = async |connection: &mut PgConnection| sqlx::query(ONE).bind(key).fetch_optional(connection).await;
                connected.with(row).map(drop::<Option<PgRow>>)
            }))
        };
        asking.with(client).await
    }

    async fn ask_batch(&self, asking: &Ask) -> Result<Vec<Latencies>> {
        let client = || -> Result<Box<dyn Client>> {
            let (mut connected, keys) = (Connected::new(&self.url), asking.keys());
            Ok(Box::new(move |nth| {
                let keys = keys(nth);
                let rows = async |connection: &mut PgConnection| sqlx::query(MANY).bind(keys).fetch_all(connection).await;
                connected.with(rows).map(drop::<Vec<PgRow>>)
            }))
        };
        asking.with(client).await
    }
}

const ONE: &str = "SELECT * FROM answer WHERE account_id = $1";
const MANY: &str = "SELECT * FROM answer WHERE account_id = ANY($1)";

/// Compares the rows that a server has for some keys with what is expected: counts only, which is enough to see that it
/// has the same rows.
pub(super) async fn check(url: &str, sql: &'static str, windows: &[Window], expected: &Expected) -> Result<()> {
    let mut connection = PgConnection::connect(url).await.map_err(failed)?;
    let columns: Vec<String> = windows.iter().map(|window| format!("purchases_{}", window.text)).collect();
    for (key, row) in expected {
        let kept = sqlx::query(sql).bind(key).fetch_optional(&mut connection).await.map_err(failed)?;
        let kept = match kept {
            Some(kept) => kept,
            None if has_row(row) => return Err(Error::internal("PostgreSQL lacks a row").with("key", key)),
            None => continue,
        };
        for column in &columns {
            let count: i64 = kept.try_get(&**column).map_err(failed)?;
            if row[column] != count {
                return Err(Error::internal("PostgreSQL has another row").with("key", key).with("column", column));
            }
        }
    }
    connection.close().await.map_err(failed)
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<()> {
    sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop).map_err(failed)
}
