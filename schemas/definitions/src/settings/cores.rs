//! How many of the machine's cores are used by default.

/// Defaults go up to this many workers of a process, or cores of a run; more is the user's choice: each worker has its
/// own consumer, each core its share of the memory.
const MOST_DEFAULT_WORKERS: usize = 4;

pub(super) fn default_workers() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_DEFAULT_WORKERS) as u32)
}
