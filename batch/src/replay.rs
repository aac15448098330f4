//! Computes states from checkpoints' events with the code that makes the speed layer's segments. A replay uses it, and
//! a view with `strategy = 'stream'` where segments are missing.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, new_null_array};
use arrow::datatypes::{Field, SchemaRef};
use catalog::CheckpointRecord;
use committed::registry::LiveView;
use committed::segment::SegmentSession;
use engine::events::plan_schema;
use engine::states::Partial;
use tokio::time::Instant;
use types::failures::Failures;
use types::{Error, ErrorKind, Result};

use crate::attempt::Attempt;
use crate::context::RunContext;
use crate::events::{CheckpointEvents, FromArchive};
use crate::mode::{ReplayFrom, ReplayRequest};

/// Computes the states of checkpoints from their events. They are put into buckets as they are computed. Buckets spill,
/// so a checkpoint's states need not fit memory.
pub(crate) struct Replaying<'a> {
    view: &'a LiveView,
    context: &'a RunContext<'a>,
    events: Box<dyn CheckpointEvents + 'a>,
    partial: Partial,
    pace: Pace,
}

impl<'a> Replaying<'a> {
    pub(crate) fn begin(
        attempt: &'a Attempt<'a>,
        session: &SegmentSession,
        request: ReplayRequest,
        context: &'a RunContext<'a>,
    ) -> Result<Self> {
        let (batch, state, view) = (attempt.batch, attempt.state, &attempt.view);
        let events: Box<dyn CheckpointEvents + 'a> = match request.from {
            ReplayFrom::Log => batch.log.begin(state),
            ReplayFrom::Archive => Box::new(FromArchive::new(&batch.storage, state, view)),
        };
        let partial = Partial::new(view.plan.clone(), session.context())?;
        Ok(Self { view, context, events, partial, pace: Pace::new(request.events_a_second) })
    }

    /// Computes the states of a checkpoint, and passes their rows to `each`. Returns the events that are left out of
    /// them.
    pub(crate) async fn states_of(
        &mut self,
        checkpoint: &CheckpointRecord,
        each: &mut (dyn FnMut(&RecordBatch) -> Result<()> + Send),
    ) -> Result<Failures> {
        for stream in &self.view.plan.streams {
            let schema = plan_schema(stream);
            self.events.begin(&stream.name, checkpoint).await?;
            while let Some(events) = self.events.next().await? {
                let count = events.num_rows();
                for rows in self.partial.states(&stream.name, &[in_schema(&schema, &events)?]).await? {
                    each(&rows)?;
                }
                self.context.events_read.add(count);
                (self.context.progress)(self.context.events_read.count());
                self.pace.take(count).await;
            }
        }
        Ok(self.partial.take_failures())
    }
}

/// Selects the columns of `schema` by name. Columns that the events' version of their stream did not have yet are NULL,
/// as in the archive.
fn in_schema(schema: &SchemaRef, events: &RecordBatch) -> Result<RecordBatch> {
    let column = |field: &Arc<Field>| {
        let known = events.column_by_name(field.name()).cloned();
        known.unwrap_or_else(|| new_null_array(field.data_type(), events.num_rows()))
    };
    let columns = schema.fields().iter().map(column).collect();
    RecordBatch::try_new(schema.clone(), columns).map_err(|error| Error::restating(ErrorKind::Corrupt, error))
}

/// Limits the rate of events.
struct Pace {
    began: Instant,
    taken: u64,
    a_second: Option<NonZeroU32>,
}

impl Pace {
    fn new(a_second: Option<NonZeroU32>) -> Self {
        Self { began: Instant::now(), taken: 0, a_second }
    }

    async fn take(&mut self, events: usize) {
        self.taken += events as u64;
        if let Some(due) = self.due() {
            tokio::time::sleep_until(self.began + due).await;
        }
    }

    /// How long after the start the events taken so far are due.
    fn due(&self) -> Option<Duration> {
        let a_second = u64::from(self.a_second?.get());
        Some(Duration::from_secs(self.taken / a_second) + Duration::from_secs(1) * (self.taken % a_second) as u32 / a_second as u32)
    }
}
