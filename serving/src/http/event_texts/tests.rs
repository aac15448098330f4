use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::event_texts;

fn mistake(body: &str) -> String {
    event_texts(body.as_bytes(), "expected events").unwrap_err().message().to_owned()
}

#[test]
fn malformed_array_is_named_with_the_place_and_what_is_there() {
    for (body, expected) in [
        ("[{\"id\": 1},]", "trailing comma, found ']' at $[1] (line 1, column 12)"),
        (" \n[{\"id\": 1, \"at\": {\"x\": ]}}]", "expected value, found ']}}]' at $[0].at.x (line 2, column 24)"),
        ("[{\"id\": \"a,\\\"[\", 7}]", "key must be a string, found '7}]' at $[0] (line 1, column 18)"),
        ("[{\"id\": 1", "EOF while parsing an object, found its end at $[0].id (line 1, column 9)"),
    ] {
        assert_eq!(mistake(body), format!("the array in the body is not valid JSON: {expected}; expected events"), "{body}");
    }
}

#[test]
fn long_and_deep_texts_make_no_long_error() {
    let deep = mistake(&"[".repeat(100_000));
    assert!(deep.contains(" at $[0][0][0][0][0][0][0][0].. ("), "{deep}");
    let long = mistake(&format!("[{{\"{}\": ?{}}}]", "n".repeat(10_000), "x".repeat(10_000)));
    assert!(long.len() < 300, "{long}");
    // What is deeper than the path goes does not count as a step of it.
    let around = mistake(&format!("[{}1, {{\"n\": [2, 3]}}{}, ?]", "[".repeat(20), "]".repeat(20)));
    assert!(around.contains("found '?]' at $[1] ("), "{around}");
}

fn value() -> impl Strategy<Value = Value> {
    let text = "[a-z,:\"\\\\\\[\\]{}?é]{0,6}";
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), any::<i64>().prop_map(Value::from), text.prop_map(Value::from)];
    leaf.prop_recursive(4, 30, 4, move |inner| {
        let members = prop::collection::btree_map(text, inner.clone(), 0..4);
        let object = members.prop_map(|members| Value::Object(members.into_iter().collect()));
        prop_oneof![prop::collection::vec(inner, 0..4).prop_map(Value::Array), object]
    })
}

/// An array as JSON, with a `?` in the place of one of its values.
#[derive(Default)]
struct Spoiled {
    text: String,
    /// How many values that contain no others are written.
    leaves: usize,
    /// Where the `?` is: its path and its offset.
    place: Option<(String, usize)>,
}

impl Spoiled {
    fn write(&mut self, value: &Value, path: &str, spoiled: usize) {
        match value {
            Value::Array(items) => {
                self.text.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.separate(index);
                    self.write(item, &format!("{path}[{index}]"), spoiled);
                }
                self.text.push(']');
            }
            Value::Object(members) => {
                self.text.push('{');
                for (index, (name, member)) in members.iter().enumerate() {
                    self.separate(index);
                    let quoted = Value::from(name.as_str()).to_string();
                    self.text.push_str(&format!("{quoted}: "));
                    self.write(member, &format!("{path}.{}", &quoted[1..quoted.len() - 1]), spoiled);
                }
                self.text.push('}');
            }
            leaf => {
                if self.leaves == spoiled {
                    self.place = Some((path.to_owned(), self.text.len()));
                    self.text.push('?');
                } else {
                    self.text.push_str(&leaf.to_string());
                }
                self.leaves += 1;
            }
        }
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.text.push_str(", ");
        }
    }
}

proptest! {
    #[test]
    fn place_of_a_mistake_is_the_path_of_the_value_with_it(items in prop::collection::vec(value(), 1..4), spoiled in any::<Index>()) {
        let array = Value::Array(items);
        let mut whole = Spoiled::default();
        whole.write(&array, "$", usize::MAX);
        prop_assert!(event_texts(whole.text.as_bytes(), "").is_ok());
        if whole.leaves > 0 {
            let mut one = Spoiled::default();
            one.write(&array, "$", spoiled.index(whole.leaves));
            let (path, offset) = one.place.unwrap();
            let mistake = mistake(&one.text);
            let place = format!(" at {path} (line 1, column {});", offset + 1);
            prop_assert!(mistake.contains(": expected value, found '?") && mistake.contains(&place), "{}: {}, not {}", one.text, mistake, place);
        }
    }
}
