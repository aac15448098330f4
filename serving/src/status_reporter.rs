//! The status of an installation, as `basestream status` reports it. What finds the problems is in a crate above this
//! one; it attaches a [`StatusReporter`] to the node.

use futures::future::BoxFuture;
use serde_json::Value;
use types::Result;

use crate::read_view::ReadView;

/// Reports what is wrong, and how far everything is.
pub trait StatusReporter: Send + Sync {
    /// Returns the report as a JSON object. `ready` is what the node says of itself, as in `/readyz`.
    fn report<'a>(&'a self, read_view: &'a ReadView, ready: Value) -> BoxFuture<'a, Result<Value>>;
}
