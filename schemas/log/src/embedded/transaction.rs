//! Statements that are sent together, and a transaction of appends: one message to SQLite's thread begins it and reads
//! what it goes on from, one writes and commits.
//!
//! SQLite works on a thread of its own, and each message to it wakes it, and then the one who waits for its answer. On
//! busy processors these wakings take most of the time of an append. A transaction of sqlx takes a message for each
//! statement, and two more. So statements are for many rows, and a message has many statements, which sqlx allows for
//! SQLite alone.

use std::time::Instant;

use futures::TryStreamExt;
use futures::stream::BoxStream;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteQueryResult, SqliteRow};
use sqlx::{Either, Executor, QueryBuilder, Sqlite, SqliteConnection};

use super::store::{BUSY_TIMEOUT, Store, failed};
use types::Result;
use types::connections::is_sqlite_busy;

/// One statement reads or writes at most this many rows: prepared statements of each number of rows are kept.
pub(super) const ROWS_AT_ONCE: usize = 16;
/// One message has about this many bytes of records at most, unless one batch alone is larger.
const BYTES_AT_ONCE: usize = 4 << 20;

/// Statements that are sent in one message.
pub(super) struct Statements {
    sql: QueryBuilder<Sqlite>,
    /// How many bytes of records they have.
    bytes: usize,
}

/// The rows of statements that are sent together, with the end of each statement.
pub(super) type RowsAndEnds<'c> = BoxStream<'c, sqlx::Result<Either<SqliteQueryResult, SqliteRow>>>;

impl Default for Statements {
    fn default() -> Self {
        Statements { sql: QueryBuilder::new(""), bytes: 0 }
    }
}

impl Statements {
    /// Those that begin a transaction which holds the write lock from the start.
    fn beginning() -> Self {
        let mut statements = Statements::default();
        statements.next().push("BEGIN IMMEDIATE");
        statements
    }

    /// Begins another statement.
    pub(super) fn next(&mut self) -> &mut QueryBuilder<Sqlite> {
        if !self.sql.sql().as_str().is_empty() {
            self.sql.push("; ");
        }
        &mut self.sql
    }

    pub(super) fn note_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> String {
        self.sql.sql().as_str().to_owned()
    }

    /// Sends them.
    pub(super) fn fetch<'c>(&'c mut self, connection: &'c mut SqliteConnection) -> RowsAndEnds<'c> {
        connection.fetch_many(self.sql.build())
    }

    /// Runs them, and returns the rows of each.
    async fn run(mut self, connection: &mut SqliteConnection) -> sqlx::Result<Vec<Vec<SqliteRow>>> {
        let mut results = self.fetch(connection);
        let (mut rows, mut of_statement) = (Vec::new(), Vec::new());
        while let Some(next) = results.try_next().await? {
            match next {
                Either::Right(row) => of_statement.push(row),
                Either::Left(_) => rows.push(std::mem::take(&mut of_statement)),
            }
        }
        Ok(rows)
    }
}

/// An open transaction. If it is dropped without a commit, its connection is closed, which rolls it back.
pub(super) struct AppendTransaction {
    connection: PoolConnection<Sqlite>,
    statements: Statements,
    is_open: bool,
}

impl AppendTransaction {
    /// Begins it, and returns the rows of each statement that `add_reads` adds. Waits while another one holds the write
    /// lock.
    pub(super) async fn begin(
        store: &Store,
        add_reads: impl Fn(&mut Statements),
    ) -> Result<(AppendTransaction, impl Iterator<Item = Vec<SqliteRow>>)> {
        let connection = store.writer().acquire().await.map_err(failed)?;
        let mut transaction = AppendTransaction { connection, statements: Statements::default(), is_open: true };
        let began = Instant::now();
        loop {
            let mut reads = Statements::beginning();
            add_reads(&mut reads);
            match reads.run(&mut transaction.connection).await {
                // The write lock is taken first: nothing has begun.
                Err(error) if is_sqlite_busy(&error) && began.elapsed() < BUSY_TIMEOUT => {}
                Ok(rows) => return Ok((transaction, rows.into_iter().skip(1))),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// What is to be written next.
    pub(super) fn statements(&mut self) -> &mut Statements {
        &mut self.statements
    }

    /// Whether what there is to write is as much as one message has.
    pub(super) fn is_large(&self) -> bool {
        self.statements.bytes >= BYTES_AT_ONCE
    }

    /// Writes what there is so far, if it is much.
    pub(super) async fn write_if_large(&mut self) -> Result<()> {
        match self.is_large() {
            true => self.run().await.map_err(failed),
            false => Ok(()),
        }
    }

    /// Writes the rest, and commits.
    pub(super) async fn commit(mut self) -> Result<()> {
        self.statements.next().push("COMMIT");
        self.run().await.map_err(failed)?;
        self.is_open = false;
        Ok(())
    }

    async fn run(&mut self) -> sqlx::Result<()> {
        let statements = std::mem::take(&mut self.statements);
        statements.run(&mut self.connection).await.map(drop)
    }
}

impl Drop for AppendTransaction {
    fn drop(&mut self) {
        if self.is_open {
            self.connection.close_on_drop();
        }
    }
}

#[cfg(test)]
mod tests;
