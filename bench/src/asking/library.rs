//! A client in the process of the serving node.

use datafusion::common::ScalarValue;
use serving::{Keys, Node};
use tokio::runtime::Handle;
use types::Result;

use super::Client;

/// Asks a node for one key at a time, as a handler would. What it asks is a function of the number.
pub struct Library<F> {
    node: Node,
    runtime: Handle,
    of: F,
}

impl<F: Fn(u64) -> (String, String) + Send> Library<F> {
    /// `of`: the view and the text of the key. To be made on a thread of the runtime.
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
