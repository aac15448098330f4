use proptest::prelude::*;

use super::*;

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
fn settings_are_read_in_every_spelling() {
    for (text, expected) in [
        ("SET extra_float_digits = 3", set("extra_float_digits", "3")),
        ("SET SESSION DateStyle TO 'ISO, MDY'", set("datestyle", "ISO, MDY")),
        ("set datestyle to iso, mdy", set("datestyle", "iso, mdy")),
        ("SET TIME ZONE 'Europe/Berlin'", set("timezone", "Europe/Berlin")),
        ("SET TimeZone='UTC'", set("timezone", "UTC")),
        ("SET NAMES 'UTF8'", set("client_encoding", "UTF8")),
        ("SET client_encoding = 'UTF8'", set("client_encoding", "UTF8")),
        ("SET search_path = \"$user\", public", set("search_path", "$user, public")),
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
        ("ROLLBACK TO SAVEPOINT a", Command::RollbackTo),
        ("RELEASE SAVEPOINT a", Command::Nothing { tag: "RELEASE" }),
        ("DEALLOCATE ALL", Command::Deallocate { name: None }),
        ("DEALLOCATE PREPARE \"_pg3_0\"", Command::Deallocate { name: Some("_pg3_0".into()) }),
        ("COPY (SELECT 'from') TO STDOUT", Command::Copy),
        ("COPY (SELECT a FROM v) TO STDOUT (FORMAT binary)", Command::Copy),
        ("explain select 1", Command::Rows),
        ("(SELECT 1) UNION (SELECT 2)", Command::Rows),
    ] {
        assert_eq!(commands(text), [expected], "{text}");
    }
    for text in ["SET", "SET x", "SET x =", "SET x 1", "SET a = b c"] {
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
    for text in ["DECLARE c CURSOR FOR SELECT 1", "PREPARE p AS SELECT 1", "LISTEN x"] {
        assert_eq!(statements(text).unwrap_err().state, NOT_SUPPORTED, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        let _ = statements(&text);
    }

    #[test]
    fn no_words_panic(words in prop::collection::vec(prop::sample::select(vec![
        "SET", "LOCAL", "SESSION", "TIME", "ZONE", "TRANSACTION", "ISOLATION", "LEVEL", "x", ".", "=", "TO", "'a'", ",", "-", "1", ";", "\n", "ä",
        "RESET", "SHOW", "DEALLOCATE", "COPY", "ROLLBACK", "--", "/*", "\"q\"", "$1", "$$",
    ]), 0..12)) {
        let _ = statements(&words.join(" "));
        let _ = statements(&words.concat());
    }
}
