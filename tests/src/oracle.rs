//! Finds the interpreter that `tests/oracle/setup` built: Python with DuckDB.
//!
//! A test that needs it is marked `#[ignore = "needs the oracle: .."]`, so that a plain `cargo test` reports it as
//! ignored. `just test-oracle` runs it.

use std::path::PathBuf;

/// Returns the path of the interpreter. Panics if it is not installed.
pub fn needed() -> PathBuf {
    python().expect("the oracle is Python with DuckDB: tests/oracle/setup installs it")
}

/// Returns the path of the interpreter; `None` if it is not installed.
pub fn python() -> Option<PathBuf> {
    let cache = std::env::var("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|_| std::env::var("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let python = cache.ok()?.join("basestream/oracle/bin/python");
    python.exists().then_some(python)
}
