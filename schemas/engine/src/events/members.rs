//! Picks the members that columns need from a JSON object in one pass, as borrowed raw text. The rest is skipped
//! unread. `quick` reads well-formed objects; serde_json reports what is wrong with the others.

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use definitions::Column;

mod quick;

/// The paths of all columns as a tree, so that a nested object is walked once for all of its columns.
#[derive(Debug)]
pub(super) struct Members {
    root: PathNode,
    columns: usize,
}

/// What was found at a column's path.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathValue<'a> {
    Missing,
    Found(&'a str),
    /// Found, as a string without escapes.
    Plain(&'a str),
    /// The path leads through a value that is not an object.
    NoObject(&'static str),
}

#[derive(Debug, Default)]
struct PathNode {
    /// The columns whose path ends here.
    columns: Vec<usize>,
    /// The columns whose path continues below.
    below: Vec<usize>,
    /// In the order of the columns.
    children: Vec<Child>,
    /// Indices of the children, sorted by name.
    by_name: Vec<usize>,
}

#[derive(Debug)]
struct Child {
    name: Box<str>,
    /// The name in JSON form.
    quoted: Box<[u8]>,
    node: PathNode,
}

impl Members {
    pub(super) fn new(columns: &[Column]) -> Self {
        let mut root = PathNode::default();
        for (index, column) in columns.iter().enumerate() {
            root.insert(&column.path, index);
        }
        Self { root, columns: columns.len() }
    }

    /// Returns the raw values at the columns' paths, in the order of the columns. Of members with the same name the
    /// last one wins.
    pub(super) fn find<'a>(&self, object: &'a str) -> Result<Vec<PathValue<'a>>, serde_json::Error> {
        let mut slots = vec![PathValue::Missing; self.columns];
        if quick::find(&self.root, object, &mut slots).is_none() {
            self.root.walk(object, &mut slots)?;
        }
        Ok(slots)
    }
}

impl PathNode {
    fn insert(&mut self, path: &[String], column: usize) {
        let Some((name, rest)) = path.split_first() else {
            self.columns.push(column);
            return;
        };
        self.below.push(column);
        let at = match self.by_name.binary_search_by(|at| (*self.children[*at].name).cmp(name)) {
            Ok(found) => self.by_name[found],
            Err(place) => {
                self.by_name.insert(place, self.children.len());
                let quoted = serde_json::Value::from(name.as_str()).to_string().into_bytes().into();
                self.children.push(Child { name: name.as_str().into(), quoted, node: PathNode::default() });
                self.children.len() - 1
            }
        };
        self.children[at].node.insert(rest, column);
    }

    fn walk<'a>(&self, json: &'a str, slots: &mut [PathValue<'a>]) -> Result<(), serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        PathWalk { node: self, slots }.deserialize(&mut deserializer)?;
        deserializer.end()
    }

    /// Returns the child with that name. `expected` is the index to try first: the one after the previous child, since
    /// records usually name members in the same order.
    fn child(&self, name: &str, expected: &mut usize) -> Option<&PathNode> {
        let at = match self.children.get(*expected) {
            Some(child) if *child.name == *name => *expected,
            _ => self.by_name[self.by_name.binary_search_by(|at| (*self.children[*at].name).cmp(name)).ok()?],
        };
        *expected = at + 1;
        Some(&self.children[at].node)
    }
}

/// Walks one value whose node has children. The value is expected to be an object.
struct PathWalk<'n, 's, 'a> {
    node: &'n PathNode,
    slots: &'s mut [PathValue<'a>],
}

impl<'a> PathWalk<'_, '_, 'a> {
    fn set(self, slot: PathValue<'a>) {
        for column in &self.node.below {
            self.slots[*column] = slot;
        }
    }

    fn member<M: MapAccess<'a>>(&mut self, child: &PathNode, map: &mut M) -> Result<(), M::Error> {
        if child.columns.is_empty() {
            return map.next_value_seed(PathWalk { node: child, slots: self.slots });
        }
        let raw: &'a RawValue = map.next_value()?;
        for column in &child.columns {
            self.slots[*column] = PathValue::Found(raw.get());
        }
        if child.children.is_empty() { Ok(()) } else { child.walk(raw.get(), self.slots).map_err(M::Error::custom) }
    }
}

impl<'a> DeserializeSeed<'a> for PathWalk<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for PathWalk<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<M: MapAccess<'a>>(mut self, mut map: M) -> Result<(), M::Error> {
        // An earlier member of the same name may have set these.
        for column in &self.node.below {
            self.slots[*column] = PathValue::Missing;
        }
        let mut expected = 0;
        while let Some(child) = map.next_key_seed(Name { of: self.node, expected: &mut expected })? {
            match child {
                Some(child) => self.member(child, &mut map)?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut seq: S) -> Result<(), S::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        self.set(PathValue::NoObject("an array"));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.set(PathValue::Missing);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.set(PathValue::NoObject("a boolean"));
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.set(PathValue::NoObject("a number"));
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.set(PathValue::NoObject("a number"));
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.set(PathValue::NoObject("a number"));
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.set(PathValue::NoObject("a text"));
        Ok(())
    }
}

/// A member's name, looked up without a copy unless it has escapes.
struct Name<'n, 'e> {
    of: &'n PathNode,
    expected: &'e mut usize,
}

impl<'n, 'a> DeserializeSeed<'a> for Name<'n, '_> {
    type Value = Option<&'n PathNode>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'n> Visitor<'_> for Name<'n, '_> {
    type Value = Option<&'n PathNode>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.of.child(name, self.expected))
    }
}
