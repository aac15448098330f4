//! A small installation in memory: records of a log, decided like in the speed layer, committed as checkpoints, and
//! answered from states. Answers come from the layers' planning, expected rows from plain SQL.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use bytes::Bytes;
use catalog::{Add, Advance, CheckpointRange, CheckpointRecord, Commit, DefinitionRecord};
use committed::registry::Registry;
use committed::segment::{SegmentSession, segment_rows};
use engine::events::{Decoder, EventBatchBuilder};
use engine::states::{Answered, FailedRows, Pieces, StateRows, answer, sort_and_merge};
use storage::{dead_letter_schema, write_archive, write_dead_letters};
use types::record::Record;
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

use super::super::*;
use crate::served::failed_cells;
use catalog::DefinitionKind;
use definitions::parse;

pub(crate) const STREAM: &str = "CREATE STREAM payments (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), device TEXT, \
    amount DECIMAL(18,2), score DOUBLE) WITH (event_time = 'ts', id = 'id', dedup_within = '1d')";

pub(crate) struct World {
    pub(crate) verifier: Verifier,
    stream: Arc<definitions::StreamDefinition>,
    ids: HashSet<String>,
    /// All records appended to the log, by partition.
    pub(crate) log: Vec<Vec<Record>>,
}

pub(crate) async fn state_of(world: &World) -> Arc<CatalogState> {
    world.verifier.catalog.state().await.unwrap()
}

impl World {
    /// Creates a world with two partitions and these views.
    pub(crate) async fn new(views: &[&str]) -> World {
        let catalog = Catalog::open("sqlite::memory:").await.unwrap();
        let storage = ObjectStorage::open("memory://").unwrap();
        let mut add = vec![definition(DefinitionKind::Stream, "payments", STREAM)];
        for sql in views {
            add.push(definition(DefinitionKind::View, &parse::parse_view(sql).unwrap().name, sql));
        }
        catalog.commit(Commit { id: Uuid::new_v4(), add, ..Commit::default() }).await.unwrap();
        let verifier = Verifier { catalog, storage, functions: Functions::standard(), memory_limit: 64 << 20, temp_dir: None };
        World { verifier, stream: Arc::new(parse::parse_stream(STREAM).unwrap()), ids: HashSet::new(), log: vec![Vec::new(), Vec::new()] }
    }

    /// Appends records to a partition, decides them and commits one checkpoint.
    pub(crate) async fn checkpoint(&mut self, partition: i32, values: &[String]) {
        let id = PartitionId::new("payments", partition);
        let start = Offset(self.log[partition as usize].len() as i64);
        let decoder = Decoder::new(self.stream.clone()).unwrap();
        let mut accepted = EventBatchBuilder::new(&self.stream);
        let mut dead = Vec::new();
        let mut duplicate = 0;
        for (index, value) in values.iter().enumerate() {
            let offset = Offset(start.0 + index as i64);
            let record = Record { offset, timestamp: offset.0, key: None, value: Some(Bytes::from(value.clone())), headers: vec![] };
            match decoder.decode(record.value.as_deref()) {
                Ok(event) if !self.ids.insert(event.id().unwrap().into_owned()) => duplicate += 1,
                Ok(event) => accepted.append(&event, partition, &record).unwrap(),
                Err(_) => dead.push(record.clone()),
            }
            self.log[partition as usize].push(record);
        }
        let checkpoint = Uuid::new_v4();
        let (archived, dead_lettered) = (accepted.len() as i64, dead.len() as i64);
        let (name, storage) = (self.stream.name.clone(), &self.verifier.storage);
        let mut add = Vec::new();
        if archived > 0 {
            let batches = vec![accepted.finish().unwrap()];
            add.push(Add::File(write_archive(storage, &name, checkpoint, 1, batches).await.unwrap()));
        }
        if dead_lettered > 0 {
            add.push(Add::File(write_dead_letters(storage, &name, checkpoint, 1, vec![dead_batch(partition, &dead)]).await.unwrap()));
        }
        let end = Offset(start.0 + values.len() as i64);
        let (clock, max_event_time, complete_to) = (None, None, None);
        let range = CheckpointRange {
            partition: id.clone(),
            start,
            end,
            archived,
            duplicate,
            dead_lettered,
            absent: 0,
            clock,
            max_event_time,
            complete_to,
        };
        add.push(Add::Checkpoint(CheckpointRecord::new(checkpoint, "w", 0, vec![range])));
        let advance = vec![Advance { partition: id, start, end, log_identity: "l".into(), clock, max_event_time, complete_to }];
        self.verifier.catalog.commit(Commit { id: Uuid::new_v4(), add, advance, ..Commit::default() }).await.unwrap();
    }

    /// Returns the answer from a view's states at the committed vector.
    pub(crate) async fn states_answer(&self, view: &str, t: Micros) -> Result<ServedAnswer> {
        let state = state_of(self).await;
        let registry = Registry::load(&state, &self.verifier.functions).await?;
        let live = registry.served(view).unwrap();
        let session = SegmentSession::new(&self.verifier.functions, self.verifier.memory_limit)?;
        let mut sets = Vec::new();
        for checkpoint in state.checkpoints.iter() {
            sets.push(segment_rows(&self.verifier.storage, &session, live, &state, checkpoint).await?.rows.batch().clone());
        }
        let rows: StateRows = sort_and_merge(&live.plan, &live.codec, &sets)?;
        let mut keys: Vec<&[u8]> = rows.keys().iter().flatten().collect();
        keys.dedup();
        if live.plan.keys.is_empty() {
            keys = vec![b""];
        }
        let mut pieces = Pieces::default();
        for (index, key) in keys.iter().enumerate() {
            pieces.add(rows.batch(), rows.find(key), index as u32, false);
        }
        let wanted: Vec<usize> = (0..live.plan.columns.len()).collect();
        let Answered { rows: batch, found, failed } = answer(&live.plan, &live.codec, &keys, &pieces, t, &wanted)?;
        let failed = FailedRows::new(failed, |rows| live.codec.decode(rows.iter().map(|row| keys[*row])))?;
        let failed = failed_cells(&live.plan, failed)?.into_iter().collect();
        let found = arrow::array::BooleanArray::from(found);
        let rows = vec![arrow::compute::filter_record_batch(&batch, &found)?];
        Ok(ServedAnswer { version: None, vector: state.vector(), t, as_of: false, rows, failed, without_nan: false })
    }
}

fn definition(kind: DefinitionKind, name: &str, sql: &str) -> Add {
    Add::Definition(DefinitionRecord::first(kind, name, sql))
}

fn dead_batch(partition: i32, records: &[Record]) -> RecordBatch {
    let bytes = |of: &dyn Fn(&Record) -> Option<Vec<u8>>| -> ArrayRef {
        let values: Vec<Option<Vec<u8>>> = records.iter().map(of).collect();
        Arc::new(values.iter().map(|value| value.as_deref()).collect::<arrow::array::BinaryArray>())
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(records.iter().map(|_| "payments"))),
        Arc::new(Int32Array::from_iter_values(records.iter().map(|_| partition))),
        Arc::new(Int64Array::from_iter_values(records.iter().map(|record| record.offset.0))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(records.iter().map(|record| record.timestamp)).with_timezone("UTC")),
        Arc::new(StringArray::from_iter_values(records.iter().map(|_| "broken"))),
        bytes(&|_| None),
        bytes(&|record| record.value.as_ref().map(|value| value.to_vec())),
        bytes(&|_| None),
    ];
    RecordBatch::try_new(dead_letter_schema(), columns).unwrap()
}
