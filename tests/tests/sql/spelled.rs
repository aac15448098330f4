//! Every spelling of a key finds its row, in a lookup and in SQL, whichever spelling the events had.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use crate::project::Project;

const EVENTS: usize = 40;
const QUERIES: usize = 60;

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, u UUID NOT NULL, d DECIMAL(18,2) NOT NULL, \
    n BIGINT NOT NULL, x DOUBLE NOT NULL, moment TIMESTAMPTZ NOT NULL) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m')";
/// The key columns. Each has a view of its name.
const KEYS: [&str; 5] = ["u", "d", "n", "x", "moment"];

/// One of few values of each type, so that several events have it.
#[derive(Clone, Copy)]
struct Value(u32);

impl Value {
    fn any(random: &mut StdRng) -> Value {
        Value(random.random_range(0..4))
    }

    /// A spelling that events, lookups and SQL all take, as a JSON value.
    fn spelled(self, key: &str, random: &mut StdRng) -> String {
        let number = i64::from(self.0) - 1;
        let zeros = "0".repeat(random.random_range(0..3));
        match (key, random.random_range(0..3)) {
            ("u", form) => {
                let uuid = Uuid::from_u128(0xABCD_EF01_u128 << 96 | u128::from(self.0));
                let text = &[uuid.hyphenated().to_string(), uuid.simple().to_string(), uuid.braced().to_string()][form];
                format!("\"{}\"", if random.random() { text.to_uppercase() } else { text.clone() })
            }
            ("d", 0) => format!("{number}.5{zeros}"),
            ("d", 1) => format!("\"{number}.5{zeros}\""),
            ("d", _) => format!("{number}5{zeros}e-{}", 1 + zeros.len()).replace("05", "5"),
            ("n", 0) => number.to_string(),
            ("n", _) => format!("{number}.0{zeros}"),
            ("x", 0) => format!("{number}.0{zeros}"),
            ("x", _) if number == 0 => "-0.0".to_owned(),
            ("x", _) => format!("{number}0.{zeros}0e-1"),
            (_, form) => {
                let (hour, zone) = [(11, "Z"), (13, "+02:00"), (5, "-06:00")][form];
                format!("\"2026-03-02T{hour:02}:0{}:00{}{zone}\"", self.0, ["", ".000"][usize::from(random.random::<bool>())])
            }
        }
    }
}

async fn run(project: &mut Project, text: String) -> Vec<String> {
    project.run(&text).await.unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_spelling_of_a_key_finds_its_row() {
    let mut random = StdRng::seed_from_u64(17);
    let mut project = Project::new().await;
    run(&mut project, STREAM.to_owned()).await;
    for key in KEYS {
        run(&mut project, format!("CREATE VIEW by_{key} AS SELECT {key}, count(*) AS events FROM s GROUP BY {key}")).await;
    }
    let mut counts = [[0usize; 4]; KEYS.len()];
    let mut lines = String::from("APPEND TO s");
    for event in 0..EVENTS {
        lines += &format!("\n{{\"id\":\"{event}\",\"ts\":\"2026-03-02T11:30:00Z\"");
        for (key, counts) in KEYS.iter().zip(&mut counts) {
            let value = Value::any(&mut random);
            counts[value.0 as usize] += 1;
            lines += &format!(",\"{key}\":{}", value.spelled(key, &mut random));
        }
        lines.push('}');
    }
    run(&mut project, lines).await;
    run(&mut project, "CHECKPOINT".to_owned()).await;
    for _ in 0..QUERIES {
        for (key, counts) in KEYS.iter().zip(&counts) {
            let value = Value::any(&mut random);
            let expected = counts[value.0 as usize];
            let spelled = value.spelled(key, &mut random);
            let text = spelled.trim_matches('"');
            let found = run(&mut project, format!("LOOKUP by_{key} {key}={text}")).await;
            let found = found.first().and_then(|row| row.rsplit(' ').next().map(str::to_owned));
            assert_eq!(found, Some(expected.to_string()), "lookup of {key} as {spelled}");
            let literal = spelled.replace('"', "'");
            for sql in [
                format!("SELECT events FROM by_{key} WHERE {key} = {literal}"),
                format!("SELECT events FROM by_{key} WHERE {key} IN ({literal})"),
                format!("SELECT count(*) FROM s WHERE {key} = {literal}"),
            ] {
                assert_eq!(run(&mut project, sql.clone()).await, [expected.to_string()], "{sql}");
            }
        }
    }
    project.close().await;
}
