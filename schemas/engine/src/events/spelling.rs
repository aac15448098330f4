//! The spellings of a value: texts that mean the same (`1.50` and `1.5`, `…Z` and `…+00:00`, a UUID in upper case).
//! Each type has one function that reads them all. Events are decoded, cells of files converted and keys looked up by
//! it, so that a value is found however it is written.
//!
//! | type | spellings |
//! | --- | --- |
//! | TEXT, JSON | one: the text itself |
//! | UUID | upper or lower case, with hyphens or without, in braces, after `urn:uuid:` (a question: [`asked_uuid`]) |
//! | BOOLEAN | `true`, `t`, `1`, `false`, `f`, `0`, in any case |
//! | integers, DECIMAL | a sign, zeros in front, zeros at the end, an exponent |
//! | DOUBLE | the same; `-0` is 0 |
//! | DATE | one: `2024-05-01` |
//! | TIMESTAMPTZ | RFC 3339 in any zone, see [`super::parse_timestamp`] |
//! | BYTEA | base64, with padding or without |

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::number::{power, scaled};

/// Returns the UUID in lower case, with hyphens. Copies only if it is spelled in another way.
pub fn canonical_uuid<'a>(text: impl Into<Cow<'a, str>>) -> Option<Cow<'a, str>> {
    let text = text.into();
    let kept = |(i, byte): (usize, u8)| match i {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    if text.len() == 36 && text.bytes().enumerate().all(kept) {
        return Some(text);
    }
    // Without hyphens, but in braces, is a spelling that the library does not read.
    let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).filter(|text| text.len() == 32);
    let parsed = uuid::Uuid::try_parse(bare.unwrap_or(&text)).ok()?;
    Some(Cow::Owned(parsed.hyphenated().to_string()))
}

/// Returns the UUID that a question means, spelled as in events or, as PostgreSQL takes it, with a hyphen after any
/// four digits. Events may not have the latter: a record that is decided again has to be decided as before.
pub fn asked_uuid(text: &str) -> Option<Cow<'_, str>> {
    let text = text.trim();
    canonical_uuid(text).or_else(|| canonical_uuid(without_hyphens(text)?))
}

/// Joins groups of four, eight .. digits that have one hyphen between them, and braces around them or none.
fn without_hyphens(text: &str) -> Option<String> {
    let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let is_group = |group: &str| !group.is_empty() && group.len().is_multiple_of(4);
    inside.split('-').all(is_group).then(|| inside.replace('-', ""))
}

/// Reads `true`, `t`, `1`, `false`, `f` or `0`, in any case.
pub fn parse_boolean(text: &str) -> Option<bool> {
    let is_one_of = |spellings: [&str; 3]| spellings.iter().any(|spelling| text.eq_ignore_ascii_case(spelling));
    match () {
        () if is_one_of(["true", "t", "1"]) => Some(true),
        () if is_one_of(["false", "f", "0"]) => Some(false),
        () => None,
    }
}

pub(crate) fn whole(text: &str) -> Option<i128> {
    scaled(text, 0)
}

/// Returns the number times `10^scale`, if it has no more digits than the type.
pub(crate) fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let unscaled = scaled(text, i64::from(scale))?;
    let bound = power(u32::from(precision))?;
    (unscaled.abs() < bound).then_some(unscaled)
}

/// Negative zero becomes zero: it would be another key, and another value for DISTINCT.
pub(crate) fn double(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().map(|value| value + 0.0)
}

/// The standard alphabet, with or without padding.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text.as_bytes()).ok()
}
