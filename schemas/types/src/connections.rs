//! Database connections, and pools of them. A connection whose transaction did not end is closed and never used again.

use sqlx::pool::PoolOptions;
use sqlx::{Connection, Database, Sqlite};

const SQLITE_BUSY: i32 = 5;

/// Whether another connection to an SQLite file holds the lock that is needed.
pub fn is_sqlite_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // The lowest byte of SQLite's extended codes says what it is.
    code.and_then(|code| code.parse::<i32>().ok()).is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

/// Returns the options of a pool of at most `connections` connections to an SQLite file.
///
/// They are not tested before each use, as those to a server are, which may have hung up: each test wakes SQLite's
/// thread for the connection, and waits for its answer.
pub fn file_pool(connections: u32) -> PoolOptions<Sqlite> {
    pool::<Sqlite>(connections).test_before_acquire(false)
}

/// Returns the options of a pool of at most `connections` connections.
///
/// On some errors (a full disk) SQLite ends a transaction by itself, and the ROLLBACK that follows fails. sqlx then
/// counts the transaction as open for as long as the connection lives, and refuses to begin another one.
pub fn pool<DB: Database>(connections: u32) -> PoolOptions<DB> {
    PoolOptions::<DB>::new().max_connections(connections).after_release(|connection, _| {
        Box::pin(async move {
            if connection.is_in_transaction() {
                // A dropped transaction only queues its ROLLBACK: this waits for it.
                connection.ping().await?;
            }
            Ok(!connection.is_in_transaction())
        })
    })
}

#[cfg(test)]
mod tests;
