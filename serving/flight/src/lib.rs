//! Arrow Flight SQL: what `[serving] flight` answers.
//!
//! ```text
//! listen         accepts connections, encrypted where that is configured, up to a limit
//!   login        who a client is, by a bearer token, or by a token's name and the token
//!   service      the calls of Flight: what is asked, and its answer
//!     actions    prepared statements; queries cancelled
//!     statements a query: described, and begun
//!       tickets  what clients hold of a query
//!       parameters    the values of $1, $2, ..
//!     metadata   catalogs, schemas, tables and keys
//!       capabilities  what the server says of itself and of its types
//!     answering  rows on their way
//!       messages rows as Arrow's messages
//!     cancel     queries under way
//!     status     errors with their gRPC status
//! ```
//!
//! The server keeps no state of a client: a ticket, or the handle of a prepared statement, has the text of its query,
//! the values of its parameters and its time, so that any node can answer it. Rows are made as they are read: memory
//! holds some messages for each query under way, however slow its client is.

mod actions;
mod answering;
mod cancel;
mod capabilities;
mod listen;
mod login;
mod messages;
mod metadata;
mod parameters;
mod service;
mod statements;
mod status;
mod tickets;

pub use answering::META;
pub use listen::{listen, serve};
pub use statements::AS_OF;
