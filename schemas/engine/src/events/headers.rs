//! Record headers as one binary value: JSON text `[["name", "base64 of the value"], ..]`, in the order of the record.
//! Without headers the value is null.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use types::{Error, Result};

/// Returns the text for `__headers`. `None` if there are no headers.
pub fn headers_to_json(headers: &[(String, Bytes)]) -> Option<String> {
    if headers.is_empty() {
        return None;
    }
    let pairs: Vec<(&str, String)> = headers.iter().map(|(name, value)| (name.as_str(), STANDARD.encode(value))).collect();
    Some(serde_json::to_string(&pairs).expect("texts always serialize"))
}

/// Reads what [`headers_to_json`] wrote.
pub fn headers_from_json(text: Option<&[u8]>) -> Result<Vec<(String, Bytes)>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let wrong = || Error::corrupt("the column __headers holds something else than a JSON array of [name, base64]");
    let pairs: Vec<(String, String)> = serde_json::from_slice(text).map_err(|error| wrong().caused_by(error))?;
    let decode = |(name, value): (String, String)| Ok((name, STANDARD.decode(value).map_err(|error| wrong().caused_by(error))?.into()));
    pairs.into_iter().map(decode).collect()
}
