//! Takes partitions over: compares their logs with the catalog, then continues each from its committed position.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::{CatalogState, Expect, GapRecord};
use committed::registry::LiveStream;
use engine::events::Decoder;
use event_log::{PartitionBounds, TopicPartition, check_mark};
use futures::{StreamExt, TryStreamExt};
use tracing::{info, warn};
use types::vector::{Offset, PartitionId};
use types::{Error, ErrorKind, Result, failpoint};
use uuid::Uuid;

use super::Worker;
use crate::decide::Decider;
use crate::epoch::AssignedPartition;
use crate::partition_state::PartitionState;
use crate::pin::TakeoverPin;
use crate::recover::{OTHER_RECORDS, Start, gap_commit, reread_ids, start_of};
use crate::released::Committed;

/// How many partitions' last records are read concurrently during a takeover.
const MARKS_AT_ONCE: usize = 8;

/// What the log says of each topic.
struct Facts(BTreeMap<Arc<str>, TopicFacts>);

struct TopicFacts {
    id: String,
    identity: String,
    bounds: Vec<PartitionBounds>,
}

impl Facts {
    fn find(&self, source: &TopicPartition) -> Option<(&TopicFacts, &PartitionBounds)> {
        let topic = self.0.get(&source.topic)?;
        let bounds = topic.bounds.iter().find(|bounds| bounds.partition == source.partition)?;
        Some((topic, bounds))
    }
}

/// A partition whose start is decided, but whose ids are not known yet.
struct Begun {
    source: TopicPartition,
    id: PartitionId,
    stream: LiveStream,
    topic_id: String,
    /// Of the log.
    identity: String,
    start: Offset,
}

impl Begun {
    fn committed(&self) -> Committed {
        let LiveStream { version, definition } = &self.stream;
        let (identity, definition) = (self.identity.clone(), definition.clone());
        Committed { identity, next_offset: self.start, definition, definition_version: *version }
    }
}

impl Worker<'_> {
    /// Takes partitions over at their committed positions.
    pub(super) async fn take_over(&mut self, partitions: &[TopicPartition]) -> Result<Vec<(TopicPartition, Offset)>> {
        let pin = TakeoverPin::begin(&self.speed.catalog, &self.speed.settings.worker, &self.speed.clock);
        let starts = self.take_over_pinned(partitions).await;
        pin.end().await;
        starts
    }

    async fn take_over_pinned(&mut self, partitions: &[TopicPartition]) -> Result<Vec<(TopicPartition, Offset)>> {
        failpoint::hit("speed.assign")?;
        // Before the state is read: whoever takes them over later has a greater epoch, and a state as new.
        let epoch = match &self.speed.registration {
            Some(registration) => registration.take_over().await?,
            None => 0,
        };
        let state = self.speed.catalog.state().await?;
        // A worker by the newer definition may have these partitions: its layers are not withdrawn.
        self.check_not_redecoded(&state)?;
        // The owner before may have used values that this worker has not seen yet: they do not go back.
        self.follow_parameters(&state).await?;
        self.is_behind = self.registry.has_other_definitions(&state);
        let facts = self.facts_of(partitions).await?;
        self.check_marks(partitions, &state, &facts).await?;
        let mut starts = Vec::with_capacity(partitions.len());
        let mut by_stream: BTreeMap<Arc<str>, Vec<Begun>> = BTreeMap::new();
        for source in partitions {
            self.claim(source, epoch, &state);
            let begun = self.begin(source, &state, &facts).await?;
            starts.push((source.clone(), begun.start));
            by_stream.entry(begun.id.stream.clone()).or_default().push(begun);
        }
        for begun in by_stream.into_values() {
            self.take_over_of_stream(begun, &state).await?;
        }
        info!(worker = %self.speed.settings.worker, partitions = partitions.len(), "partitions taken over");
        Ok(starts)
    }

    /// Queries the log once for each topic, because a log may have to examine every partition of it.
    ///
    /// Call it after reading the catalog's state: otherwise a position committed in between would be past the log's
    /// end. The consumer notices later changes in the log, as it checks each start against the log again.
    async fn facts_of(&self, partitions: &[TopicPartition]) -> Result<Facts> {
        let topics: BTreeSet<&Arc<str>> = partitions.iter().map(|source| &source.topic).collect();
        let mut facts = BTreeMap::new();
        for topic in topics {
            // Before all else that is asked: as long as the topic has this id, the rest is about this topic.
            let id = self.speed.log.topic_id(topic).await?;
            let identity = self.speed.log.identity(topic).await?;
            let bounds = self.speed.log.bounds(topic).await?;
            facts.insert(topic.clone(), TopicFacts { id, identity, bounds });
        }
        Ok(Facts(facts))
    }

    /// Compares each partition's last committed record with the log's, several at a time: the log may be a different
    /// one even if its name, identity and bounds are the same.
    async fn check_marks(&self, partitions: &[TopicPartition], state: &CatalogState, facts: &Facts) -> Result<()> {
        let marked = |source: &TopicPartition| {
            let (_, id) = self.stream_of(source)?;
            let (topic, bounds) = facts.find(source)?;
            // A start that is refused by identity or bounds needs no check here.
            let start = start_of(state.partitions.get(&id), &id, &topic.identity, bounds, self.speed.settings.accept_gap);
            start.is_ok().then_some((source.clone(), state.marks.get(&id)?.clone(), bounds.clone()))
        };
        let log = &*self.speed.log;
        let marked = partitions.iter().filter_map(marked);
        let checks: Vec<_> = marked.map(|(source, mark, bounds)| async move { check_mark(log, &source, &mark, &bounds).await }).collect();
        let checked = futures::stream::iter(checks).buffer_unordered(MARKS_AT_ONCE).try_collect::<Vec<()>>().await;
        checked.map(drop).map_err(|error| if error.kind() == ErrorKind::Input { error.with("help", OTHER_RECORDS) } else { error })
    }

    /// Claims a partition. No other worker holds it any more, so layers of it that another worker has not committed are
    /// from one that died or has not learned of the takeover yet.
    fn claim(&self, source: &TopicPartition, epoch: i64, state: &CatalogState) {
        if let (Some(fresh), Some((_, id))) = (&self.speed.fresh, self.stream_of(source)) {
            fresh.take_over(epoch, &state.vector(), &[id]);
        }
    }

    /// Decides where a partition begins.
    async fn begin(&self, source: &TopicPartition, state: &CatalogState, facts: &Facts) -> Result<Begun> {
        let stream = self.stream_of(source);
        let (stream, id) =
            stream.ok_or_else(|| Error::internal("a partition that belongs to no stream was assigned").with("partition", source))?;
        let stream = stream.clone();
        let unknown = || Error::unavailable("the log does not know an assigned partition yet").with("partition", source);
        let (TopicFacts { id: topic_id, identity, .. }, bounds) = facts.find(source).ok_or_else(unknown)?;
        let known = state.partitions.get(&id);
        let start = match start_of(known, &id, identity, bounds, self.speed.settings.accept_gap)? {
            Start::At(offset) => offset,
            Start::AfterGap { start, end, reason } => {
                warn!(partition = %id, %start, %end, reason, "offsets are recorded as lost");
                let gap = GapRecord { partition: id.clone(), start, end, reason, accepted_at: (self.speed.clock)() };
                let mut commit = gap_commit(Uuid::now_v7(), known, gap, identity);
                // It may be the first commit of the stream, which was defined anew meanwhile with another topic.
                commit.expect.push(Expect::NotRedecoded { stream: id.stream.clone(), version: stream.version });
                self.speed.catalog.commit_with_retry(commit).await?;
                end
            }
        };
        Ok(Begun { source: source.clone(), id, stream, topic_id: topic_id.clone(), identity: identity.clone(), start })
    }

    /// Takes partitions of one stream over. Their ids are read together, because most archive files have events of all
    /// of them. The ids of partitions that a worker of this process released are known.
    async fn take_over_of_stream(&mut self, begun: Vec<Begun>, state: &CatalogState) -> Result<()> {
        let Some(LiveStream { definition, version }) = begun.first().map(|begun| begun.stream.clone()) else { return Ok(()) };
        let ids = &self.speed.ids;
        let (mut taken_over, mut unknown, mut deciders) = (Vec::with_capacity(begun.len()), Vec::new(), Vec::new());
        for begun in begun {
            let known = state.partitions.get(&begun.id);
            if let Some(decider) = ids.take_back(&begun.id, &begun.committed(), known) {
                taken_over.push((begun, decider));
                continue;
            }
            let (clock, newest) = known.map_or((None, None), |known| (known.clock, known.max_event_time));
            let decider = Decider::new(clock, newest, self.speed.settings.max_future, definition.dedup_within, ids.space());
            deciders.push((begun.id.clone(), decider));
            unknown.push(begun);
        }
        reread_ids(&self.speed.storage, state, &definition, &mut deciders).await?;
        taken_over.extend(unknown.into_iter().zip(deciders).map(|(begun, (_, decider))| (begun, decider)));
        for (Begun { source, id, topic_id, identity, start, .. }, decider) in taken_over {
            failpoint::hit("speed.ids_reread")?;
            let decoder = Arc::new(Decoder::new(definition.clone())?);
            let partition = PartitionState::new(id, identity, decider, start);
            self.epoch.assigned.insert(source, AssignedPartition::new(partition, topic_id, decoder, version));
        }
        Ok(())
    }

    /// Returns the stream of a partition of the log, and the partition's id.
    fn stream_of(&self, source: &TopicPartition) -> Option<(&LiveStream, PartitionId)> {
        let stream = self.registry.streams.values().find(|stream| stream.definition.topic == source.topic)?;
        Some((stream, PartitionId::new(stream.definition.name.clone(), source.partition)))
    }
}

#[cfg(test)]
mod tests;
