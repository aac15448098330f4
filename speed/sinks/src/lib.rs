//! The records of sinks: for each accepted event one record, with the rows of views as that event sees them, in the log
//! exactly once.
//!
//! ```text
//! accepted events --keys--> rows of views (a node of this process) --SELECT--> records --once--> topic
//! ```
//!
//! What it promises:
//! - **An event sees** every earlier event of its partition, in order, those of its micro-batch included, and itself with
//!   `features = 'inclusive'`; of other partitions it sees what this process has read. So the record of an event follows
//!   from its partition alone where the views that are joined are keyed by what partitions the stream.
//! - **Once.** The log appends the record of an event once, whatever dies ([`event_log::Log::append_output`]). A record
//!   that is out stays: nothing is computed into something else.
//! - **In order.** The records of a partition are appended in the order of their events.
//!
//! The files: [`Sinks`] is what a process has; `worker` follows one worker's partitions; `features` reads the rows; `record`
//! writes a record's bytes; `scoring` makes the record of one event on request, and `outcomes` passes on what workers made.

mod features;
mod outcomes;
mod record;
mod scoring;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::functions::Functions;
use event_log::Log;
use serving::Node;
use speed::{EventSinks, WorkerSinks};
use tokio::sync::watch;

use outcomes::Outcomes;
use scoring::{PartitionCounts, Scratches};

pub use record::{SINK_HEADER, SOURCE_HEADER, sink_of, source_of};

/// What a process needs to make and put out records. Cheap to clone.
#[derive(Clone)]
pub struct Sinks {
    /// It reads the fresh layers of the workers. `None` while it is not open.
    node: watch::Receiver<Option<Node>>,
    log: Arc<dyn Log>,
    functions: Functions,
    settings: SinkSettings,
    outcomes: Outcomes,
    scratches: Arc<Scratches>,
    counts: Arc<PartitionCounts>,
}

/// How a process makes and puts out records.
#[derive(Debug, Clone)]
pub struct SinkSettings {
    /// The workers' consumer group.
    pub group: String,
    /// The partitions of a topic that is created because it does not exist.
    pub partitions: u32,
    /// Events dated further ahead are dead letters.
    pub max_future: Duration,
}

impl Sinks {
    /// The node reads the fresh layers of the workers. It may be opened later.
    pub fn new(node: watch::Receiver<Option<Node>>, log: Arc<dyn Log>, functions: Functions, settings: SinkSettings) -> Sinks {
        Sinks { node, log, functions, settings, outcomes: Outcomes::default(), scratches: Arc::default(), counts: Arc::default() }
    }
}

/// A node that is open.
pub fn open_node(node: Node) -> watch::Receiver<Option<Node>> {
    watch::channel(Some(node)).1
}

impl EventSinks for Sinks {
    fn for_worker(&self, is_trial: bool) -> Box<dyn WorkerSinks> {
        Box::new(worker::OfWorker::new(self.clone(), is_trial))
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sinks").field("settings", &self.settings).finish_non_exhaustive()
    }
}
