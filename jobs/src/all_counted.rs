//! Until when partitions are complete while no record arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::tiles::Micros;
use types::vector::PartitionId;

/// When the log was last asked while all records of a partition were counted, and its topic then: a stream of which
/// nothing is committed may get another one. While no record arrives, nothing else shows that answers are not old.
#[derive(Debug, Default)]
pub(crate) struct AllCounted(BTreeMap<PartitionId, (Arc<str>, Micros)>);

impl AllCounted {
    /// Returns until when a partition of a topic is complete. `known` is what the read view says of it, and `at_end`
    /// whether it counts all records that the log had when it was asked, at `asked_at` or later.
    pub(crate) fn complete_to(
        &mut self,
        (id, topic): (&PartitionId, &Arc<str>),
        known: Option<Micros>,
        at_end: bool,
        asked_at: Micros,
    ) -> Option<Micros> {
        if at_end {
            self.0.insert(id.clone(), (topic.clone(), asked_at));
            return known.max(Some(asked_at));
        }
        let last = self.0.get(id).filter(|(counted, _)| counted == topic);
        known.max(last.map(|(_, asked_at)| *asked_at))
    }

    /// Forgets the partitions of all other streams.
    pub(crate) fn keep_streams(&mut self, is_kept: impl Fn(&Arc<str>) -> bool) {
        self.0.retain(|id, _| is_kept(&id.stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_complete_up_to_when_all_its_records_were_last_counted() {
        let (mut counted, id, topic) = (AllCounted::default(), PartitionId::new("s", 0), Arc::from("in"));
        let mut complete_to = |topic, at_end, asked_at| counted.complete_to((&id, topic), Some(5), at_end, asked_at);
        assert_eq!(complete_to(&topic, false, 100), Some(5));
        assert_eq!(complete_to(&topic, true, 200), Some(200));
        // No record has come for long: the next one has waited for a moment, not since the one before it.
        assert_eq!(complete_to(&topic, false, 9_000), Some(200));
        assert_eq!(complete_to(&Arc::from("another"), false, 9_100), Some(5), "nothing is known of another topic");
    }

    #[test]
    fn a_stream_that_is_gone_is_forgotten() {
        let (mut counted, topic) = (AllCounted::default(), Arc::from("in"));
        for stream in ["s", "gone"] {
            counted.complete_to((&PartitionId::new(stream, 0), &topic), None, true, 200);
        }
        counted.keep_streams(|stream| **stream == *"s");
        let mut complete_to = |stream| counted.complete_to((&PartitionId::new(stream, 0), &topic), None, false, 300);
        assert_eq!((complete_to("s"), complete_to("gone")), (Some(200), None));
    }
}
