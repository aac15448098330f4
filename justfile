# `just` lists the recipes. `just verify` is what CI runs without services; `.ci/run` runs that and more, from a clean
# clone.

set shell := ["bash", "-euo", "pipefail", "-c"]

_default:
    @{{ just_executable() }} --list --unsorted

# what CI runs without services: format, duplicates, lint, test, doc, docs, dependencies
verify: (fmt "--check") duplicates lint test doc docs dependencies

# all tests that need neither service nor oracle; the others are reported as ignored, with the reason
test *arguments:
    cargo test --workspace {{arguments}}

# the tests against Kafka, PostgreSQL and S3 (after `just services up`)
test-services *arguments: oracle
    tests/services/test services {{arguments}}

# restarts, broken connections and lost replies of Kafka, PostgreSQL and S3 (after `just services up`)
test-outages *arguments:
    tests/services/test outages {{arguments}}

# the tests whose answers are compared with DuckDB's
test-oracle *arguments: oracle
    tests/services/test oracle {{arguments}}

# what happens on a file system of 24 MiB that runs full (needs unshare, as on any Linux)
test-disk *arguments:
    tests/services/test disk {{arguments}}

# the suites that depend on the date, at the turn of a year and on 29 February (after `just test`; needs libfaketime)
test-dates:
    .ci/dates

# ten times the load that one `up` sustains, for BASESTREAM_OVERLOAD_SECONDS (300), then until lag is 0 (after `just services up`)
overload:
    . "${BASESTREAM_SERVICES_DIR:-.services}/env" && cargo test --workspace --test outages -- --ignored --nocapture ten_times

# kills at least `count` processes at named steps and at random; with the services' `env` sourced, on the engines too
kills count="500" *arguments: oracle
    BASESTREAM_KILLS={{count}} cargo test --workspace --test kills --test cli -- --include-ignored --nocapture kills_on_the_embedded ${BASESTREAM_TEST_KAFKA:+kills_on_kafka} {{arguments}}

# time from SIGKILL of the speed layer to the next committed checkpoint: min, median, max
recovery *arguments:
    cargo test --workspace --test kills --test cli -- --ignored --nocapture recovery_on_the_embedded ${BASESTREAM_TEST_KAFKA:+recovery_on_kafka} {{arguments}}

# the oracle of the kills, and the peers of the benchmarks: Python with DuckDB and Polars, in the cache folder
oracle:
    tests/oracle/setup

# real Kafka, PostgreSQL and S3, and a proxy that injects faults, for the tests: just services up|down|check|start NAME|kill NAME [SIGNAL]
services action *arguments:
    tests/services/{{action}} {{arguments}}

# the demo: needs no service; synthetic payments with fraud rings, answered by all three layers
demo *arguments:
    cargo run -- demo {{arguments}}

# clippy, warnings are errors
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# rustfmt (`just fmt --check` changes nothing)
fmt *arguments:
    cargo fmt --all {{arguments}}

# the API documentation, with warnings as errors
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# builds the documentation site into target/site and fails on a broken link or anchor; `just docs serve` serves it while you write
docs *arguments:
    docs/build {{arguments}}

# checks that arrow, parquet, object_store and datafusion are each built in one version
duplicates:
    .ci/duplicates

# checks for unused dependencies, licences, banned duplicates, sources and known vulnerabilities; installs cargo-machete, cargo-deny and cargo-audit if they are missing
dependencies:
    .ci/dependencies

# fuzzing: just fuzz events|definitions|lookups|sql SECONDS (needs `cargo install cargo-fuzz --locked`; the first build takes long)
fuzz target seconds *arguments:
    fuzz/run {{target}} {{seconds}} {{arguments}}

# anything as frames of PostgreSQL clients, for SECONDS: no panic, no hang, no growth
fuzz-frames seconds="600":
    BASESTREAM_FUZZ_SECONDS={{seconds}} cargo test --workspace --test postgres -- --nocapture whatever_a_client_sends

# real clients of PostgreSQL and HTTP against `up`: just clients [guides|psql|encrypted|pgbench|python|flight|java|openapi|page ..] (after `cargo build`)
clients *arguments:
    tests/clients/run {{arguments}}

# measures what a remembered id costs (BASESTREAM_IDS, BASESTREAM_DEDUP_MEMORY), and a catalog of ten thousand checkpoints
measure:
    cargo test --workspace --lib -- --ignored --nocapture what_an_id_costs a_state_of_ten_thousand

# simulates `count` schedules of faults; prints the faults that fired
schedules count="100000":
    BASESTREAM_SCHEDULES={{count}} cargo test --workspace --test simulation schedules_lose -- --nocapture

# one benchmark: just bench alerts|batch|compaction|cost|flight|freshness|freshness-apart|history|hot|ingest|isolation|links-batch|links-lookup|lookup|lookups-during-run|run-memory|scan|sinks|soak|start [options] (`--help` lists them; peers need `just oracle` and bench/peers/setup, Kafka and PostgreSQL the services' `env`, Redis redis-server on the path)
bench *arguments:
    cargo build --release --workspace && "${CARGO_TARGET_DIR:-target}/release/bench" {{arguments}}

# compares JSON decoders on the same records and columns: just decoders [ROUNDS] [RECORDS] (needs no DataFusion: two minutes to build)
decoders *arguments:
    bench/decoders/run {{arguments}}

# every benchmark; writes bench/RESULTS.md
bench-all:
    bench/run

# micro-benchmarks of single steps: decode, dedupe, partial states, events that fail, merge, rollup, lookup (an argument picks by name: just micro failing)
micro *arguments:
    cargo bench --workspace --bench micro -- {{arguments}}
