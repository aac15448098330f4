//! Buffers that one request to a sink leaves for the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use datafusion::prelude::SessionContext;
use engine::events::{Decoder, EventBatchBuilder};

use crate::features::FeatureReader;

/// By sink: planning takes longer than computing. One for each request under way.
pub(crate) type Scratches = Mutex<HashMap<Arc<str>, Vec<Scratch>>>;

/// The number of each topic's partitions, and when the log was asked for it.
pub(crate) type PartitionCounts = Mutex<HashMap<Arc<str>, (usize, Instant)>>;

pub(crate) struct Scratch {
    pub(crate) version: u32,
    pub(crate) decoder: Decoder,
    pub(crate) builder: EventBatchBuilder,
    pub(crate) session: SessionContext,
    pub(crate) seen: FeatureReader,
}
