use engine::functions::Functions;

use super::*;

const EXAMPLE: &str = include_str!("../../../examples/features-script/payments.script");
const CONSOLE_EXAMPLE: &str = include_str!("../../../examples/features-script/console.script");

/// Streams, fields and a sink; one feature follows in line 8.
const HEAD: &str = "set-source --event-type pay --time ts --key device\nset-source --event-type login --time ts\n\
    set-sink --event-type pay --topic out\nadd-field --event-type pay,login --name ts --type timestamptz\n\
    add-field --event-type pay,login --name device --type text\nadd-field --event-type pay,login --name amount --type double\n\
    add-macro --name 'M_LOOP(a)' --replace 'F_ADD(M_LOOP(a), 1)'\n";

fn refused(line: &str) -> Vec<Mistake> {
    let translated = translate("s", &format!("{HEAD}{line}\n"));
    assert!(translated.files.is_empty(), "{line} was translated");
    translated.mistakes
}

#[test]
fn what_has_no_exact_form_is_refused_by_its_line() {
    let feature = |text: &str| format!("add-feature --name f --expr \"{text}\"");
    for (line, message) in [
        (feature("MEDIAN(7d, pay, amount, device)"), "there is no operator MEDIAN"),
        (feature("COUNT(7x, pay, device)"), "the window of COUNT"),
        (feature("COUNT(1M, pay, device)"), "has the unknown unit 'M'"),
        (feature("COUNT(7d, paid, device)"), "there is no `set-source` for the event type `paid`"),
        (feature("SUM(7d, pay, amont, device)"), "the event type `pay` has no field `amont`"),
        (feature("SUM(7d, pay, amount=3, device)"), "cannot have a value"),
        (feature("SUM(7d, pay, amount, device=SET(7d, pay, device, device))"), "has no exact form"),
        (feature("FLAT_COUNT_DISTINCT(7d, pay, amount, SET(7d, login, device, amount), device)"), "has no exact form"),
        (feature("F_SINH(amount)"), "there is no exact form of F_SINH"),
        (feature("F_ADD(amount)"), "F_ADD takes 2 arguments, found 1"),
        (feature("M_LOOP(amount)"), "does a macro call itself?"),
        (feature("M_NONE(amount)"), "there is no macro M_NONE"),
        (feature("F_ADD(COUNT(7d, pay, device)=1, 2)"), "only a name stands before `=`"),
        (feature("F_SUM()"), "F_SUM takes at least 1 argument, found 0"),
        (feature("VARIANCE(1d, pay, ts, device)"), "VARIANCE takes numbers, found the field `ts`, which is TIMESTAMPTZ: expected a field"),
        (feature("VARIANCE(1d, pay, F_MINUS(ts, ts), device)"), "VARIANCE takes numbers, found the field `ts`, which is TIMESTAMPTZ"),
        (feature("F_DIVIDE(F_MINUS(ts, MAX(7d, login, ts, device)), 2)"), "F_DIVIDE takes numbers, found the field `ts`"),
        (feature("F_SQRT(MIN(7d, pay, ts, device))"), "F_SQRT takes numbers, found the field `ts`, which is TIMESTAMPTZ"),
        (feature("F_LOG(device)"), "F_LOG takes numbers, found the field `device`, which is TEXT"),
        (feature("F_POW(amount, '2')"), "F_POW takes numbers, found '2'"),
        (feature("F_EXP(true)"), "F_EXP takes numbers, found `true`"),
        ("add-macro --name 'M_TWO(a, a)' --replace 'F_ADD(a, a)'".into(), "the macro M_TWO has two parameters `a`"),
        (feature("COUNT(7d, pay, device"), "a `)` is missing"),
        ("add-feature --name amount --expr 'F_ABS(amount)'".into(), "has the name of a field"),
        ("add-feature --name f".into(), "--expr is missing"),
        ("add-feature --name user --expr amount".into(), "`user` is a word of SQL: expected another name"),
        ("add-field --event-type pay --name user".into(), "expected another name; --path can read a member of any name"),
        ("set-source --event-type Order --time ts".into(), "--type-value can name any value of a type field, as `Order`"),
        ("add-filter --name f".into(), "config-application, activate or start, found `add-filter`"),
        ("add-feature --name=f --expr amount".into(), "expected a space and the value behind --name, found `--name=f`"),
        ("add-feature --name --expr amount".into(), "expected the value of --name, found `--expr`"),
        ("add-feature --expr amount --name".into(), "expected the value of --name, found the end of the line"),
        (feature("F_ADD(amount, 1e3)"), "expected a number without an exponent, found `1e3`"),
        (feature("COUNT(7d, pay)"), "expected COUNT(window, event_type, target[=value], on[=value], ..), found 2 arguments"),
        ("add-feature --name 'f".into(), "a quote is not closed"),
        ("add-feature --name f --expr amount --x y".into(), "no option --x"),
        (feature("COUNT(7d, pay, device=none)"), "no field `none`; a text stands in single quotes"),
        ("add-field --event-type pay --name x --field-name x".into(), "--name and --field-name are one option"),
        ("add-feature --feature amount --mode set".into(), "--mode is `upget`, `get` or `update`, found `set`"),
        ("add-feature --name f --feature 'COUNT(7d, pay, device)' --mode update".into(), "expected one of them"),
        ("add-feature --feature 'F_ABS(amount)' --mode update".into(), "there is no operator"),
        ("add-feature --event-type none --feature 'COUNT(7d, pay, device)' --mode update".into(), "the event type `none`"),
        ("add-feature --event-type login --feature 'COUNT(7d, login, device)' --mode get".into(), "a script for each event type"),
        ("set-source --source '{\"topic\": \"x\", \"filter\": 1}'".into(), "`filter` of --source has no exact form"),
        ("set-source --source '{\"topic\": 1}'".into(), "expected --source as"),
        ("set-source --source x".into(), "expected --source as '{\"topic\": \"..\"}', found `x`"),
        ("set-source --topic a --source '{\"topic\": \"b\"}'".into(), "--topic and --source name different topics"),
        ("set-source --source '{\"topic\": \"x\"}'".into(), "no `add-field` names an event type of the topic"),
        ("set-source --time ts".into(), "--event-type is missing"),
        ("activate now".into(), "activate has no options"),
        ("config-application".into(), "expected `config-application NAME`"),
    ] {
        let mistakes = refused(&line);
        assert_eq!(mistakes.len(), 1, "{line}: {mistakes:?}");
        assert_eq!(mistakes[0].line, 8, "{line}");
        assert!(mistakes[0].message.contains(message), "{line}: {}", mistakes[0].message);
    }
}

#[tokio::test]
async fn a_key_is_a_field_a_function_of_fields_or_bound_to_a_constant() {
    let linked = "FLAT_COUNT_DISTINCT(7d, login, device, SET(7d, pay, person, ok=true, device), ok=false)";
    let script = format!(
        "{HEAD}add-field --event-type pay,login --name ok --type boolean\nadd-field --event-type pay,login --name person --type text\n\
         add-feature --name good --expr 'COUNT(7d, pay, ok=true, device)'\n\
         add-feature --name alike --expr 'COUNT(7d, pay, F_MULTIPLY(amount, 2))'\nadd-feature --name linked --expr '{linked}'\n"
    );
    let translated = translate("s", &script);
    assert_eq!(translated.mistakes, []);
    assert_eq!(check(&translated.files, &Functions::standard(), 0).await.unwrap(), []);
    let text = |path: &str| &translated.files.iter().find(|file| file.path == path).unwrap().text;
    for (path, part) in [
        ("views/pay_by_device.sql", "FILTER (WHERE ok = true AND within(ts, '7d'))"),
        ("views/pay_by_f_multiply.sql", "SELECT (amount * 2) AS f_multiply,\n"),
        ("views/pay_by_f_multiply.sql", "GROUP BY (amount * 2);"),
        ("sinks/pay_features.sql", "ON v2.f_multiply = (e.amount * 2)"),
        (
            "views/pay_device_links_login_by_person.sql",
            "(WHERE c.ok = true AND l.ok = false AND within(c.ts, '7d') AND within(l.ts, '7d'))",
        ),
    ] {
        assert!(text(path).contains(part), "{part}\n{}", text(path));
    }
}

#[test]
fn an_argument_of_a_macro_may_have_a_value_and_a_macro_no_parameter() {
    let macros = "add-macro --name 'M_COUNT(what)' --replace 'COUNT(7d, pay, what, device)'\n\
        add-macro --name 'M_NEXT()' --replace 'M_COUNT(amount=F_ADD(amount, 1))'\n\
        add-macro --name 'M_SAME(what)' --replace 'COUNT(7d, pay, device=what)'\n";
    let with = |expression: &str| translate("s", &format!("{HEAD}{macros}add-feature --name f --expr \"{expression}\"\n"));
    let sql = |translated: Translated| {
        assert_eq!(translated.mistakes, []);
        translated.files.into_iter().map(|file| file.text).collect::<String>()
    };
    let by_value = sql(with("M_COUNT(amount=3)"));
    assert!(by_value.contains("FILTER (WHERE amount = 3 AND within(ts, '7d'))"), "{by_value}");
    let by_expression = sql(with("M_NEXT()"));
    assert!(by_expression.contains("v1.amount = (e.amount + 1)"), "{by_expression}");
    let message = "in the macro M_SAME, the argument for `what` has a value, and stands where none can".to_owned();
    assert_eq!(with("M_SAME(amount=3)").mistakes, [Mistake { line: 11, message }]);
}

/// The fields of a source that is not understood, and the features of such a sink, have no mistakes of their own.
#[test]
fn what_a_line_with_a_mistake_would_define_is_not_missed() {
    let script = format!("{HEAD}add-feature --name f --expr 'COUNT(7d, pay, device)'\n");
    for (good, bad, line, message) in [
        ("set-sink --event-type pay", "set-sink --mode put --event-type pay", 3, "--mode is `upget` or `get`, found `put`"),
        ("set-source --event-type login", "set-source --event-type login --at x", 2, "no option --at"),
        ("set-source --event-type login --time ts", "set-source --event-type", 2, "the end of the line"),
    ] {
        assert!(script.contains(good), "{good}");
        let mistakes = translate("s", &script.replace(good, bad)).mistakes;
        assert!(matches!(&mistakes[..], [only] if only.line == line && only.message.contains(message)), "{bad}: {mistakes:?}");
    }
    let unsunk = translate("s", &script.replace("set-sink", "# set-sink")).mistakes;
    assert_eq!(unsunk, [Mistake { line: 1, message: "the script has no `set-sink`".into() }]);
}

#[test]
fn a_comment_ends_with_its_line() {
    let mistakes = refused("# features: \\\nadd-feature --name f --expr none");
    assert_eq!(mistakes, [Mistake { line: 9, message: "the event type `pay` has no field `none`".into() }]);
}

#[test]
fn each_option_of_the_literature_is_one_of_ours() {
    let ours = "set-source --event-type pay --topic pays --time c_timestamp\nset-sink --event-type pay --topic out --mode get\n\
        add-field --event-type pay --name c_timestamp --path $.at --type timestamptz --unit ms\n\
        add-field --event-type pay --name device --path $.from --type text\nadd-field --event-type pay --name amount --type double\n\
        add-feature --event-type pay --name count_7d_pay_device --expr 'COUNT(7d, pay, device)' --mode get\n\
        add-feature --event-type pay --name m --expr 'MAX(7d, pay, amount, device)' --mode get\n";
    let expected = translate("s", ours);
    assert_eq!(expected.mistakes, []);
    assert!(expected.files.last().unwrap().text.contains("features = 'exclusive'"), "{expected:?}");
    for (option, other) in [
        ("--topic pays", "--source '{\"topic\": \"pays\"}'"),
        (" --time c_timestamp", ""),
        ("set-sink --event-type pay --topic out", "set-sink --sink '{\"topic\": \"out\"}'"),
        ("--topic out --mode get", "--topic out"),
        ("device)' --mode get", "device)'"),
        (" --type timestamptz --unit ms", ""),
        ("--name device", "--field-name device"),
        ("--path $.from", "--field-path $.from"),
        (" --type text", ""),
        (" --type double", ""),
        (" --name count_7d_pay_device", ""),
        ("--expr", "--feature"),
    ] {
        assert!(ours.contains(option), "{option}");
        assert_eq!(translate("s", &ours.replace(option, other)), expected, "{option}");
    }
}

#[test]
fn a_feature_without_a_name_is_named_by_the_words_of_its_expression() {
    let features = ["F_ABS(amount)", "COUNT(7d, pay, device='a b')", "COUNT(7d, pay, device='A-b')", "F_ABS( AMOUNT )", "3"];
    let long = |last: &str| format!("F_SUM({}{last})", "F_ABS(F_MULTIPLY(amount, 2)), ".repeat(5));
    let mut lines: Vec<String> = features.iter().map(|feature| format!("add-feature --feature \"{feature}\"\n")).collect();
    lines.extend([long("3"), long("4")].map(|feature| format!("add-feature --feature \"{feature}\"\n")));
    lines.push("add-feature --name count_7d_pay_device_a_b --feature amount\n".into());
    let translated = translate("s", &format!("{HEAD}{}", lines.concat()));
    assert_eq!(translated.mistakes, []);
    let sink = &translated.files.last().unwrap().text;
    for (name, line) in [
        ("f_abs_amount", "8, 11: F_ABS(amount)"),
        ("count_7d_pay_device_a_b_2", "9: COUNT(7d, pay, device='a b')"),
        ("count_7d_pay_device_a_b_3", "10: COUNT(7d, pay, device='A-b')"),
        ("feature_3", "12: 3"),
        ("count_7d_pay_device_a_b", "15: amount"),
    ] {
        let found = sink.lines().any(|text| text.contains(&format!(" AS {name}")) && text.ends_with(&format!(" -- line {line}")));
        assert!(found, "{name}\n{sink}");
    }
    let names: Vec<&str> = sink.lines().filter_map(|line| line.split(" AS ").nth(1)?.split([',', ' ']).next()).collect();
    assert!(names.iter().all(|name| name.len() <= 100) && names.iter().any(|name| name.len() > 80), "{names:?}");
}

#[test]
fn a_field_without_a_type_has_the_type_that_the_expressions_need() {
    let head = "set-source --event-type pay\nset-sink --topic out\nadd-field --event-type pay --name c_timestamp\n";
    let fields = ["amount", "ok", "code", "limit_of", "status", "note"].map(|name| format!("add-field --event-type pay --name {name}\n"));
    let script = |features: &[&str]| {
        let features = features.iter().map(|feature| format!("add-feature --event-type pay --mode upget --feature \"{feature}\"\n"));
        format!("{head}{}add-macro --name 'M_ALL(x)' --replace 'SUM(7d, pay, x, note)'\n{}", fields.concat(), features.collect::<String>())
    };
    let features = ["M_ALL(amount)", "COUNT(7d, pay, ok=true)", "COUNT(7d, pay, code=7, limit_of=code)", "COUNT(7d, pay, status='x')"];
    let translated = translate("s", &script(&features));
    assert_eq!(translated.mistakes, []);
    let stream = &translated.files[0].text;
    for column in [
        "c_timestamp TIMESTAMPTZ NOT NULL OPTIONS (path = '$.c_timestamp', unit = 'ms'), -- line 3\n",
        "amount DOUBLE OPTIONS",
        "ok BOOLEAN OPTIONS",
        "code DOUBLE OPTIONS",
        "limit_of DOUBLE OPTIONS",
        "status TEXT OPTIONS",
        "note TEXT OPTIONS",
    ] {
        assert!(stream.contains(column), "{column}\n{stream}");
    }
    let mistakes = translate("s", &script(&["AVG(7d, pay, amount, note)", "COUNT(7d, pay, amount='x')"])).mistakes;
    let message = "--type is missing: line 11 uses `amount`, or a field that it is compared with, as a number, and line 12 as a text";
    assert_eq!(mistakes, [Mistake { line: 4, message: message.into() }]);
}

#[test]
fn a_sink_has_the_mode_of_all_features_that_can_count_its_event() {
    let feature = |expression: &str, mode: &str| format!("add-feature --event-type pay --feature '{expression}' --mode {mode}\n");
    let (own, other) = ("COUNT(7d, pay, device)", "COUNT(7d, login, device)");
    for (features, mode) in [
        (feature(own, "upget"), "inclusive"),
        (feature(own, "get"), "exclusive"),
        (feature(own, "upget") + &feature(other, "get"), "inclusive"),
        (feature(other, "upget") + &feature(own, "get"), "exclusive"),
        (feature(own, "update") + &feature(own, "get"), "inclusive"),
    ] {
        let translated = translate("s", &format!("{HEAD}{features}"));
        assert_eq!(translated.mistakes, [], "{features}");
        let sink = &translated.files.last().unwrap().text;
        assert!(sink.contains(&format!("features = '{mode}'")), "{features}\n{sink}");
    }
    let mistakes = refused(&(feature(own, "upget") + &feature("F_ADD(COUNT(7d, pay, amount), 1)", "get")));
    let message = "the feature has --mode get, and line 8 --mode upget: a sink counts the event in all of its features or in none";
    assert_eq!(mistakes, [Mistake { line: 9, message: message.into() }]);
}

#[tokio::test]
async fn a_feature_that_is_only_updated_is_kept_and_not_put_out() {
    let lines = "add-feature --event-type login --feature 'COUNT(7d, login, device)' --mode update\n\
        add-feature --event-type login --feature 'SUM(7d, login, amount, device)' --mode update\n\
        add-feature --event-type login --feature 'SUM(7d, pay, amount)' --mode update\n\
        add-feature --event-type pay --feature 'COUNT(7d, login, device)' --mode get\n";
    let translated = translate("s", &format!("{HEAD}{lines}"));
    assert_eq!(translated.mistakes, []);
    assert_eq!(check(&translated.files, &Functions::standard(), 0).await.unwrap(), []);
    let text = |path: &str| &translated.files.iter().find(|file| file.path == path).unwrap().text;
    let by_device = text("views/login_by_device.sql");
    assert!(by_device.contains(" AS count_7d, -- line 8, 11\n"), "{by_device}");
    assert!(by_device.contains(" AS sum_amount_7d -- line 9 (kept, and not put out)\n"), "{by_device}");
    assert!(text("views/pay_all.sql").contains("(kept, and not put out)"));
    let sink = text("sinks/pay_features.sql");
    assert!(sink.contains("v1.count_7d AS count_7d_login_device -- line 11: "), "{sink}");
    assert!(!sink.contains("sum_amount_7d") && !sink.contains("pay_all"), "{sink}");
}

#[tokio::test]
async fn a_script_of_the_literature_is_translated_and_says_what_is_not_used() {
    let translated = translate("console.script", CONSOLE_EXAMPLE);
    assert_eq!(translated.mistakes, []);
    assert_eq!(check(&translated.files, &Functions::standard(), 0).await.unwrap(), []);
    let text = |path: &str| &translated.files.iter().find(|file| file.path == path).unwrap().text;
    for (path, part) in [
        (
            "streams/arcade_events.sql",
            "-- Not used of --source (line 3): group, offset, zookeeper. basestream.toml says where the log is; ",
        ),
        ("streams/arcade_events.sql", "topic = 'arcade-events', format = 'json', event_time = 'c_timestamp');\n"),
        ("views/signin.sql", "WHERE event_type = 'signin'; -- line 3\n"),
        ("sinks/purchase_features.sql", "-- Not used of --sink (line 4): broker. "),
        ("sinks/purchase_features.sql", "-- Not needed here: config-application (line 2), activate (line 28), start (line 29).\n"),
        ("sinks/purchase_features.sql", "-- Events count whichever application they name.\n"),
        ("sinks/purchase_features.sql", "WITH (topic = 'arcade-features', features = 'inclusive')"),
        ("sinks/purchase_features.sql", " AS m_spent_player, -- line 20: M_SPENT(player)\n"),
    ] {
        assert!(text(path).contains(part), "{part}\n{}", text(path));
    }
    let one_type: String = CONSOLE_EXAMPLE
        .lines()
        .filter(|line| !line.contains("signin") && !line.contains("event_type "))
        .map(|line| format!("{line}\n"))
        .collect();
    let translated = translate("s", &one_type);
    assert_eq!(translated.mistakes, []);
    let note = "-- No field has the type of an event: each event of the topic is one of purchase.\n";
    assert!(translated.files[0].path == "streams/purchase.sql" && translated.files[0].text.contains(note), "{translated:?}");

    let without = |part: &str| translate("s", &CONSOLE_EXAMPLE.replace(part, "xxxx")).mistakes;
    let of_type = without("event_type");
    assert!(of_type.len() == 1 && of_type[0].line == 3 && of_type[0].message.contains("expected --type-field"), "{of_type:?}");
    let of_time = without("c_timestamp");
    assert!(of_time[0].line == 3 && of_time[0].message.contains("has no field `c_timestamp`, the time of an event"), "{of_time:?}");
    let twice = translate("s", &format!("{CONSOLE_EXAMPLE}config-application fair\n")).mistakes;
    assert!(twice[0].line == 30 && twice[0].message.contains("of the application `arcade`"), "{twice:?}");
}

/// Of the column's line, of the view's, and of the join's.
#[tokio::test]
async fn what_the_check_refuses_is_reported_by_its_line_of_the_script() {
    for (expression, message) in [
        ("F_ADD(device, 1)", "TEXT + BIGINT to valid types (as SQL: (e.device + 1) AS f)"),
        ("F_ADD('a', 1)", "TEXT + BIGINT to valid types (as SQL: ('a' + 1) AS f)"),
        ("SUM(1d, pay, device, device)", "found sum(TEXT)"),
        ("COUNT(7d, pay, device=amount)", "(as SQL: LEFT JOIN pay_by_device v1 ON v1.device = e.amount)"),
    ] {
        let translated = translate("s", &format!("{HEAD}add-feature --name f --expr \"{expression}\"\n"));
        assert_eq!(translated.mistakes, [], "{expression}");
        let mistakes = check(&translated.files, &Functions::standard(), 0).await.unwrap();
        assert_eq!(mistakes.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [8], "{expression}: {mistakes:?}");
        assert!(mistakes[0].message.contains(message), "{expression}: {}", mistakes[0].message);
    }
}

#[tokio::test]
async fn a_field_is_read_from_the_member_of_its_name_as_it_is_written_and_in_its_unit() {
    let script = "set-source --event-type pay --time paidAt\nset-sink --event-type pay --topic out --key deviceId\n\
        add-field --event-type pay --name paidAt --type timestamptz --unit ms\nadd-field --event-type pay --name deviceId --type text\n\
        add-feature --name n --expr 'COUNT(7d, pay, deviceId)'\n";
    let translated = translate("s", script);
    assert_eq!(translated.mistakes, []);
    assert_eq!(check(&translated.files, &Functions::standard(), 0).await.unwrap(), []);
    let stream = &translated.files[0].text;
    for column in [
        "paidat TIMESTAMPTZ NOT NULL OPTIONS (path = '$.paidAt', unit = 'ms'), -- line 3\n",
        "deviceid TEXT OPTIONS (path = '$.deviceId') -- line 4\n",
    ] {
        assert!(stream.contains(column), "{column}{stream}");
    }
    let wrong = translate("s", &script.replace("--unit ms", "--unit min"));
    let mistakes = check(&wrong.files, &Functions::standard(), 0).await.unwrap();
    let of_unit = mistakes.iter().find(|mistake| mistake.message.contains("unknown unit 'min'"));
    assert_eq!(of_unit.map(|mistake| mistake.line), Some(3), "{mistakes:?}");
}

/// One topic with two event types. The user of a payment is elsewhere than that of a login.
const ONE_TOPIC: &str = "set-source --event-type pay,Login --topic risk-events --type-field kind --time ts --key device\n\
    set-sink --event-type pay --topic out --key device\n\
    add-field --event-type pay,login --name kind --path $.type --type text\n\
    add-field --event-type pay,login --name ts --type timestamptz\nadd-field --event-type pay,login --name device --type text\n\
    add-field --event-type login --name person --type text\nadd-field --event-type pay --name person --path $.payer --type text\n\
    add-feature --name logins --expr 'COUNT(7d, login, person)'\nadd-feature --name payers --expr 'SET(7d, pay, person, device)'\n";

#[tokio::test]
async fn a_topic_of_several_event_types_is_one_stream_with_a_view_of_each() {
    let translated = translate("s", ONE_TOPIC);
    assert_eq!(translated.mistakes, []);
    assert_eq!(check(&translated.files, &Functions::standard(), 0).await.unwrap(), []);
    let text = |path: &str| &translated.files.iter().find(|file| file.path == path).unwrap().text;
    for (path, part) in [
        ("streams/risk_events.sql", "kind TEXT OPTIONS (path = '$.type'), -- line 3\n"),
        ("streams/risk_events.sql", "person TEXT OPTIONS (path = '$.person'), -- line 6\n"),
        ("streams/risk_events.sql", "pay_person TEXT OPTIONS (path = '$.payer') -- line 7\n"),
        ("streams/risk_events.sql", "topic = 'risk-events', format = 'json', event_time = 'ts', key = 'device'"),
        ("views/login.sql", "       person -- line 6\nFROM risk_events\nWHERE kind = 'Login'; -- line 1\n"),
        ("views/pay.sql", "       pay_person AS person -- line 7\nFROM risk_events\nWHERE kind = 'pay'; -- line 1\n"),
        ("views/login_by_person.sql", "FROM login\nGROUP BY person;\n"),
        ("sinks/pay_features.sql", "       e.pay_person AS person,\n"),
        ("sinks/pay_features.sql", "FROM risk_events e\nLEFT JOIN login_by_person v1 ON v1.person = e.pay_person -- line 8\n"),
        ("sinks/pay_features.sql", "WHERE e.kind = 'pay'; -- line 1\n"),
    ] {
        assert!(text(path).contains(part), "{part}\n{}", text(path));
    }
    assert_eq!(translated.files.len(), 6, "{:?}", translated.files);
}

#[test]
fn event_types_of_one_topic_differ_by_their_type_field_and_share_what_a_stream_has_once() {
    let apart = |one: &str, other: &str| format!("set-source --event-type pay {one}\nset-source --event-type login {other}\n");
    let one_line = "set-source --event-type pay,Login --topic risk-events --type-field kind --time ts --key device\n";
    for (sources, line, message) in [
        (apart("--topic all --time ts", "--topic all --time ts --type-field kind"), 1, "expected --type-field"),
        (apart("--topic all --time ts --type-field kind", "--topic all --time ts --type-field device"), 1, "expected the same --time"),
        (apart("--topic all --time ts --type-field person", "--topic all --time ts --type-field person"), 1, "define differently"),
        (
            apart("--topic all --time ts --type-field kind --type-value x", "--topic all --time ts --type-field kind --type-value x"),
            1,
            "have the same --type-value",
        ),
        (apart("--topic all --time ts --type-field ts", "--time ts"), 1, "expected a field of the type TEXT"),
        (apart("--topic all --time ts --type-field none", "--time ts"), 1, "--type-field names `none`"),
        (apart("--time ts --type-value x", "--time ts"), 1, "--type-value is what"),
        ("set-source --event-type pay,login --time ts --type-field kind\n".into(), 1, "--topic is missing"),
    ] {
        let translated = translate("s", &ONE_TOPIC.replace(one_line, &sources));
        let found = translated.mistakes.iter().find(|mistake| mistake.message.contains(message));
        assert_eq!(found.map(|mistake| mistake.line), Some(line), "{sources}: {:?}", translated.mistakes);
    }
    let other_value = apart("--topic a --time ts --type-field kind --type-value pay.v2", "--topic a --time ts --type-field kind");
    let translated = translate("s", &ONE_TOPIC.replace(one_line, &other_value));
    assert_eq!(translated.mistakes, []);
    assert!(translated.files.iter().any(|file| file.text.contains("WHERE kind = 'pay.v2'")), "{:?}", translated.files);
}

/// As an error it would cost the event all of its features, and as a NaN all sums of its window.
#[tokio::test]
async fn a_function_without_a_real_result_is_null() {
    let amount = "CAST(e.amount AS DOUBLE)";
    for (expression, sql) in [
        ("F_SQRT(amount)", format!("CASE WHEN {amount} >= 0 THEN sqrt({amount}) END")),
        ("F_LOG(amount)", format!("CASE WHEN {amount} > 0 THEN ln({amount}) END")),
        (
            "F_POW(amount, 0.5)",
            format!(
                "CASE WHEN {amount} >= 0 OR CAST(0.5 AS DOUBLE) = floor(CAST(0.5 AS DOUBLE)) THEN power({amount}, CAST(0.5 AS DOUBLE)) END"
            ),
        ),
    ] {
        let line =
            format!("add-feature --name f --expr '{expression}'\nadd-feature --name g --expr 'SUM(1d, pay, {expression}, device)'\n");
        let translated = translate("s", &format!("{HEAD}{line}"));
        assert_eq!(translated.mistakes, [], "{expression}");
        assert_eq!(check(&translated.files, &Functions::standard(), 0).await.unwrap(), [], "{expression}");
        let sink = &translated.files.last().unwrap().text;
        assert!(sink.contains(&format!("       {sql} AS f, -- line 8: {expression}\n")), "{sink}");
    }
}

#[tokio::test]
async fn the_example_passes_the_check_and_says_which_line_made_what() {
    let translated = translate("payments.script", EXAMPLE);
    assert_eq!(translated.mistakes, []);
    let files: Vec<String> = translated.files.iter().map(|file| format!("{}\n{}", file.path, file.text)).collect();
    assert_eq!(check(&translated.files, &Functions::standard(), 0).await.unwrap(), [], "{}", files.join("\n"));
    let sink = translated.files.last().unwrap();
    let features: Vec<(usize, &str)> = EXAMPLE.lines().enumerate().filter(|(_, line)| line.starts_with("add-feature")).collect();
    assert!(features.len() > 5, "{features:?}");
    for (index, line) in features {
        assert!(sink.text.contains(&format!("-- line {}: ", index + 1)), "{line}\n{}", sink.text);
    }
}

#[test]
fn a_file_of_another_content_is_kept_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let files = translate("payments.script", EXAMPLE).files;
    std::fs::create_dir(folder.path().join("sinks")).unwrap();
    std::fs::write(folder.path().join("sinks/transaction_features.sql"), "-- mine\n").unwrap();
    let mine = folder.path().join("sinks/transaction_features.sql");
    assert_eq!(differing(folder.path(), &files).unwrap(), [mine]);
    let error = write(folder.path(), &files).unwrap_err();
    assert!(error.message().contains("nothing was written"), "{error}");
    assert!(!folder.path().join("streams").exists());
    let no_folder = folder.path().join("sinks/transaction_features.sql");
    let error = write(&no_folder, &files).unwrap_err();
    let path = no_folder.join(&files[0].path).display().to_string();
    assert!(error.context().contains(&("file", path)), "{error}: {:?}", error.context());
}
