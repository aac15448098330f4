//! What Grafana, DBeaver and Metabase ask when they connect and when someone browses, asyncpg of types, and ADBC and
//! JDBC for their lists, as their public sources send it.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::server::texts;

mod asyncpg;
mod dashboard;
mod dbeaver;
mod grafana;
mod listings;
mod metabase;

/// A parameter, of the type that the JDBC driver gives it.
type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The rows of a statement of the extended protocol, with parameters of these types.
async fn rows(client: &Client, sql: &str, params: &[Param<'_>]) -> Vec<Row> {
    client.query_typed(sql, params).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

/// One column of texts.
fn column(rows: &[Row], name: &str) -> Vec<String> {
    rows.iter().map(|row| row.get(name)).collect()
}

/// The first column of an answer of the simple protocol.
async fn firsts(client: &Client, sql: &str) -> Vec<String> {
    texts(client, sql).await.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect()
}

/// What is refused among statements without parameters, asked by both protocols.
async fn refused(client: &Client, statements: &[&str]) -> Vec<String> {
    let mut refused = Vec::new();
    for sql in statements {
        let what = |protocol: &str, error: tokio_postgres::Error| format!("{protocol}: {error:?}\n  {sql}");
        if let Err(error) = client.simple_query(sql).await {
            refused.push(what("simple", error));
        }
        if let Err(error) = client.query_typed(sql, &[]).await {
            refused.push(what("extended", error));
        }
    }
    refused
}

/// That all of these names are there.
fn has(found: &[String], expected: &[&str]) {
    for name in expected {
        assert!(found.iter().any(|found| found == name), "{name} is not in {found:?}");
    }
}
