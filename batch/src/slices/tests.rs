use catalog::{CheckpointRange, DefinitionStatus};
use definitions::{Definitions, parse};
use engine::functions::Functions;
use engine::plan::{Planned, Planner};
use engine::states::KeyCodec;
use proptest::prelude::*;
use types::files::{ObjectName, StoredObject};
use types::tiles::EdgesFrom;
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

use super::*;

const PARTITIONS: usize = 3;

async fn view() -> LiveView {
    let stream = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts')";
    let view = parse::parse_view("CREATE VIEW v AS SELECT k, count(*) AS n FROM s GROUP BY k").unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(stream).unwrap()], views: vec![view.clone()], ..Definitions::default() };
    let Planned::Stateful(plan) = Planner::new(&project, Functions::standard()).plan(&view).await.unwrap() else { panic!("inlined") };
    let codec = Arc::new(KeyCodec::for_plan(&plan).unwrap());
    LiveView { name: "v".into(), version: 1, status: DefinitionStatus::Active, definition: Arc::new(view), plan, codec }
}

fn partition(number: usize) -> PartitionId {
    PartitionId::new("s", number as i32)
}

/// A state with a checkpoint for each of these: how many offsets it has of each partition, each an archived event.
fn state(checkpoints: &[[i64; PARTITIONS]]) -> CatalogState {
    let (mut state, mut ends) = (CatalogState::default(), [0; PARTITIONS]);
    let (mut records, mut files) = (Vec::new(), Vec::new());
    for (number, counts) in checkpoints.iter().enumerate() {
        let id = Uuid::from_u128(number as u128 + 1);
        let mut ranges = Vec::new();
        for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            ranges.push(CheckpointRange::of_events(partition(at), ends[at], ends[at] + count));
            ends[at] += count;
        }
        records.push(CheckpointRecord { revision: number as i64 + 1, ..CheckpointRecord::new(id, "w", 0, ranges) });
        let name = ObjectName::Archive { stream: "s".into(), checkpoint: id };
        files.push(name.record(StoredObject { bytes: 1, checksum: 0 }, counts.iter().sum(), None));
    }
    state.checkpoints = records.into_iter().collect();
    state.files = files.into_iter().collect();
    state
}

fn inputs(cut: Vector) -> RunInputs {
    RunInputs { cut, t: 0, floors: Vec::new(), edges_from: EdgesFrom::default(), max_event_time: None }
}

/// The end of the first checkpoints.
fn vector(checkpoints: &[[i64; PARTITIONS]]) -> Vector {
    let end = |at: usize| checkpoints.iter().map(|counts| counts[at]).sum::<i64>();
    (0..PARTITIONS).map(|at| (partition(at), Offset(end(at)))).collect()
}

fn checkpoints() -> impl Strategy<Value = Vec<[i64; PARTITIONS]>> {
    prop::collection::vec(any::<[u8; PARTITIONS]>().prop_map(|counts| counts.map(|count| i64::from(count % 40))), 0..20)
}

/// Merges neighbours, as compaction does.
fn compacted(checkpoints: &[[i64; PARTITIONS]], each: usize) -> Vec<[i64; PARTITIONS]> {
    let sum = |part: &[[i64; PARTITIONS]]| std::array::from_fn(|at| part.iter().map(|counts| counts[at]).sum());
    checkpoints.chunks(each).map(sum).collect()
}

proptest! {
    /// The law of slices: from wherever a run goes on, and however checkpoints were compacted before, each offset up to
    /// the cut is in one slice, whose files hold it.
    #[test]
    fn each_offset_is_in_one_slice(history in checkpoints(), saved in 0usize..20, merged in 1usize..5, size in 1u64..200) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let view = runtime.block_on(view());
        let (from, cut) = (vector(&history[..saved.min(history.len())]), vector(&history));
        let (state, inputs) = (state(&compacted(&history, merged)), inputs(cut.clone()));
        let slices = Slices::new(&state, &view, &inputs, size);
        let mut at = from.clone();
        let mut count = 0;
        while let Some(slice) = slices.after(&at, count) {
            prop_assert_eq!((&slice.from, slice.number), (&at, count));
            prop_assert!(slice.to.covers(&at) && cut.covers(&slice.to) && slice.to != at, "{:?} to {:?}", at, slice.to);
            for checkpoint in state.checkpoints.iter() {
                let overlaps = |range: &CheckpointRange| {
                    range.start < slice.to.get(&range.partition) && range.end > slice.from.get(&range.partition)
                };
                let is_read = slice.files.iter().any(|file| file.checkpoint == Some(checkpoint.id));
                prop_assert_eq!(is_read, checkpoint.ranges.iter().any(overlaps));
            }
            at = slice.to;
            count += 1;
        }
        prop_assert!(at.covers(&cut), "{at:?} of {cut:?}");
        // A slice is as large as was asked for, but for the last, and there are few.
        prop_assert!(u64::from(count) <= MOST + 1, "{count} slices");
    }
}

#[test]
fn archives_that_differ_by_little_are_cut_alike_and_into_few_slices() {
    assert_eq!([slice_size(0, 10), slice_size(320, 10), slice_size(321, 10), slice_size(640, 10)], [10, 10, 20, 20]);
    assert_eq!(slice_size(i64::MAX, 1), 1 << 58);
    assert_eq!(slice_size(-1, u64::MAX), i64::MAX);
}
