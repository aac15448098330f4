//! The path of a lookup of one device over HTTP.

use crate::graph::{Graph, device_text};
use crate::view::VIEW;

pub(super) fn path_of(graph: &Graph, nth: u64) -> String {
    format!("/v1/views/{VIEW}/row?device_id={}", device_text(graph.device(nth)))
}
