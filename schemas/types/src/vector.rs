//! The vector: the next offset per stream and partition. Committed positions, a run's cut, a pin and an answer's
//! position are all vectors, so a handover is one comparison per partition.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A record's place in its partition; in a vector, the offset of the next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub i64);

impl Offset {
    pub const ZERO: Offset = Offset(0);

    /// Returns the offset after this one.
    pub fn next(self) -> Offset {
        Offset(self.0 + 1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition of one stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionId {
    pub stream: Arc<str>,
    pub partition: i32,
}

impl PartitionId {
    /// Names a partition of a stream.
    pub fn new(stream: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { stream: stream.into(), partition }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.partition)
    }
}

/// A partition in which a vector is before another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    pub partition: PartitionId,
    pub found: Offset,
    pub expected: Offset,
}

/// The next offset per stream and partition. An absent partition is at offset 0.
///
/// Cheap to clone: each answer has one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vector(Arc<Positions>);

#[derive(Clone, Default)]
struct Positions {
    next: BTreeMap<PartitionId, Offset>,
    /// [`Vector::token`], once it was asked for: the answers between two events have the same one.
    token: OnceLock<String>,
}

impl PartialEq for Positions {
    fn eq(&self, other: &Self) -> bool {
        self.next == other.next
    }
}

impl Eq for Positions {}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.next.fmt(f)
    }
}

impl Vector {
    /// Creates the vector in which every partition is at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the next offset of a partition; 0 for one that the vector does not have.
    pub fn get(&self, partition: &PartitionId) -> Offset {
        self.0.next.get(partition).copied().unwrap_or_default()
    }

    /// Whether the partition is present, be it at offset 0.
    pub fn has(&self, partition: &PartitionId) -> bool {
        self.0.next.contains_key(partition)
    }

    /// Sets the next offset of a partition.
    pub fn set(&mut self, partition: PartitionId, next: Offset) {
        let positions = Arc::make_mut(&mut self.0);
        positions.token.take();
        positions.next.insert(partition, next);
    }

    /// Returns all partitions, each with its next offset.
    pub fn iter(&self) -> impl Iterator<Item = (&PartitionId, Offset)> {
        self.0.next.iter().map(|(partition, offset)| (partition, *offset))
    }

    pub fn is_empty(&self) -> bool {
        self.0.next.is_empty()
    }

    /// Returns the part of this vector that concerns `streams`.
    pub fn of_streams(&self, streams: &[Arc<str>]) -> Vector {
        self.iter().filter(|(p, _)| streams.contains(&p.stream)).map(|(p, o)| (p.clone(), o)).collect()
    }

    /// True if no partition of `self` is before `other`'s.
    pub fn covers(&self, other: &Vector) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || other.iter().all(|(partition, offset)| self.get(partition) >= offset)
    }

    /// Returns the first partition in which `self` is before `other`.
    pub fn behind(&self, other: &Vector) -> Option<Behind> {
        let (partition, expected) = other.iter().find(|(partition, offset)| self.get(partition) < *offset)?;
        Some(Behind { partition: partition.clone(), found: self.get(partition), expected })
    }

    /// Returns a short text that identifies this vector, for `meta.cut`.
    pub fn token(&self) -> &str {
        self.0.token.get_or_init(|| URL_SAFE_NO_PAD.encode(self.to_string()))
    }

    /// Parses the output of [`Vector::token`].
    pub fn from_token(token: &str) -> Result<Self> {
        let wrong = || Error::input(format!("\"{token}\" is not a cut: expected the text of a response's meta.cut"));
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
        String::from_utf8(bytes).map_err(|_| wrong())?.parse().map_err(|_: Error| wrong())
    }
}

impl FromIterator<(PartitionId, Offset)> for Vector {
    fn from_iter<I: IntoIterator<Item = (PartitionId, Offset)>>(iter: I) -> Self {
        Self(Arc::new(Positions { next: iter.into_iter().collect(), token: OnceLock::new() }))
    }
}

/// `payments/0:17,payments/1:4`
impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (partition, offset)) in self.iter().enumerate() {
            let PartitionId { stream, partition } = partition;
            f.write_str(if i == 0 { "" } else { "," })?;
            f.write_str(stream)?;
            write!(f, "/{partition}:{}", offset.0)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Vector {
    type Err = Error;

    /// Of a partition that is named several times, as in texts that were joined, the greatest offset counts.
    fn from_str(text: &str) -> Result<Self> {
        let entry = |entry: &str| -> Option<(PartitionId, Offset)> {
            let (partition, offset) = entry.rsplit_once(':')?;
            let (stream, number) = partition.rsplit_once('/')?;
            Some((PartitionId::new(stream, number.parse().ok()?), Offset(offset.parse().ok()?)))
        };
        let mut vector = Vector::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let wrong = || Error::input(format!("\"{part}\" is not a part of a vector: expected stream/partition:offset"));
            let (partition, next) = entry(part).ok_or_else(wrong)?;
            let next = if vector.has(&partition) { next.max(vector.get(&partition)) } else { next };
            vector.set(partition, next);
        }
        Ok(vector)
    }
}

impl Serialize for Vector {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Vector {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
