//! Decides how much of a run's memory limit the sorts of its buckets may take.

/// A chunk is emitted at the first end of a key after this many rows or bytes: the tiles of all levels are built next
/// to it. Several chunks of a bucket are held at once, so each is a small fraction of the bucket's share of the limit.
pub(crate) const CHUNK_ROWS: usize = 65_536;
const CHUNK_BYTES: usize = 16 << 20;
const CHUNK_PART_OF_SHARE: usize = 32;

/// A sort in memory takes this many times the rows' bytes: it holds the batches, their concatenation, the sorted copy,
/// and the keys of both.
pub(crate) const SORTING: usize = 5;
/// A bucket is sorted in memory if it takes at most 1/`PART_OF_SHARE` of one bucket's share of the run's memory limit.
const PART_OF_SHARE: usize = 8;
/// The upper bound for sorting in memory: Arrow counts the bytes of texts and keys in 31 bits.
const MOST_IN_MEMORY_BYTES: usize = 512 << 20;

/// The memory that the sort of one bucket may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SortMemory {
    share_bytes: usize,
}

impl SortMemory {
    /// For a run whose threads sort one bucket each.
    pub(crate) fn per_thread(limit_bytes: usize, threads: usize) -> SortMemory {
        SortMemory { share_bytes: limit_bytes / threads.max(1) }
    }

    pub(crate) fn is_enough_for(self, bucket_bytes: usize) -> bool {
        bucket_bytes <= self.most_in_memory_bytes()
    }

    /// The memory that sorting takes in addition to the rows of a bucket.
    pub(crate) fn bytes_beside(self, bucket_bytes: usize) -> usize {
        bucket_bytes.min(self.most_in_memory_bytes()) * (SORTING - 1)
    }

    fn most_in_memory_bytes(self) -> usize {
        (self.share_bytes / PART_OF_SHARE).min(MOST_IN_MEMORY_BYTES)
    }

    pub(crate) fn chunk_bytes(self) -> usize {
        (self.share_bytes / CHUNK_PART_OF_SHARE).clamp(1, CHUNK_BYTES)
    }
}
