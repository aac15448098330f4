use std::time::Duration;

use proptest::prelude::*;

use types::redact::redacted_url;

use super::*;
use types::{ErrorKind, MessageForm};

/// The design's example, as a file.
const EXAMPLE: &str = r#"
[storage]
url = "file:///var/lib/basestream"

[catalog]
url = "sqlite:///var/lib/basestream/catalog.db"

[log]
url = "file:///var/lib/basestream/log"
partitions = 8

[speed]
checkpoint_interval = "5s"
checkpoint_bytes = "128MiB"
max_future = "1m"

[batch]
memory_limit = "1GiB"

[serving]
http = "127.0.0.1:8081"
postgres = "127.0.0.1:5433"
flight = "127.0.0.1:5434"
clock = "event"
memory_limit = "3GiB"
"#;

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn parse(text: &str) -> Settings {
    parse_with(text, &[]).unwrap()
}

fn parse_with(text: &str, pairs: &[(&str, &str)]) -> Result<Settings> {
    Settings::parse(text, Path::new("/project/basestream.toml"), &variables(pairs))
}

fn wrong(text: &str, pairs: &[(&str, &str)]) -> String {
    let error = parse_with(text, pairs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    error.to_string().replace("/project/basestream.toml:", "")
}

#[test]
fn the_design_example_is_read_in_full() {
    let settings = parse(EXAMPLE);
    assert_eq!(settings.project, Path::new("/project"));
    assert_eq!(settings.storage.url.as_str(), "file:///var/lib/basestream");
    assert_eq!(settings.catalog.url.as_str(), "sqlite:///var/lib/basestream/catalog.db");
    assert_eq!(settings.log.url.as_str(), "file:///var/lib/basestream/log");
    assert_eq!(settings.log.partitions, 8);
    assert_eq!(settings.speed.checkpoint_interval, Duration::from_secs(5));
    assert_eq!(settings.speed.checkpoint_bytes, 128 << 20);
    assert_eq!(settings.speed.max_future, Duration::from_secs(60));
    assert_eq!(settings.batch.memory_limit, 1 << 30);
    assert_eq!(settings.serving.http, "127.0.0.1:8081");
    assert_eq!(settings.serving.postgres.as_deref(), Some("127.0.0.1:5433"));
    assert_eq!(settings.serving.flight.as_deref(), Some("127.0.0.1:5434"));
    assert_eq!(settings.serving.clock, ClockKind::Event);
    assert_eq!(settings.serving.memory_limit, 3 << 30);
}

#[test]
fn the_addresses_of_separate_layers_are_none_by_default_checked_as_all_addresses_and_named_where_they_change_nothing() {
    let settings = parse("[speed]\nhttp = '127.0.0.1:8081'\n[scheduler]\nhttp = ''");
    assert_eq!((settings.speed.http.as_deref(), &settings.scheduler.http), (Some("127.0.0.1:8081"), &None));
    let expected = "speed.http = \"127.0.0.1:8081\" has no effect in `up`, which answers at serving.http; it is for `basestream speed`";
    assert_eq!(settings.without_effect_in_up(), [expected]);
    let settings = parse_with("", &[("BASESTREAM__SCHEDULER__HTTP", "host:1")]).unwrap();
    assert_eq!((settings.speed.http, settings.scheduler.http.as_deref()), (None, Some("host:1")));
    assert_eq!(
        wrong("[scheduler]\nhttp = '8082'", &[]),
        "2:8: error: found the address \"8082\"; expected host:port, such as \"127.0.0.1:8080\""
    );
}

#[test]
fn what_changes_nothing_because_of_another_setting_is_named() {
    let text = "[speed]\nflight_advertise = 'worker-1'\n[serving]\nfresh = 'committed'\nfresh_token = 'bst_hush'\nfresh_ca = 'ca.pem'";
    assert_eq!(
        parse(text).without_effect(),
        [
            "speed.flight_advertise has no effect without speed.flight: the workers offer nothing to nodes",
            "serving.fresh_token has no effect with serving.fresh = \"committed\": the node follows no workers",
            "serving.fresh_ca has no effect with serving.fresh = \"committed\": the node follows no workers",
        ]
    );
    let used = "[speed]\nflight = 'h:1'\nflight_advertise = 'worker-1'\n[serving]\nfresh_token = 'bst_hush'\nfresh_ca = 'ca.pem'";
    assert_eq!((parse(used).without_effect(), parse("").without_effect()), (vec![], vec![]));
}

#[test]
fn protocols_have_addresses_of_their_own() {
    assert_eq!(
        wrong("[serving]\npostgres = 'h:1'\nflight = 'h:1'", &[]).trim(),
        "error: serving.flight = \"h:1\" is the address of serving.postgres, too; expected another port"
    );
    assert_eq!(
        wrong("", &[("BASESTREAM__SERVING__FLIGHT", "127.0.0.1:8080")]).trim(),
        "error: serving.flight = \"127.0.0.1:8080\" is the address of serving.http, too; expected another port"
    );
    let error = parse_with("[serving]\npostgres = 'h:1'\nflight = 'h:1'", &[]).unwrap_err();
    assert_eq!(error.message_form(), MessageForm::Diagnostics, "it says by itself that it is an error");
    parse("[serving]\nhttp = 'h:0'\npostgres = 'h:0'\nflight = 'h:0'");
}

#[test]
fn nodes_ask_workers_by_default_and_no_worker_offers_anything_by_default() {
    let settings = parse("");
    assert_eq!((settings.speed.flight, settings.speed.flight_advertise, settings.serving.fresh), (None, None, FreshKind::Stream));
    let text = "[speed]\nflight = '0.0.0.0:0'\nflight_advertise = 'worker-1'\n[serving]\nfresh = 'committed'\nfresh_token = ' bst_hush '\nfresh_ca = 'ca.pem'";
    let settings = parse(text);
    assert_eq!((settings.speed.flight.as_deref(), settings.speed.flight_advertise.as_deref()), (Some("0.0.0.0:0"), Some("worker-1")));
    assert_eq!(settings.serving.fresh, FreshKind::Committed);
    assert_eq!(settings.serving.fresh_token.as_ref().map(Secret::as_str), Some("bst_hush"));
    assert_eq!(settings.serving.fresh_ca.as_deref(), Some(Path::new("/project/ca.pem")));
    assert!(!format!("{settings:?}").contains("hush"));
    assert!(wrong("[speed]\nflight = '7000'", &[]).contains("expected host:port"));
    assert!(wrong("[serving]\nfresh = 'soon'", &[]).contains("soon"));
}

#[test]
fn the_scheduler_runs_one_view_at_a_time_unless_it_may_more() {
    assert_eq!(parse("").scheduler.max_concurrent_runs, 1);
    assert_eq!((parse("").serving.cache_bytes, parse("[serving]\ncache_bytes = '1GiB'").serving.cache_bytes), (None, Some(1 << 30)));
    assert_eq!(parse("[scheduler]\nmax_concurrent_runs = 3").scheduler.max_concurrent_runs, 3);
    let overridden = parse_with("", &[("BASESTREAM__SCHEDULER__MAX_CONCURRENT_RUNS", "2")]).unwrap();
    assert_eq!(overridden.scheduler.max_concurrent_runs, 2);
    assert_eq!(wrong("[scheduler]\nmax_concurrent_runs = 0", &[]), "2:23: error: found 0; expected 1 to 64");
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let settings = parse("");
    assert_eq!(settings.without_effect_in_up(), [""; 0]);
    assert_eq!(settings, Settings::defaults(Path::new("/project")));
    assert_eq!(settings.storage.url.as_str(), "file:///project/data/storage");
    assert_eq!(settings.catalog.url.as_str(), "sqlite:///project/data/catalog.db");
    assert_eq!(settings.log.url.as_str(), "file:///project/data/log");
    assert_eq!(settings.local_dir(), Path::new("/project/data/cache"));
    assert_eq!(settings.serving.drain_timeout, Duration::from_secs(5));
    assert_eq!((settings.serving.postgres, settings.serving.flight), (None, None));
}

#[test]
fn relative_urls_and_paths_count_from_the_files_folder() {
    let storage = |url: &str| parse(&format!("[storage]\nurl = '{url}'")).storage.url.as_str().to_owned();
    for url in ["data", "./data", "file:data", "file:./data", "file://./data", "x/../data"] {
        assert_eq!(storage(url), "file:///project/data", "{url}");
    }
    assert_eq!(storage("../data files"), "file:///data%20files");
    assert_eq!(storage("/elsewhere"), "file:///elsewhere");
    assert_eq!(storage("file:/elsewhere"), "file:///elsewhere");
    assert_eq!(storage("file:///els%20where/"), "file:///els%20where/");
    assert_eq!(storage("s3://bucket/prefix"), "s3://bucket/prefix");
    assert_eq!(storage("memory:///"), "memory:///");

    let catalog = |url: &str| parse(&format!("[catalog]\nurl = '{url}'")).catalog.url.as_str().to_owned();
    assert_eq!(catalog("sqlite:catalog.db"), "sqlite:///project/catalog.db");
    assert_eq!(catalog("sqlite://./catalog.db"), "sqlite:///project/catalog.db");
    assert_eq!(catalog("sqlite::memory:"), "sqlite::memory:");
    assert_eq!(catalog("postgres://u:p@h/db"), "postgres://u:p@h/db");

    let settings = parse("[batch]\ntemp_dir = 'spill'\n[serving]\ncache_dir = '/cache'\npostgres = ''");
    assert_eq!(settings.batch.temp_dir.as_deref(), Some(Path::new("/project/spill")));
    assert_eq!(settings.local_dir(), Path::new("/cache"));
    assert_eq!(settings.serving.postgres, None);
}

#[test]
fn variables_and_files_are_substituted_in_any_string() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "s3cret\r\n").unwrap();
    let text = "[catalog]\nurl = 'postgres://${USER}:${file:secret}@h/db'\n[log.properties]\n'client.id' = 'a$${b}${USER}'";
    let settings = Settings::parse(text, &dir.path().join("basestream.toml"), &variables(&[("USER", "me")])).unwrap();
    assert_eq!(settings.catalog.url.as_str(), "postgres://me:s3cret@h/db");
    assert_eq!(settings.log.properties["client.id"], "a${b}me");
}

#[test]
fn every_key_is_overridden_by_its_variable() {
    let settings = parse_with(
        EXAMPLE,
        &[
            ("BASESTREAM__LOG__URL", "kafka://a:9092,b:9092"),
            ("BASESTREAM__LOG__PARTITIONS", "12"),
            ("BASESTREAM__LOG__PROPERTIES__SASL_PASSWORD", "0123"),
            ("BASESTREAM__SPEED__CHECKPOINT_BYTES", "1048576"),
            ("BASESTREAM__SPEED__CHECKPOINT_INTERVAL", "2s"),
            ("BASESTREAM__SPEED__GROUP", "7"),
            ("BASESTREAM__SERVING__CLOCK", "\"wall\""),
            ("BASESTREAM__SERVING__POSTGRES", ""),
            ("BASESTREAM__CATALOG__URL", "postgres://${USER}@h/db"),
            ("USER", "me"),
            ("BASESTREAM_OTHER", "not ours"),
        ],
    )
    .unwrap();
    assert_eq!(settings.log.url.as_str(), "kafka://a:9092,b:9092");
    assert_eq!(settings.log.partitions, 12);
    assert_eq!(settings.log.properties["sasl.password"], "0123");
    assert_eq!(settings.speed.checkpoint_bytes, 1 << 20);
    assert_eq!(settings.speed.checkpoint_interval, Duration::from_secs(2));
    assert_eq!(settings.speed.group, "7");
    assert_eq!(settings.serving.clock, ClockKind::Wall);
    assert_eq!(settings.serving.postgres, None);
    assert_eq!(settings.catalog.url.as_str(), "postgres://me@h/db");
}

#[test]
fn an_override_takes_the_place_of_a_value_that_cannot_be_read() {
    let settings = parse_with("[catalog]\nurl = '${MISSING}'", &[("BASESTREAM__CATALOG__URL", "sqlite:///c.db")]).unwrap();
    assert_eq!(settings.catalog.url.as_str(), "sqlite:///c.db");
}

#[test]
fn properties_are_written_with_or_without_quotes_around_the_key() {
    let settings = parse("[log.properties]\nsasl.username = 'me'\n'sasl.password' = 'x'\nsocket.timeout.ms = 1000\n\"check.crcs\" = true");
    let pairs: Vec<(&str, &str)> = settings.log.properties.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("check.crcs", "true"), ("sasl.password", "x"), ("sasl.username", "me"), ("socket.timeout.ms", "1000")]);
}

#[test]
fn a_mistake_is_reported_with_its_place_what_was_found_and_what_was_expected() {
    assert_eq!(
        wrong("[serving]\n\nhtp = 'x'", &[]),
        "3:1: error: unknown field `htp`, expected one of `http`, `postgres`, `flight`, `fresh`, `fresh_token`, `fresh_ca`, `clock`, `memory_limit`, `query_timeout`, `drain_timeout`, `lease`, `cache_dir`, `cache_bytes`, `hot_key_share`, `hot_key_rate`, `row_cache`, `auth`, `tls`, `limits`"
    );
    assert_eq!(wrong("[speed]\n  max_future = 10", &[]), "2:16: error: the duration 10 has no unit; expected text such as \"10s\"");
    assert_eq!(
        wrong("[speed]\nmax_future = '10x'", &[]),
        "2:14: error: the duration '10x' has the unknown unit 'x'; expected ms, s, m or min, h, d or w"
    );
    assert_eq!(wrong("[speed]\nmax_future = true", &[]), "2:14: error: invalid type: boolean `true`, expected a duration such as \"10s\"");
    assert_eq!(wrong("[batch]\nmemory_limit = 0", &[]), "2:16: error: the size 0 is not more than zero");
    assert_eq!(wrong("[speed]\nhot_key_share = 0", &[]), "2:17: error: the share 0 is not more than 0 and at most 1");
    assert_eq!(wrong("[serving]\nhot_key_share = 1.5", &[]), "2:17: error: the share 1.5 is not more than 0 and at most 1");
    assert_eq!(wrong("[batch]\nlease = '1ms'", &[]), "2:9: error: the lease 1ms is shorter than 1s");
    assert_eq!(wrong("[serving]\nlease = '999ms'", &[]), "2:9: error: the lease 999ms is shorter than 1s");
    assert_eq!(wrong("[serving]\nrow_cache = -1", &[]), "2:13: error: the size -1 is less than zero");
    assert_eq!(wrong("[log]\npartitions = 0", &[]), "2:14: error: found 0; expected 1 to 1024");
    assert_eq!(wrong("[serving]\nclock = 'wal'", &[]), "2:9: error: unknown variant `wal`, expected `wall` or `event`");
    assert_eq!(
        wrong("[serving]\nhttp = '8080'", &[]),
        "2:8: error: found the address \"8080\"; expected host:port, such as \"127.0.0.1:8080\""
    );
    assert_eq!(
        wrong("[log]\nurl = 'redis://u:secret@h'", &[]),
        "2:7: error: found the URL \"redis://u:***@h\"; expected a folder, file:///folder or kafka://host:9092,host:9092"
    );
    assert_eq!(
        wrong("[catalog]\nurl = 'catalog.db'", &[]),
        "2:7: error: found the URL \"catalog.db\"; expected sqlite:///path/catalog.db or postgres://user:password@host:port/database"
    );
    assert_eq!(
        wrong("[catalog]\nurl = 'x${A}'\n[log]\nurl = '${B'", &[]),
        "2:7: error: the environment variable of ${A} is not set\n\
         4:7: error: found '${' without '}'; expected ${NAME} or ${file:/path}, or $${ for a plain ${"
    );
    assert!(wrong("[log\nurl = 'x'", &[]).starts_with("1:5: error: "), "{}", wrong("[log\nurl = 'x'", &[]));
}

#[test]
fn a_name_without_a_letter_is_refused() {
    assert_eq!(wrong("[speed]\ngroup = ''", &[]), "2:9: error: found \"\"; expected a name");
    assert_eq!(wrong("[serving.auth]\nroles_claim = ' '", &[]), "2:15: error: found \" \"; expected a name");
    assert_eq!(wrong("", &[("BASESTREAM__SPEED__GROUP", "")]), "BASESTREAM__SPEED__GROUP: error: found \"\"; expected a name");
    assert_eq!(parse("[serving.auth]\nroles_claim = 'realm_access.roles'").serving.auth.roles_claim, "realm_access.roles");
}

#[test]
fn a_mistake_in_a_variable_is_reported_with_its_name() {
    assert_eq!(
        wrong("", &[("BASESTREAM__SPEED__MAX_FUTURE", "10x")]),
        "BASESTREAM__SPEED__MAX_FUTURE: error: the duration '10x' has the unknown unit 'x'; expected ms, s, m or min, h, d or w"
    );
    assert_eq!(
        wrong("", &[("BASESTREAM__LOG__URI", "x")]),
        "BASESTREAM__LOG__URI: error: unknown field `uri`, expected one of `url`, `partitions`, `retention`, `properties`"
    );
    assert_eq!(
        wrong("", &[("BASESTREAM__LOG", "x")]),
        "BASESTREAM__LOG: error: the variable names no setting\n  help: expected BASESTREAM__SECTION__KEY, such as BASESTREAM__LOG__URL"
    );
    assert_eq!(wrong("log = 1", &[("BASESTREAM__LOG__URL", "x")]), "BASESTREAM__LOG__URL: error: 'log' is not a section of the file");
}

#[test]
fn a_file_that_is_not_there_is_not_found() {
    let error = Settings::load(Path::new("/nowhere/basestream.toml"), &Variables::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.to_string(), "there is no settings file at /nowhere/basestream.toml; expected basestream.toml (see --config)");
}

#[test]
fn a_file_is_loaded_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    std::fs::write(&path, EXAMPLE).unwrap();
    let settings = Settings::load(&path, &Variables::from_process()).unwrap();
    assert_eq!(settings.project, dir.path());
}

#[test]
fn no_secret_is_in_the_debug_text() {
    let settings = parse(
        "[storage]\nurl = 's3://bucket/p?secret_access_key=hush1&x=y'\n[catalog]\nurl = 'postgres://u:hush2@h/db?sslpassword=hush3'\n\
         [log.properties]\nsasl.password = 'hush4'\nssl.key.pem = 'hush5'\nclient.id = 'seen'",
    );
    let text = format!("{settings:?} {}", settings.catalog.url);
    assert!(!text.contains("hush"), "{text}");
    assert!(text.contains("seen") && text.contains("u:***@h/db?sslpassword=***") && text.contains("***&x=y"), "{text}");
}

#[test]
fn a_value_that_came_from_a_variable_is_reported_by_its_name_wherever_it_is_wrong() {
    let secret = [("SECRET", "hush\"x"), ("BASESTREAM__CATALOG", "postgres://u:hush@h/db")];
    let reported = |text: &str| wrong(text, &secret[..1]);
    for (text, name) in [
        ("[log]\npartitions = '${SECRET}'", "${SECRET}"),
        ("[speed]\ncheckpoint_interval = 'a${SECRET}'", "a${SECRET}"),
        ("[serving]\nhttp = '${SECRET}'", "${SECRET}"),
        ("[serving]\nclock = '${SECRET}'", "${SECRET}"),
        ("[storage]\nurl = 3\n[catalog]\nurl = '${SECRET}'", ""),
        ("catalog = '${SECRET}'", "${SECRET}"),
        ("catalog = 'postgres://u:hush@h/db'", "postgres://u:***@h/db"),
        ("[speed]\ngroup = ['${SECRET}']", ""),
    ] {
        let message = reported(text);
        assert!(!message.contains("hush") && message.contains(name), "{text}: {message}");
    }
    assert!(!wrong("", &secret[1..]).contains("hush"));
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>(), value in any::<String>()) {
        let _ = parse_with(&text, &[("BASESTREAM__LOG__URL", &value)]);
        let _ = parse_with(&format!("[log]\nurl = {value:?}"), &[]);
        let _ = redacted_url(&text);
    }

    #[test]
    fn no_password_of_any_letters_is_seen(password in "[a-z@/?&:=%#]{0,5}hush[a-z@/?:%#&=]{0,5}") {
        let shown = redacted_url(&format!("postgres://user:{password}@host/db"));
        prop_assert!(!shown.contains("hush"), "{shown}");
    }
}

#[test]
fn who_may_call_is_unsaid_by_default_and_read_in_full() {
    let auth = parse("").serving.auth;
    assert_eq!((auth.required, auth.issuer, auth.roles_claim.as_str()), (None, None, "roles"));
    assert_eq!(auth.public.iter().map(|path| path.path()).collect::<Vec<_>>(), ["/", "/healthz", "/readyz"]);
    let text = "[serving.auth]\nrequired = true\npublic = ['metrics']\nissuer = 'https://a'\naudience = 'b'\nroles_claim = 'c.d'\n\
        [serving.tls]\ncert = 'cert.pem'\nkey = '/key.pem'\nclient_ca = ''";
    let serving = parse(text).serving;
    assert_eq!((serving.auth.required, serving.auth.public.len()), (Some(true), 1));
    assert_eq!((serving.auth.issuer.as_deref(), serving.auth.audience.as_deref()), (Some("https://a"), Some("b")));
    assert_eq!(serving.tls.cert.as_deref(), Some(Path::new("/project/cert.pem")));
    assert_eq!((serving.tls.key.as_deref(), &serving.tls.client_ca), (Some(Path::new("/key.pem")), &None));
    let overridden = parse_with("", &[("BASESTREAM__SERVING__AUTH__REQUIRED", "false")]).unwrap();
    assert_eq!(overridden.serving.auth.required, Some(false));
    assert!(wrong("[serving.auth]\npublic = ['everything']", &[]).contains("everything"));
    assert!(wrong("[serving.auth]\nrequired = 'yes'", &[]).contains("boolean"));
    assert!(wrong("[serving.auth]\ntoken = 'x'", &[]).contains("token"));
}

#[test]
fn limits_of_questions_are_read_and_nothing_is_limited_to_none() {
    let limits =
        parse("[serving.limits]\nconcurrent_queries = 4\nquery_time = '5m'\nquery_memory = '256MiB'\nresult_rows = 1000").serving.limits;
    assert_eq!((limits.concurrent_queries, limits.query_time), (4, Some(Duration::from_secs(300))));
    assert_eq!((limits.query_memory, limits.result_rows, limits.queued_queries), (Some(256 << 20), Some(1000), 256));
    let of_principal = |text: &str| parse(&format!("[serving.limits]\n{text}")).serving.limits.memory_per_principal;
    assert_eq!((of_principal("memory_per_principal = '1GiB'"), of_principal("query_memory = '1GiB'")), (Some(1 << 30), None));
    assert!(wrong("[serving.limits]\nmemory_per_principal = 0", &[]).contains("the size 0 is not more than zero"));
    assert!(wrong("[serving.limits]\nconcurrent_queries = 0", &[]).contains("expected 1 to"));
    assert!(wrong("[serving.limits]\nqueue_wait = 10", &[]).contains("has no unit"));
}
