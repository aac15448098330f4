//! The index of a linked view's near edges, from one read view to the next.

use std::time::{Duration, Instant};

use definitions::durations::format_bytes;
use serving::ReadView;
use types::Result;

use super::RunningAlert;

/// How the reason begins for which an alert is not evaluated, if its index has no room.
pub const NO_ROOM_FOR_INDEX: &str = "there is no room for the index of near edges";
/// Where there is no room, the index is made anew after this time.
const TRY_AGAIN: Duration = Duration::from_secs(30);

impl RunningAlert<'_> {
    /// Indexes what a read view has and the last one had not. Returns why the alert cannot be evaluated if there is no
    /// room.
    pub(super) async fn index_edges(&mut self, read_view: &ReadView) -> Result<Option<String>> {
        if self.without_room_since.is_none_or(|since| since.elapsed() >= TRY_AGAIN) {
            let has_room = self.evaluation.index_edges(read_view, &self.outbox).await?;
            self.index_bytes.set(self.evaluation.index_bytes());
            self.without_room_since = (!has_room).then(Instant::now);
        }
        Ok(self.without_room_since.map(|_| {
            let limit = format_bytes(self.alerts.node.index_limit_bytes() as u64);
            format!(
                "{NO_ROOM_FOR_INDEX} of the view \"{}\": the indexes of all alerts of a process may take {limit}, half of \
                 serving.memory_limit",
                self.view.name
            )
        }))
    }
}
