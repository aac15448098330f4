use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Column, ColumnType, NamedWindow, Schedule, TimeUnit};
use types::ErrorKind;
use types::tiles::Level;

mod mistakes;
mod parameters;

/// The design's own example.
const TRANSACTIONS: &str = "CREATE STREAM transactions (
  event_id  TEXT NOT NULL,
  ts        TIMESTAMPTZ NOT NULL OPTIONS (path = '$.created', unit = 'ms'),   -- default path '$.<column>', RFC 3339 text or unit s|ms|us|ns
  device_id TEXT,
  amount    DECIMAL(18,2) NOT NULL,
  status    TEXT NOT NULL
) WITH (topic = 'payments', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'device_id', retention = '400d')";
const DEVICE_VELOCITY: &str =
    "CREATE VIEW device_velocity WITH (windows = '1h, 7d, 90d', every = '1h') AS      -- or schedule = '*/15 * * * *' and timezone = '..'
SELECT device_id, count(*) AS txns, sum(amount) AS amount,                        -- columns txns_1h, txns_7d, txns_90d, amount_1h, ..
       max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen,                     -- a column that names its own window keeps its own name
       count(*) FILTER (WHERE within(ts, '31d', '1d')) AS txns_before             -- from 31 days ago to 1 day ago
FROM transactions WHERE status = 'ok' GROUP BY device_id";

fn parse(text: &str) -> (Definitions, Diagnostics) {
    parse_definitions(&[(Some(PathBuf::from("a.sql")), text.to_owned())])
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days * 86400)
}

fn column(name: &str, column_type: ColumnType, nullable: bool) -> Column {
    Column { name: name.into(), column_type, nullable, path: vec![name.into()], unit: None }
}

#[test]
fn the_design_example_is_read_in_full() {
    let (definitions, diagnostics) = parse(&format!("-- the example\n\n{TRANSACTIONS};\n\n{DEVICE_VELOCITY};\n-- the end"));
    assert_eq!(diagnostics.to_string(), "");
    let [stream] = definitions.streams.as_slice() else { panic!("one stream") };
    assert_eq!(&*stream.name, "transactions");
    assert_eq!(&*stream.topic, "payments");
    assert_eq!(
        stream.columns,
        [
            column("event_id", ColumnType::Text, false),
            Column { path: vec!["created".into()], unit: Some(TimeUnit::Millis), ..column("ts", ColumnType::TimestampTz, false) },
            column("device_id", ColumnType::Text, true),
            column("amount", ColumnType::Decimal { precision: 18, scale: 2 }, false),
            column("status", ColumnType::Text, false),
        ]
    );
    assert_eq!(stream.event_time, "ts");
    assert_eq!(stream.id.as_deref(), Some("event_id"));
    assert_eq!(stream.dedup_within, Some(Duration::from_secs(600)));
    assert_eq!(stream.key.as_deref(), Some("device_id"));
    assert_eq!(stream.retention, Some(days(400)));
    assert!(stream.keep_raw);
    assert_eq!(stream.sql, TRANSACTIONS);
    assert_eq!((stream.origin.file.as_deref(), stream.origin.line), (Some(Path::new("a.sql")), 3));

    let [view] = definitions.views.as_slice() else { panic!("one view") };
    let window = |text: &str, length| NamedWindow { text: text.into(), length };
    assert_eq!(&*view.name, "device_velocity");
    assert_eq!(view.windows, [window("1h", Duration::from_secs(3600)), window("7d", days(7)), window("90d", days(90))]);
    assert_eq!(view.schedule, Some(Schedule::Every(Duration::from_secs(3600))));
    assert_eq!(view.precision, None);
    assert!(view.select.starts_with("SELECT device_id, count(*) AS txns") && view.select.ends_with("GROUP BY device_id"));
    assert!(view.select.contains("-- a column that names its own window"), "the text is kept as it is");
    assert_eq!((view.select_line, view.select_column), (12, 1));
    assert_eq!(view.sql, DEVICE_VELOCITY);
    assert_eq!(view.origin.line, 11);
}

#[test]
fn a_stored_definition_parses_to_the_same_again() {
    let stream = parse_stream(TRANSACTIONS).unwrap();
    assert_eq!(parse_stream(&stream.sql).unwrap(), stream);
    let view = parse_view(&format!("{DEVICE_VELOCITY} ;")).unwrap();
    assert_eq!(parse_view(&view.sql).unwrap(), view);
}

#[test]
fn every_type_is_read() {
    let stream = parse_stream(
        "create stream s (a text, b boolean, c int, d bigint, e double, f decimal(38, 38), g decimal(5), h date not null, i timestamptz null,
         j uuid, k bytea, l json, m text[], n decimal(9,2)[] not null) with (event_time = 'h')",
    )
    .unwrap();
    let types: Vec<String> = stream.columns.iter().map(|column| column.column_type.to_string()).collect();
    assert_eq!(
        types.join(" "),
        "TEXT BOOLEAN INT BIGINT DOUBLE DECIMAL(38,38) DECIMAL(5,0) DATE TIMESTAMPTZ UUID BYTEA JSON TEXT[] DECIMAL(9,2)[]"
    );
    assert!(!stream.columns[13].nullable && stream.columns[8].nullable);
}

#[test]
fn defaults_are_the_streams_name_as_topic_ten_minutes_and_the_raw_record() {
    let stream = parse_stream("CREATE STREAM clicks (ts TIMESTAMPTZ NOT NULL, id TEXT) WITH (event_time = 'ts', id = 'id')").unwrap();
    assert_eq!(&*stream.topic, "clicks");
    assert_eq!(stream.dedup_within, Some(Duration::from_secs(600)));
    assert_eq!((stream.key, stream.retention, stream.keep_raw), (None, None, true));

    let stream = parse_stream("CREATE STREAM clicks (ts DATE NOT NULL) WITH (event_time = 'ts', keep_raw = false)").unwrap();
    assert_eq!((stream.id, stream.dedup_within, stream.keep_raw), (None, None, false));
}

#[test]
fn names_without_quotes_are_lower_case_and_their_members_keep_their_case() {
    let stream = parse_stream(
        "CREATE STREAM Logins (userId TEXT, \"deviceId\" TEXT, TS TIMESTAMPTZ NOT NULL OPTIONS (path = '$.meta.\"created.at\".ms')) WITH (event_time = 'TS', key = 'deviceId')",
    )
    .unwrap();
    assert_eq!(&*stream.name, "logins");
    assert_eq!(stream.event_time, "ts");
    assert_eq!(stream.key.as_deref(), Some("deviceId"));
    let columns: Vec<(&str, Vec<&str>)> =
        stream.columns.iter().map(|column| (column.name.as_str(), column.path.iter().map(String::as_str).collect())).collect();
    assert_eq!(columns, [("userid", vec!["userId"]), ("deviceId", vec!["deviceId"]), ("ts", vec!["meta", "created.at", "ms"])]);
}

#[test]
fn view_options_are_read() {
    let view = parse_view(
        "CREATE VIEW v WITH (windows = '90d', schedule = '*/15 * * * *', timezone = 'Europe/Berlin', precision = '1min', strategy = 'full')
         AS WITH a AS (SELECT 1 AS x) SELECT x, count(*) AS n FROM a GROUP BY x",
    )
    .unwrap();
    assert_eq!(view.schedule, Some(Schedule::Cron { expression: "*/15 * * * *".into(), timezone: chrono_tz::Europe::Berlin }));
    assert_eq!((view.precision, view.strategy), (Some(Level::Minute1), Some(types::Strategy::Full)));
    assert!(view.select.starts_with("WITH a AS"));

    let view = parse_view("CREATE VIEW v AS SELECT count(*) AS n FROM s").unwrap();
    assert_eq!((view.windows.len(), view.schedule, view.precision), (0, None, None));
    assert_eq!((view.strategy, view.full_every), (None, None));

    let view = parse_view("CREATE VIEW v WITH (strategy = 'incremental', full_every = '7d') AS SELECT count(*) AS n FROM s").unwrap();
    assert_eq!((view.strategy, view.full_every), (Some(types::Strategy::Incremental), Some(Duration::from_secs(7 * 86_400))));

    let keep_old = |option: &str| parse_view(&format!("CREATE VIEW v {option} AS SELECT count(*) AS n FROM s")).unwrap().keep_old;
    assert_eq!(keep_old(""), Duration::from_secs(86_400));
    assert_eq!(keep_old("WITH (keep_old = '7d')"), Duration::from_secs(7 * 86_400));
    assert_eq!(keep_old("WITH (keep_old = '0s')"), Duration::ZERO);
}

#[test]
fn a_semicolon_inside_a_string_or_a_comment_ends_nothing() {
    let (definitions, diagnostics) = parse("CREATE VIEW v AS SELECT count(*) /* ; */ AS n -- ;\n FROM s WHERE x = 'a;''b' ;;; ");
    assert_eq!(diagnostics.to_string(), "");
    assert_eq!(definitions.views[0].select, "SELECT count(*) /* ; */ AS n -- ;\n FROM s WHERE x = 'a;''b'");
}

#[test]
fn columns_are_counted_in_characters_and_lines_by_newlines() {
    let (definitions, diagnostics) = parse("/* ü\r\n */ CREATE VIEW v AS /* größe */ SELECT 'ü' AS ä FROM s");
    assert_eq!(diagnostics.to_string(), "");
    let view = &definitions.views[0];
    assert_eq!((view.origin.line, view.select_line, view.select_column), (2, 2, 34));
    assert_eq!(view.select, "SELECT 'ü' AS ä FROM s");
}

#[test]
fn only_options_of_runs_leave_a_views_meaning_as_it_is() {
    let view = |options: &str, select: &str| parse_view(&format!("CREATE VIEW v WITH ({options}) AS {select}")).unwrap();
    let select = "SELECT k, array_agg(x ORDER BY x) AS n FROM s GROUP BY k";
    let before = view("windows = '1h'", select);
    for options in [
        "every = '1h', windows = '1h'",
        "windows = '1h', schedule = '0 3 * * *', timezone = 'Europe/Berlin'",
        "windows = '1h', every = '1h', jitter = '1m'",
        "windows = '1h', after = 'w'",
        "windows = '1h', memory_limit = '1GiB'",
        "windows = '1h', timeout = '2h'",
        "windows = '1h', strategy = 'full'",
        "windows = '1h', full_every = '7d'",
        "\n  windows = '1h' -- a comment\n",
    ] {
        assert!(before.means_the_same(&view(options, select)), "{options}");
    }
    for options in [
        "windows = '2h'",
        "windows = '1h', precision = '1s'",
        "windows = '1h', max_degree = 5",
        "windows = '1h', max_state_bytes = '1KiB'",
        "windows = '1h', on_error = 'refuse'",
    ] {
        assert!(!before.means_the_same(&view(options, select)), "{options}");
    }
    assert!(!before.means_the_same(&view("windows = '1h'", &select.replace("ORDER BY x", "ORDER BY x DESC"))));
    let other = ViewDefinition { name: "w".into(), ..before.clone() };
    assert!(!before.means_the_same(&other));
}

#[test]
fn a_stream_is_not_a_view_and_one_is_not_two() {
    assert_eq!(parse_view(TRANSACTIONS).unwrap_err().to_string(), "found CREATE STREAM; expected one CREATE VIEW");
    assert_eq!(parse_stream(DEVICE_VELOCITY).unwrap_err().to_string(), "found CREATE VIEW; expected one CREATE STREAM");
    let two = format!("{DEVICE_VELOCITY};{DEVICE_VELOCITY}");
    assert_eq!(parse_view(&two).unwrap_err().to_string(), "found 2 definitions; expected one");
    assert_eq!(parse_view("").unwrap_err().to_string(), "found 0 definitions; expected one");
    assert_eq!(parse_view("").unwrap_err().kind(), ErrorKind::Input);
}

#[test]
fn a_project_is_read_from_its_two_folders_in_the_order_of_names() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &[u8]| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    assert_eq!(load_project(dir.path()).unwrap_err().kind(), ErrorKind::NotFound);
    write("streams/b.sql", TRANSACTIONS.as_bytes());
    write("streams/a.sql", b"CREATE STREAM a (ts DATE NOT NULL) WITH (event_time = 'ts')");
    write("streams/notes.txt", b"not SQL");
    write("views/v.sql", DEVICE_VELOCITY.as_bytes());
    let (definitions, diagnostics) = load_project(dir.path()).unwrap();
    assert_eq!(diagnostics.to_string(), "");
    let names: Vec<&str> = definitions.streams.iter().map(|stream| &*stream.name).collect();
    assert_eq!((names, definitions.views.len()), (vec!["a", "transactions"], 1));

    write("views/w.sql", b"CREATE STREAM w (ts DATE NOT NULL)\nWITH (event_time = 'ts')");
    write("views/x.sql", b"-- \xff");
    assert_eq!(
        load_project(dir.path()).unwrap().1.to_string(),
        "views/x.sql:1:4: error: found bytes that are not UTF-8\n  help: save the file as UTF-8\n\
         views/w.sql:1:1: warning: the stream 'w' is outside streams/: it is read, but hard to find\n  help: move it to streams/w.sql"
    );
}

#[test]
fn a_definition_outside_of_its_folder_is_named_with_its_place_and_whether_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let sink = |name: &str| format!("CREATE SINK {name} WITH (topic = 'of_{name}') AS SELECT t.device_id FROM transactions t;\n");
    let alert = |name: &str| format!("CREATE ALERT {name} WITH (topic = 'of_{name}') AS SELECT k FROM v WHERE n > 1;\n");
    write("streams/a.sql", TRANSACTIONS);
    write("views/v.sql", &(sink("far") + &alert("silent")));
    write("sinks/read.sql", &(sink("edited") + "CREATE PARAMETER most = 20;"));
    write("sinks/fraud/s.sql", &sink("nested"));
    write("all.sql", &(sink("edited") + &sink("lost") + &alert("unheard") + "CREATE PARAMETER least = 1;"));
    write("query.sql", "SELECT device_id FROM transactions");
    write("dump.sql", &(alert("dumped") + &" ".repeat(1 << 20)));
    let (definitions, diagnostics) = load_project(dir.path()).unwrap();
    let read: Vec<&str> = definitions.sinks.iter().map(|sink| &*sink.name).collect();
    assert_eq!((read, definitions.alerts.len(), definitions.parameters.len()), (vec!["far", "edited"], 1, 1));
    assert_eq!(
        diagnostics.to_string(),
        "views/v.sql:1:1: warning: the sink 'far' is outside sinks/: it is read, but hard to find\n  help: move it to sinks/far.sql\n\
         views/v.sql:2:1: warning: the alert 'silent' is outside alerts/: it is read, but hard to find\n  \
         help: move it to alerts/silent.sql\n\
         all.sql:2:1: warning: the sink 'lost' is in a file that is not read\n  help: move it to sinks/lost.sql\n\
         sinks/fraud/s.sql:1:1: warning: the sink 'nested' is in a file that is not read\n  help: move it to sinks/nested.sql\n\
         all.sql:3:1: warning: the alert 'unheard' is in a file that is not read\n  help: move it to alerts/unheard.sql\n\
         all.sql:4:1: warning: the parameter 'least' is in a file that is not read\n  help: move it to parameters/least.sql"
    );
}

/// A valid project with a few characters removed, doubled or replaced.
fn mutated() -> impl Strategy<Value = String> {
    let edit = (any::<prop::sample::Index>(), 0usize..40, "[-'\"(),;=.$\\[\\]*/!a-z0-9_ \\n`é{}]{0,6}");
    prop::collection::vec(edit, 1..6).prop_map(|edits| {
        let mut text: Vec<char> = format!("{TRANSACTIONS};\n{DEVICE_VELOCITY};").chars().collect();
        for (index, length, new) in edits {
            let at = index.index(text.len() + 1);
            let end = (at + length).min(text.len());
            text.splice(at..end, new.chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse(&text);
        let _ = parse(&format!("CREATE VIEW v AS SELECT {text}"));
        let _ = parse(&format!("CREATE STREAM s ({text}) WITH ({text})"));
        let _ = parse(&format!("CREATE PARAMETER p {text}"));
    }

    #[test]
    fn no_mutation_of_a_valid_text_panics_or_points_outside_of_it(text in mutated()) {
        let (definitions, diagnostics) = parse(&text);
        let lines: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
        for diagnostic in &diagnostics {
            let length = lines.get(diagnostic.line.wrapping_sub(1));
            prop_assert!(length.is_some_and(|length| (1..=length + 1).contains(&diagnostic.column)), "{diagnostic}\n{text}");
        }
        // What is kept is a statement by itself.
        for view in &definitions.views {
            let again = parse_view(&view.sql).unwrap();
            prop_assert_eq!((again.name, again.select), (view.name.clone(), view.select.clone()));
        }
        for stream in &definitions.streams {
            let again = parse_stream(&stream.sql).unwrap();
            prop_assert_eq!(&again.columns, &stream.columns);
        }
        prop_assert!(definitions.streams.len() + definitions.views.len() >= 2 || diagnostics.has_errors() || text.matches("CREATE").count() != 2);
    }
}
