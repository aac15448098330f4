//! Names of the system's own columns.

// In events, after the stream's columns.
pub const EVENT_TIME: &str = "__event_time";
pub const SOURCE: &str = "__source";
pub const PARTITION: &str = "__partition";
pub const OFFSET: &str = "__offset";
pub const TIMESTAMP: &str = "__timestamp";
pub const KEY: &str = "__key";
pub const VALUE: &str = "__value";
pub const HEADERS: &str = "__headers";

// In state rows, after the keys.
pub const LEVEL: &str = "__level";
pub const TILE: &str = "__tile";
/// The state that every row carries: its number of events.
pub const EVENTS: &str = "__events";
/// The column through which the expressions above the aggregates read `as_of()`.
pub const AS_OF: &str = "__as_of";
