//! Reads and checks single keys: the error for a wrong value is created where its place is known.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::secret::Secret;
use super::urls::{ServiceUrl, UrlKind};
use crate::durations::{format_duration, parse_bytes, parse_duration};

/// The most partitions that we create a topic with: each costs files and memory in every layer.
const MOST_PARTITIONS: u32 = 1024;
/// The most workers of one process.
const MOST_WORKERS: u32 = 64;
/// The greatest limit of something that is counted. A greater one is the same as no limit.
const MOST_COUNTED: u32 = 1_000_000_000;
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

pub(super) fn storage_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServiceUrl, D::Error> {
    url(deserializer, UrlKind::Storage)
}

pub(super) fn catalog_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServiceUrl, D::Error> {
    url(deserializer, UrlKind::Catalog)
}

pub(super) fn log_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServiceUrl, D::Error> {
    url(deserializer, UrlKind::Log)
}

fn url<'de, D: Deserializer<'de>>(deserializer: D, kind: UrlKind) -> Result<ServiceUrl, D::Error> {
    let url = ServiceUrl::new(&String::deserialize(deserializer)?);
    url.check(kind).map_err(D::Error::custom)?;
    Ok(url)
}

/// Reads a name, even if it looks like a number.
pub(super) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match deserializer.deserialize_any(Scalar("text"))? {
        Read::Text(text) if text.trim().is_empty() => Err(D::Error::custom(format!("found \"{text}\"; expected a name"))),
        Read::Text(text) => Ok(text),
        Read::Number(number) => Ok(number.to_string()),
    }
}

pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match deserializer.deserialize_any(Scalar("a duration such as \"10s\""))? {
        Read::Text(text) => parse_duration(&text).map_err(|error| D::Error::custom(error.message())),
        Read::Number(number) => Err(D::Error::custom(format!("the duration {number} has no unit; expected text such as \"{number}s\""))),
    }
}

/// How long a lease lives. A shorter one would end before a busy process renews it.
pub(super) fn lease<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let lease = duration(deserializer)?;
    match lease >= SHORTEST_LEASE {
        true => Ok(lease),
        false => Err(D::Error::custom(format!("the lease {} is shorter than {}", format_duration(lease), format_duration(SHORTEST_LEASE)))),
    }
}

pub(super) fn optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

pub(super) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match deserializer.deserialize_any(Scalar("a size such as \"256MiB\", or a number of bytes"))? {
        Read::Text(text) => parse_bytes(&text).map_err(|error| D::Error::custom(error.message())),
        Read::Number(number) => match u64::try_from(number).ok().filter(|bytes| *bytes > 0) {
            Some(bytes) => Ok(bytes),
            None => Err(D::Error::custom(format!("the size {number} is not more than zero"))),
        },
    }
}

/// A size, or 0 for nothing at all.
pub(super) fn bytes_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match deserializer.deserialize_any(Scalar("a size such as \"64MiB\", or 0"))? {
        Read::Text(text) if text == "0" => Ok(0),
        Read::Text(text) => parse_bytes(&text).map_err(|error| D::Error::custom(error.message())),
        Read::Number(number) => u64::try_from(number).map_err(|_| D::Error::custom(format!("the size {number} is less than zero"))),
    }
}

/// A part of a whole: more than 0, and at most 1.
pub(super) fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let share = deserializer.deserialize_any(Share)?;
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(D::Error::custom(format!("the share {share} is not more than 0 and at most 1"))),
    }
}

pub(super) fn optional_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    bytes(deserializer).map(Some)
}

pub(super) fn workers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    number(deserializer, MOST_WORKERS)
}

/// Of something that there is at least one of.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    number(deserializer, MOST_COUNTED)
}

pub(super) fn optional_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    count(deserializer).map(Some)
}

pub(super) fn partitions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    number(deserializer, MOST_PARTITIONS)
}

fn number<'de, D: Deserializer<'de>>(deserializer: D, most: u32) -> Result<u32, D::Error> {
    let number = match deserializer.deserialize_any(Scalar("a whole number"))? {
        Read::Number(number) => number,
        Read::Text(text) => text.parse().map_err(|_| D::Error::custom(format!("found \"{text}\"; expected a whole number")))?,
    };
    let allowed = u32::try_from(number).ok().filter(|number| (1..=most).contains(number));
    allowed.ok_or_else(|| D::Error::custom(format!("found {number}; expected 1 to {most}")))
}

pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(_) => Ok(text),
        None => Err(D::Error::custom(format!("found the address \"{text}\"; expected host:port, such as \"127.0.0.1:8080\""))),
    }
}

pub(super) fn optional_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    address(serde::de::value::StringDeserializer::new(text)).map(Some)
}

pub(super) fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

pub(super) fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok((!text.is_empty()).then_some(text))
}

pub(super) fn optional_secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok((!text.trim().is_empty()).then(|| Secret::new(&text)))
}

/// Reads properties as one flat table: TOML parses `sasl.password = ".."` as nested tables.
pub(super) fn properties<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut flat = BTreeMap::new();
    Properties::deserialize(deserializer)?.flatten("", &mut flat);
    Ok(flat)
}

struct Share;

impl Visitor<'_> for Share {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a share such as 0.1")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        text.parse().map_err(|_| E::custom(format!("found \"{text}\"; expected a share such as 0.1")))
    }
}

/// A text or a whole number; the field describes what was expected.
struct Scalar(&'static str);

enum Read {
    Text(String),
    Number(i64),
}

impl Visitor<'_> for Scalar {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Read, E> {
        Ok(Read::Text(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Read, E> {
        Ok(Read::Number(number))
    }
}

enum Properties {
    Value(String),
    Table(BTreeMap<String, Properties>),
}

impl Properties {
    fn flatten(self, prefix: &str, flat: &mut BTreeMap<String, String>) {
        match self {
            Properties::Value(value) => {
                flat.insert(prefix.to_owned(), value);
            }
            Properties::Table(table) => {
                for (key, inner) in table {
                    let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                    inner.flatten(&key, flat);
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PropertiesVisitor)
    }
}

struct PropertiesVisitor;

impl<'de> Visitor<'de> for PropertiesVisitor {
    type Value = Properties;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("librdkafka settings: text, numbers or booleans")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Properties, E> {
        Ok(Properties::Value(value.to_owned()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Properties, E> {
        Ok(Properties::Value(value.to_string()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Properties, E> {
        Ok(Properties::Value(value.to_string()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties, A::Error> {
        let mut table = BTreeMap::new();
        while let Some((key, value)) = map.next_entry()? {
            table.insert(key, value);
        }
        Ok(Properties::Table(table))
    }
}
