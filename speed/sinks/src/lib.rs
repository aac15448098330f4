//! The records of sinks. Each accepted event gets one record with the rows of views as that event sees them, in the log
//! exactly once.
//!
//! ```text
//! accepted events --keys--> rows of views (a node of this process) --SELECT--> records --once--> topic
//! ```
//!
//! What it promises:
//! - **An event sees** every earlier event of its partition, in order, including those of its micro-batch, and itself
//!   with `features = 'inclusive'`. Of other partitions it sees what this process has read. So if the joined views are
//!   keyed by what partitions the stream, the record of an event depends on its partition alone.
//! - **Once.** The log appends the record of an event once, whichever process dies ([`event_log::OutputAppender`]).
//!   A record that was put out is never replaced.
//! - **As answered.** A client hears what became of its event once the log has the record, or has noted that there is
//!   none. No later worker contradicts it.
//! - **By one version.** A switch says from which event on which version of a sink makes the records, or that none does
//!   because the sink is paused. It is recorded before the first of these events is decided.
//! - **In order.** The records of a partition are appended in the order of their events.
//! - **With named values.** A sink is planned again when a parameter that it uses is set; a record names the versions
//!   of the values that it was made with. Within a partition these versions never decrease, whichever worker has it.
//!
//! The files:
//! - [`Sinks`] holds what a process needs.
//! - `worker` makes the records of one worker's partitions and appends them to the log.
//! - `switches` says by which version of a sink an event is decided.
//! - `features` reads the rows, and `record` writes a record's bytes.
//! - `scoring` makes the record of one event on request, with the `scratch` of an earlier request.
//! - `outcomes` passes on what workers made, `elsewhere` between processes.

mod elsewhere;
mod features;
mod outcomes;
mod record;
mod scoring;
mod scratch;
mod switches;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use engine::functions::Functions;
use event_log::Log;
use serving::Node;
use tokio::sync::watch;

use outcomes::Outcomes;
use scratch::{PartitionCounts, Scratches};

pub use record::{PARAMETERS_HEADER, SINK_HEADER, SOURCE_HEADER, parameters_of, sink_of, source_of};
pub use switches::{OutputState, check_position, claim_commit, first_due, switch_commit};

/// What a process needs to make and put out records. Cheap to clone.
#[derive(Clone)]
pub struct Sinks {
    /// Reads the fresh layers of the workers. `None` until it is opened.
    node: watch::Receiver<Option<Node>>,
    log: Arc<dyn Log>,
    catalog: Catalog,
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
    /// `node` reads the fresh layers of the workers. It may be opened later.
    pub fn new(
        node: watch::Receiver<Option<Node>>,
        log: Arc<dyn Log>,
        catalog: Catalog,
        functions: Functions,
        settings: SinkSettings,
    ) -> Sinks {
        Sinks { node, log, catalog, functions, settings, outcomes: Outcomes::default(), scratches: Arc::default(), counts: Arc::default() }
    }
}

/// Wraps a node that is open.
pub fn open_node(node: Node) -> watch::Receiver<Option<Node>> {
    watch::channel(Some(node)).1
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sinks").field("settings", &self.settings).finish_non_exhaustive()
    }
}
