//! Micro-benchmarks: one for each step of an event's and of an answer's way, so that a regression has a name. `just micro` measures;
//! among the tests each runs once, on few events.

mod answers;
mod events;
mod site;
mod states;

fn main() {
    match site::is_measured() {
        true => divan::main(),
        // Among the tests, whose options are not all known here.
        false => divan::Divan::default().test_benches(),
    }
}
