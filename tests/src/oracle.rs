//! The interpreter that `tests/oracle/setup` made: Python with DuckDB.

use std::io::Write;
use std::path::PathBuf;

/// `None` where it is not installed, which is said; with BASESTREAM_REQUIRE_ORACLE that is a failure.
pub fn python() -> Option<PathBuf> {
    let cache = std::env::var("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|_| std::env::var("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let python = cache.ok()?.join("basestream/oracle/bin/python");
    if python.exists() {
        return Some(python);
    }
    assert!(std::env::var("BASESTREAM_REQUIRE_ORACLE").is_err(), "the oracle needs Python with DuckDB: tests/oracle/setup");
    let _ = writeln!(std::io::stderr(), "left out: what the oracle says (tests/oracle/setup installs it)");
    None
}
