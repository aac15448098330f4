//! The fast path for well-formed records: what it accepts and finds equals what serde_json would. It leaves everything
//! else (an error, a name with escapes, a path through a value that is not an object, deep nesting) to serde_json,
//! which reports errors.

use super::{PathNode, PathValue};

mod reader;

use reader::JsonReader;

/// Values that are nested deeper are left to serde_json.
const MAX_DEPTH: usize = 32;

/// Sets the slots from the text of one object. `None`: left to serde_json, with some slots set.
pub(super) fn find<'a>(root: &PathNode, text: &'a str, slots: &mut [PathValue<'a>]) -> Option<()> {
    let mut reader = JsonReader::new(text);
    reader.space();
    reader.take(b'{')?;
    reader.object(Some(root), slots, MAX_DEPTH)?;
    reader.space();
    (reader.at == text.len()).then_some(())
}

impl<'a> JsonReader<'a> {
    /// Reads an object from after its brace. `node` holds the members to look for.
    fn object(&mut self, node: Option<&PathNode>, slots: &mut [PathValue<'a>], depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        // An earlier member of the same name may have set these.
        set_missing(node, slots);
        let mut expected = 0;
        self.space();
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let child = self.name(node, &mut expected)?;
            self.space();
            self.take(b':')?;
            self.space();
            self.member(child, slots, depth)?;
            self.space();
            match self.next()? {
                b',' => self.space(),
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Returns the node of a member's name, which usually is the one after the previous member's.
    fn name<'n>(&mut self, node: Option<&'n PathNode>, expected: &mut usize) -> Option<Option<&'n PathNode>> {
        if let Some(child) = node.and_then(|node| node.children.get(*expected))
            && self.bytes[self.at..].starts_with(&child.quoted)
        {
            self.at += child.quoted.len();
            *expected += 1;
            return Some(Some(&child.node));
        }
        self.take(b'"')?;
        let begin = self.at;
        let escapes = self.string()?;
        let name = self.text.get(begin..self.at - 1)?;
        (!escapes).then(|| node.and_then(|node| node.child(name, expected)))
    }

    fn member(&mut self, child: Option<&PathNode>, slots: &mut [PathValue<'a>], depth: usize) -> Option<()> {
        let begin = self.at;
        let Some(child) = child else { return self.value(None, slots, depth).map(drop) };
        let inside = (!child.children.is_empty()).then_some(child);
        let is_plain = self.value(inside, slots, depth)?;
        let json = self.text.get(begin..self.at)?;
        for column in &child.columns {
            slots[*column] = if is_plain { PathValue::Plain(json) } else { PathValue::Found(json) };
        }
        Some(())
    }

    /// Reads any value. With `inside` it must be an object (or null) whose members are looked up. Returns whether it is
    /// a string without escapes.
    fn value(&mut self, inside: Option<&PathNode>, slots: &mut [PathValue<'a>], depth: usize) -> Option<bool> {
        match self.next()? {
            b'{' => self.object(inside, slots, depth)?,
            b'n' => {
                self.rest(b"ull")?;
                set_missing(inside, slots);
            }
            _ if inside.is_some() => return None,
            b'"' => return self.string().map(|escapes| !escapes),
            b'[' => self.array(slots, depth)?,
            b't' => self.rest(b"rue")?,
            b'f' => self.rest(b"alse")?,
            b'-' => {
                let first = self.next()?;
                self.number(first)?;
            }
            first => self.number(first)?,
        }
        Some(false)
    }

    fn array(&mut self, slots: &mut [PathValue<'a>], depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.space();
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.value(None, slots, depth)?;
            self.space();
            match self.next()? {
                b',' => self.space(),
                b']' => return Some(()),
                _ => return None,
            }
        }
    }
}

fn set_missing(node: Option<&PathNode>, slots: &mut [PathValue<'_>]) {
    for column in node.iter().flat_map(|node| &node.below) {
        slots[*column] = PathValue::Missing;
    }
}

#[cfg(test)]
mod tests;
