//! What a user reads when a definition is wrong.

use super::*;

/// The diagnostics' text for one file `a.sql`, without its name.
fn problems(text: &str) -> String {
    parse(text).1.to_string().replace("a.sql:", "")
}

/// For a stream with these columns and options.
fn stream(columns: &str, options: &str) -> String {
    problems(&format!("CREATE STREAM s ({columns}) WITH ({options})"))
}

/// For a view with these options.
fn view(options: &str) -> String {
    problems(&format!("CREATE VIEW v WITH ({options}) AS SELECT count(*) AS n FROM s"))
}

#[track_caller]
fn one_line(found: String, expected: &str) {
    assert_eq!(found.replace("\n  help: ", " | "), expected);
}

#[test]
fn all_mistakes_of_all_files_are_reported_at_once() {
    let files = [
        (
            "streams/s.sql",
            "CREATE STREAM s (\n  id STRING,\n  id TEXT,\n  ts TIMESTAMPTZ,\n) WITH (event_tme = 'ts', topic = 'a b',\n  dedup_within = '7x');\nCREATE STREM t;\n",
        ),
        ("views/v.sql", "CREATE VIEW v WITH (windows = '1h, 7x') AS\nSELECT count(* AS n FROM s"),
    ];
    let sources = files.map(|(file, text)| (Some(PathBuf::from(file)), text.to_owned()));
    let (definitions, diagnostics) = parse_definitions(&sources);
    assert_eq!(definitions, Definitions::default());
    assert_eq!(
        diagnostics.to_string(),
        "\
streams/s.sql:2:6: error: unknown type 'STRING'
  help: did you mean TEXT? the types are TEXT, BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p,s), DATE, TIMESTAMPTZ, UUID, BYTEA, JSON, and arrays such as TEXT[]
streams/s.sql:3:3: error: the column 'id' is declared twice
  help: rename or remove one of the two
streams/s.sql:4:17: error: found a ',' behind the last column
  help: remove it
streams/s.sql:5:3: error: the stream 's' names no event time
  help: write WITH (event_time = 'ts')
streams/s.sql:5:9: error: unknown option 'event_tme'
  help: did you mean 'event_time'?
streams/s.sql:5:37: error: the topic 'a b' holds a character that topics do not have
  help: topics are letters (a to z), digits, '.', '_' and '-', up to 249 of them
streams/s.sql:6:3: error: dedup_within is given without an id
  help: name the column that tells events apart: id = '..'
streams/s.sql:7:8: error: found CREATE 'STREM'
  help: did you mean STREAM?
views/v.sql:1:36: error: the duration '7x' has the unknown unit 'x'; expected ms, s, m or min, h, d or w
  help: windows look like '1h, 7d, 90d'
views/v.sql:2:16: error: the SELECT is not understood: expected ), found AS"
    );
}

#[test]
fn names_are_checked() {
    let named = |name: &str| problems(&format!("CREATE VIEW {name} AS SELECT 1 AS x"));
    one_line(named("_v"), "1:13: error: the view's name '_v' begins with '_' | names with a leading '_' are reserved");
    one_line(named("a__b"), "1:13: error: the view's name 'a__b' holds '__' | names with '__' are reserved");
    one_line(
        named("\"a b\""),
        "1:13: error: the view's name 'a b' holds ' ' | names are letters (a to z), digits and '_', with a letter in front",
    );
    one_line(
        named("\"1a\""),
        "1:13: error: the view's name '1a' does not begin with a letter | names are letters (a to z), digits and '_', with a letter in front",
    );
    one_line(named("System"), "1:13: error: the view is named 'system' | choose another name: system holds the system's own tables");
    one_line(named("a.b"), "1:14: error: found a name with a '.' | a view has a plain name and no schema");
    one_line(named(""), "1:14: error: found 'AS' | expected the view's name");
    one_line(
        stream("_x TEXT, ts DATE NOT NULL", "event_time = 'ts'"),
        "1:18: error: the column's name '_x' begins with '_' | names with a leading '_' are reserved",
    );
}

#[test]
fn replacing_and_modifying_words_are_refused_with_the_reason() {
    let reason = "leave it out: the files say what there is, and 'apply' makes a new version where a definition has changed";
    one_line(problems("CREATE OR REPLACE VIEW v AS SELECT 1 AS x"), &format!("1:8: error: found OR REPLACE | {reason}"));
    one_line(problems("CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS x"), &format!("1:13: error: found IF NOT EXISTS | {reason}"));
    one_line(
        problems("CREATE MATERIALIZED VIEW v AS SELECT 1 AS x"),
        "1:8: error: found MATERIALIZED | leave it out: every view with an aggregate is kept up to date",
    );
    one_line(
        problems("DROP VIEW v"),
        "1:1: error: found 'DROP' | expected CREATE STREAM, CREATE VIEW, CREATE SINK, CREATE ALERT or CREATE PARAMETER",
    );
    one_line(
        problems("CREATE TABLE t (x INT)"),
        "1:8: error: found CREATE 'TABLE' | expected STREAM, VIEW, SINK, ALERT or PARAMETER: events come in through streams, answers are views, sinks and alerts put out records",
    );
    one_line(
        problems("CREATE VIEW v (a, b) AS SELECT 1 AS x"),
        "1:15: error: found a list of columns | name the columns in the SELECT: count(*) AS txns",
    );
}

#[test]
fn definitions_that_collide_are_refused_with_the_place_of_the_other() {
    let ts = "(ts DATE NOT NULL) WITH (event_time = 'ts'";
    one_line(
        problems(&format!("CREATE STREAM a {ts});\nCREATE STREAM a {ts});")),
        "2:15: error: the stream 'a' has the name of a stream | streams, views, sinks, alerts and parameters share one space of names; the other one is at 1:15",
    );
    one_line(
        problems(&format!("CREATE STREAM a {ts});\nCREATE VIEW A AS SELECT 1 AS x;")),
        "2:13: error: the view 'a' has the name of a stream | streams, views, sinks, alerts and parameters share one space of names; the other one is at 1:15",
    );
    one_line(
        problems(&format!("CREATE STREAM a {ts});\nCREATE STREAM b {ts}, topic = 'a');")),
        "2:69: error: the topic 'a' belongs to the stream 'a' already | one topic is one stream; the other one is at 1:15",
    );
}

#[test]
fn types_and_columns_are_checked() {
    let column = |column: &str| stream(&format!("{column}, ts DATE NOT NULL"), "event_time = 'ts'");
    let types =
        "the types are TEXT, BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p,s), DATE, TIMESTAMPTZ, UUID, BYTEA, JSON, and arrays such as TEXT[]";
    one_line(column("a VARCHAR(20) NOT NULL"), &format!("1:20: error: unknown type 'VARCHAR' | did you mean TEXT? {types}"));
    one_line(column("a GEOMETRY"), &format!("1:20: error: unknown type 'GEOMETRY' | {types}"));
    one_line(column("a DECIMAL"), "1:20: error: found DECIMAL without its digits | write DECIMAL(p,s), such as DECIMAL(18,2)");
    one_line(column("a DECIMAL(39,2)"), "1:28: error: DECIMAL has 39 digits | expected 1 to 38");
    one_line(column("a DECIMAL(4,5)"), "1:30: error: DECIMAL has 5 digits behind the point of 4 in all | expected 0 to 4");
    one_line(column("a TEXT[][]"), "1:26: error: found an array of arrays | use JSON, or an array of one dimension");
    one_line(column("a TEXT PRIMARY KEY"), "1:25: error: found 'PRIMARY' | a stream has no constraints; the id is named WITH (id = '..')");
    one_line(
        column("a TEXT, PRIMARY KEY (a)"),
        "1:26: error: found the constraint PRIMARY | a stream has no constraints; the id is named WITH (id = '..')",
    );
    one_line(
        column("a TEXT DEFAULT 'x'"),
        "1:25: error: found 'DEFAULT' | a stream holds what was sent; make up values in a view, with coalesce(..)",
    );
    one_line(
        column("a TEXT OPTIONS (unit = 'ms')"),
        "1:34: error: the column 'a' has a unit but is not TIMESTAMPTZ | remove the unit, or make it a TIMESTAMPTZ",
    );
    one_line(
        column("a TIMESTAMPTZ OPTIONS (unit = 'mss')"),
        "1:48: error: unknown unit 'mss' | did you mean 'ms'? expected s, ms, us or ns",
    );
    one_line(column("a TEXT OPTIONS (pth = '$.a')"), "1:34: error: unknown option 'pth' | did you mean 'path'?");
    one_line(column("a TEXT OPTIONS (path = '$.a', path = '$.b')"), "1:48: error: the option 'path' is given twice | keep one of the two");
    one_line(
        problems("CREATE STREAM s () WITH (event_time = 'ts')").lines().take(2).collect::<Vec<_>>().join("\n"),
        "1:17: error: the stream has no columns | expected at least its event time: ts TIMESTAMPTZ NOT NULL",
    );
}

#[test]
fn paths_are_checked_and_the_character_is_named() {
    let path = |path: &str| stream(&format!("a TEXT OPTIONS (path = '{path}'), ts DATE NOT NULL"), "event_time = 'ts'");
    one_line(path("a.b"), "1:42: error: the path 'a.b' does not begin with '$' | paths look like '$.payment.amount'");
    one_line(path("$"), "1:42: error: the path '$' names no member | paths look like '$.payment.amount'");
    one_line(
        path("$.a[0]"),
        "1:45: error: the path '$.a[0]' picks an array's element | name the array itself and give the column an array type, or JSON",
    );
    one_line(
        path("$.a..b"),
        "1:46: error: the path '$.a..b' has no member behind the '.' | paths look like '$.payment.amount' or '$.\"odd name\"'",
    );
    one_line(path("$a"), "1:43: error: the path '$a' has 'a' where a '.' belongs | paths look like '$.payment.amount'");
    one_line(
        path("$.\"a"),
        "1:44: error: the path '$.\"a' has no member behind the '.' | paths look like '$.payment.amount' or '$.\"odd name\"'",
    );
}

#[test]
fn stream_options_are_checked() {
    let columns = "ts TIMESTAMPTZ NOT NULL, t2 TIMESTAMPTZ, id TEXT, tags TEXT[]";
    let with = |options: &str| stream(columns, options);
    let at = |column: usize| format!("1:{column}: error:");
    let begin = "CREATE STREAM s () WITH (".len() + columns.len() + 1;
    one_line(
        with("topic = 't'"),
        &format!(
            "{} the stream 's' names no event time | write WITH (event_time = '..'), naming a column of type TIMESTAMPTZ or DATE that is NOT NULL",
            at(begin - 6)
        ),
    );
    one_line(
        with("event_time = 'tss'"),
        &format!("{} event_time names the column 'tss', which does not exist | did you mean 'ts'?", at(begin + 13)),
    );
    one_line(
        with("event_time = 'id'"),
        &format!("{} the event time 'id' is of type TEXT | expected a column of type TIMESTAMPTZ or DATE", at(begin + 13)),
    );
    one_line(
        with("event_time = 't2'"),
        &format!("{} the event time 't2' may be NULL | declare it as t2 TIMESTAMPTZ NOT NULL", at(begin + 13)),
    );
    one_line(
        with("event_time = ts"),
        &format!("{} the option 'event_time' is 'ts' | expected text in single quotes: event_time = '..'", at(begin + 13)),
    );
    let more = |options: &str| with(&format!("event_time = 'ts', {options}"));
    let begin = begin + "event_time = 'ts', ".len();
    one_line(
        more("id = 'nothing'"),
        &format!("{} id names the column 'nothing', which does not exist | the columns are ts, t2, id, tags", at(begin + 5)),
    );
    one_line(
        more("key = 'tags'"),
        &format!("{} the key 'tags' is of type TEXT[] | expected a column with one plain value: no array, no JSON", at(begin + 6)),
    );
    one_line(
        more("cluster_by = 'id, tags'"),
        &format!(
            "{} cluster_by names 'tags', which is of type TEXT[] | expected a column with an exact order: no DOUBLE, BYTEA, JSON or array",
            at(begin + 13)
        ),
    );
    one_line(more("cluster_by = 'id,id'"), &format!("{} cluster_by names 'id' twice | name each column once", at(begin + 13)));
    one_line(
        more("cluster_by = 'id,'"),
        &format!("{} cluster_by names the column '', which does not exist | the columns are ts, t2, id, tags", at(begin + 13)),
    );
    one_line(more("format = 'avro'"), &format!("{} unknown format 'avro' | expected 'json'", at(begin + 9)));
    one_line(
        more("dedup_within = '1h'"),
        &format!("{} dedup_within is given without an id | name the column that tells events apart: id = '..'", at(begin)),
    );
    one_line(more("retention = '0d'"), &format!("{} the duration '0d' is zero; expected more than zero", at(begin + 12)));
    one_line(
        more("id = 'id', retention = '1m'"),
        &format!("{} retention is shorter than dedup_within | keep events at least as long as their ids are compared", at(begin + 23)),
    );
    one_line(more("keep_raw = 1"), &format!("{} the option 'keep_raw' is '1' | expected true or false", at(begin + 11)));
    one_line(more("keep_raw 1"), &format!("{} found '1' | expected '=' and the value of 'keep_raw'", at(begin + 9)));
    one_line(more("retention ="), &format!("{} found ')' | expected the value of 'retention'", at(begin + 11)));
    one_line(
        more("colour = 'x'"),
        &format!(
            "{} unknown option 'colour' | a stream has: topic, format, event_time, id, dedup_within, key, retention, keep_raw, cluster_by",
            at(begin)
        ),
    );
}

#[test]
fn an_alert_has_its_article() {
    let found = problems("CREATE ALERT x.a WITH (colour = 'x') AS SELECT k FROM v WHERE n > 1");
    assert!(found.contains("help: an alert has a plain name and no schema"), "{found}");
    assert!(found.contains("help: an alert has: topic, format, repeat, resolve, retention"), "{found}");
}

#[test]
fn view_options_are_checked() {
    one_line(view("windows = '1h, 60m'"), "1:36: error: the window '60m' is as long as '1h' before it | name each window once");
    one_line(view("windows = '500ms'"), "1:32: error: the window '500ms' is shorter than a second | expected at least '1s'");
    one_line(
        view("windows = 'all'"),
        "1:32: error: found the window 'all' | leave windows out for all time, or write count(*) FILTER (WHERE within(ts, 'all')) for one column",
    );
    one_line(
        view("windows = ''"),
        "1:32: error: the duration '' is not understood; expected a whole number and a unit (ms, s, m, h, d, w), such as '10m' or '90d' | windows look like '1h, 7d, 90d'",
    );
    one_line(view("every = '1h', schedule = '* * * * *'"), "1:35: error: found every and schedule | keep one of the two");
    one_line(view("every = '1ms'"), "1:29: error: every is shorter than a second | expected at least '1s'");
    one_line(view("schedule = '0 25 * * *'"), "1:32: error: the cron expression '0 25 * * *' has the hour '25'; expected 0 to 23");
    one_line(
        view("every = '1h', timezone = 'UTC'"),
        "1:35: error: timezone is given without a schedule | a time zone needs schedule = '0 3 * * *'; every counts in UTC",
    );
    one_line(
        view("schedule = '* * * * *', timezone = 'Europe/Berln'"),
        "1:56: error: unknown time zone 'Europe/Berln' | did you mean 'Europe/Berlin'?",
    );
    one_line(view("precision = '2min'"), "1:33: error: the precision is '2min' | expected 1s, 10s, 1min, 5min, 1h or 1d");
    one_line(
        view("windows = '1h', precision = '1d'"),
        "1:49: error: the precision 1d is coarser than the window '1h' | expected at most the length of the shortest window",
    );
    one_line(
        view("strategy = 'ful'"),
        "1:32: error: unknown strategy 'ful' | \
         expected 'incremental' (a run reads what is new), 'full' (every run recomputes from the archive) or \
         'stream' (no run reads the archive: what a run needs again is replayed from the log)",
    );
    one_line(
        view("strategy = 'stream', full_every = '7d'"),
        "1:55: error: full_every has no effect with strategy = 'stream' | no run reads the archive: leave one of them out",
    );
    one_line(
        view("strategy = 'full', full_every = '7d'"),
        "1:53: error: full_every has no effect with strategy = 'full' | every run recomputes from the archive: leave one of them out",
    );
    one_line(view("every = '1h', after = 'w'"), "1:35: error: found every and after | keep one of the two");
    one_line(view("after = 'v'"), "1:29: error: the view's runs would wait for themselves | expected the name of another view");
    one_line(
        view("jitter = '10s'"),
        "1:21: error: jitter is given without a schedule | it spreads the runs of a schedule: add every = '1h' or schedule = '0 3 * * *'",
    );
    one_line(
        view("after = 'w', jitter = '10s'"),
        "1:34: error: jitter has no effect with after | leave it out: a run after another view's begins when that one has ended",
    );
    one_line(
        view("every = '1h', jitter = '60m'"),
        "1:44: error: the jitter of 1h is not shorter than the 1h between two runs | expected less than 1h",
    );
    one_line(
        view("schedule = '0,10 3 * * *', jitter = '15m'"),
        "1:57: error: the jitter of 15m is not shorter than the 10m between two runs | expected less than 10m",
    );
    one_line(view("memory_limit = '1MiB'"), "1:36: error: the memory limit is 1MiB | expected at least '16MiB'");
    one_line(view("timeout = '500ms'"), "1:31: error: the timeout is shorter than a second | expected at least '1s'");
    one_line(
        view("keep_old = 'never'"),
        "1:32: error: the duration 'never' is not understood; expected a whole number and a unit (ms, s, m, h, d, w), such as '10m' \
         or '90d' | '1d' keeps the replaced version for a day, '0s' not at all",
    );
    one_line(view("window = '1h'"), "1:21: error: unknown option 'window' | did you mean 'windows'?");
}

#[test]
fn a_wrong_select_is_reported_at_its_place_in_the_file() {
    one_line(
        problems("CREATE VIEW v AS\n  SELECT count(*) AS n\n  FORM s"),
        "3:3: error: found 'FORM' after the SELECT | expected ';' or the end of the file",
    );
    one_line(
        problems("CREATE VIEW v AS SELECT a FROM"),
        "1:31: error: the SELECT is not understood: expected identifier, found the end of the statement",
    );
    one_line(problems("CREATE VIEW v AS"), "1:17: error: found the end of the statement | expected the view's SELECT");
    one_line(problems("CREATE VIEW v SELECT 1 AS x"), "1:15: error: found 'SELECT' | expected AS and the view's SELECT");
    one_line(problems("CREATE VIEW v AS INSERT INTO s VALUES (1)"), "1:18: error: found 'INSERT' | expected the view's SELECT");
    one_line(
        problems("CREATE VIEW v AS SELECT (((((1"),
        "1:31: error: the SELECT is not understood: expected ), found the end of the statement",
    );
}

#[test]
fn a_forgotten_semicolon_is_reported_and_both_statements_are_read() {
    let text = "CREATE VIEW a AS SELECT 1 AS x FROM s\nCREATE VIEW b AS SELECT 1 AS x FROM s";
    let (definitions, diagnostics) = parse(text);
    one_line(diagnostics.to_string(), "a.sql:1:38: error: found the next CREATE without an end of this statement | write ';' here");
    assert_eq!(definitions.views.len(), 2);
}

#[test]
fn an_open_quote_does_not_hide_the_statements_before_it() {
    let (definitions, diagnostics) = parse("CREATE VIEW a AS SELECT 1 AS x;\nCREATE STREAM b (x BLOB);\nCREATE VIEW c AS SELECT 'abc");
    let lines: Vec<String> = diagnostics.iter().map(|d| format!("{}:{}: {}", d.line, d.column, d.message)).collect();
    assert_eq!(lines, ["2:20: unknown type 'BLOB'", "2:25: the stream 'b' names no event time", "3:25: unterminated string literal"]);
    assert_eq!(definitions.views.len(), 1);
    one_line(
        problems("CREATE VIEW a AS SELECT 1 /*! + 1 */ AS x"),
        "1:32: error: found a comment that begins with '/*!' at or before this place | write /* .. */ or -- ..",
    );
}

#[test]
fn a_definition_without_end_is_a_mistake_with_its_place() {
    let text = format!("CREATE VIEW v AS\nSELECT a{} FROM s GROUP BY a", " + a".repeat(100_000));
    let (found, problems) = super::super::parse_definitions(&[(None, text)]);
    assert!(found.views.is_empty());
    let problem = &problems.0[0];
    assert_eq!((problem.line, problem.message.as_str()), (2, "found more than 1024 words and symbols in a row"));
}

#[test]
fn keywords_in_the_places_of_names_are_named_each_at_its_place() {
    assert_eq!(
        problems("CREATE VIEW v AS SELECT k,\n  view, offset, count(*) AS n\nFROM s GROUP BY k, view, offset;\nCREATE STREM t;"),
        "\
2:3: error: the SELECT is not understood: \"view\" is a keyword
  help: to name a column, write it in double quotes: \"view\"
2:9: error: the SELECT is not understood: \"offset\" is a keyword
  help: to name a column, write it in double quotes: \"offset\"
4:8: error: found CREATE 'STREM'
  help: did you mean STREAM?"
    );
    assert_eq!(
        problems("CREATE VIEW v AS SELECT k,\n  interval\nFROM s GROUP BY k, \"interval\";"),
        "\
2:3: error: the SELECT is not understood: \"interval\" is a keyword
  help: to name a column, write it in double quotes: \"interval\""
    );
}
