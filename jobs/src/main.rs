//! The `basestream` binary: the library's command line with the standard functions.

use std::process::ExitCode;

/// Events, states and answers consist of many short-lived allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    jobs::memory::keep_what_is_freed();
    types::open_files::fail_writes_past_size_limit();
    jobs::cli::main(engine::functions::Functions::standard())
}
