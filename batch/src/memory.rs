//! The memory of a run: DataFusion's fair spilling pool under the configured limit, with its peak recorded.
//!
//! DataFusion's `PeakRecordingPool` keeps a total of its own, and subtracts a released reservation only after the pool
//! has given it to another consumer. With several threads its peak can exceed both the memory that was ever reserved
//! and the limit. A run's record shows the peak next to the limit, so this pool reads the total from the inner pool.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::error::Result;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// How often the memory of the process is read while a run is under way.
const LOOK: Duration = Duration::from_millis(100);

/// The peak memory of the whole process while a run was under way. Operators only estimate what they reserve; this
/// shows what they really take.
#[derive(Debug, Default)]
pub(crate) struct Resident(AtomicI64);

impl Resident {
    /// 0 if the system does not report it.
    pub(crate) fn peak_bytes(&self) -> i64 {
        self.note();
        self.0.load(Ordering::Relaxed)
    }

    /// Reads the memory periodically, until it is dropped.
    pub(crate) async fn watch(&self) -> Infallible {
        loop {
            self.note();
            tokio::time::sleep(LOOK).await;
        }
    }

    fn note(&self) {
        // Where Linux shows a process to itself.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        self.0.fetch_max(resident_bytes(&status).unwrap_or_default(), Ordering::Relaxed);
    }
}

/// From `VmRSS:     1234 kB`.
fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// A [`FairSpillPool`] that records its greatest total reservation.
#[derive(Debug)]
pub(crate) struct PeakPool {
    inner: FairSpillPool,
    peak_bytes: AtomicUsize,
}

impl PeakPool {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { inner: FairSpillPool::new(limit_bytes), peak_bytes: AtomicUsize::new(0) }
    }

    /// The greatest sum of reservations so far, in bytes.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    fn record(&self) {
        self.peak_bytes.fetch_max(self.inner.reserved(), Ordering::Relaxed);
    }
}

impl fmt::Display for PeakPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peak({})", self.inner)
    }
}

impl MemoryPool for PeakPool {
    fn name(&self) -> &str {
        "peak"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.inner.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
        self.record();
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.inner.try_grow(reservation, additional)?;
        self.record();
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.inner.memory_limit()
    }
}
