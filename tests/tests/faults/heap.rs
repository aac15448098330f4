//! Measures this process's heap by counting allocations.
//!
//! Resident memory does not show it: an allocator keeps freed memory, and new data in that memory does not increase it.
//! Mapped files are not counted, nor what SQLite and zstd allocate themselves. The heap is shared by the whole process,
//! so a test that measures it runs [`alone`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Set in the process of a test that runs alone.
const ALONE: &str = "BASESTREAM_TEST_ALONE";

#[global_allocator]
static COUNTED: Counted = Counted;
/// Bytes allocated and not yet freed, and their peak since a [`Growth`] began.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// How far the peak rose above the start. Only one may exist at a time, because a new one resets the peak.
pub struct Growth {
    before: usize,
}

impl Growth {
    pub fn begin() -> Growth {
        let before = HELD.load(Relaxed);
        MOST.store(before, Relaxed);
        Growth { before }
    }

    pub fn bytes(&self) -> usize {
        MOST.load(Relaxed).saturating_sub(self.before)
    }
}

/// Runs a test in a separate process: `test` is its full name, `body` the code to run there.
pub fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}");
    // The process does not fail if no test has this name.
    assert!(output.status.success() && out.contains("1 passed"), "{test} failed in its process: {}\n{out}\n{err}", output.status);
}

/// The system's allocator with a counter of bytes.
struct Counted;

// SAFETY: every call goes to the system's allocator unchanged, so the caller's guarantees hold for it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above; likewise below.
        taken(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        taken(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { System.realloc(place, layout, bytes) };
        if !moved.is_null() {
            HELD.fetch_sub(layout.size(), Relaxed);
        }
        taken(moved, bytes)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) };
        HELD.fetch_sub(layout.size(), Relaxed);
    }
}

fn taken(place: *mut u8, bytes: usize) -> *mut u8 {
    if !place.is_null() {
        let held = HELD.fetch_add(bytes, Relaxed) + bytes;
        if held > MOST.load(Relaxed) {
            MOST.fetch_max(held, Relaxed);
        }
    }
    place
}
