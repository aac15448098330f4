//! Micro-benchmarks of each step of an event and of an answer, so that a regression can be attributed. `just micro`
//! measures; under `cargo test` each runs once, on few events.

mod answers;
mod events;
mod failing;
mod site;
mod states;

fn main() {
    match site::is_measured() {
        true => divan::main(),
        // Under `cargo test`, some of whose options divan does not know.
        false => divan::Divan::default().test_benches(),
    }
}
