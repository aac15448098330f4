//! The programs that benchmarks run as separate processes.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use types::{Error, Result};

#[derive(Debug, Clone)]
pub struct Programs {
    /// This crate's binary.
    pub bench: PathBuf,
    pub basestream: PathBuf,
    /// Python with DuckDB and Polars, if it is installed.
    pub python: Option<PathBuf>,
}

impl Programs {
    /// The binaries in the folder of the running one.
    pub fn of_this_binary() -> Result<Programs> {
        Ok(Programs {
            bench: std::env::current_exe()?,
            basestream: basestream_tests::process::binary()?,
            python: basestream_tests::oracle::python(),
        })
    }

    /// A command that runs a peer's script, in the project's folder of peers, to answer one question from a file.
    pub fn peer(&self, script: &str) -> Result<Command> {
        let python =
            self.python.as_ref().ok_or_else(|| Error::not_found("Python with DuckDB is not installed").with("help", "just oracle"))?;
        let mut command = Command::new(python);
        command.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers").join(script));
        Ok(command)
    }

    pub fn duckdb_version(&self) -> Option<String> {
        self.version_of("duckdb")
    }

    pub fn polars_version(&self) -> Option<String> {
        self.version_of("polars")
    }

    /// The version of a package of the peers' Python.
    fn version_of(&self, package: &str) -> Option<String> {
        let mut command = Command::new(self.python.as_ref()?);
        let output =
            command.args(["-c", &format!("import {package}; print({package}.__version__)")]).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}
