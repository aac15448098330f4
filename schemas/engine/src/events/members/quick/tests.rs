use proptest::prelude::*;

use super::super::Members;
use super::reader::special;
use super::*;
use definitions::{Column, ColumnType};

/// Members for the columns `a`, `b`, `a.b`, `c.d`, `c.d.e` and one with a quote in its name.
fn members() -> Members {
    let paths: [&[&str]; 6] = [&["a"], &["b"], &["a", "b"], &["c", "d"], &["c", "d", "e"], &["q\"é"]];
    let column = |path: &&[&str]| Column {
        name: path.join("."),
        column_type: ColumnType::Json,
        nullable: true,
        path: path.iter().map(|name| (*name).to_owned()).collect(),
        unit: None,
    };
    Members::new(&paths.iter().map(column).collect::<Vec<_>>())
}

/// What was found for each column, as text. The outer `None`: left to serde_json, or refused.
type Texts = Option<Vec<Option<String>>>;

fn texts_of(slots: Vec<PathValue<'_>>) -> Vec<Option<String>> {
    let text = |slot| match slot {
        PathValue::Missing => None,
        PathValue::Found(json) | PathValue::Plain(json) => Some(json.to_owned()),
        PathValue::NoObject(found) => Some(format!("no object: {found}")),
    };
    slots.into_iter().map(text).collect()
}

fn quick(members: &Members, text: &str) -> Texts {
    let mut slots = vec![PathValue::Missing; members.columns];
    find(&members.root, text, &mut slots)?;
    for slot in &slots {
        let is_plain = |json: &str| json.starts_with('"') && !json.contains('\\');
        assert!(
            matches!(slot, PathValue::Plain(json) if is_plain(json)) || !matches!(slot, PathValue::Found(json) if is_plain(json)),
            "{slot:?}"
        );
        assert!(!matches!(slot, PathValue::Plain(json) if !is_plain(json)), "{slot:?}");
    }
    Some(texts_of(slots))
}

fn by_serde_json(members: &Members, text: &str) -> Texts {
    let mut slots = vec![PathValue::Missing; members.columns];
    members.root.walk(text, &mut slots).ok()?;
    Some(texts_of(slots))
}

fn assert_alike(text: &str) {
    let members = members();
    if let Some(found) = quick(&members, text) {
        assert_eq!(Some(found), by_serde_json(&members, text), "{text}");
    }
}

#[test]
fn what_is_in_order_is_not_left() {
    let (members, full) =
        (members(), " {\"a\" : {\"b\":\"x\"},\"b\":[1,{}, []],\"c\":{\"d\":{\"e\":-1.5E+3}},\"z\":true,\"q\\\"é\":\"é\\u00e9\"}\n");
    let expected = ["{\"b\":\"x\"}", "[1,{}, []]", "\"x\"", "{\"e\":-1.5E+3}", "-1.5E+3", "\"é\\u00e9\""];
    assert_eq!(quick(&members, full), Some(expected.map(|json| Some(json.to_owned())).to_vec()));
    for text in [
        "{}",
        "{ }",
        r#"{"c":null}"#,
        r#"{"c":{"d":null}}"#,
        r#"{"b":0,"a":{},"b":"last"}"#,
        r#"{"a":{"b":1},"a":{}}"#,
        r#"{"a":{"b":1},"a":null}"#,
        r#"{"long name":"and a long text"}"#,
    ] {
        assert!(quick(&members, text).is_some(), "{text}");
        assert_alike(text);
    }
}

#[test]
fn what_serde_json_refuses_is_left() {
    let values = [
        "",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "tru",
        "nul",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\t\"",
        "[1,]",
        "[",
        "{",
        "1 2",
    ];
    let records = values.map(|value| format!("{{\"b\":{value}}}"));
    let whole = [
        "",
        "{",
        "}",
        "[]",
        "{}}",
        "{} {}",
        "{,}",
        "{\"b\"}",
        "{\"b\":1,}",
        "{\"b\" 1}",
        "{b:1}",
        "{\"b\":1 \"a\":2}",
        "\u{a0}{}",
        "\u{c}{}",
    ];
    for text in records.iter().map(String::as_str).chain(whole) {
        assert_eq!(quick(&members(), text), None, "{text}");
        // All texts but these are wrong.
        assert!(by_serde_json(&members(), text).is_none() || text == "[]", "{text}");
    }
}

#[test]
fn what_serde_json_words_better_is_left() {
    let deep = format!("{{\"b\":{}{}}}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    for text in [r#"{"c":1}"#, r#"{"c":{"d":[]}}"#, r#"{"\u0061":1}"#, r#"{"z\n":1}"#, deep.as_str()] {
        assert!(quick(&members(), text).is_none() && by_serde_json(&members(), text).is_some(), "{text}");
    }
}

#[test]
fn each_byte_is_special_or_not_wherever_it_stands() {
    for byte in 0..=u8::MAX {
        for at in 0..8 {
            let mut bytes = [b'x'; 8];
            bytes[at] = byte;
            let expected = if byte < 0x20 || byte == b'"' || byte == b'\\' { at as u32 } else { 8 };
            assert_eq!(special(u64::from_le_bytes(bytes)).trailing_zeros() / 8, expected, "{byte} at {at}");
        }
    }
}

fn json() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just(r#""a""#),
        Just(r#""b""#),
        Just(r#""c""#),
        Just(r#""d""#),
        Just(r#""e""#),
        Just(r#""q\"é""#),
        Just(r#""\u0061""#),
        Just(r#""other""#)
    ];
    let text = any::<String>().prop_map(|text| serde_json::Value::from(text).to_string());
    let escaped = prop_oneof![Just(r#""\ud83d\ude00""#), Just(r#""\ud83d""#), Just(r#""\/\b\f\n\r\t\\\"""#)].prop_map(str::to_owned);
    let number = prop_oneof![any::<f64>().prop_map(|number| number.to_string()), any::<i64>().prop_map(|number| number.to_string())];
    let word = prop_oneof![Just("null"), Just("true"), Just("false"), Just("1e999"), Just("-0.0E-0")].prop_map(str::to_owned);
    let space = prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t ")];
    prop_oneof![text, escaped, number, word].prop_recursive(5, 40, 6, move |inner| {
        let member = (name.clone(), inner.clone(), space.clone())
            .prop_map(|(name, json, space)| format!("{space}{name}{space}:{space}{json}{space}"));
        prop_oneof![
            3 => proptest::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
            1 => proptest::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_it_takes_it_reads_as_serde_json_does(json in json()) {
        assert_alike(&json);
        assert_alike(&format!("{{\"c\":{json},\"a\":{json},\"b\":{json}}}"));
    }

    #[test]
    fn what_it_takes_of_a_damaged_record_it_reads_as_serde_json_does(json in json(), at in any::<usize>(), with in "[\\x00-\\x7f]{0,2}") {
        let record = format!("{{\"a\":{json},\"b\":\"x\"}}");
        let places: Vec<usize> = record.char_indices().map(|(place, _)| place).chain([record.len()]).collect();
        let at = at % (places.len() - 1);
        assert_alike(&format!("{}{with}{}", &record[..places[at]], &record[places[at + 1]..]));
        assert_alike(&format!("{}{with}{}", &record[..places[at]], &record[places[at]..]));
        assert_alike(&record[..places[at]]);
    }
}
