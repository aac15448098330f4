//! Fails a test whose wait timed out. `.ci/late` gives a second try only to tests that failed here.
//!
//! The file that `BASESTREAM_TIMED_OUT` names gets a line for each such failure: its place in the code, as the panic
//! prints it.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{Result, Write};
use std::panic::Location;
use std::path::Path;

const NOTED_IN: &str = "BASESTREAM_TIMED_OUT";

/// Fails a test because what it waited for did not come. Not for comparisons: a wrong answer gets no second try.
#[track_caller]
pub fn fail(awaited: impl Display) -> ! {
    let place = Location::caller();
    if let Some(file) = std::env::var_os(NOTED_IN)
        && let Err(error) = note(Path::new(&file), place)
    {
        eprintln!("{NOTED_IN}: {error}");
    }
    panic!("timed out: {awaited}")
}

fn note(file: &Path, place: &Location) -> Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(format!("{place}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_failure_is_noted_as_the_panic_prints_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("timed-out");
        let mut failing = Command::new(std::env::current_exe().unwrap());
        let name = "timed_out::tests::what_is_awaited_does_not_come";
        let failed = failing.args(["--exact", name, "--ignored"]).env(NOTED_IN, &file).output().unwrap();
        assert!(!failed.status.success());
        let noted = std::fs::read_to_string(&file).unwrap();
        let [place] = noted.lines().collect::<Vec<_>>()[..] else { panic!("found {noted:?}, expected one line") };
        assert!(place.contains("timed_out.rs:"), "{place}");
        let printed = String::from_utf8_lossy(&failed.stdout);
        assert!(printed.contains(&format!(" panicked at {place}:\n")), "{place} in: {printed}");
    }

    #[test]
    #[ignore = "fails by design: the test before runs it"]
    fn what_is_awaited_does_not_come() {
        fail("what never comes");
    }
}
