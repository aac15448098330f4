//! The rows of a view as the events of a batch see them, each by its key. Sinks, backtests and training data all use
//! this.

use arrow::array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch};
use hashbrown::HashMap;

use crate::plan::ViewPlan;
use crate::states::added::AddedStates;
use crate::states::first_rows::Probe;
use crate::states::keys::KeyCodec;
use crate::states::pieces::Pieces;
use crate::states::rows::StateRows;
use crate::states::seen::{Seen, SeenEvent, answer_seen};
use types::Result;
use types::tiles::Micros;

/// The events of a batch, and how each sees one view.
#[derive(Debug, Clone, Copy)]
pub struct SeenBy<'a> {
    /// The key of each event's row, a column for each key of the view.
    pub keys: &'a [ArrayRef],
    /// Whether an event has a key. An event without a key gets the row over no events.
    pub has_key: &'a BooleanArray,
    pub t: &'a [Micros],
    /// States from before the batch, in addition to the layers of a read view.
    pub before: &'a [StateRows],
    /// The state rows that the events of the batch add. `None` if the view does not read their stream.
    pub added: Option<&'a AddedStates>,
    /// How many events of the batch, from the first on, are counted for each event.
    pub counted: &'a [u32],
    /// Indices of the plan's columns.
    pub wanted: &'a [usize],
}

/// Adds the rows of keys in layers to pieces, each key under its index. Called once.
pub type AddLayers<'l, 's> = dyn FnMut(&[Probe<'s>], &mut Pieces<'s>) -> Result<()> + 'l;

impl SeenBy<'_> {
    /// Whether this event has a key.
    pub fn has_key(&self, event: usize) -> bool {
        self.has_key.is_valid(event) && self.has_key.value(event)
    }
}

/// Returns one row of a view with GROUP BY for each event, in their order, with the wanted columns. Values that cannot
/// be computed are NULL. `encoded` are the events' keys.
pub fn rows_seen<'s>(
    (plan, codec): (&ViewPlan, &KeyCodec),
    encoded: &'s BinaryArray,
    by: &'s SeenBy<'_>,
    layers: &mut AddLayers<'_, 's>,
) -> Result<RecordBatch> {
    let (mut keys, mut known) = (Vec::new(), HashMap::new());
    let mut index_of = vec![0; by.t.len()];
    let mut searched = Vec::new();
    // An event without a key sees nothing: its index is after those of the keys that are searched for.
    for has_key in [true, false] {
        for (event, key) in encoded.iter().flatten().enumerate().filter(|(event, _)| by.has_key(*event) == has_key) {
            index_of[event] = *known.entry((has_key, key)).or_insert(keys.len() as u32);
            if index_of[event] as usize == keys.len() {
                keys.push(key);
            }
        }
        if has_key {
            searched.extend(keys.iter().copied().map(Probe::new));
        }
    }
    let mut before = Pieces::default();
    layers(&searched, &mut before)?;
    for rows in by.before {
        rows.find_keys(&searched, |key, found| before.add_fresh(rows.batch(), found, key as u32));
    }
    let counted = |event: usize| if by.has_key(event) { by.counted[event] } else { 0 };
    let seen_event = |event: usize| SeenEvent { key: index_of[event], counted: counted(event), t: by.t[event] };
    let events: Vec<SeenEvent> = (0..by.t.len()).map(seen_event).collect();
    let seen = Seen { keys: &keys, before: &before, added: by.added, events: &events };
    answer_seen(plan, codec, &seen, by.wanted)
}
