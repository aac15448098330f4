//! One event of a sequence.

#[derive(Debug, Clone, Copy)]
pub(super) struct MarkedEvent {
    pub(super) time: i64,
    /// Bit n - 1 for condition n.
    pub(super) mask: u32,
    pub(super) group: u32,
    pub(super) event_time: i64,
    pub(super) offset: i64,
    /// The number of its source and partition.
    pub(super) place: u32,
}
