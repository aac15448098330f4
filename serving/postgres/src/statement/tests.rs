use proptest::prelude::*;

use super::*;
use crate::problem::UNDEFINED_PORTAL;

fn commands(text: &str) -> Vec<Command> {
    statements(text).unwrap().into_iter().map(|statement| statement.command).collect()
}

fn set(name: &str, value: &str) -> Command {
    Command::Set { name: name.into(), value: Some(value.into()), is_local: false }
}

#[test]
fn a_text_is_cut_at_semicolons_that_are_none_of_its_values() {
    let text = "SELECT ';' ; -- ;\n/* ; */ SELECT \"a;b\" FROM \"ü\"; ;; SET x = 1;";
    let found = statements(text).unwrap();
    let parts: Vec<&str> = found.iter().map(|statement| statement.sql.as_str()).collect();
    assert_eq!(parts, ["SELECT ';'", "SELECT \"a;b\" FROM \"ü\"", "SET x = 1"]);
    assert!(found.iter().all(|statement| text[statement.start..].starts_with(&statement.sql)));
    assert_eq!(statements(" ;; -- nothing").unwrap(), []);
}

#[test]
fn a_statement_with_rows_says_whether_it_may_name_the_catalog() {
    let text = "SELECT 1; SELECT * FROM Pg_Class; EXPLAIN SELECT $1::oid; SHOW pg_x; \
        DECLARE c CURSOR FOR SELECT version(); DECLARE pg_c CURSOR FOR SELECT a FROM b";
    let found = statements(text).unwrap();
    let of_statements: Vec<bool> = found.iter().map(|statement| statement.may_name_the_catalog).collect();
    assert_eq!(of_statements, [false, true, true, false, false, false]);
    let of_cursor = |statement: &Statement| match &statement.command {
        Command::Declare(declare) => Some(declare.query.may_name_the_catalog),
        _ => None,
    };
    assert_eq!(found.iter().filter_map(of_cursor).collect::<Vec<bool>>(), [true, false]);
    assert!(statements("SELECT 'pg_").unwrap()[0].may_name_the_catalog);
}

#[test]
fn settings_are_read_in_every_spelling() {
    for (text, expected) in [
        ("SET extra_float_digits = 3", set("extra_float_digits", "3")),
        ("SET SESSION DateStyle TO 'ISO, MDY'", set("datestyle", "ISO, MDY")),
        ("set datestyle to iso, mdy", set("datestyle", "iso, mdy")),
        ("SET TIME ZONE 'Europe/Berlin'", set("timezone", "Europe/Berlin")),
        ("SET TimeZone='UTC'", set("timezone", "UTC")),
        ("SET TIME ZONE -2.5", set("timezone", "-2.5")),
        ("SET TIME ZONE +2", set("timezone", "+2")),
        ("SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE", set("timezone", "INTERVAL '+02:00' hour to minute")),
        ("SET SESSION TIME ZONE INTERVAL '2 hours'", set("timezone", "INTERVAL '2 hours'")),
        ("SET NAMES 'UTF8'", set("client_encoding", "UTF8")),
        ("SET client_encoding = 'UTF8'", set("client_encoding", "UTF8")),
        ("SET search_path = \"$user\", Public, 'A', \"it's\"", set("search_path", "\"$user\", public, \"A\", \"it's\"")),
        ("SET search_path TO ''", set("search_path", "\"\"")),
        ("SET SCHEMA 'system'", set("search_path", "system")),
        ("SET jdbc.note = 'x'", set("jdbc.note", "x")),
        ("SET extra_float_digits TO -15", set("extra_float_digits", "-15")),
        ("SET as_of = '2026-01-01T00:00:00Z'", set("as_of", "2026-01-01T00:00:00Z")),
        ("SET statement_timeout TO DEFAULT", Command::Set { name: "statement_timeout".into(), value: None, is_local: false }),
        ("SET LOCAL as_of = ''", Command::Set { name: "as_of".into(), value: Some(String::new()), is_local: true }),
        ("RESET ALL", Command::ResetAll),
        ("RESET as_of", Command::Reset { name: "as_of".into() }),
        ("SHOW TRANSACTION ISOLATION LEVEL", Command::Show { name: "transaction_isolation".into() }),
        ("SHOW ALL", Command::ShowAll),
        ("SHOW TABLES", Command::Rows),
        ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY", Command::Nothing { tag: "SET" }),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", Command::Nothing { tag: "SET" }),
        ("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY", Command::Begin),
        ("START TRANSACTION", Command::Begin),
        ("END", Command::Commit),
        ("ABORT", Command::Rollback),
        ("SAVEPOINT \"A b\"", Command::Savepoint { name: "A b".into() }),
        ("ROLLBACK TO SAVEPOINT a", Command::RollbackTo { savepoint: "a".into() }),
        ("ROLLBACK WORK TO A", Command::RollbackTo { savepoint: "a".into() }),
        ("RELEASE SAVEPOINT a", Command::Release { savepoint: "a".into() }),
        ("DEALLOCATE ALL", Command::Deallocate { name: None }),
        ("DEALLOCATE PREPARE \"_pg3_0\"", Command::Deallocate { name: Some("_pg3_0".into()) }),
        ("COPY (SELECT 'from') TO STDOUT", Command::Copy),
        ("COPY (SELECT a FROM v) TO STDOUT (FORMAT binary)", Command::Copy),
        ("explain select 1", Command::Rows),
        ("(SELECT 1) UNION (SELECT 2)", Command::Rows),
    ] {
        assert_eq!(commands(text), [expected], "{text}");
    }
    for text in ["SET", "SET x", "SET x =", "SET x 1", "SET a = b c", "SET TimeZone = INTERVAL '2 hours'", "SET TIME ZONE INTERVAL 2"] {
        assert_eq!(statements(text).unwrap_err().state, SYNTAX_ERROR, "{text}");
    }
}

#[test]
fn what_writes_is_refused_as_read_only() {
    for text in [
        "INSERT INTO v VALUES (1)",
        "delete from v",
        "CREATE TABLE t (a int)",
        "COPY v FROM STDIN",
        "VACUUM",
        "TRUNCATE v",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
    ] {
        assert_eq!(statements(text).unwrap_err().state, READ_ONLY, "{text}");
    }
    for text in ["PREPARE p AS SELECT 1", "LISTEN x"] {
        assert_eq!(statements(text).unwrap_err().state, NOT_SUPPORTED, "{text}");
    }
}

#[test]
fn a_cursor_is_declared_with_the_place_of_its_query() {
    for (text, cursor, is_binary) in [
        ("DECLARE c CURSOR FOR SELECT 'for; ü' ;", "c", false),
        ("SELECT 1; declare \"C d\"\nno scroll cursor without hold for /* ü */ (SELECT 2)", "C d", false),
        ("DECLARE cursor BINARY INSENSITIVE CURSOR FOR WITH x AS (SELECT 1) SELECT * FROM x", "cursor", true),
        ("DECLARE c ASENSITIVE CURSOR FOR VALUES (1)", "c", false),
    ] {
        let found = statements(text).unwrap().pop().unwrap();
        let Command::Declare(declare) = &found.command else { panic!("{text}: {found:?}") };
        assert_eq!((declare.cursor.as_str(), declare.is_binary, &declare.query.command), (cursor, is_binary, &Command::Rows), "{text}");
        let query = &text[declare.query.start..];
        assert!(query.starts_with(&declare.query.sql) && found.sql.ends_with(&declare.query.sql), "{text}: {declare:?}");
        assert!(["SELECT", "(SELECT", "WITH", "VALUES"].iter().any(|begin| query.starts_with(begin)), "{text}: {query}");
    }
    for (text, state) in [
        ("DECLARE", SYNTAX_ERROR),
        ("DECLARE c", SYNTAX_ERROR),
        ("DECLARE c CURSOR", SYNTAX_ERROR),
        ("DECLARE c CURSOR FOR", SYNTAX_ERROR),
        ("DECLARE c CURSOR FOR INSERT INTO v VALUES (1)", SYNTAX_ERROR),
        ("DECLARE c NEW CURSOR FOR SELECT 1", SYNTAX_ERROR),
        ("DECLARE c CURSOR WITH FOR SELECT 1", SYNTAX_ERROR),
        ("DECLARE \"\" CURSOR FOR SELECT 1", UNDEFINED_PORTAL),
        ("DECLARE c SCROLL CURSOR FOR SELECT 1", NOT_SUPPORTED),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", NOT_SUPPORTED),
    ] {
        assert_eq!(statements(text).unwrap_err().state, state, "{text}");
    }
}

#[test]
fn rows_are_fetched_forward() {
    for (words, cursor, step) in [
        ("c", "c", CursorStep::Next(1)),
        ("FROM c", "c", CursorStep::Next(1)),
        ("NEXT IN c", "c", CursorStep::Next(1)),
        ("FORWARD c", "c", CursorStep::Next(1)),
        ("FORWARD FROM \"all\"", "all", CursorStep::Next(1)),
        ("100 c", "c", CursorStep::Next(100)),
        ("FORWARD 100 FROM c", "c", CursorStep::Next(100)),
        ("ALL FROM c", "c", CursorStep::All),
        ("FORWARD ALL IN c", "c", CursorStep::All),
        ("forward", "forward", CursorStep::Next(1)),
        ("relative", "relative", CursorStep::Next(1)),
        ("FIRST FROM c", "c", CursorStep::Absolute(1)),
        ("ABSOLUTE 3 FROM c", "c", CursorStep::Absolute(3)),
        ("RELATIVE 3 c", "c", CursorStep::Relative(3)),
    ] {
        let fetch = Fetch { cursor: cursor.into(), step };
        assert_eq!(commands(&format!("FETCH {words}")), [Command::Fetch(fetch.clone())], "{words}");
        assert_eq!(commands(&format!("MOVE {words}")), [Command::Move(fetch)], "{words}");
    }
    for (text, state) in [
        ("FETCH", SYNTAX_ERROR),
        ("FETCH ALL", SYNTAX_ERROR),
        ("FETCH 1 FROM c d", SYNTAX_ERROR),
        ("FETCH FORWARD NEXT FROM c", SYNTAX_ERROR),
        ("FETCH PRIOR FROM c", "55000"),
        ("FETCH BACKWARD ALL FROM c", "55000"),
        ("FETCH -1 FROM c", "55000"),
        ("FETCH FORWARD -1 FROM c", "55000"),
        ("FETCH RELATIVE -1 FROM c", "55000"),
        ("FETCH ABSOLUTE FROM c", SYNTAX_ERROR),
        ("FETCH RELATIVE 0 FROM c", NOT_SUPPORTED),
        ("FETCH LAST FROM c", NOT_SUPPORTED),
        ("MOVE", SYNTAX_ERROR),
        ("MOVE BACKWARD 1 FROM c", "55000"),
        ("FETCH 0 FROM c", NOT_SUPPORTED),
        ("FETCH FORWARD 0 FROM c", NOT_SUPPORTED),
        ("CLOSE", SYNTAX_ERROR),
    ] {
        assert_eq!(statements(text).unwrap_err().state, state, "{text}");
    }
    let closed = |cursor: Option<&str>| Command::CloseCursor { cursor: cursor.map(str::to_owned) };
    assert_eq!(commands("CLOSE ALL; CLOSE \"all\"; CLOSE c"), [closed(None), closed(Some("all")), closed(Some("c"))]);
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        let _ = statements(&text);
    }

    #[test]
    fn no_words_panic(words in prop::collection::vec(prop::sample::select(vec![
        "SET", "LOCAL", "SESSION", "TIME", "ZONE", "TRANSACTION", "ISOLATION", "LEVEL", "x", ".", "=", "TO", "'a'", ",", "-", "1", ";", "\n", "ä",
        "DECLARE", "BINARY", "NO", "SCROLL", "CURSOR", "WITHOUT", "HOLD", "FOR", "SELECT", "FETCH", "FORWARD", "ALL", "FROM", "CLOSE",
        "MOVE", "RELATIVE", "RESET", "SHOW", "DEALLOCATE", "COPY", "ROLLBACK", "--", "/*", "\"q\"", "$1", "$$",
    ]), 0..12)) {
        let _ = statements(&words.join(" "));
        let _ = statements(&words.concat());
    }
}
