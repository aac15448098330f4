//! A client of the PostgreSQL protocol: of PostgreSQL itself, or of a node.

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use types::{Error, Result};

/// A connection whose statements are prepared once, opened and driven by the first thread that asks.
pub struct Connected {
    url: String,
    runtime: Option<(tokio::runtime::Runtime, PgConnection)>,
}

impl Connected {
    pub fn new(url: &str) -> Connected {
        Connected { url: url.to_owned(), runtime: None }
    }

    /// Asks and waits for the answer.
    pub fn with<T>(&mut self, ask: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>) -> Result<T> {
        if self.runtime.is_none() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let connection = runtime.block_on(PgConnection::connect(&self.url)).map_err(failed)?;
            self.runtime = Some((runtime, connection));
        }
        let Some((runtime, connection)) = &mut self.runtime else { return Err(Error::internal("a connection was not made")) };
        runtime.block_on(ask(connection)).map_err(failed)
    }
}

pub fn failed(error: sqlx::Error) -> Error {
    Error::unavailable(format!("PostgreSQL failed: {error}"))
}
