//! A client in the same process as the serving node.

use datafusion::common::ScalarValue;
use serving::{Keys, Node};
use tokio::runtime::Handle;
use types::Result;

use super::Client;

/// Looks one key up at a time at a node, as a handler would. The key is a function of the query's number.
pub struct Library<F> {
    node: Node,
    runtime: Handle,
    of: F,
}

impl<F: Fn(u64) -> (String, String) + Send> Library<F> {
    /// `of` returns the view and the text of the key. Must be called on a thread of the runtime.
    pub fn new(node: Node, of: F) -> Library<F> {
        Library { node, runtime: Handle::current(), of }
    }
}

impl<F: Fn(u64) -> (String, String) + Send> Client for Library<F> {
    fn ask(&mut self, nth: u64) -> Result<()> {
        let (view, key) = (self.of)(nth);
        let keys = Keys::Typed(vec![vec![ScalarValue::Utf8(Some(key))]]);
        self.runtime.block_on(self.node.lookup(&view, keys, None)).map(drop)
    }
}
