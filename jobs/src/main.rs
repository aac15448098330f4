//! The `basestream` binary: the library's command line with the standard functions.

use std::process::ExitCode;

fn main() -> ExitCode {
    jobs::cli::main(schemas::functions::Functions::standard())
}
