//! The PostgreSQL protocol: what `[serving] postgres` answers.
//!
//! ```text
//! server          accepts connections, up to a limit
//!   connection    one client: messages in, answers out; what it runs follows its session
//!     startup     the first messages, and encryption
//!     login       who a client is, by SCRAM
//!     session     settings, transaction and read view
//!       names     SQL names in settings
//!     statement   a text, cut into statements, and what each of them is
//!     query       a statement that has rows: described, and begun
//!       metadata  pg_catalog and information_schema
//!       params    the values of $1, $2, ..
//!     copy        COPY .. TO STDOUT
//!       rows      rows as text and as binary
//!         columns Arrow types as PostgreSQL's
//!     frames      bytes as messages, each checked before it is read
//!     problem     errors with their SQLSTATE and place
//!     cancel      keys that cancel a query
//! ```
//!
//! The text of a prepared statement is kept. It is planned for its description, and again by each execution, over the
//! read view of that moment: a pooled statement sees what was committed after it was prepared. Rows are made as they
//! are read, so that memory holds a batch for each query under way, however slow its client is.

mod cancel;
mod columns;
mod connection;
mod copy;
mod frames;
mod login;
mod metadata;
mod names;
mod params;
mod problem;
mod query;
mod rows;
mod server;
mod session;
mod startup;
mod statement;

pub use server::{listen, serve};

/// The version that is reported to clients. It decides what they ask of the catalog.
const SERVER_VERSION: &str = "15.0";
