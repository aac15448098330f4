use proptest::collection::vec;
use proptest::prelude::*;

use super::settings::SettingCheck;
use super::transaction::{MAX_SAVED_BYTES, MAX_SAVEPOINTS};
use super::*;
use crate::problem::{INVALID_PARAMETER_VALUE, NOT_SUPPORTED, UNDEFINED_OBJECT};

fn session() -> ClientSession {
    let parameters = [("application_name", "test"), ("user", "ann"), ("TimeZone", "UTC"), ("client_encoding", "'utf-8'")];
    ClientSession::begin("ann", &parameters.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Set(bool, u8),
    Begin,
    End(bool),
    Fail,
    Savepoint,
    GoOn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (any::<bool>(), 0u8..5).prop_map(|(local, value)| Step::Set(local, value)),
        Just(Step::Begin),
        any::<bool>().prop_map(Step::End),
        Just(Step::Fail),
        Just(Step::Savepoint),
        Just(Step::GoOn),
    ];
    vec(step, 0..30)
}

proptest! {
    /// Against a model of values alone: the lasting one, the one of SET LOCAL, and those to go back to.
    #[test]
    fn settings_follow_the_transaction(steps in steps()) {
        let mut session = session();
        let (mut lasting, mut local, mut before, mut failed) = ("test".to_owned(), None::<String>, None::<String>, false);
        let mut saved = None::<(String, Option<String>)>;
        for step in steps {
            let (changes, reported) = (session.changes(), session.reported());
            match step {
                Step::Set(is_local, value) => {
                    session.set("application_name", Some(&value.to_string()), is_local).unwrap();
                    match (is_local, before.is_some()) {
                        (true, true) => local = Some(value.to_string()),
                        (true, false) => {}
                        (false, _) => (lasting, local) = (value.to_string(), None),
                    }
                }
                Step::Begin => {
                    prop_assert_eq!(session.begin_transaction(), before.is_none());
                    before.get_or_insert_with(|| lasting.clone());
                }
                Step::End(commit) => {
                    let committed = session.end_transaction(commit);
                    prop_assert_eq!(committed, before.as_ref().map(|_| commit && !failed));
                    if let (Some(before), Some(false)) = (before.take(), committed) {
                        lasting = before;
                    }
                    (local, failed, saved) = (None, false, None);
                }
                Step::Fail => {
                    session.fail();
                    failed = before.is_some();
                }
                Step::Savepoint => {
                    session.set_savepoint("a", 0);
                    saved = before.as_ref().map(|_| (lasting.clone(), local.clone()));
                }
                Step::GoOn => {
                    let gone_on = session.go_on_from_savepoint("a");
                    prop_assert_eq!(gone_on.is_err(), before.is_some() && saved.is_none());
                    if let Some(saved) = saved.clone() {
                        failed = false;
                        (lasting, local) = saved;
                    }
                }
            }
            prop_assert_eq!(session.get("application_name").unwrap(), local.clone().unwrap_or_else(|| lasting.clone()));
            prop_assert_eq!(session.has_failed(), failed);
            prop_assert!(session.changes() != changes || session.reported() == reported, "clients would not hear of it");
        }
    }

    #[test]
    fn no_value_panics(name in 0usize..KNOWN.len(), value in "\\PC{0,20}") {
        let _ = session().set(KNOWN[name].name, Some(&value), false);
    }
}

/// How many portals there were when the savepoint was set, or the SQLSTATE of the refusal.
fn gone_on(session: &mut ClientSession, savepoint: &str) -> Result<Option<u64>, &'static str> {
    session.go_on_from_savepoint(savepoint).map_err(|problem| problem.state)
}

#[test]
fn a_savepoint_knows_how_many_portals_there_were() {
    let mut session = session();
    session.set_savepoint("a", 1);
    assert_eq!(gone_on(&mut session, "a"), Ok(None), "there is no transaction");
    session.begin_transaction();
    for (portals_made, name) in ["a", "b", "a", "c"].into_iter().enumerate() {
        session.set_savepoint(name, portals_made as u64);
    }
    assert_eq!(gone_on(&mut session, "a"), Ok(Some(2)));
    assert_eq!(gone_on(&mut session, "c"), Err("3B001"), "it ended with what is before it");
    session.release_savepoint("a").unwrap();
    assert_eq!(session.release_savepoint("c").unwrap_err().state, "3B001");
    assert_eq!(gone_on(&mut session, "a"), Ok(Some(0)));
    assert_eq!(gone_on(&mut session, "a"), Ok(Some(0)), "a savepoint stays");
    session.end_transaction(true);
    session.begin_transaction();
    session.fail();
    assert_eq!(gone_on(&mut session, "a"), Err("3B001"));
    assert!(session.has_failed());
    let long = "ü".repeat(70);
    session.set_savepoint(&long, 7);
    assert_eq!(gone_on(&mut session, &long), Ok(Some(7)));
    for _ in 0..MAX_SAVEPOINTS {
        session.set_savepoint("driver", 8);
    }
    assert_eq!(gone_on(&mut session, &long), Ok(Some(u64::MAX)), "it was forgotten");
    assert_eq!(gone_on(&mut session, "driver"), Ok(Some(8)));
}

#[test]
fn the_oldest_savepoints_are_forgotten_where_their_settings_are_large() {
    let mut session = session();
    session.begin_transaction();
    let large = "x".repeat(MAX_CUSTOM_BYTES / 2);
    for number in 0..100 {
        session.set("app.large", Some(&format!("{number}{large}")), false).unwrap();
        for _ in 0..3 {
            session.set_savepoint(&format!("s{number}"), number);
        }
    }
    let transaction = session.transaction.as_ref().unwrap();
    assert!(transaction.saved_bytes() <= MAX_SAVED_BYTES && transaction.savepoints.len() > 30, "{}", transaction.savepoints.len());
    assert_eq!(gone_on(&mut session, "s0"), Ok(Some(u64::MAX)));
    assert!(session.get("app.large").unwrap().starts_with("99x"), "it is that of the last one");
    assert_eq!(gone_on(&mut session, "s98"), Ok(Some(98)));
    assert!(session.get("app.large").unwrap().starts_with("98x"));
}

#[test]
fn the_list_of_settings_is_sorted_by_no_name_twice_and_its_defaults_are_allowed() {
    for (index, known) in KNOWN.iter().enumerate() {
        assert!(KNOWN[..index].iter().all(|earlier| earlier.name != known.name), "{}", known.name);
        assert_eq!(known.shown.to_lowercase(), known.name);
        if !matches!(known.check, SettingCheck::Fixed) {
            assert_eq!(checked(known.name, known.default).unwrap(), known.default, "{}", known.name);
        }
    }
}

#[test]
fn values_are_kept_in_one_spelling_or_refused() {
    let mut session = session();
    for (name, value, kept) in [
        ("client_encoding", "utf-8", "UTF8"),
        ("datestyle", "iso, dmy", "ISO, DMY"),
        ("datestyle", "ISO", "ISO, MDY"),
        ("timezone", "europe/berlin", "Europe/Berlin"),
        ("timezone", "+2", "<+02>-02"),
        ("statement_timeout", "5min", "5min"),
        ("my.setting", "x", "x"),
        ("as_of", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    ] {
        session.set(name, Some(value), false).unwrap();
        assert_eq!(session.get(name).unwrap(), kept, "{name}");
    }
    assert_eq!(session.statement_timeout(), Some(Duration::from_secs(300)));
    assert_eq!(session.as_of(), Some(1_767_225_600_000_000));
    for (name, value, state) in [
        ("client_encoding", "LATIN1", INVALID_PARAMETER_VALUE),
        ("datestyle", "German", INVALID_PARAMETER_VALUE),
        ("timezone", "Mars/Base", INVALID_PARAMETER_VALUE),
        ("timezone", "24", INVALID_PARAMETER_VALUE),
        ("statement_timeout", "soon", INVALID_PARAMETER_VALUE),
        ("as_of", "yesterday", INVALID_PARAMETER_VALUE),
        ("transaction_read_only", "off", INVALID_PARAMETER_VALUE),
        ("server_version", "9", "55P02"),
        ("nonsense", "1", UNDEFINED_OBJECT),
    ] {
        assert_eq!(session.set(name, Some(value), false).unwrap_err().state, state, "{name}");
    }
    session.reset_all();
    assert_eq!((session.as_of(), session.statement_timeout()), (None, None));
    assert_eq!(session.get("application_name").unwrap(), "test", "what the client connected with");
}

#[test]
fn a_transaction_and_a_suspended_portal_wait_for_their_client_a_bounded_time() {
    let mut session = session();
    assert_eq!(session.idle_timeout(false), None);
    assert_eq!(session.idle_timeout(true), Some(IDLE_IN_TRANSACTION), "a suspended portal keeps files too");
    session.begin_transaction();
    assert_eq!(session.idle_timeout(false), Some(IDLE_IN_TRANSACTION));
    session.set("idle_in_transaction_session_timeout", Some("1s"), false).unwrap();
    assert_eq!(session.idle_timeout(false), Some(Duration::from_secs(1)));
    session.set("idle_in_transaction_session_timeout", Some("7d"), false).unwrap();
    assert_eq!(session.idle_timeout(false), Some(IDLE_IN_TRANSACTION));
}

#[test]
fn settings_that_the_server_does_not_know_take_no_more_than_they_may() {
    let mut session = session();
    let half = "x".repeat(MAX_CUSTOM_BYTES / 2);
    session.set("app.a", Some(&half), false).unwrap();
    session.set("app.a", Some(&half), false).unwrap();
    for is_local in [false, true] {
        session.begin_transaction();
        assert_eq!(session.set("app.b", Some(&half), is_local).unwrap_err().state, CONFIGURATION_LIMIT);
    }
    session.set("app.a", None, true).unwrap();
    assert_eq!(session.set("app.b", Some(&half), false).unwrap_err().state, CONFIGURATION_LIMIT, "a rollback brings it back");
    session.set("app.a", None, false).unwrap();
    session.set("app.b", Some(&half), false).unwrap();
}

fn begun(options: &str) -> Result<ClientSession, SqlProblem> {
    ClientSession::begin("ann", &[("options".to_owned(), options.to_owned())])
}

#[test]
fn options_of_the_startup_are_settings() {
    for options in [
        "-c as_of=2026-03-01T10:00:00Z -c statement_timeout=5s",
        "-cas_of=2026-03-01T10:00:00Z --statement-timeout=5s",
        "  --as_of=2026-03-01T10:00:00Z   --statement_timeout=5s ",
    ] {
        let mut session = begun(options).unwrap_or_else(|problem| panic!("{options}: {problem:?}"));
        assert_eq!(session.as_of(), Some(1_772_359_200_000_000), "{options}");
        assert_eq!(session.statement_timeout(), Some(Duration::from_secs(5)), "{options}");
        session.set("as_of", Some(""), false).unwrap();
        session.reset_all();
        assert!(session.as_of().is_some(), "RESET goes back to what the client connected with");
    }
    let spaced = begun(r"-c application_name=two\ words\\ -c jit=off").unwrap();
    assert_eq!((spaced.get("application_name").unwrap().as_str(), spaced.get("jit").unwrap().as_str()), (r"two words\", "off"));
}

#[test]
fn options_that_are_not_understood_are_refused() {
    for (options, state) in [
        ("-c as_of=yesterday", INVALID_PARAMETER_VALUE),
        ("-c as_of", INVALID_PARAMETER_VALUE),
        ("-c", INVALID_PARAMETER_VALUE),
        ("-d 5", INVALID_PARAMETER_VALUE),
        ("nothing", INVALID_PARAMETER_VALUE),
        ("-c no_such_setting=1", UNDEFINED_OBJECT),
        ("--server_version=9", "55P02"),
    ] {
        assert_eq!(begun(options).unwrap_err().state, state, "{options}");
    }
    assert!(begun("").is_ok());
}

#[test]
fn the_zone_and_the_timeout_follow_every_change_of_settings() {
    let mut session = session();
    let (utc, berlin) = (Zone::default(), Zone::named("Europe/Berlin").unwrap());
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    session.set("timezone", Some("Europe/Berlin"), false).unwrap();
    assert_eq!((session.zone(), session.statement_timeout()), (berlin, None));
    session.begin_transaction();
    session.set("timezone", Some("UTC"), true).unwrap();
    session.set("statement_timeout", Some("5s"), false).unwrap();
    assert_eq!((session.zone(), session.statement_timeout()), (utc, seconds(5)));
    session.end_transaction(false);
    assert_eq!((session.zone(), session.statement_timeout()), (berlin, None));
    session.set("statement_timeout", Some("7s"), false).unwrap();
    session.set("timezone", None, false).unwrap();
    assert_eq!((session.zone(), session.statement_timeout()), (utc, seconds(7)));
    session.reset_all();
    assert_eq!((session.zone(), session.statement_timeout()), (utc, None));

    let parameters = [("TimeZone".to_owned(), "Europe/Berlin".to_owned())];
    assert_eq!(ClientSession::begin("ann", &parameters).unwrap().zone(), berlin);
}

#[test]
fn the_search_path_follows_every_change_of_settings() {
    let mut session = session();
    let path = |names: &[&str]| SearchPath::from_names(names.iter().copied());
    let now = |session: &ClientSession| (session.search_path(), session.get(SEARCH_PATH).unwrap(), session.values().schemas().join(" "));
    let default = (path(&["public"]), "\"$user\", public".to_owned(), "public".to_owned());
    assert_eq!(now(&session), default);
    session.set(SEARCH_PATH, Some("System, nowhere, pg_catalog, public, system"), false).unwrap();
    let schemas = "system pg_catalog public".to_owned();
    let changed = (path(&["system", "public"]), "System, nowhere, pg_catalog, public, system".to_owned(), schemas);
    assert_eq!(now(&session), changed);
    session.begin_transaction();
    session.set(SEARCH_PATH, Some(""), true).unwrap();
    assert_eq!(now(&session), (path(&[]), String::new(), String::new()));
    session.end_transaction(true);
    assert_eq!(now(&session), changed);
    session.set(SEARCH_PATH, None, false).unwrap();
    assert_eq!(now(&session), default);
    for (value, state) in [("a b", INVALID_PARAMETER_VALUE), ("public, information_schema", NOT_SUPPORTED)] {
        assert_eq!(session.set(SEARCH_PATH, Some(value), false).unwrap_err().state, state, "{value}");
    }
    assert_eq!(now(&begun("-c search_path=system").unwrap()).0, path(&["system"]));
}

#[test]
fn what_a_query_asks_for_is_set_afterwards() {
    let mut session = session();
    let (values, asked) = (session.values(), AskedSettings::default());
    let ask = |name: &str, value: Option<&str>, is_local: bool| asked.ask(&values, Some(name), value, is_local);
    assert_eq!(ask("TimeZone", Some("europe/berlin"), false).as_deref(), Some("Europe/Berlin"));
    assert_eq!(ask("my.setting", Some("x"), false).as_deref(), Some("x"));
    assert_eq!(ask("application_name", None, false).as_deref(), Some("test"), "what the client connected with");
    assert_eq!(ask("search_path", Some("system"), true).as_deref(), Some("system"), "it ends with its statement");
    assert_eq!(session.get("timezone").unwrap(), "UTC");
    asked.check().unwrap();
    session.set_asked(&asked).unwrap();
    let now: Vec<String> = ["timezone", "my.setting", SEARCH_PATH].iter().map(|name| session.get(name).unwrap()).collect();
    assert_eq!(now, ["Europe/Berlin", "x", "\"$user\", public"]);
    session.set("my.setting", Some("y"), false).unwrap();
    session.set_asked(&asked).unwrap();
    assert_eq!(session.get("my.setting").unwrap(), "y", "it was set once");
    for (name, value, state) in [
        (Some("nonsense"), Some("1"), UNDEFINED_OBJECT),
        (Some("nonsense"), None, UNDEFINED_OBJECT),
        (None, Some("1"), UNDEFINED_OBJECT),
        (Some("server_version"), Some("9"), "55P02"),
        (Some("TimeZone"), Some("Mars/Base"), INVALID_PARAMETER_VALUE),
    ] {
        let asked = AskedSettings::default();
        assert_eq!(asked.ask(&values, name, value, false), None, "{name:?}");
        asked.ask(&values, Some("client_encoding"), Some("LATIN1"), false);
        asked.ask(&values, Some("my.setting"), Some("z"), false);
        assert_eq!(asked.check().unwrap_err().state, state, "{name:?}");
    }
}
