//! Names of the system's own columns.

// Of an event, after its stream's columns.
pub const EVENT_TIME: &str = "__event_time";
pub const SOURCE: &str = "__source";
pub const PARTITION: &str = "__partition";
pub const OFFSET: &str = "__offset";
pub const TIMESTAMP: &str = "__timestamp";
pub const KEY: &str = "__key";
pub const VALUE: &str = "__value";
pub const HEADERS: &str = "__headers";

// Of a state row, after its keys.
pub const LEVEL: &str = "__level";
pub const TILE: &str = "__tile";
/// The state that every row carries: how many events it holds.
pub const EVENTS: &str = "__events";
/// The column by which `as_of()` reaches the expressions above the aggregates.
pub const AS_OF: &str = "__as_of";
