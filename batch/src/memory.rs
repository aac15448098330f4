//! The memory of a run: DataFusion's fair spilling pool under the configured limit, with its peak recorded.
//!
//! DataFusion's `PeakRecordingPool` keeps a total of its own, and subtracts a released reservation only after the pool
//! has given it to another consumer. With several threads its peak can exceed what was ever reserved, and the limit. A
//! run's record shows the peak next to the limit, so this pool reads the total from the inner pool.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::Result;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

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
