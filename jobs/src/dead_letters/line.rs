//! A dead letter as one line of JSON: `export` writes it, a person edits it, and `replay --file` reads it.
//!
//! ```text
//! {"source": "payments", "partition": 0, "offset": 17, "timestamp": "..", "reason": "..",
//!  "key": "d1", "value": "{..}", "headers": [..]}
//! ```
//!
//! Keys, values and headers are text, or base64 under `key_base64`, `value_base64` if they are not UTF-8. In a
//! corrected line the value may also be the JSON object itself. Only `source`, `partition` and `offset` must stay: they
//! identify the dead letter.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use engine::events::format_timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use types::vector::Offset;

use super::DeadLetter;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    source: String,
    partition: i32,
    offset: i64,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(default)]
    headers: Vec<Header>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// The content of a corrected line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Corrected {
    pub(super) source: String,
    pub(super) partition: i32,
    pub(super) offset: Offset,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Vec<(String, Bytes)>,
}

/// Returns the line of a dead letter, with its line end.
pub(super) fn write(letter: &DeadLetter) -> types::Result<Vec<u8>> {
    let (key, key_base64) = letter.key.as_deref().map_or((None, None), text_or_base64);
    let (value, value_base64) = letter.value.as_deref().map_or((None, None), text_or_base64);
    let headers = letter.headers.iter().map(|(name, value)| {
        let (value, value_base64) = text_or_base64(value);
        Header { name: name.clone(), value, value_base64 }
    });
    let line = Line {
        source: letter.source.to_string(),
        partition: letter.partition,
        offset: letter.offset.0,
        timestamp: letter.timestamp.map(format_timestamp),
        reason: letter.reason.clone(),
        key,
        key_base64,
        value: value.map(|text| serde_json::value::to_raw_value(&text)).transpose()?,
        value_base64,
        headers: headers.collect(),
    };
    let mut bytes = serde_json::to_vec(&line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads a line; `Err` says what was found and what was expected.
pub(super) fn read(text: &[u8]) -> Result<Corrected, String> {
    let line: Line =
        serde_json::from_slice(text).map_err(|error| format!("{error}; expected a line as `dead-letters export` writes it"))?;
    let headers = line.headers.into_iter().map(|header| {
        let value = bytes_of("header value", header.value, header.value_base64)?.unwrap_or_default();
        Ok((header.name, value))
    });
    Ok(Corrected {
        source: line.source,
        partition: line.partition,
        offset: Offset(line.offset),
        key: bytes_of("key", line.key, line.key_base64)?,
        value: bytes_of("value", line.value.map(|raw| value_text(&raw)).transpose()?.flatten(), line.value_base64)?,
        headers: headers.collect::<Result<_, String>>()?,
    })
}

/// Returns a string's content, or an object's text unchanged.
fn value_text(raw: &RawValue) -> Result<Option<String>, String> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text).map(Some).map_err(|error| error.to_string()),
        Some(b'{') => Ok(Some(text.to_owned())),
        Some(b'n') => Ok(None),
        _ => Err(format!("found the value {text}; expected a text, a JSON object or null")),
    }
}

fn bytes_of(what: &str, text: Option<String>, base64: Option<String>) -> Result<Option<Bytes>, String> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(format!("found the {what} twice, as text and as base64; expected one of them")),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(base64)) => match STANDARD.decode(&base64) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => Err(format!("the {what} is not base64: {error}")),
        },
        (None, None) => Ok(None),
    }
}

fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Option<Bytes>> {
        prop_oneof![
            Just(None),
            ".{0,12}".prop_map(|text| Some(Bytes::from(text))),
            proptest::collection::vec(any::<u8>(), 0..12).prop_map(|b| Some(b.into())),
        ]
    }

    proptest! {
        #[test]
        fn a_line_reads_back_as_the_record_it_was(key in bytes(), value in bytes(), header in bytes(), offset in 0..i64::MAX) {
            let headers = header.map(|value| vec![("h".to_owned(), value)]).unwrap_or_default();
            let letter = DeadLetter {
                stream: "s".into(), source: "t".into(), partition: 3, offset: Offset(offset), timestamp: Some(0), reason: "why".into(),
                key: key.clone(), value: value.clone(), headers: headers.clone(),
            };
            let line = write(&letter).unwrap();
            prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let read = read(line.trim_ascii_end()).unwrap();
            prop_assert_eq!(read, Corrected { source: "t".into(), partition: 3, offset: Offset(offset), key, value, headers });
        }

        #[test]
        fn no_text_panics(text in ".{0,64}") {
            let _ = read(text.as_bytes());
        }
    }

    #[test]
    fn a_corrected_value_may_be_the_object_itself_with_all_its_digits() {
        let line = br#"{"source":"t","partition":0,"offset":1,"value":{"n": 12345678901234567890.10}}"#;
        assert_eq!(read(line).unwrap().value.unwrap(), r#"{"n": 12345678901234567890.10}"#);
        assert_eq!(read(br#"{"source":"t","partition":0,"offset":1,"value":null}"#).unwrap().value, None);
    }

    #[test]
    fn what_is_wrong_with_a_line_is_reported() {
        let wrong = |line: &str| read(line.as_bytes()).unwrap_err();
        let with = |rest: &str| format!(r#"{{"source":"t","partition":0,"offset":1{rest}}}"#);
        assert!(wrong("{}").contains("missing field `source`"));
        assert!(wrong(&with(r#","valeu":"x""#)).contains("unknown field `valeu`"));
        assert!(wrong(&with(r#","value":7"#)).contains("found the value 7; expected a text, a JSON object or null"));
        assert!(wrong(&with(r#","value":"a","value_base64":"YQ==""#)).contains("found the value twice"));
        assert!(wrong(&with(r#","key_base64":"*""#)).contains("the key is not base64"));
    }
}
